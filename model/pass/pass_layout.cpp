#include "model/pass/pass_layout.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <stdexcept>
#include <utility>

namespace entrodraft::model {

namespace {

// Throws std::invalid_argument with the message unless `holds`.
template <typename... Values> void require(bool holds, fmt::format_string<Values...> message, Values&&... values) {
    if (!holds) throw std::invalid_argument(fmt::format(message, std::forward<Values>(values)...));
}

} // namespace

void PassLayout::set(const Pass& next, const ModelConfig& config, const KvCache& cache, int max_prompt_rows) {
    pass = next;
    const int most = pass.is_prompt ? max_prompt_rows : max_rows;
    require(!pass.rows.empty() && rows() <= most, "a pass takes 1 to {} rows, not {}", most, rows());
    segments.clear();
    segment_of.clear();
    tokens.clear();
    last_position = 0;
    for (int r = 0; r < rows(); ++r)
        add_row(r, config, cache);
    for (const Segment& segment : segments)
        require(segment.cached + segment.end - segment.begin <= cache.shape().capacity, "the cache holds {} positions",
                cache.shape().capacity);
    add_cached_nodes();
    check_wishes(config);
    bundle_segments(cache);
    if (pass.mask == Mask::by_parent) trace_ancestors();
}

void PassLayout::set_source(std::span<const Row> chunk) {
    pass = {.rows = chunk, .mask = Mask::causal};
    pass.block_rows = rows();
    const int n = rows(), begin = chunk.front().position;
    segments = {{0, 0, n, begin, begin}};
    segment_of.assign(chunk.size(), 0);
    beginnings = {{0, 0}};
    bundles = {{{0, 0}, 0, n}};
    for (int r = 0; r < n; ++r) {
        bundled.push_back(r);
        tokens.push_back(chunk[index(r)].token);
    }
    last_position = chunk.back().position;
}

int PassLayout::place_of(int row) const {
    const Segment& segment = segments[index(segment_of[index(row)])];
    if (pass.mask != Mask::by_parent) return segment.cached + row - segment.begin;
    int in_tree = 0; // itself included
    for (const std::uint64_t word : std::span(ancestors_of(row), ancestor_words))
        in_tree += std::popcount(word);
    return segment.tree_begin + in_tree - 1;
}

void PassLayout::add_row(int r, const ModelConfig& config, const KvCache& cache) {
    const Row& row = pass.rows[index(r)];
    require(row.token >= 0 && row.token < config.vocab_size, "token id {} is outside the vocabulary of {}", row.token,
            config.vocab_size);
    require(row.slot >= 0 && row.slot < cache.shape().n_slots, "no cache slot {}", row.slot);
    require(row.position >= 0 && row.position < config.max_positions, "position {} is outside the context of {}",
            row.position, config.max_positions);
    const int n_cached_nodes = static_cast<int>(pass.cached_nodes.size()), parent = row.parent - n_cached_nodes;
    require(parent < r &&
                (row.parent < 0 ||
                 (parent < 0 ? pass.cached_nodes[index(row.parent)] : pass.rows[index(parent)]).slot == row.slot),
            "a row's parent must be before it in the same sequence");
    if (segments.empty() || segments.back().slot != row.slot) {
        const auto is_own = [&](const Segment& s) { return s.slot == row.slot; };
        require(std::none_of(segments.begin(), segments.end(), is_own), "rows of slot {} are not contiguous", row.slot);
        segments.push_back({row.slot, r, r, cache.length(row.slot), cache.length(row.slot)});
    }
    segments.back().end = r + 1;
    segment_of.push_back(static_cast<int>(segments.size()) - 1);
    last_position = std::max(last_position, row.position);
    tokens.push_back(row.token);
}

namespace {

// The beginning of a segment's slot: another slot's blocks, or its own where other segments of the pass read them.
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
    require(pass.block_rows > 0, "blocks of {} rows", pass.block_rows);
    require(!pass.is_prompt ||
                (pass.mask == Mask::causal && pass.block_rows == 1 && segments.size() == 1 && pass.logit_rows.empty()),
            "a prompt's chunk is of one sequence, causal, and has no logits");
    for (const Retrieval& of : pass.retrievals)
        require(retrieves && pass.mask == Mask::causal &&
                    std::ranges::find(segments, of.slot, &Segment::slot) != segments.end(),
                "chunks are retrieved for causal rows, where the cache keeps them");
    for (const int window : config.windows)
        require(pass.block_rows == 1 || window == 0, "rows that see their whole block need all positions");
    require(pass.block_rows == 1 || config.n_linear_layers() == 0,
            "linear attention has no rows that see their whole block");
    const bool is_context = config.fusion.kind == Fusion::context && !pass.features.empty();
    const bool has_features = config.is_draft_head() && (config.fusion.kind != Fusion::context || is_context);
    const int width = pass.features_are_own ? config.hidden_size : config.fusion.width();
    require(pass.features.size() == (has_features ? pass.rows.size() * index(width) : 0),
            "a pass of {} rows has {} numbers of features", rows(), pass.features.size());
    require(!is_context || (pass.logit_rows.empty() && pass.hidden_layers.empty()),
            "rows of a context have no logits and hidden states");
    require(pass.logit_rows.size() <= pass.rows.size(), "more rows need logits than the pass has");
    for (const int row : pass.logit_rows)
        require(row >= 0 && row < rows(), "row {} needs logits; the pass has {} rows", row, rows());
    const int first_layer = config.fusion.kind == Fusion::features ? 1 : 0; // it has no embedding
    for (const int layer : pass.hidden_layers)
        require(layer >= first_layer && layer <= config.n_layers + (config.is_draft_head() ? 1 : 0),
                "no hidden states after layer {} of {}", layer, config.n_layers);
}

void PassLayout::add_cached_nodes() {
    require(pass.cached_nodes.empty() || pass.mask == Mask::by_parent, "only the pass of a tree has cached nodes");
    for (const Row& node : pass.cached_nodes) {
        const auto segment = std::ranges::find(segments, node.slot, &Segment::slot);
        require(segment != segments.end() && segment->tree_begin > 0, "a cached node is of no sequence of the pass");
        --segment->tree_begin;
    }
    int most = 0;
    for (const Segment& segment : segments)
        most = std::max(most, segment.cached - segment.tree_begin + segment.end - segment.begin);
    ancestor_words = std::max(kAncestorWords, (index(most) + 63) / 64);
}

// Sets the bits of each node's ancestors and its own, cached nodes first. Rows of a block get those of its last row.
void PassLayout::trace_ancestors() {
    const std::size_t n_cached = pass.cached_nodes.size();
    ancestors.assign((n_cached + pass.rows.size()) * ancestor_words, 0);
    for (const Segment& segment : segments) {
        int bit = 0;
        const auto trace = [&](std::size_t node, const Row& row) {
            std::uint64_t* mine = &ancestors[node * ancestor_words];
            if (row.parent >= 0) std::copy_n(&ancestors[index(row.parent) * ancestor_words], ancestor_words, mine);
            mine[bit / 64] |= std::uint64_t{1} << (bit % 64);
            ++bit;
        };
        for (std::size_t node = 0; node < n_cached; ++node)
            if (pass.cached_nodes[node].slot == segment.slot) trace(node, pass.cached_nodes[node]);
        for (int r = segment.begin; r < segment.end; ++r)
            trace(n_cached + index(r), pass.rows[index(r)]);
        for (int r = segment.begin; pass.block_rows > 1 && r < segment.end; ++r)
            std::copy_n(&ancestors[(n_cached + index(seen_end(r)) - 1) * ancestor_words], ancestor_words,
                        &ancestors[(n_cached + index(r)) * ancestor_words]);
    }
    ancestors.erase(ancestors.begin(), ancestors.begin() + static_cast<std::ptrdiff_t>(n_cached * ancestor_words));
}

} // namespace entrodraft::model
