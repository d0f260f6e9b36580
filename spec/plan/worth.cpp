#include "spec/plan/worth.h"

#include <algorithm>
#include <limits>

namespace entrodraft::spec {

namespace {

double rate_of(const GainModel& gain, const RoundSoFar& round) {
    if (gain.pace.is_known()) return gain.pace.tokens_per_second();
    const double target = gain.costs.target_seconds(round.rows + round.load.rows_beside) / round.load.sequences;
    return round.expected_tokens / (gain.costs.draft_seconds(round.passes, round.further_rows) + target);
}

} // namespace

Worth::Worth(const GainModel& gain, const RoundSoFar& round)
    : costs_(&gain.costs), round_(round), rate_(rate_of(gain, round)) {}

double Worth::of_passes(double passes, double further_rows) const {
    return of(costs_->draft_seconds(round_.passes + passes, round_.further_rows + further_rows) -
              costs_->draft_seconds(round_.passes, round_.further_rows));
}

double Worth::of_rows(int from, int to) const {
    return of(costs_->target_seconds(to + round_.load.rows_beside) -
              costs_->target_seconds(from + round_.load.rows_beside));
}

double Worth::least_chance(int drafted, int cap, const PassCost& cost, double acceptance, double enough) const {
    constexpr double kNone = std::numeric_limits<double>::infinity();
    const double most = acceptance < 1 ? acceptance / (1 - acceptance) : kNone; // further tokens without a cap
    const double begun = costs_->draft_seconds(round_.passes, round_.further_rows) +
                         costs_->target_seconds(drafted + 1 + round_.load.rows_beside);
    double least = kNone, tokens = 0, product = 1;
    for (int k = drafted + 1; k <= cap && least >= enough; ++k) {
        tokens += product *= acceptance;
        const double passes = round_.passes + std::max(cost.next, (k - drafted) * cost.each);
        const double price = of(costs_->draft_seconds(passes, round_.further_rows) +
                                costs_->target_seconds(k + 1 + round_.load.rows_beside) - begun);
        if (price >= least * most) break; // more tokens cost more, and bring at most `most`
        least = std::min(least, price / tokens);
    }
    return least;
}

} // namespace entrodraft::spec
