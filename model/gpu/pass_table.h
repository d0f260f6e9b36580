// What a pass tells the device of its rows: one block of memory on either side.
//
// Called by gpu/decoder and what it is made of.
#pragma once

#include "model/gpu/kernels.h"
#include "model/pass_layout.h"

#include <cstdint>

namespace entrodraft::model::gpu {

struct PassTable {
    std::int32_t tokens[kMaxRows], slots[kMaxRows], positions[kMaxRows], places[kMaxRows], n_keys[kMaxRows],
        first_keys[kMaxRows], window_ends[kMaxRows], prefix_slots[kMaxRows], prefix_lengths[kMaxRows],
        mask_begins[kMaxRows];         // see RowTable
    std::int32_t logit_rows[kMaxRows]; // which rows need logits
    std::uint64_t masks[kMaxRows][kMaskWords];
    DeviceNoise noises[kMaxRows]; // of logit rows

    // The pass's rows, and padding up to `padded`: it belongs to no slot, and its logit rows are row 0's. Of what is
    // not asked for nothing is written. On the host.
    void fill(const PassLayout& layout, const KvCache& cache, int padded);
    // Of one that lies on the device.
    RowTable table(int rows) const {
        return {tokens,      slots,        positions,      places,      n_keys,   first_keys,
                window_ends, prefix_slots, prefix_lengths, mask_begins, masks[0], rows};
    }

  private:
    void fill_row(const PassLayout& layout, const KvCache& cache, int r);
    void fill_needs(const Pass& pass);
};

} // namespace entrodraft::model::gpu
