// What bench compare shows of a comparison: text tables and JSON. Texts are compared with plain decoding first.
#pragma once

#include "launch/cmd/bench/comparison.h"
#include "launch/io/report.h"
#include "launch/machine_load.h"

#include <string>
#include <vector>

namespace entrodraft::launch {

// What entropy and stop decision of a rule cost: the same draft loop with and without them.
struct DraftOverhead {
    std::string rule;
    double percent = 0;      // of a draft step; median over pairs of (with / without - 1)
    double step_seconds = 0; // a draft step without them
    int pairs = 0;
};

struct ComparisonFacts {
    Json environment;
    MachineLoad machine;
    std::vector<spec::Costs> costs;       // of the levels of drafting
    std::vector<DraftOverhead> overheads; // of the rules that look at entropies; empty without a draft model
    double operations_ratio = 0;          // of a draft's row over a target's; 0 without a draft model
    bool best_of_each_rule = false;       // --tune
};

struct ComparisonReport {
    Json json;
    std::string text;
    std::vector<std::string> complaints; // a line for each setting whose texts had to be plain decoding's and are not
};

// Local, on the coordinator.
ComparisonReport report_of(Comparison& comparison, const CompareOptions& options, const ComparisonFacts& facts);

} // namespace entrodraft::launch
