// Grows trees: see tree_growth.h.
//
// expected-gain: a node's value is the chance that all tokens up to it are accepted. Each rank among siblings has its
// own chances, which are learnt from the row's entropy and the token's own probability. A further level is drafted if
// the tokens expected from it, or from it and some levels after it, come faster than the run's own rate. The proposed
// nodes maximise (expected tokens) - rate * (seconds of the target's pass). If rows cost much, the tree is a chain. If
// a row's entropy is high, the tree is wide.
// eagle2 (Li et al. 2024, "EAGLE-2"): the value is the draft's own probability of the path. The choice of nodes depends
// on the tokens here, so under `rejection` they count as not drawn (verify.h).
#include "spec/draft/tree_growth.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

namespace entrodraft::spec {

namespace {

constexpr int kMaxNodes = Packet::kMaxDraftTokens;

} // namespace

// ---- the shape, and what is learnt ----

TreeShape::TreeShape(const TreeOptions& options, const DraftLimits& limits, Reads reads)
    : options_(options), limits_(limits), reads_(reads), chances_(kMaxNodes) {
    if (!is(TreeOptions::Shape::fixed)) return;
    const std::vector<std::int8_t> parents = parents_of(options);
    children_.resize(parents.size() + 1);
    for (std::size_t i = 0; i < parents.size(); ++i)
        children_[parents[i] + 1].push_back(static_cast<int>(i));
}

int TreeShape::n_children(int path) const {
    if (!is(TreeOptions::Shape::fixed)) return options_.top_k;
    return static_cast<int>(children_[path + 1].size());
}

int TreeShape::child(int path, int rank) const {
    if (!is(TreeOptions::Shape::fixed)) return -1;
    return children_[path + 1][rank];
}

// ---- a round ----

void TreeGrowth::begin_sequence() {
    nodes_.clear();
    text_.clear();
    residual_ = {};
    n_proposed_ = 0;
}

void TreeGrowth::begin(const DraftTask& task, const TreeRoom& room, const BatchLoad& load) {
    if (shape_->is(TreeOptions::Shape::expected_gain)) learn(task.tokens);
    task_ = &task;
    room_ = room;
    load_ = load;
    passes_ = further_rows_ = 0;
    share_ = 1 / static_cast<double>(load.sequences);
    text_.assign(task.tokens.begin(), task.tokens.end());
    nodes_.clear();
    frontier_.clear();
    n_read_ = 0;
    best_ = -1;
    RoundContext round = task.round;
    round.load = load;
    begin_draft(task, room.along_path, round);
    max_nodes_ = std::min({task.max_nodes, task.rule->options().max_tokens, kMaxNodes});
    if (task.draft->end != DraftEnd::none) return;
    if (task.rule->wants_another({share_, share_}))
        frontier_.push_back(-1);
    else
        task.draft->end = task.rule->end() != DraftEnd::none ? task.rule->end() : DraftEnd::rule;
}

// For every token on the way, learns which of its children was emitted.
void TreeGrowth::learn(std::span<const TokenId> text) {
    if (nodes_.empty() || text.size() <= text_.size() || !std::equal(text_.begin(), text_.end(), text.begin())) return;
    int passed = -1;
    for (std::size_t at = text_.size(); at < text.size(); ++at) {
        int next = -1;
        for (int i = passed + 1; i < static_cast<int>(nodes_.size()); ++i) {
            const GrownNode& child = node(i);
            if (child.parent != passed) continue;
            const bool is_emitted = child.token == text[at];
            const double residual = residual_.value(),
                         chance = shape_->chances().of(child.ranked, child.rank, residual);
            shape_->chances().learn(child.ranked, child.rank, residual, is_emitted);
            if (child.rank == 0) residual_.learn(chance, is_emitted);
            if (is_emitted) next = i;
        }
        if (next < 0) return;
        passed = next;
    }
}

std::vector<TokenId> TreeGrowth::path_to(int i) const {
    std::vector<TokenId> path;
    for (; i >= 0; i = node(i).parent)
        path.push_back(node(i).token);
    std::ranges::reverse(path);
    return path;
}

int TreeGrowth::n_children(int i) const {
    return shape_->n_children(i < 0 ? -1 : node(i).shape);
}

void TreeGrowth::add_children(int parent, std::vector<TreeChild> children) {
    const GrownNode above = parent < 0 ? GrownNode{} : node(parent);
    double left = 1; // part of the chance that one of them is the target's
    for (std::size_t i = 0; i < children.size(); ++i) {
        GrownNode& child = nodes_.emplace_back(GrownNode{std::move(children[i])});
        child.parent = parent;
        child.depth = above.depth + 1;
        child.rank = static_cast<int>(i);
        child.shape = shape_->child(above.shape, child.rank);
        double own = static_cast<double>(child.ranked.probability);
        child.reach = above.reach * (child.rank > 0 ? own : 1);
        if (shape_->is(TreeOptions::Shape::expected_gain)) {
            own = std::min(left, shape_->chances().of(child.ranked, child.rank, residual_.value()));
            left -= own;
        }
        child.value = above.value * own;
    }
}

// ---- which nodes go on ----

// The rule sees the first child of the best path's last token.
void TreeGrowth::follow_best_path() {
    for (int i = best_ + 1; i < static_cast<int>(nodes_.size()); ++i) {
        if (node(i).parent != best_ || node(i).rank != 0) continue;
        best_ = i;
        if (task_->rule->decide(node(i).seen) != StopDecision::go_on) break;
    }
}

// Returns whether the text may continue after the node, and the shape lets it.
bool TreeGrowth::goes_on(int i) const {
    const std::vector<TokenId>& eos = shape_->limits().eos_tokens;
    if (!task_->request->ignore_eos && std::ranges::find(eos, node(i).token) != eos.end()) return false;
    return n_children(i) > 0 &&
           (!shape_->is(TreeOptions::Shape::expected_gain) || node(i).reach >= TreeShape::kMinReach);
}

void TreeGrowth::end_level(int sequences) {
    const double charged = passes_ == 0 ? share_ : 0; // the rule has charged the first pass already
    share_ = 1 / static_cast<double>(sequences);
    const auto rows = static_cast<double>(frontier_.size()); // the first row of the pass is shared like the pass
    passes_ += share_;
    further_rows_ += rows - share_;
    task_->rule->charge(share_ - charged, rows - share_);
    ++task_->draft->passes;
    task_->draft->further_rows += static_cast<int>(frontier_.size()) - 1;
    frontier_.clear();
    if (nodes_.empty()) return;
    follow_best_path();
    const int depth = nodes_.back().depth;
    const bool is_fixed = shape_->is(TreeOptions::Shape::fixed);
    if (task_->rule->end() == DraftEnd::rule || depth >= task_->left_tokens ||
        text_.size() + static_cast<std::size_t>(depth) >= room_.along_path ||
        (!is_fixed && depth >= shape_->options().depth))
        return;
    std::vector<int> level;
    for (int i = static_cast<int>(nodes_.size()) - 1; i >= 0 && node(i).depth == depth; --i)
        if (node(i).read_as < 0 && goes_on(i)) level.push_back(i);
    std::ranges::reverse(level);
    std::ranges::stable_sort(level, [&](int a, int b) { return node(a).value > node(b).value; });
    if (shape_->is(TreeOptions::Shape::eagle2) || (!is_fixed && !shape_->reads_all()))
        level.resize(std::min(level.size(), static_cast<std::size_t>(shape_->options().top_k)));
    if (weighs_costs()) {
        level = level_that_pays(std::move(level));
        if (level.empty()) return;
    }
    // A level without room ends the tree. Narrower trees then read a part of the rows that wider ones read.
    const std::size_t room = std::min<std::size_t>(kMaxNodes, room_.in_all - text_.size());
    if (!shape_->reads_all() && static_cast<std::size_t>(n_read_) + level.size() > room) return;
    std::ranges::sort(level);
    for (const int i : level)
        nodes_[i].read_as = n_read_++;
    frontier_ = std::move(level);
}

Worth TreeGrowth::worth() const {
    double tokens = 1;
    for (const GrownNode& each : nodes_)
        if (each.rank == 0) tokens += each.value;
    return {*task_->gain, {passes_, further_rows_, depth_of(best_) + 1, tokens, load_}};
}

// The price of a further row, as the mean until the proposed rows have doubled. Passes grow in steps if rows are
// padded, and the next row alone would seem free or expensive.
double TreeGrowth::price_of_row(const Worth& worth, int n_proposed) const {
    const int rows = n_proposed + 1;
    return worth.of_rows(rows, 2 * rows) / rows;
}

// The nodes of a level whose children are worth a row of the draft; none if together they are not worth a pass. Every
// number of further levels is tried, and the best counts. Children of every rank count as often as they were emitted so
// far; further levels have only first children. Their tokens, less the target's price of their rows, must beat the
// rate.
std::vector<int> TreeGrowth::level_that_pays(std::vector<int> level) const {
    constexpr int kLevels = DeviceTreePlan::kLevels;
    const Worth worth = this->worth();
    const RankChances& chances = shape_->chances();
    const double of_target_row = price_of_row(worth, static_cast<int>(proposed().size()));
    const double of_row = worth.of_passes(0, 1);
    std::array<double, kLevels> gain{}; // of the level and k further ones, in tokens, without passes
    std::erase_if(level, [&](int i) {
        std::array<double, kLevels> own{};
        double tokens = 0, below = 1; // `below`: the chance that first children continue the earlier levels
        for (double& each : own) {
            for (int rank = 0; rank < shape_->options().top_k; ++rank)
                tokens += std::max(0.0, node(i).value * chances.mean(rank) * below - of_target_row);
            each = tokens -= of_row;
            below *= chances.mean(0);
        }
        if (*std::ranges::max_element(own) <= 0) return true;
        for (std::size_t k = 0; k < own.size(); ++k)
            gain[k] += own[k];
        return false;
    });
    for (int k = 0; k < kLevels; ++k)
        if (gain[k] > worth.of_passes((k + 1) * share_, -(k + 1) * share_)) return level;
    return {};
}

// ---- what is proposed ----

// The most likely nodes first. Each comes with its parent, since values fall along a path.
std::vector<int> TreeGrowth::proposed() const {
    std::vector<int> nodes(nodes_.size());
    std::iota(nodes.begin(), nodes.end(), 0);
    if (!shape_->is(TreeOptions::Shape::fixed))
        std::ranges::stable_sort(nodes, [&](int a, int b) { return node(a).value > node(b).value; });
    nodes.resize(std::min(nodes.size(), static_cast<std::size_t>(std::max(max_nodes_, 0))));
    if (weighs_costs() && !nodes.empty()) {
        const Worth worth = this->worth();
        double gain = 0, best_gain = -std::numeric_limits<double>::infinity();
        std::size_t best = 1; // at least one: a pass was made for it
        for (std::size_t n = 1; n <= nodes.size(); ++n) {
            gain += node(nodes[n - 1]).value;
            const double net = gain - worth.of_rows(1, static_cast<int>(n) + 1);
            if (net > best_gain) {
                best_gain = net;
                best = n;
            }
        }
        nodes.resize(best);
    }
    return nodes;
}

// Depth first: if the most likely path is accepted, its rows already have their places in the target's cache.
void TreeGrowth::add_below(int parent, std::span<const int> nodes, std::vector<int>& ordered) const {
    for (const int i : nodes) {
        if (node(i).parent != parent) continue;
        ordered.push_back(i);
        add_below(i, nodes, ordered);
    }
}

std::vector<int> TreeGrowth::finish() {
    Draft& draft = *task_->draft;
    n_proposed_ = 0;
    if (nodes_.empty()) {
        if (draft.end == DraftEnd::none) draft.end = DraftEnd::no_match;
        return {};
    }
    std::vector<int> by_rank = proposed(), nodes;
    std::ranges::sort(by_rank);
    add_below(-1, by_rank, nodes);
    std::vector<int> place(nodes_.size(), -1); // in the draft
    for (const int i : nodes) {
        const int parent = node(i).parent < 0 ? -1 : place[node(i).parent];
        place[i] = static_cast<int>(draft.tokens.size());
        draft.add(node(i).token, node(i).seen, parent);
    }
    n_proposed_ = static_cast<int>(nodes.size());
    const DraftEnd rule_end = task_->rule->end();
    const bool is_last = nodes_.back().depth >= task_->left_tokens;
    draft.end = rule_end != DraftEnd::none ? rule_end : is_last ? DraftEnd::budget : DraftEnd::rule;
    return nodes;
}

} // namespace entrodraft::spec
