#include "model/gpu/pass_table.h"

#include <algorithm>
#include <bit>

namespace entrodraft::model::gpu {

void PassTable::fill(const PassLayout& layout, const KvCache& cache, int padded) {
    for (int r = 0; r < layout.rows(); ++r)
        fill_row(layout, cache, r);
    for (int r = layout.rows(); r < padded; ++r) {
        for (auto* column : {tokens, positions, places, n_keys, first_keys, window_ends, prefix_slots, prefix_lengths})
            column[r] = 0;
        slots[r] = mask_begins[r] = -1;
    }
    fill_needs(layout.pass);
}

void PassTable::fill_row(const PassLayout& layout, const KvCache& cache, int r) {
    const Pass& pass = layout.pass;
    const Row& row = pass.rows[index(r)];
    const Segment& segment = layout.segments[index(layout.segment_of[index(r)])];
    const int length = segment.end - segment.begin;
    const KvCache::Prefix prefix = cache.prefix(row.slot);
    const bool is_tree = pass.mask == Mask::by_parent;
    tokens[r] = row.token;
    slots[r] = row.slot;
    positions[r] = row.position;
    places[r] = segment.cached + r - segment.begin;
    n_keys[r] = pass.mask == Mask::full ? segment.cached + length : places[r] + 1;
    // In a tree, the cached keys within reach; the tree itself is narrower than any window.
    window_ends[r] = is_tree ? row.position + 1 : n_keys[r];
    first_keys[r] = pass.mask == Mask::window ? std::max(0, window_ends[r] - pass.window) : 0;
    prefix_slots[r] = prefix.slot;
    prefix_lengths[r] = prefix.length;
    mask_begins[r] = is_tree ? segment.cached : -1;
    if (is_tree) std::copy_n(&layout.ancestors[index(r) * PassLayout::kAncestorWords], kMaskWords, masks[r]);
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
