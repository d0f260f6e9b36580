// Describes to the device how a pass uses the states of linear attention: the segments of its rows, how the states at
// the segments' beginnings are made, and in which order the rows of trees change states. It is one block of memory on
// host and device, like PassTable. Called by gpu/decoder.
#pragma once

#include "model/gpu/delta_net.h"
#include "model/gpu/memory.h"
#include "model/pass/delta_plan.h"

#include <vector>

namespace entrodraft::model::gpu {

class DeltaTables {
  public:
    // For passes over up to n_slots slots.
    explicit DeltaTables(int n_slots);

    // Plans a pass and updates the books of `states` as if it were made. Returns whether it took memory that graphs do
    // not know yet. Throws std::invalid_argument, as delta_plan() does, dist::Error.
    bool fill(const PassLayout& layout, RecurrentStates& states);
    int n_steps() const { return static_cast<int>(steps_.size()); } // tree steps of the planned pass
    int n_saved() const { return n_saved_; }                        // states that those steps save

    // Copies to the device: segments, and room for n_steps steps.
    void copy_in(const Stream& stream, int n_steps) const;
    // Returns the table in device memory, for passes of that many rows.
    DeltaTable table(int rows) const;

  private:
    void add_steps(const DeltaPlan& plan);
    DeltaSegment* host_segments() const { return reinterpret_cast<DeltaSegment*>(host_.data() + kHeadBytes); }
    std::size_t bytes(int n_steps) const;

    static constexpr std::size_t kHeadBytes = 16; // the first int32 is the number of segments
    int max_segments_;
    std::vector<DeltaTreeStep> steps_;
    int n_saved_ = 0;
    PinnedArray<std::byte> host_; // head, segments, steps
    DeviceArray<std::byte> device_;
};

} // namespace entrodraft::model::gpu
