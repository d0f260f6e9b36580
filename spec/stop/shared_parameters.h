// Parameters that several rules have under one option. Private to the rules' files.
#pragma once

#include "spec/stop/stop_rule.h"

#include <climits>
#include <utility>
#include <vector>

namespace entrodraft::spec {

inline StopRuleParameter entropy_threshold(StopRuleParameter::Kind kind, double default_value,
                                           std::vector<double> grid) {
    return {.option = "entropy-threshold",
            .symbol = "TAU",
            .label = "threshold",
            .kind = kind,
            .default_value = default_value,
            .grid = std::move(grid)};
}

inline StopRuleParameter entropy_window(std::vector<double> grid = {}) {
    return {.option = "entropy-window",
            .symbol = "N",
            .label = "window",
            .help = "tokens that {} look back",
            .kind = StopRuleParameter::Kind::whole_number,
            .default_value = 7,
            .min = 1,
            .max = INT_MAX,
            .grid = std::move(grid)};
}

inline StopRuleParameter num_draft_tokens(double default_value, const char* label, const char* help,
                                          std::vector<double> grid = {}) {
    return {.option = "num-draft-tokens",
            .symbol = "K",
            .label = label,
            .help = help,
            .kind = StopRuleParameter::Kind::draft_length,
            .default_value = default_value,
            .min = 1,
            .max = Packet::kMaxDraftTokens,
            .grid = std::move(grid),
            .aliases = "num-speculative-tokens"};
}

} // namespace entrodraft::spec
