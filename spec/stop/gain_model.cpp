#include "spec/stop/gain_model.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

namespace entrodraft::spec {

namespace {

constexpr double kPriorSeen = 4; // observations that a bin's prior is worth
constexpr double kPriorMean = 0.7, kPriorMatch = 0.5;
constexpr double kWeightVariance = 0.5; // of a weight before anything is seen, and at most
constexpr double kWander = 1e-6;        // variance that a weight gains a token
constexpr double kMaxOver = 1.5;        // a round's time counts for at most so many times what is expected of it

// Each is about 0 for a middling token: the weights' first uncertainty is meant for that.
TokenChance::Weights features_of(const DraftedToken& token, double residual) {
    constexpr double kMin = 1e-4, kMaxMargin = 20;
    const double entropy = std::sqrt(std::max(static_cast<double>(token.entropy_nats), 0.0)) - 1.5;
    const auto own = static_cast<double>(token.probability);
    const double probability = std::isnan(own) ? 0 : std::log(std::max(own, kMin)) + 2;
    const auto ahead = static_cast<double>(token.margin);
    const double margin = std::isnan(ahead) ? 0 : 3 * std::log1p(std::min(ahead, kMaxMargin)) - 1.5;
    return {1, entropy, probability, margin, residual};
}

} // namespace

TokenChance::TokenChance(const Weights& first) : weights_(first, kWeightVariance, kWander) {}

double TokenChance::chance(const Weights& features) const {
    constexpr double kMin = 0.005;
    return std::clamp(1 / (1 + std::exp(-weights_.product(features))), kMin, 1 - kMin);
}

double TokenChance::of(const DraftedToken& token, double residual) const {
    return chance(features_of(token, residual));
}

// The logistic loss.
void TokenChance::learn(const DraftedToken& token, double residual, bool accepted) {
    const Weights features = features_of(token, residual);
    const double p = chance(features);
    weights_.learn(features, (accepted ? 1 : 0) - p, std::max(p * (1 - p), 0.01));
}

std::array<double, 4> TokenChance::line(double residual) const {
    const Weights& weights = weights_.values();
    return {weights[0] + weights[4] * residual, weights[1], weights[2], weights[3]};
}

// Old observations fade, the prior does not.
void GainModel::Bin::decay(double prior_accepted, double prior_seen) {
    accepted = prior_accepted + kDecay * (accepted - prior_accepted);
    seen = prior_seen + kDecay * (seen - prior_seen);
}

GainModel::GainModel(const GainModelOptions& options) : options_(options), times_(options.draft_to_target_cost) {
    by_match_.assign(kBins, {kPriorSeen * kPriorMatch, kPriorSeen});
    all_ = {kPriorSeen * kPriorMean, kPriorSeen};
    if (options.costs) fix_target_seconds(*options.costs);
}

// No row count costs less than a smaller one; wider passes than any measured go on as the measured ones grew.
void GainModel::fix_target_seconds(const Costs& costs) {
    const auto measured = static_cast<int>(costs.t_target.size());
    const double first = costs.target_seconds(1), last = costs.target_seconds(measured);
    const double slope = measured > 1 ? (last - first) / (measured - 1) : 0;
    double least = 0;
    for (int rows = 1; rows <= options_.max_rows; ++rows) {
        const double beyond = slope * std::max(0, rows - measured);
        const double round = costs.t_round.value_or(0); // a token more in a round saves some of these
        least = std::max(least, costs.target_seconds(rows) + beyond + round);
        target_seconds_.push_back(least);
    }
}

std::size_t GainModel::match_bin(int length) {
    return static_cast<std::size_t>(std::clamp(length, 0, kBins - 1));
}

double GainModel::acceptance(const DraftedToken& token, double residual) const {
    if (std::isnan(token.entropy_nats)) return by_match_[match_bin(token.match_length)].probability();
    return drawn_.of(token, residual);
}

double GainModel::mean_acceptance() const {
    return all_.probability();
}

double GainModel::draft_seconds(double passes, double further_rows) const {
    return options_.costs ? options_.costs->draft_seconds(passes, further_rows)
                          : times_.draft_seconds(passes, further_rows);
}

double GainModel::target_seconds(int rows) const {
    rows = std::clamp(rows, 1, options_.max_rows);
    return options_.costs ? target_seconds_[static_cast<std::size_t>(rows) - 1] : times_.target_seconds(rows);
}

double GainModel::tokens_per_second() const {
    return rounds_ < kFirstRounds || seconds_ <= 0 ? 0 : tokens_ / seconds_;
}

bool GainModel::knows_draft_cost() const {
    return options_.costs.has_value() || times_.knows_draft();
}

double GainModel::catch_up_seconds(int tokens) const {
    constexpr double kFirst = 0.1; // of a draft pass, a token, before any are timed
    if (options_.costs) return 0;
    const auto& [of_few, of_many] = catch_up_units_;
    const double known = (is_long(tokens) || of_few <= 0) && of_many > 0 ? of_many : of_few;
    return tokens * (known > 0 ? known : kFirst * draft_seconds(1));
}

double GainModel::seconds_per_token(Reading reading) const {
    const Pace& pace = paces_[static_cast<std::size_t>(reading)];
    return pace.rounds < kFirstRounds ? 0 : pace.seconds / pace.tokens;
}

void GainModel::learn_length(int new_tokens, int max_new_tokens) {
    constexpr double kStep = 0.1;
    length_share_ += kStep * (static_cast<double>(new_tokens) / std::max(1, max_new_tokens) - length_share_);
}

bool GainModel::affords(double seconds) const {
    constexpr double kShare = 0.005;
    return options_.costs || balance_ + kShare * spent_seconds_ >= seconds;
}

bool GainModel::may_begin(const BatchLoad& load) {
    constexpr int kEnough = 8;
    if (options_.costs || load.sequences == 1 || verified_ >= kEnough) return true;
    return !std::exchange(one_begins_, true);
}

void GainModel::decline(int sequences, bool for_reading) {
    sequences_ = sequences;
    ++declined_;
    declined_for_reading_ += for_reading ? 1 : 0;
}

DraftWorth GainModel::worth() const {
    constexpr int kEnoughChanges = 10; // passes of one row count alone tell nothing of rows
    const double pass = target_seconds(sequences_), token = pass / sequences_;
    DraftWorth worth = {declined_,
                        declined_for_reading_,
                        draft_seconds(1) / token,
                        knows_draft_cost(),
                        (target_seconds(sequences_ + 1) - pass) / token,
                        catch_up_seconds(1) / token,
                        mean_acceptance()};
    if (options_.costs || row_changes_ < kEnoughChanges) return worth;
    for (int rows = 1; rows <= options_.max_rows; ++rows)
        worth.row_costs.push_back(target_seconds(rows) / target_seconds(1));
    return worth;
}

void GainModel::drafted(bool as_probe) {
    probe_gap_ = as_probe ? std::min(4 * probe_gap_, kLastGap) : kFirstGap;
}

void GainModel::learn(const RoundRecord& round) {
    ++rounds_;
    const auto drafted = static_cast<int>(round.tokens.size());
    if (drafted > 0) {      // nothing is forgotten while nothing is learnt
        if (was_looked_up_) // else they are their prior still
            for (Bin& bin : by_match_)
                bin.decay(kPriorSeen * kPriorMatch, kPriorSeen);
        all_.decay(kPriorSeen * kPriorMean, kPriorSeen);
    }
    // Tokens behind the first rejected one were not verified.
    for (int i = 0; i < std::min(drafted, round.accepted + 1); ++i)
        learn_token(round.tokens[static_cast<std::size_t>(i)], round.residual, i < round.accepted);
    if (!options_.costs) learn_times(round);
    tokens_ = kDecay * tokens_ + round.n_emitted();
    const double pass = target_seconds(round.n_rows() + round.batch_load.rows_beside);
    const double drafting = draft_seconds(round.draft_passes, round.further_draft_rows);
    seconds_ = kDecay * seconds_ + drafting + pass / round.batch_load.sequences;
    learn_balance(round);
    if (round.reading) learn_reading(round);
}

// By the draft's own times: what was read decides about the cost of its passes too.
void GainModel::learn_reading(const RoundRecord& round) {
    Pace& pace = paces_[static_cast<std::size_t>(*round.reading)];
    const double expected = target_seconds(round.n_rows() + round.batch_load.rows_beside);
    const double target = std::min(round.target_seconds / times_.slowness(), kMaxOver * expected);
    const double drafting = round.draft_seconds / times_.slowness();
    ++pace.rounds;
    pace.tokens = kDecay * pace.tokens + round.n_emitted();
    pace.seconds = kDecay * pace.seconds + drafting + target / round.batch_load.sequences;
}

// What the round brought beyond a token, at the price of a round in which no sequence drafts, less what its draft and
// rows cost.
void GainModel::learn_balance(const RoundRecord& round) {
    constexpr int kTimed = 8; // tokens: of fewer the pass itself counts for more
    constexpr double kStep = 0.2;
    one_begins_ = false;
    const auto drafted = static_cast<int>(round.tokens.size());
    verified_ += std::min(drafted, round.accepted + 1);
    if (round.caught_up >= kTimed) {
        const double each = round.catch_up_seconds / times_.slowness() / round.caught_up;
        double& unit = catch_up_units_[is_long(round.caught_up) ? 1 : 0];
        unit = unit > 0 ? unit + kStep * (std::min(each, kMaxOver * unit) - unit) : each;
    }
    const double drafting = (knows_draft_cost() ? draft_seconds(round.draft_passes, round.further_draft_rows) : 0) +
                            catch_up_seconds(round.caught_up);
    const int sequences = round.batch_load.sequences, rows = round.batch_load.rows_beside + round.n_rows();
    const double pass = target_seconds(rows), plain = target_seconds(sequences);
    const double share = rows > sequences ? (round.n_rows() - 1.0) / (rows - sequences) : 0; // of the drafted rows
    spent_seconds_ += drafting + pass / sequences;
    balance_ += (round.n_emitted() - 1) * plain / sequences - drafting - share * (pass - plain);
}

void GainModel::learn_token(const DraftedToken& token, double residual, bool accepted) {
    const auto count = [&](Bin& bin) {
        bin.accepted += accepted ? 1 : 0;
        bin.seen += 1;
    };
    count(all_);
    if (!std::isnan(token.entropy_nats)) return drawn_.learn(token, residual, accepted);
    was_looked_up_ = true;
    count(by_match_[match_bin(token.match_length)]);
}

// Each sequence of a batch tells of the same pass, which counts once.
void GainModel::learn_times(const RoundRecord& round) {
    times_.learn_target(round.n_rows() + round.batch_load.rows_beside, round.target_seconds,
                        1.0 / round.batch_load.sequences);
    row_changes_ += round.n_rows() != last_rows_ ? 1 : 0;
    last_rows_ = round.n_rows();
    if (round.draft_passes > 0) times_.learn_draft(round.draft_passes, round.further_draft_rows, round.draft_seconds);
    rounds_since_timed_ = round.draft_passes > 0 ? 0 : rounds_since_timed_ + 1;
    if (rounds_since_timed_ == kLastGap) times_.forget_draft();
}

} // namespace entrodraft::spec
