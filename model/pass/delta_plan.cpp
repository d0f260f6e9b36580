#include "model/pass/delta_plan.h"

#include <algorithm>

namespace entrodraft::model {
namespace {

// Returns the parents of the cached nodes and of the rows, as positions.
std::vector<int> parents_of(const PassLayout& layout, const Segment& segment) {
    const Pass& pass = layout.pass;
    std::vector<int> parents;
    if (pass.mask != Mask::by_parent) {
        for (int r = segment.begin; r < segment.end; ++r)
            parents.push_back(segment.cached + r - segment.begin - 1);
        return parents;
    }
    std::vector<int> nodes; // positions of Pass::cached_nodes that belong to this slot
    const int n_cached = static_cast<int>(pass.cached_nodes.size());
    const auto add = [&](int parent) {
        parents.push_back(parent < 0          ? segment.tree_begin - 1
                          : parent < n_cached ? nodes[index(parent)]
                                              : segment.cached + parent - n_cached - segment.begin);
    };
    for (int next = segment.tree_begin; const Row& node : pass.cached_nodes) {
        nodes.push_back(node.slot == segment.slot ? next++ : -1);
        if (node.slot == segment.slot) add(node.parent);
    }
    for (int r = segment.begin; r < segment.end; ++r)
        add(pass.rows[index(r)].parent);
    return parents;
}

// Walks depth first. The last child of a node takes over its state; the others get copies.
class Walk {
  public:
    Walk(const Segment& segment, DeltaPlan& plan) : segment_(segment), plan_(plan), children_(plan.parents.size() + 1) {
        for (int node = 0; node < static_cast<int>(plan.parents.size()); ++node)
            children_[index(plan.parents[index(node)] - plan.begin + 1)].push_back(node);
    }

    // Visits the children of `node`, counted from the tree's begin (-1: the tree's root). `state`: its state's number.
    void follow(int node, int state) {
        const std::vector<int>& children = children_[index(node + 1)];
        for (const int child : children) {
            const int to = state >= 0 && child == children.back() ? state : state + 1;
            const int position = plan_.begin + child;
            const int row = position < segment_.cached ? -1 : segment_.begin + position - segment_.cached;
            plan_.steps.push_back({position, row, state, to});
            plan_.n_states = std::max(plan_.n_states, to + 1);
            follow(child, to);
        }
    }

  private:
    const Segment& segment_;
    DeltaPlan& plan_;
    std::vector<std::vector<int>> children_; // [1 + nodes]
};

} // namespace

DeltaPlan delta_plan(const PassLayout& layout, const Segment& segment, RecurrentStates& states, bool keeps_end) {
    DeltaPlan plan;
    plan.begin = segment.tree_begin;
    plan.advance = states.advance(segment.slot, plan.begin, segment.cached + segment.end - segment.begin, keeps_end);
    plan.parents = parents_of(layout, segment);
    Walk(segment, plan).follow(-1, -1);
    return plan;
}

} // namespace entrodraft::model
