// See worth.h.
#include "spec/distill/worth.h"

#include <algorithm>

namespace entrodraft::spec {

ExpectedSpeedup expected_speedup(double alpha, const Costs& costs) {
    ExpectedSpeedup best;
    for (int k = 1; k < static_cast<int>(costs.t_target.size()); ++k) {
        const double round = costs.draft_seconds(k) + costs.target_seconds(k + 1) + costs.t_round.value_or(0);
        const double tokens = expected_tokens(std::clamp(alpha, 0.0, 1.0), k);
        const double speedup = tokens * predicted_plain_seconds(1, costs) / round;
        if (speedup > best.speedup) best = {k, speedup};
    }
    return best;
}

} // namespace entrodraft::spec
