#include "spec/plan/draft_policy.h"

#include <algorithm>
#include <utility>

namespace entrodraft::spec {

void Pace::learn(int tokens, double seconds) {
    constexpr double kDecay = 0.998; // per round
    ++rounds_;
    tokens_ = kDecay * tokens_ + tokens;
    seconds_ = kDecay * seconds_ + seconds;
}

void DraftPolicy::learn_length(int new_tokens, int max_new_tokens) {
    constexpr double kStep = 0.1;
    length_share_ += kStep * (static_cast<double>(new_tokens) / std::max(1, max_new_tokens) - length_share_);
}

bool DraftPolicy::affords(double seconds) const {
    constexpr double kShare = 0.005;
    return costs_are_fixed_ || balance_ + kShare * spent_seconds_ >= seconds;
}

bool DraftPolicy::may_begin(const BatchLoad& load, int n_verified) {
    constexpr int kEnough = 8;
    if (costs_are_fixed_ || load.sequences == 1 || n_verified >= kEnough) return true;
    return !std::exchange(one_begins_, true);
}

void DraftPolicy::drafted(bool as_probe) {
    probe_gap_ = as_probe ? std::min(4 * probe_gap_, kLastGap) : kFirstGap;
}

void DraftPolicy::decline(int sequences, bool for_reading) {
    sequences_ = sequences;
    ++declined_;
    declined_for_reading_ += for_reading ? 1 : 0;
}

// Paces use the measured draft times, because the cost of a draft pass also depends on how much the draft has read.
void DraftPolicy::learn(const RoundRecord& round, const CostModel& costs) {
    learn_balance(round, costs);
    if (!round.reading) return;
    const double expected = costs.target_seconds(round.n_rows() + round.batch_load.rows_beside);
    const double target = std::min(costs.steady(round.target_seconds), CostModel::kMaxOver * expected);
    paces_[static_cast<std::size_t>(*round.reading)].learn(round.n_emitted(), costs.steady(round.draft_seconds) +
                                                                                  target / round.batch_load.sequences);
}

// The balance gains the time of a plain round for each token beyond the first. It loses the time of the draft and of
// its rows in the target's pass. As long as the cost of draft passes is not known, they count nothing.
void DraftPolicy::learn_balance(const RoundRecord& round, const CostModel& costs) {
    one_begins_ = false;
    const double passes = costs.knows_draft() ? costs.draft_seconds(round.draft_passes, round.further_draft_rows) : 0;
    const double drafting = passes + costs.reading_seconds(round.caught_up);
    const int sequences = round.batch_load.sequences, rows = round.batch_load.rows_beside + round.n_rows();
    const double pass = costs.target_seconds(rows), plain = costs.target_seconds(sequences);
    const double share = rows > sequences ? (round.n_rows() - 1.0) / (rows - sequences) : 0; // of the drafted rows
    spent_seconds_ += drafting + pass / sequences;
    balance_ += (round.n_emitted() - 1) * plain / sequences - drafting - share * (pass - plain);
}

} // namespace entrodraft::spec
