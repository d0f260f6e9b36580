// In which order a segment's rows change the states of linear attention: branch by branch, so that a chain needs one
// state and a tree few. The same for all layers and heads of a pass. Called by cpu/workspace and gpu/delta_table.
#pragma once

#include "model/pass/pass_layout.h"
#include "model/pass/recurrent_states.h"

#include <vector>

namespace entrodraft::model {

struct DeltaStep {
    int position = 0; // in the slot's cache
    int row = -1;     // of the pass; -1: a cached node of its tree
    int from = -1;    // number of the state that it follows; -1: the front
    int to = 0;       // of its own, which may be that one
};

struct DeltaPlan {
    RecurrentStates::Advance advance; // to `begin`
    int begin = 0;                    // Segment::tree_begin
    std::vector<int> parents;         // positions, of those from `begin` on
    std::vector<DeltaStep> steps;
    int n_states = 0;

    int parent(int position) const { return position < begin ? position - 1 : parents[index(position - begin)]; }
};
// `keeps_end`: the front is to be kept behind the segment's rows, not before them (RecurrentStates::advance).
// Throws std::invalid_argument where the tree has more nodes than the states' inputs have room for.
DeltaPlan delta_plan(const PassLayout& layout, const Segment& segment, RecurrentStates& states, bool keeps_end = false);

} // namespace entrodraft::model
