#include "spec/plan/acceptance_model.h"

#include <algorithm>
#include <cmath>

namespace entrodraft::spec {

namespace {

constexpr double kPriorSeen = 4; // observations that a bin's prior is worth
constexpr double kPriorMean = 0.7, kPriorMatch = 0.5;
constexpr double kDecay = 0.998;        // per round
constexpr double kWeightVariance = 0.5; // of each weight at first, and at most
constexpr double kWander = 1e-6;        // variance that a weight gains with each token

// Each feature is about 0 for an average token, because the weights' first variance assumes that.
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

// ---- chains ----

void AcceptanceModel::Bin::count(bool is_accepted) {
    accepted += is_accepted ? 1 : 0;
    seen += 1;
}

// Old observations fade, the prior does not.
void AcceptanceModel::Bin::decay(double prior_mean) {
    const double prior_accepted = kPriorSeen * prior_mean;
    accepted = prior_accepted + kDecay * (accepted - prior_accepted);
    seen = kPriorSeen + kDecay * (seen - kPriorSeen);
}

AcceptanceModel::AcceptanceModel() {
    by_match_.assign(kBins, {kPriorSeen * kPriorMatch, kPriorSeen});
    all_ = {kPriorSeen * kPriorMean, kPriorSeen};
}

std::size_t AcceptanceModel::match_bin(int length) {
    return static_cast<std::size_t>(std::clamp(length, 0, kBins - 1));
}

double AcceptanceModel::of(const DraftedToken& token, double residual) const {
    if (std::isnan(token.entropy_nats)) return by_match_[match_bin(token.match_length)].probability();
    return drawn_.of(token, residual);
}

// Nothing is forgotten in a round without a draft. Tokens after the first rejected one were not verified.
void AcceptanceModel::learn(const RoundRecord& round) {
    if (round.tokens.empty()) return;
    if (was_looked_up_)
        for (Bin& bin : by_match_)
            bin.decay(kPriorMatch);
    all_.decay(kPriorMean);
    const int verified = std::min(round.n_drafted(), round.accepted + 1);
    for (int i = 0; i < verified; ++i)
        learn_token(round.tokens[i], round.residual, i < round.accepted);
    n_verified_ += verified;
}

void AcceptanceModel::learn_token(const DraftedToken& token, double residual, bool accepted) {
    all_.count(accepted);
    if (!std::isnan(token.entropy_nats)) return drawn_.learn(token, residual, accepted);
    was_looked_up_ = true;
    by_match_[match_bin(token.match_length)].count(accepted);
}

// ---- siblings of a tree ----

RankChances::RankChances(int max_ranks) {
    // The weights are for an average token. A sibling after the first is the target's token less often than its
    // probability says. Its margin has no weight, because the probability contains the margin.
    constexpr TokenChance::Weights kOfFirst = {0.7, 0.3, 0.8, 0, 1}, kOfSiblings = {-1.2, 0.3, 0.8, 0, 0};
    constexpr double kFirstMean = 0.6, kNextMean = 0.25; // of rank 0; ratio of each rank to the one before
    chances_.emplace_back(kOfFirst);
    chances_.resize(kOwn, TokenChance(kOfSiblings));
    for (int rank = 0; rank < max_ranks; ++rank)
        means_.push_back(kFirstMean * std::pow(kNextMean, rank));
}

double RankChances::of(const DraftedToken& ranked, int rank, double residual) const {
    return chances_[std::min(static_cast<std::size_t>(rank), kOwn - 1)].of(ranked, residual);
}

void RankChances::learn(const DraftedToken& ranked, int rank, double residual, bool is_emitted) {
    constexpr double kStep = 0.01; // of a mean
    chances_[std::min(static_cast<std::size_t>(rank), kOwn - 1)].learn(ranked, residual, is_emitted);
    double& mean = means_[rank];
    mean += kStep * ((is_emitted ? 1 : 0) - mean);
}

} // namespace entrodraft::spec
