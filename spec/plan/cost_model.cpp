#include "spec/plan/cost_model.h"

#include <algorithm>

namespace entrodraft::spec {

CostModel::CostModel(const CostOptions& options) : options_(options), times_(options.draft_to_target_cost) {
    if (options.costs) fix_target_seconds(*options.costs);
}

// No row count costs less than a smaller one. Passes wider than any measured grow by the mean slope of the measured.
void CostModel::fix_target_seconds(const Costs& costs) {
    const auto measured = static_cast<int>(costs.t_target.size());
    const double first = costs.target_seconds(1), last = costs.target_seconds(measured);
    const double slope = measured > 1 ? (last - first) / (measured - 1) : 0;
    double least = 0;
    for (int rows = 1; rows <= options_.max_rows; ++rows) {
        const double beyond = slope * std::max(0, rows - measured);
        const double round = costs.t_round.value_or(0); // more tokens a round save rounds
        least = std::max(least, costs.target_seconds(rows) + beyond + round);
        target_seconds_.push_back(least);
    }
}

double CostModel::draft_seconds(double passes, double further_rows) const {
    return are_fixed() ? options_.costs->draft_seconds(passes, further_rows)
                       : times_.draft_seconds(passes, further_rows);
}

double CostModel::target_seconds(int rows) const {
    rows = std::clamp(rows, 1, options_.max_rows);
    return are_fixed() ? target_seconds_[static_cast<std::size_t>(rows) - 1] : times_.target_seconds(rows);
}

double CostModel::reading_seconds(int tokens) const {
    constexpr double kFirst = 0.1; // of a draft pass, for each token, before any is timed
    if (are_fixed()) return 0;
    const auto& [of_few, of_many] = reading_seconds_;
    const double known = (is_long(tokens) || of_few <= 0) && of_many > 0 ? of_many : of_few;
    return tokens * (known > 0 ? known : kFirst * draft_seconds(1));
}

std::vector<double> CostModel::row_costs() const {
    constexpr int kEnoughChanges = 10; // passes of a single row count tell nothing about rows
    std::vector<double> costs;
    if (are_fixed() || row_changes_ < kEnoughChanges) return costs;
    for (int rows = 1; rows <= options_.max_rows; ++rows)
        costs.push_back(target_seconds(rows) / target_seconds(1));
    return costs;
}

// Each sequence of a batch reports the same pass, so each report is a share of it.
void CostModel::learn(const RoundRecord& round) {
    constexpr int kForgotten = 2048; // rounds without a draft, after which its cost may have changed
    if (are_fixed()) return;
    times_.learn_target(round.n_rows() + round.batch_load.rows_beside, round.target_seconds,
                        1.0 / round.batch_load.sequences);
    row_changes_ += round.n_rows() != last_rows_ ? 1 : 0;
    last_rows_ = round.n_rows();
    if (round.draft_passes > 0) times_.learn_draft(round.draft_passes, round.further_draft_rows, round.draft_seconds);
    rounds_since_timed_ = round.draft_passes > 0 ? 0 : rounds_since_timed_ + 1;
    if (rounds_since_timed_ == kForgotten) times_.forget_draft();
    learn_reading(round);
}

void CostModel::learn_reading(const RoundRecord& round) {
    constexpr int kTimed = 8; // tokens; with fewer, the time is mostly the pass's own
    constexpr double kStep = 0.2;
    if (round.caught_up < kTimed) return;
    const double each = steady(round.catch_up_seconds) / round.caught_up;
    double& known = reading_seconds_[is_long(round.caught_up) ? 1 : 0];
    known = known > 0 ? known + kStep * (std::min(each, kMaxOver * known) - known) : each;
}

} // namespace entrodraft::spec
