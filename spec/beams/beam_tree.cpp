// The assignment of a cache's rows to beams: see beam_tree.h.
#include "spec/beams/beam_tree.h"

#include <algorithm>
#include <numeric>

namespace entrodraft::spec {

int tree_positions(int num_beams, int max_positions) {
    constexpr std::int64_t kMost = (std::int64_t{1} << 30) - 1; // more than any memory holds
    const std::int64_t wanted = (num_beams - std::int64_t{1}) * max_positions + model::Decoder::kMaxRows;
    return static_cast<int>(std::min(wanted, kMost));
}

std::vector<int> BeamTree::begin_pass(std::vector<int> ends, int n_rows, model::Decoder* cache) {
    const std::vector<int> nodes = needed(ends);
    const int n_others = n_nodes() - static_cast<int>(nodes.size());
    if (n_others > static_cast<int>(nodes.size()) || base_ + n_nodes() + n_rows > capacity_)
        remove_others(nodes, ends, cache);
    take_trunk(ends);
    first_of_pass_ = n_nodes();
    return ends;
}

std::vector<int> BeamTree::needed(std::span<const int> ends) const {
    std::vector<bool> is_needed(nodes_.size(), false);
    for (int node : ends)
        for (; node >= 0 && !is_needed[node]; node = at(node).parent)
            is_needed[node] = true;
    std::vector<int> nodes;
    for (int node = 0; node < n_nodes(); ++node)
        if (is_needed[node]) nodes.push_back(node);
    return nodes;
}

void BeamTree::remove_others(std::span<const int> nodes, std::vector<int>& ends, model::Decoder* cache) {
    if (static_cast<int>(nodes.size()) == n_nodes()) return;
    if (cache) cache->keep(slot_, base_, nodes);
    std::vector<int> name(nodes_.size(), kText);
    std::vector<Node> kept;
    for (const int node : nodes) {
        name[node] = static_cast<int>(kept.size());
        kept.push_back(at(node));
        if (kept.back().parent >= 0) kept.back().parent = name[kept.back().parent];
    }
    nodes_ = std::move(kept);
    for (int& end : ends)
        if (end >= 0) end = name[end];
}

// Turns the tree's first nodes into text as far as they are a chain that all other nodes and ends follow.
void BeamTree::take_trunk(std::vector<int>& ends) {
    int n_in_row = 0;
    while (n_in_row < n_nodes() && at(n_in_row).parent == n_in_row - 1)
        ++n_in_row;
    int n = n_in_row;
    for (int node = n_in_row; node < n_nodes(); ++node)
        n = std::min(n, at(node).parent + 1);
    for (const int end : ends)
        n = std::min(n, end + 1);
    for (int node = 0; node < n; ++node)
        trunk_.push_back(at(node).token);
    base_ += n;
    nodes_.erase(nodes_.begin(), nodes_.begin() + n);
    for (Node& node : nodes_)
        node.parent -= n; // kText for nodes after the last of them
    for (int& end : ends)
        end -= n;
}

int BeamTree::add(TokenId token, int parent) {
    nodes_.push_back({token, parent, parent < 0 ? base_ : at(parent).position + 1});
    return n_nodes() - 1;
}

int BeamTree::child(int node, TokenId token) const {
    for (int i = node + 1; i < n_nodes(); ++i)
        if (at(i).parent == node && at(i).token == token) return i;
    return -2;
}

BeamTree::Walk BeamTree::walk(std::span<const TokenId> tokens) const {
    Walk way;
    const auto trunk = std::mismatch(trunk_.begin(), trunk_.end(), tokens.begin(), tokens.end()).first;
    way.n = static_cast<std::size_t>(trunk - trunk_.begin());
    if (trunk != trunk_.end()) return way;
    for (; way.n < tokens.size(); ++way.n) {
        const int next = child(way.node, tokens[way.n]);
        if (next < 0) break;
        way.node = next;
    }
    return way;
}

std::vector<TokenId> BeamTree::tokens_to(int node, int from) const {
    std::vector<TokenId> tokens;
    for (; node >= 0 && at(node).position >= from; node = at(node).parent)
        tokens.push_back(at(node).token);
    for (int i = static_cast<int>(trunk_.size()) - 1, position = base_ - 1; i >= 0 && position >= from; --i, --position)
        tokens.push_back(trunk_[i]);
    std::ranges::reverse(tokens);
    return tokens;
}

void BeamTree::append_cached_nodes(std::vector<model::Row>& nodes) const {
    const int first = static_cast<int>(nodes.size());
    for (int i = 0; i < first_of_pass_; ++i)
        nodes.push_back({at(i).token, slot_, at(i).position, at(i).parent < 0 ? -1 : first + at(i).parent});
}

void BeamTree::append_rows(std::vector<model::Row>& rows, int first_cached, int n_cached) const {
    const int first_row = n_cached + static_cast<int>(rows.size());
    for (int i = first_of_pass_; i < n_nodes(); ++i) {
        const int parent = at(i).parent;
        rows.push_back({at(i).token, slot_, at(i).position,
                        parent < 0                ? -1
                        : parent < first_of_pass_ ? first_cached + parent
                                                  : first_row + parent - first_of_pass_});
    }
}

void BeamPass::set(std::span<BeamTree* const> trees) {
    rows.clear();
    cached_nodes.clear();
    std::vector<int> first_cached;
    for (const BeamTree* tree : trees) {
        first_cached.push_back(static_cast<int>(cached_nodes.size()));
        tree->append_cached_nodes(cached_nodes);
    }
    for (std::size_t i = 0; i < trees.size(); ++i)
        trees[i]->append_rows(rows, first_cached[i], static_cast<int>(cached_nodes.size()));
    logit_rows.resize(rows.size());
    std::iota(logit_rows.begin(), logit_rows.end(), 0);
}

model::Pass BeamPass::pass(model::LogitNeeds needs) const {
    return {.rows = rows,
            .logit_rows = logit_rows,
            .mask = model::Mask::by_parent,
            .needs = needs,
            .cached_nodes = cached_nodes};
}

} // namespace entrodraft::spec
