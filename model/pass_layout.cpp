#include "model/pass_layout.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace entrodraft::model {

void PassLayout::set(const Pass& next, const ModelConfig& config, const KvCache& cache) {
    pass = next;
    if (pass.rows.empty() || rows() > kMaxRows)
        throw std::invalid_argument("a pass takes 1 to " + std::to_string(kMaxRows) + " rows, not " +
                                    std::to_string(rows()));
    segments.clear();
    segment_of.clear();
    tokens.clear();
    last_position = 0;
    for (int r = 0; r < rows(); ++r)
        add_row(r, config, cache);
    for (const Segment& segment : segments)
        if (segment.cached + segment.end - segment.begin > cache.shape().capacity)
            throw std::invalid_argument("the cache holds " + std::to_string(cache.shape().capacity) + " positions");
    check_wishes(config);
    bundle_segments(cache);
    if (pass.mask == Mask::by_parent) trace_ancestors();
}

void PassLayout::add_row(int index, const ModelConfig& config, const KvCache& cache) {
    const Row& row = pass.rows[static_cast<std::size_t>(index)];
    if (row.token < 0 || row.token >= config.vocab_size)
        throw std::invalid_argument("token id " + std::to_string(row.token) + " is outside the vocabulary of " +
                                    std::to_string(config.vocab_size));
    if (row.slot < 0 || row.slot >= cache.shape().n_slots)
        throw std::invalid_argument("no cache slot " + std::to_string(row.slot));
    if (row.position < 0 || row.position >= config.max_positions)
        throw std::invalid_argument("position " + std::to_string(row.position) + " is outside the context of " +
                                    std::to_string(config.max_positions));
    if (row.parent >= index || (row.parent >= 0 && pass.rows[static_cast<std::size_t>(row.parent)].slot != row.slot))
        throw std::invalid_argument("a row's parent must be before it in the same sequence");
    if (segments.empty() || segments.back().slot != row.slot) {
        if (std::any_of(segments.begin(), segments.end(), [&](const Segment& s) { return s.slot == row.slot; }))
            throw std::invalid_argument("rows of slot " + std::to_string(row.slot) + " are not contiguous");
        segments.push_back({row.slot, index, index, cache.length(row.slot)});
    }
    segments.back().end = index + 1;
    segment_of.push_back(static_cast<int>(segments.size()) - 1);
    last_position = std::max(last_position, row.position);
    tokens.push_back(row.token);
}

namespace {

// What a segment's slot begins with: another slot's blocks, or its own where other segments of the pass read them.
KvCache::Prefix beginning_of(const Segment& segment, const std::vector<Segment>& segments, const KvCache& cache) {
    const KvCache::Prefix prefix = cache.prefix(segment.slot);
    if (prefix.length > 0) return prefix;
    for (const Segment& other : segments)
        if (cache.prefix(other.slot).slot == segment.slot && other.slot != segment.slot)
            return cache.prefix(other.slot);
    return prefix;
}

bool same(const KvCache::Prefix& a, const KvCache::Prefix& b) {
    return a.slot == b.slot && a.length == b.length;
}

} // namespace

void PassLayout::bundle_segments(const KvCache& cache) {
    bundles.clear();
    bundled.clear();
    beginnings.clear();
    for (const Segment& segment : segments)
        beginnings.push_back(beginning_of(segment, segments, cache));
    for (std::size_t i = 0; i < segments.size(); ++i) {
        const auto is_bundled = [&](const Bundle& bundle) { return same(bundle.prefix, beginnings[i]); };
        if (std::any_of(bundles.begin(), bundles.end(), is_bundled)) continue;
        const int begin = static_cast<int>(bundled.size());
        for (std::size_t member = i; member < segments.size(); ++member)
            for (int r = segments[member].begin; r < segments[member].end && same(beginnings[member], beginnings[i]);
                 ++r)
                bundled.push_back(r);
        bundles.push_back({beginnings[i], begin, static_cast<int>(bundled.size())});
    }
}

void PassLayout::check_wishes(const ModelConfig& config) const {
    if (pass.mask == Mask::window && pass.window < 1)
        throw std::invalid_argument("a window holds at least the row itself, not " + std::to_string(pass.window) +
                                    " positions");
    if (pass.mask == Mask::by_parent && config.positions == Positions::alibi)
        throw std::invalid_argument("token trees need positions of their own, which ALiBi has not");
    for (const int window : config.windows)
        if (pass.mask == Mask::by_parent && window > 0 && window < kMaxRows)
            throw std::invalid_argument("token trees need a sliding window of at least " + std::to_string(kMaxRows));
    if (pass.logit_rows.size() > pass.rows.size())
        throw std::invalid_argument("more rows need logits than the pass has");
    for (const int row : pass.logit_rows)
        if (row < 0 || row >= rows())
            throw std::invalid_argument("row " + std::to_string(row) + " needs logits; the pass has " +
                                        std::to_string(rows()) + " rows");
    for (const int layer : pass.hidden_layers)
        if (layer < 0 || layer > config.n_layers)
            throw std::invalid_argument("no hidden states after layer " + std::to_string(layer) + " of " +
                                        std::to_string(config.n_layers));
}

void PassLayout::trace_ancestors() {
    ancestors.assign(pass.rows.size() * kAncestorWords, 0);
    for (const Segment& segment : segments) {
        for (int r = segment.begin; r < segment.end; ++r) {
            std::uint64_t* mine = &ancestors[static_cast<std::size_t>(r) * kAncestorWords];
            const int parent = pass.rows[static_cast<std::size_t>(r)].parent;
            if (parent >= 0)
                std::copy_n(&ancestors[static_cast<std::size_t>(parent) * kAncestorWords], kAncestorWords, mine);
            const int bit = r - segment.begin;
            mine[bit / 64] |= std::uint64_t{1} << (bit % 64);
        }
    }
}

} // namespace entrodraft::model
