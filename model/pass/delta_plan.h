// Plans the order in which a segment's rows change the states of linear attention. The order goes branch by branch, so
// a chain needs one state and a tree few. All layers and heads of a pass share the plan. cpu/workspace and
// gpu/delta_table call it.
#pragma once

#include "model/pass/pass_layout.h"
#include "model/pass/recurrent_states.h"

#include <vector>

namespace entrodraft::model {

struct DeltaStep {
    int position = 0; // in the slot's cache
    int row = -1;     // of the pass; -1: a cached node of its tree
    int from = -1;    // number of the state that it follows; -1: the front
    int to = 0;       // number of the state that it writes, which may be the same
};

struct DeltaPlan {
    RecurrentStates::Advance advance; // to `begin`
    int begin = 0;                    // Segment::tree_begin
    std::vector<int> parents;         // positions, for nodes from `begin` on
    std::vector<DeltaStep> steps;
    int n_states = 0;

    int parent(int position) const { return position < begin ? position - 1 : parents[index(position - begin)]; }
};
// `keeps_end`: the front is kept after the segment's rows, not before them (RecurrentStates::advance). Throws
// std::invalid_argument where the tree has more nodes than the states' inputs have room for.
DeltaPlan delta_plan(const PassLayout& layout, const Segment& segment, RecurrentStates& states, bool keeps_end = false);

} // namespace entrodraft::model
