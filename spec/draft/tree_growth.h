// Which tokens a tree has: rows of the draft go in, level by level, and a draft comes out. See tree_growth.cpp.
//
// Knows no model and no logits. Called by the drafter of trees (tree.cpp) and by replays of recordings (simulate.cpp),
// which therefore draft the same.
#pragma once

#include "spec/draft/drafter.h"
#include "spec/plan/worth.h"
#include "spec/verify/device_verifier.h"

#include <span>
#include <vector>

namespace entrodraft::spec {

// A token that a row of the draft may be followed by.
struct TreeChild {
    TokenId token = 0;
    DraftedToken seen = {};    // what rules see
    DraftedToken ranked = {};  // the same in the distribution that siblings are ranked by
    std::vector<float> q = {}; // [vocab] that it was drawn from; empty: not drawn
};

struct GrownNode : TreeChild {
    int parent = -1;  // of the growth's nodes; -1: the text
    int depth = 0;    // of the first ones 1
    int rank = 0;     // among siblings
    int shape = -1;   // of a fixed tree: which of its paths this is
    int read_as = -1; // of the nodes that the model has read, in their order; -1: it has not
    double value = 1; // of the path: the chance that it is accepted, or what the shape takes for it
    double reach = 1; // joint probability of those of the path's tokens that are not first choices
};

// Tokens that the draft can read: in a round along one path, and at all, text and tree together.
struct TreeRoom {
    std::size_t along_path = 0;
    std::size_t in_all = 0;
};

// What all sequences of a drafter share: the shape, and how often children were the target's own token.
class TreeShape {
  public:
    // Branches that depart from the first choices with less than this probability end (expected-gain): bounds what a
    // recording has to hold.
    static constexpr double kMinReach = 0.02;

    // What is read: what a run reads, or, for recordings, all that runs might read: whatever pays, wherever it ends.
    enum class Reads { of_a_run, all };

    TreeShape(const TreeOptions& options, const DraftLimits& limits, Reads reads = Reads::of_a_run);

    const TreeOptions& options() const { return options_; }
    const DraftLimits& limits() const { return limits_; }
    bool is(TreeOptions::Shape shape) const { return options_.shape == shape; }
    bool reads_all() const { return reads_ == Reads::all; }
    // Of a fixed tree's path, -1 being the root; of the others always top_k.
    int n_children(int path) const;
    // The path of that child; -1 where the tree is not fixed.
    int child(int path, int rank) const;

    RankChances& chances() { return chances_; }
    const RankChances& chances() const { return chances_; }
    // The shape's part of the plan, for a text with this acceptance residual: all but its bounds and costs.
    DeviceTreePlan plan(double residual) const;

  private:
    TreeOptions options_;
    DraftLimits limits_;
    Reads reads_;
    std::vector<std::vector<int>> children_; // of a fixed tree: [path + 1], by rank
    RankChances chances_;
};

// The tree of one sequence: begin(), then rows for all of frontier() and end_level() until that is empty, then
// finish().
class TreeGrowth {
  public:
    // `shape` outlives it.
    explicit TreeGrowth(TreeShape& shape) : shape_(&shape) {}

    void begin_sequence();
    // Learns how the round before ended. `load`: of the target's pass to come, as far as is known. The task outlives
    // the round.
    void begin(const DraftTask& task, const TreeRoom& room, const BatchLoad& load = {});
    // Nodes whose rows are wanted: -1, the text itself, at first. Empty: the tree is complete.
    std::span<const int> frontier() const { return frontier_; }
    // Before the first row: what a GPU may read by itself, as far as is known. Not whether tokens have noise.
    DeviceTreePlan forecast() const;
    // Children wanted of a node of the frontier.
    int n_children(int node) const;
    void add_children(int node, std::vector<TreeChild> children);
    // All of the frontier has its children, by a pass over the frontiers of so many sequences: what goes on.
    void end_level(int sequences = 1);
    // Writes the task's draft; which nodes it is made of, in its order.
    std::vector<int> finish();

    const DraftTask& task() const { return *task_; }
    const GrownNode& node(int i) const { return nodes_[i]; }
    int depth_of(int i) const { return i < 0 ? 0 : node(i).depth; }
    // Tokens from the text on to this node.
    std::vector<TokenId> path_to(int i) const;
    int n_proposed() const { return n_proposed_; }
    // Of the round, those shared with other sequences counted by this one's part.
    double passes() const { return passes_; }

  private:
    void learn(std::span<const TokenId> text);
    void follow_best_path();
    bool goes_on(int i) const;
    std::vector<int> proposed() const;
    void add_below(int parent, std::span<const int> nodes, std::vector<int>& ordered) const;
    bool weighs_costs() const { return shape_->is(TreeOptions::Shape::expected_gain) && task_->gain != nullptr; }
    Worth worth() const;
    double price_of_row(const Worth& worth, int n_proposed) const;
    std::vector<int> level_that_pays(std::vector<int> level) const;

    TreeShape* shape_;
    const DraftTask* task_ = nullptr;
    std::vector<TokenId> text_;    // of the round
    std::vector<GrownNode> nodes_; // parents before children
    std::vector<int> frontier_;
    TreeRoom room_;
    TextResidual residual_; // over the text's first choices
    int max_nodes_ = 0;
    int n_proposed_ = 0; // in the last round
    BatchLoad load_;
    double passes_ = 0;       // as passes() has them
    double further_rows_ = 0; // of these passes, beyond one each
    double share_ = 1;        // of the last pass, and of what the next will be taken for
    int n_read_ = 0;
    int best_ = -1; // the best path's last token that the rule has seen
};

} // namespace entrodraft::spec
