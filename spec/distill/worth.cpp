// See worth.h.
#include "spec/distill/worth.h"

#include <algorithm>
#include <cmath>
#include <vector>

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

double predicted_share(std::span<const Evaluation> evaluations, double Evaluation::*figure, int steps) {
    constexpr int kBeginning = 4; // a part of the steps, of which the rate rises in the first
    constexpr double kMinMissing = 1e-6;
    const int last = evaluations.back().step;
    double n = 0, x = 0, y = 0, xx = 0, xy = 0, greatest = 0;
    for (const Evaluation& each : evaluations) {
        greatest = std::max(greatest, each.*figure);
        if (each.step == 0 || each.step * kBeginning < last) continue;
        const double log_step = std::log(each.step), log_missing = std::log(std::max(1 - each.*figure, kMinMissing));
        n += 1;
        x += log_step;
        y += log_missing;
        xx += log_step * log_step;
        xy += log_step * log_missing;
    }
    const double spread = n * xx - x * x;
    if (n < 2 || !(spread > 0)) return greatest;
    const double exponent = std::min((n * xy - x * y) / spread, 0.0);
    return std::max(greatest, 1 - std::exp((y + exponent * (n * std::log(std::max(steps, last)) - x)) / n));
}

void share_target_costs(std::span<Costs> costs) {
    const auto share = [&](const auto& figure_of) {
        std::vector<double> all;
        for (Costs& each : costs)
            all.push_back(figure_of(each));
        const auto middle = all.begin() + std::ssize(all) / 2;
        std::ranges::nth_element(all, middle);
        for (Costs& each : costs)
            figure_of(each) = *middle;
    };
    for (std::size_t row = 0; row < costs.front().t_target.size(); ++row)
        share([&](Costs& each) -> double& { return each.t_target.at(row); });
    if (costs.front().t_round) share([](Costs& each) -> double& { return each.t_round.value(); });
}

} // namespace entrodraft::spec
