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
constexpr double kWander = 1e-5;        // variance that a weight gains a token
constexpr double kCostVariance = 1;     // the same of what draft passes take, in what the first is taken to
constexpr double kCostWander = 1e-4;    // a round
constexpr double kMaxOver = 1.5;        // a round's time counts for at most so many times what is expected of it
constexpr std::size_t kNarrow = 16;     // rows up to which each row count has its own mean
constexpr double kRowCost = 0.03;       // of a further row, in passes of one row, before anything is measured

// Each is about 0 for a middling token: the weights' first uncertainty is meant for that.
TokenChance::Weights features_of(const DraftedToken& token, double residual) {
    constexpr double kMin = 1e-4;
    const double entropy = std::sqrt(std::max(static_cast<double>(token.entropy_nats), 0.0)) - 1.5;
    const auto own = static_cast<double>(token.probability);
    const double probability = std::isnan(own) ? 0 : std::log(std::max(own, kMin)) + 2;
    return {1, entropy, probability, residual};
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

// Old observations fade, the prior does not.
void GainModel::Bin::decay(double prior_accepted, double prior_seen) {
    accepted = prior_accepted + kDecay * (accepted - prior_accepted);
    seen = prior_seen + kDecay * (seen - prior_seen);
}

GainModel::GainModel(const GainModelOptions& options)
    : options_(options), draft_({1, 1, kRowCost}, kCostVariance, kCostWander),
      draft_unit_(options.draft_to_target_cost) {
    by_match_.assign(kBins, {kPriorSeen * kPriorMatch, kPriorSeen});
    all_ = {kPriorSeen * kPriorMean, kPriorSeen};
    by_rows_.resize(static_cast<std::size_t>(options.max_rows));
    refresh_target_seconds();
}

std::size_t GainModel::match_bin(int length) {
    return static_cast<std::size_t>(std::clamp(length, 0, kBins - 1));
}

double GainModel::acceptance(const DraftedToken& token, double residual) const {
    if (std::isnan(token.entropy_nats)) return by_match_[match_bin(token.match_length)].probability();
    return drawn_.of(token, residual);
}

std::array<double, 3> GainModel::weights(double residual) const {
    const TokenChance::Weights& weights = drawn_.weights();
    return {weights[0] + weights[3] * residual, weights[1], weights[2]};
}

double GainModel::mean_acceptance() const {
    return all_.probability();
}

namespace {

// Of the draft passes of a round.
LearnedWeights<3>::Vector counts_of(double passes, double further_rows) {
    return {std::clamp(passes, 0.0, 1.0), std::max(passes - 1, 0.0), further_rows};
}

} // namespace

double GainModel::draft_seconds(double passes, double further_rows) const {
    const LearnedWeights<3>::Vector counts = counts_of(passes, further_rows);
    if (!options_.costs) return draft_unit_ * draft_.product(counts);
    return counts[0] * options_.costs->first_draft_seconds() + counts[1] * options_.costs->t_draft +
           counts[2] * options_.costs->t_draft_row;
}

double GainModel::target_seconds(int rows) const {
    return target_seconds_[static_cast<std::size_t>(std::clamp(rows, 1, options_.max_rows)) - 1];
}

double GainModel::tokens_per_second() const {
    return rounds_ < kFirstRounds || seconds_ <= 0 ? 0 : tokens_ / seconds_;
}

bool GainModel::knows_draft_cost() const {
    return options_.costs.has_value() || draft_was_timed_;
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
    constexpr double kShare = 0.01;
    return options_.costs || balance_ + kShare * spent_seconds_ >= seconds;
}

bool GainModel::may_begin(const BatchLoad& load) {
    constexpr int kEnough = 8;
    if (options_.costs || load.sequences == 1 || verified_ >= kEnough) return true;
    return !std::exchange(one_begins_, true);
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

// By the clock: what was read decides about the cost of draft passes too, and about what else a text's rounds are like.
void GainModel::learn_reading(const RoundRecord& round) {
    Pace& pace = paces_[static_cast<std::size_t>(*round.reading)];
    const double expected = target_seconds(round.n_rows() + round.batch_load.rows_beside);
    const double target = std::min(round.target_seconds, kMaxOver * expected);
    ++pace.rounds;
    pace.tokens = kDecay * pace.tokens + round.n_emitted();
    pace.seconds = kDecay * pace.seconds + round.draft_seconds + target / round.batch_load.sequences;
}

// What the round brought beyond a token, at the price of a round without a draft, less what its draft and rows cost.
void GainModel::learn_balance(const RoundRecord& round) {
    constexpr int kTimed = 8; // tokens: of fewer the pass itself counts for more
    constexpr double kStep = 0.2;
    one_begins_ = false;
    const auto drafted = static_cast<int>(round.tokens.size());
    verified_ += std::min(drafted, round.accepted + 1);
    if (round.caught_up >= kTimed) {
        const double each = round.catch_up_seconds / round.caught_up;
        double& unit = catch_up_units_[is_long(round.caught_up) ? 1 : 0];
        unit = unit > 0 ? unit + kStep * (std::min(each, kMaxOver * unit) - unit) : each;
    }
    const double drafting =
        draft_seconds(round.draft_passes, round.further_draft_rows) + catch_up_seconds(round.caught_up);
    const int beside = round.batch_load.rows_beside, rows = beside + round.n_rows();
    const double plain = target_seconds(beside + 1);
    const int more = round.n_emitted() - 1;
    spent_seconds_ += drafting + target_seconds(rows) / round.batch_load.sequences;
    balance_ += more * plain / round.batch_load.sequences - drafting - (target_seconds(rows) - plain);
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

// Times come with outliers: a value counts for at most kMaxOver times what is expected of it. A row count whose mean
// one of them had raised would not come up again. Each sequence of a batch tells of the same pass, which counts once.
void GainModel::learn_times(const RoundRecord& round) {
    constexpr double kMaxWeight = 200; // passes a mean looks back on
    // A row count that came up long ago gives way to the line through those that come up now: were its time taken in a
    // bad moment, it might keep itself from ever coming up again.
    constexpr double kTimeDecay = 0.002, kForgotten = 1e-3; // a pass; a weight
    const double share = 1.0 / round.batch_load.sequences;  // of the pass
    const auto rows = static_cast<std::size_t>(round.n_rows() + round.batch_load.rows_beside) - 1;
    Timing& timing = by_rows_[std::min(rows, by_rows_.size() - 1)];
    const bool is_first = rounds_ == 1;
    if (is_first) // until now only the ratio of the two was known
        draft_unit_ *= round.target_seconds / target_seconds_[std::min(rows, target_seconds_.size() - 1)];
    const double expected = timing.weight > 0 ? timing.seconds
                            : is_first        ? round.target_seconds
                                              : target_seconds(static_cast<int>(rows) + 1);
    for (Timing& each : by_rows_) {
        each.weight *= 1 - kTimeDecay * share;
        if (each.weight < kForgotten) each.weight = 0;
    }
    timing.weight = std::min(timing.weight + share, kMaxWeight);
    const double value = std::min(round.target_seconds, kMaxOver * expected);
    timing.seconds += (value - timing.seconds) * share / timing.weight;
    refresh_target_seconds();

    if (round.draft_passes > 0) learn_draft_times(round);
}

// Squares of errors relative to what was expected.
void GainModel::learn_draft_times(const RoundRecord& round) {
    constexpr double kNoise = 0.3; // of a round's time, relative
    const LearnedWeights<3>::Vector counts = counts_of(round.draft_passes, round.further_draft_rows);
    const double expected = draft_.product(counts);
    if (!draft_was_timed_) draft_unit_ = round.draft_seconds / expected; // the ratio of weights is far from it at times
    draft_was_timed_ = true;
    if (!(draft_unit_ > 0)) return;
    const double error = std::min(round.draft_seconds / draft_unit_, kMaxOver * expected) - expected;
    const double curvature = 1 / (kNoise * expected * kNoise * expected);
    draft_.learn(counts, curvature * error, curvature);
    const auto& [first, next, row] = draft_.values();
    constexpr double kMin = 1e-3;
    draft_.set(0, std::max(first, kMin));
    draft_.set(1, std::clamp(next, kMin, first)); // it finds its weights in the caches
    draft_.set(2, std::clamp(row, 0.0, next));
}

// Weighted least squares of seconds on rows over by_rows_[begin, end). The prior's slope stands in while all rounds
// were alike, and where nothing was measured there all that was measured has to do.
GainModel::Line GainModel::line_through(std::size_t begin, std::size_t end) const {
    double weight = 0, rows = 0, seconds = 0, rows_rows = 0, rows_seconds = 0;
    for (std::size_t i = begin; i < end; ++i) {
        const auto r = static_cast<double>(i + 1);
        const double w = by_rows_[i].weight, t = by_rows_[i].seconds;
        weight += w;
        rows += w * r;
        seconds += w * t;
        rows_rows += w * r * r;
        rows_seconds += w * r * t;
    }
    if (weight == 0) return end - begin < by_rows_.size() ? line_through(0, by_rows_.size()) : Line{1, kRowCost};
    const double mean_rows = rows / weight, mean_seconds = seconds / weight;
    const double prior = kRowCost * mean_seconds, strength = 4;
    const double spread = rows_rows - weight * mean_rows * mean_rows;
    double slope = (rows_seconds - weight * mean_rows * mean_seconds + strength * prior) / (spread + strength);
    slope = std::clamp(slope, 0.0, mean_seconds / mean_rows); // a pass of no rows takes no less than nothing
    return {mean_seconds - slope * mean_rows, slope};
}

// A line through what was measured carries the row counts that were seen little; no count costs less than a smaller.
// Wide passes come in so many row counts that each is seen little: theirs is a line alone, and no wide row costs less
// than its slope, for a step where it begins would make the first one seem free.
void GainModel::refresh_target_seconds() {
    target_seconds_.resize(by_rows_.size());
    if (options_.costs) {
        // Wider passes than any measured go on as the measured ones grew.
        const std::size_t measured = options_.costs->t_target.size();
        const double first = options_.costs->target_seconds(1);
        const double last = options_.costs->target_seconds(static_cast<int>(measured));
        const double slope = measured > 1 ? (last - first) / static_cast<double>(measured - 1) : 0;
        for (std::size_t i = 0; i < target_seconds_.size(); ++i) {
            const double beyond = i < measured ? 0 : slope * static_cast<double>(i + 1 - measured);
            const double round = options_.costs->t_round.value_or(0); // a token more in a round saves some of these
            const double seconds = options_.costs->target_seconds(static_cast<int>(i) + 1) + beyond + round;
            target_seconds_[i] = std::max(i > 0 ? target_seconds_[i - 1] : 0, seconds);
        }
        return;
    }
    const std::size_t n = by_rows_.size(), n_narrow = std::min(n, kNarrow);
    const Line narrow = line_through(0, n_narrow);
    for (std::size_t i = 0; i < n_narrow; ++i) {
        constexpr double kLineWeight = 10;
        const double line = narrow.at(i), w = by_rows_[i].weight;
        target_seconds_[i] = (w * by_rows_[i].seconds + kLineWeight * line) / (w + kLineWeight);
        if (i > 0) target_seconds_[i] = std::max(target_seconds_[i], target_seconds_[i - 1]);
    }
    if (n == n_narrow) return;
    const Line wide = line_through(n_narrow / 2, n);
    for (std::size_t i = n_narrow; i < n; ++i)
        target_seconds_[i] = std::max(target_seconds_[i - 1] + wide.slope, wide.at(i));
}

} // namespace entrodraft::spec
