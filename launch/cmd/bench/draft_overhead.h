// What entropy and stop decision cost: the same draft loop with and without them. Called by bench compare.
#pragma once

#include "launch/load/model_pair.h"

namespace entrodraft::launch {

struct DraftOverhead {
    std::string rule;
    double percent = 0;      // of a draft step; median over pairs of (with / without - 1)
    double step_seconds = 0; // a draft step without them
    int pairs = 0;
};

// Drafts four tokens after a prompt with `constant`, which needs no entropy, and with a rule that does (static or
// expected-gain, set so that it never fires), in turns, each after as much reading of memory as a target pass does.
// Local, on the draft owner.
DraftOverhead measure_draft_overhead(ModelPair& models, const spec::Request& prompt, const std::string& rule);

} // namespace entrodraft::launch
