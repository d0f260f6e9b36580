// Describes a pass's rows to the device: one block of memory on the host and one on the device.
//
// Called by gpu/decoder and its parts.
#pragma once

#include "model/gpu/kernels.h"
#include "model/pass/pass_layout.h"

#include <cstdint>
#include <span>

namespace entrodraft::model::gpu {

struct SlotBooks {
    const KvCache& texts;
    const KvCache* sources = nullptr; // for a model with an encoder
};

// The columns of RowTable except masks, for up to kRows rows.
template <int kRows> struct RowColumns {
    std::int32_t tokens[kRows], slots[kRows], positions[kRows], places[kRows], n_keys[kRows], prefix_slots[kRows],
        prefix_lengths[kRows], mask_begins[kRows], source_slots[kRows], source_lengths[kRows];

    // Fills in the pass's rows, and padding up to `padded` without a slot. On the host.
    void fill(const PassLayout& layout, const SlotBooks& books, int padded);
    // For an encoder: fills in tokens from number `first` on of a source of `length`, all of which they see, and
    // padding. On the host.
    void fill_source(std::span<const TokenId> chunk, int first, int length, int source_slot, int padded);
    // For columns that lie on the device.
    RowTable table(int rows, const std::uint64_t* masks, int mask_words) const {
        return {tokens,      slots, positions,    places,         n_keys, prefix_slots, prefix_lengths,
                mask_begins, masks, source_slots, source_lengths, rows,   mask_words};
    }

  private:
    void fill_row(const PassLayout& layout, const SlotBooks& books, int r);
    void pad(int rows, int padded);
};

// The table of a prompt's chunk.
using PromptTable = RowColumns<kMaxPromptRows>;

struct PassTable : RowColumns<kMaxRows> {
    std::int32_t logit_rows[kMaxRows];         // rows that need logits
    std::uint64_t masks[kMaxRows][kMaskWords]; // for trees that need no more words
    DeviceNoise noises[kMaxRows];              // for logit rows

    // Padding's logit rows are row 0. Data that is not needed is not written. On the host.
    void fill(const PassLayout& layout, const SlotBooks& books, int padded);

  private:
    void fill_needs(const Pass& pass);
};

} // namespace entrodraft::model::gpu
