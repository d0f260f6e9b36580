// What bench compare shows of a comparison: text tables and JSON. Texts are compared with plain decoding first.
#pragma once

#include "launch/cmd/bench/comparison.h"
#include "launch/cmd/bench/draft_overhead.h"
#include "launch/io/json_line.h"
#include "launch/machine_load.h"

#include <string>
#include <vector>

namespace entrodraft::launch {

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
    int different_texts = 0;             // that had to be plain decoding's
    std::vector<std::string> complaints; // a line for each setting with such
};

// Local, on the coordinator.
ComparisonReport report_of(Comparison& comparison, const CompareOptions& options, const ComparisonFacts& facts);

} // namespace entrodraft::launch
