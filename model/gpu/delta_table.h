// What a pass tells the device of the states of linear attention: which segments its rows are, how states get to where
// these begin, and in which order the rows of trees change them. One block of memory on either side, as PassTable.
// Called by gpu/decoder.
#pragma once

#include "model/gpu/delta_net.h"
#include "model/gpu/memory.h"
#include "model/pass/delta_plan.h"

#include <vector>

namespace entrodraft::model::gpu {

class DeltaTables {
  public:
    // Of passes over up to so many slots.
    explicit DeltaTables(int n_slots);

    // Plans a pass, after which the books of `states` say that it was made. Returns whether memory was taken for that
    // which graphs do not know yet. Throws std::invalid_argument, as delta_plan() does, dist::Error.
    bool fill(const PassLayout& layout, RecurrentStates& states);
    int n_steps() const { return static_cast<int>(steps_.size()); } // of trees, of the pass that is planned
    int n_saved() const { return n_saved_; }                        // states that they save

    // To the device: segments, and room for so many steps.
    void copy_in(const Stream& stream, int n_steps) const;
    // There, of passes of so many rows.
    DeltaTable table(int rows) const;

  private:
    void add_steps(const DeltaPlan& plan);
    DeltaSegment* host_segments() const { return reinterpret_cast<DeltaSegment*>(host_.data() + kHeadBytes); }
    std::size_t bytes(int n_steps) const;

    static constexpr std::size_t kHeadBytes = 16; // of which the first int32 says how many segments there are
    int max_segments_;
    std::vector<DeltaTreeStep> steps_;
    int n_saved_ = 0;
    PinnedArray<std::byte> host_; // head, segments, steps
    DeviceArray<std::byte> device_;
};

} // namespace entrodraft::model::gpu
