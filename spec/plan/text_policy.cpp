#include "spec/plan/text_policy.h"

#include <algorithm>

namespace entrodraft::spec {

bool TextPolicy::begins(const Worth& worth, const RoundContext& round, const PassCost& cost, bool drafting_pays,
                        bool reads) {
    const bool pays = drafting_pays && (!reads || reading_pays(round, cost));
    is_probe_ = !pays && wants_probe(worth, round, cost);
    if (!pays && !is_probe_) {
        gain_->policy.decline(round.load.sequences, drafting_pays);
        return false;
    }
    if (gain_->policy.may_begin(round.load, gain_->acceptance.n_verified())) return true;
    is_probe_ = false;
    return false;
}

// ---- what the draft reads ----

// The other texts are assumed to draft like this one, because all texts share the rows that are cheap. Texts whose
// prompts are not read yet count as well: they will take part in most of the rounds to come.
bool TextPolicy::reading_pays(const RoundContext& round, const PassCost& cost) const {
    const CostModel& costs = gain_->costs;
    const double seconds = costs.reading_seconds(round.unread);
    if (seconds <= 0) return true;
    const int texts = std::max(round.load.sequences, round.texts);
    const auto pass_seconds = [&](int rows) { return costs.target_seconds(rows * texts) / texts; };
    const double plain = pass_seconds(1);
    double best = plain, tokens = 1, product = 1; // best: seconds a token
    for (int k = 1; k <= cap_ && (k == 1 || (k + 1) * texts <= costs.max_rows()); ++k) {
        tokens += product *= gain_->acceptance.mean();
        const double drafting_on = costs.draft_seconds(std::max(cost.next, k * cost.each));
        best = std::min(best, (drafting_on + pass_seconds(k + 1)) / tokens);
    }
    return gain_->policy.expected_left(round.left) * (plain - best) > seconds;
}

int TextPolicy::tokens_to_read(const RoundContext& round) {
    if (!CostModel::is_long(round.unread) || gain_->costs.reading_seconds(round.unread) <= 0) return round.unread;
    wanted_ = reads_all(round) ? Reading::all : Reading::end;
    return wanted_ == Reading::all ? round.unread : CostModel::kEnd;
}

// Returns whether it pays to read all of a long text. The pace after a whole reading may not be known yet. It is then
// taken as the best possible, tokens that take no time, and all is read if this would pay and the run affords the
// trial. If nothing is known of the draft, only the end is read.
bool TextPolicy::reads_all(const RoundContext& round) const {
    constexpr PassCost kOwn = {};
    const double more = gain_->costs.reading_seconds(round.unread) - gain_->costs.reading_seconds(CostModel::kEnd);
    const double left = gain_->policy.expected_left(round.left);
    const double by_all = gain_->policy.pace_of(Reading::all).seconds_per_token();
    const double by_end = gain_->policy.pace_of(Reading::end).seconds_per_token();
    return left * (by_end - by_all) > more && (by_all > 0 || gain_->policy.affords(more)) && reading_pays(round, kOwn);
}

std::optional<Reading> TextPolicy::reading_after(int caught_up) {
    if (caught_up > 0) reading_ = wanted_;
    return reading_;
}

// ---- trials ----

// Where drafting does not seem to pay, a token is drafted now and then to learn if that still holds. The run must
// afford such a probe, and drafting must be able to pay if every token is accepted. A text is probed as it begins, and
// then after more and more rounds, because the draft first has to read all tokens emitted meanwhile. The gap stays
// short for a single sequence where a little more acceptance would make drafting pay. A probe then costs next to
// nothing, and a bad stretch should not decide for the rest.
bool TextPolicy::wants_probe(const Worth& worth, const RoundContext& round, const PassCost& cost) {
    constexpr double kNear = 1.25; // times the mean acceptance
    constexpr int kNearGap = 4;
    const auto could_pay_at = [&](double acceptance) { return worth.affords(1, 0, cap_, cost, acceptance); };
    is_near_ = round.load.sequences == 1 && could_pay_at(std::min(1.0, kNear * gain_->acceptance.mean()));
    const int gap = is_near_ ? kNearGap : gain_->policy.probe_gap();
    if (plain_rounds_ >= 0 && plain_rounds_ < gap) return false;
    const CostModel& costs = gain_->costs;
    const double reading = costs.reading_seconds(round.unread);
    if (!costs.knows_draft()) return gain_->policy.affords(reading);
    const double row =
        costs.target_seconds(2 + round.load.rows_beside) - costs.target_seconds(1 + round.load.rows_beside);
    return gain_->policy.affords(reading + costs.draft_seconds(cost.next) + row) && could_pay_at(1);
}

// A round in which the draft only read, because the reading takes several rounds, teaches nothing.
void TextPolicy::teach(int drafted, bool reads_on) {
    if (!reads_on && (is_probe_ ? !is_near_ : drafted > 0)) gain_->policy.drafted(is_probe_);
}

void TextPolicy::settle(int drafted, bool was_asked, bool reads_on) {
    if (drafted > 0)
        plain_rounds_ = 0;
    else if (was_asked && !reads_on)
        plain_rounds_ = std::max(plain_rounds_, 0) + 1;
}

} // namespace entrodraft::spec
