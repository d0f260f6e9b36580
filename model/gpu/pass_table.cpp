#include "model/gpu/pass_table.h"

#include <algorithm>
#include <bit>

namespace entrodraft::model::gpu {

template <int kRows> void RowColumns<kRows>::fill(const PassLayout& layout, const SlotBooks& books, int padded) {
    for (int r = 0; r < layout.rows(); ++r)
        fill_row(layout, books, r);
    pad(layout.rows(), padded);
}

template <int kRows>
void RowColumns<kRows>::fill_source(std::span<const TokenId> chunk, int first, int length, int source_slot,
                                    int padded) {
    const int rows = static_cast<int>(chunk.size());
    for (int r = 0; r < rows; ++r) {
        tokens[r] = chunk[index(r)];
        slots[r] = prefix_slots[r] = prefix_lengths[r] = 0;
        positions[r] = places[r] = first + r;
        n_keys[r] = source_lengths[r] = length;
        mask_begins[r] = -1;
        source_slots[r] = source_slot;
    }
    pad(rows, padded);
}

template <int kRows> void RowColumns<kRows>::pad(int rows, int padded) {
    for (int r = rows; r < padded; ++r) {
        for (auto* column : {tokens, positions, places, n_keys, prefix_slots, prefix_lengths, source_lengths})
            column[r] = 0;
        slots[r] = mask_begins[r] = source_slots[r] = -1;
    }
}

template <int kRows> void RowColumns<kRows>::fill_row(const PassLayout& layout, const SlotBooks& books, int r) {
    const Pass& pass = layout.pass;
    const Row& row = pass.rows[index(r)];
    const Segment& segment = layout.segments[index(layout.segment_of[index(r)])];
    const KvCache::Prefix prefix = books.texts.prefix(row.slot);
    const bool is_tree = pass.mask == Mask::by_parent;
    tokens[r] = row.token;
    slots[r] = row.slot;
    positions[r] = row.position;
    places[r] = segment.cached + r - segment.begin;
    n_keys[r] = segment.cached + layout.seen_end(r) - segment.begin;
    if (is_tree) {
        n_keys[r] = segment.tree_begin;
        for (std::size_t word = 0; word < layout.ancestor_words; ++word)
            n_keys[r] += std::popcount(layout.ancestors_of(r)[word]);
    }
    prefix_slots[r] = prefix.slot;
    prefix_lengths[r] = prefix.length;
    mask_begins[r] = is_tree ? segment.tree_begin : -1;
    source_slots[r] = books.sources ? books.texts.source(row.slot) : -1;
    source_lengths[r] = books.sources ? books.sources->length(source_slots[r]) : 0;
}

template struct RowColumns<kMaxRows>;
template struct RowColumns<kMaxPromptRows>;

void PassTable::fill(const PassLayout& layout, const SlotBooks& books, int padded) {
    RowColumns::fill(layout, books, padded);
    if (layout.pass.mask == Mask::by_parent && layout.ancestor_words == kMaskWords)
        std::copy_n(layout.ancestors.data(), index(layout.rows()) * kMaskWords, masks[0]);
    fill_needs(layout.pass);
}

void PassTable::fill_needs(const Pass& pass) {
    const LogitNeeds& needs = pass.needs;
    const std::size_t n = pass.logit_rows.size(), padded = n > 0 ? std::bit_ceil(n) : 0;
    for (std::size_t i = 0; i < padded; ++i)
        logit_rows[i] = i < n ? pass.logit_rows[i] : 0;
    for (std::size_t i = 0; i < padded && !needs.noises.empty(); ++i) {
        const RowNoise noise = i < needs.noises.size() ? needs.noises[i] : RowNoise{};
        noises[i] = {{noise.key[0], noise.key[1]}, noise.position, noise.temperature};
    }
}

} // namespace entrodraft::model::gpu
