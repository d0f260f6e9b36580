// Decides which tokens a tree has: rows of the draft go in, level by level, and a draft comes out. See tree_growth.cpp.
//
// Knows no model and no logits. Called by the drafter of trees (tree.cpp) and by replays of recordings (simulate.cpp),
// which therefore draft the same.
#pragma once

#include "spec/draft/drafter.h"
#include "spec/gpu/device_round.h"
#include "spec/plan/worth.h"

#include <span>
#include <vector>

namespace entrodraft::spec {

// A token that may follow a row of the draft.
struct TreeChild {
    TokenId token = 0;
    DraftedToken seen = {};    // the values that rules see
    DraftedToken ranked = {};  // the same in the distribution that ranks siblings
    std::vector<float> q = {}; // [vocab] distribution it was drawn from; empty: not drawn
};

struct GrownNode : TreeChild {
    int parent = -1;  // among the growth's nodes; -1: the text
    int depth = 0;    // 1 for the first level
    int rank = 0;     // among siblings
    int shape = -1;   // of a fixed tree: the number of its path
    int read_as = -1; // number among the nodes that the model has read; -1: not read
    double value = 1; // of the path: the chance that it is accepted, or the shape's estimate of it
    double reach = 1; // joint probability of the path's tokens that are not first choices
};

// Numbers of tokens that the draft can read: along one path of a round, and in all, text and tree together.
struct TreeRoom {
    std::size_t along_path = 0;
    std::size_t in_all = 0;
};

// The data that all sequences of a drafter share: the shape, and how often children were the target's own token.
class TreeShape {
  public:
    // A branch ends if its departures from first choices are less probable (expected-gain). This bounds the size of
    // recordings.
    static constexpr double kMinReach = 0.02;

    // The rows that are read: those that a run reads or, for recordings, all that runs might read, whatever pays.
    enum class Reads { of_a_run, all };

    TreeShape(const TreeOptions& options, const DraftLimits& limits, Reads reads = Reads::of_a_run);

    const TreeOptions& options() const { return options_; }
    const DraftLimits& limits() const { return limits_; }
    bool is(TreeOptions::Shape shape) const { return options_.shape == shape; }
    bool reads_all() const { return reads_ == Reads::all; }
    // The children of a fixed tree's path, -1 being the root; in other trees always top_k.
    int n_children(int path) const;
    // The path of that child; -1 if the tree is not fixed.
    int child(int path, int rank) const;

    RankChances& chances() { return chances_; }
    const RankChances& chances() const { return chances_; }
    // The shape's part of the plan, for a text with this acceptance residual: all but the plan's bounds and costs.
    DeviceTreePlan plan(double residual) const;

  private:
    TreeOptions options_;
    DraftLimits limits_;
    Reads reads_;
    std::vector<std::vector<int>> children_; // of a fixed tree: [path + 1], by rank
    RankChances chances_;
};

// The tree of one sequence. Call begin(); then, until frontier() is empty, add_children() for all of it and
// end_level(); then finish().
class TreeGrowth {
  public:
    // `shape` must outlive this.
    explicit TreeGrowth(TreeShape& shape) : shape_(&shape) {}

    void begin_sequence();
    // Learns how the round before ended. `load`: of the coming target pass, as far as is known. The task must outlive
    // the round.
    void begin(const DraftTask& task, const TreeRoom& room, const BatchLoad& load = {});
    // Nodes whose rows are wanted; at first -1, the text itself. Empty: the tree is complete.
    std::span<const int> frontier() const { return frontier_; }
    // The levels that a GPU may read by itself, as known before the first row. The plan lacks noise.
    DeviceTreePlan forecast() const;
    // The number of children wanted for a node of the frontier.
    int n_children(int node) const;
    void add_children(int node, std::vector<TreeChild> children);
    // Chooses the next level. `sequences`: those whose frontiers shared the pass that gave the children.
    void end_level(int sequences = 1);
    // Writes the task's draft. Returns the draft's nodes, in its order.
    std::vector<int> finish();

    const DraftTask& task() const { return *task_; }
    const GrownNode& node(int i) const { return nodes_[i]; }
    int depth_of(int i) const { return i < 0 ? 0 : node(i).depth; }
    // The tokens from the text to this node.
    std::vector<TokenId> path_to(int i) const;
    int n_proposed() const { return n_proposed_; }
    // Passes of the round. A pass shared with other sequences counts by this one's part.
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
    double further_rows_ = 0; // rows of these passes, beyond one for each pass
    double share_ = 1;        // part of the last pass, which the next pass is assumed to have
    int n_read_ = 0;
    int best_ = -1; // last token of the best path that the rule has seen
};

} // namespace entrodraft::spec
