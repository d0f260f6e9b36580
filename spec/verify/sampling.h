// Turns logits into tokens: one-pass statistics of a row, and the adjusted distribution (temperature, then top-k, then
// top-p, then min-p, as Hugging Face transformers applies them).
//
// Pure functions of one row; called by drafters, verification and the ranks' gather.
#pragma once

#include "spec/verify/token_id.h"

#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

namespace entrodraft::spec {

// No token has any probability: bans have left none.
class NothingToSay final : public std::runtime_error {
  public:
    NothingToSay() : std::runtime_error("the text comes to a place where every token is banned") {}
};

struct SamplingOptions {
    double temperature = 0; // 0: greedy
    int top_k = 0;          // 0: off
    double top_p = 1;       // 1: off
    double min_p = 0;       // 0: off
    std::uint64_t seed = 0;

    bool greedy() const { return temperature == 0; }
    // Returns whether a filter needs all logits of a row, not only the largest.
    bool needs_all_logits() const { return top_p < 1; }
    bool filters() const { return top_k > 0 || top_p < 1 || min_p > 0; }
};

// Calls visit(name, option) for each option, with its name in JSON. Packets, recordings and settings hold all of these.
void visit_options(auto& sampling, const auto& visit) {
    visit("temperature", sampling.temperature);
    visit("top_k", sampling.top_k);
    visit("top_p", sampling.top_p);
    visit("min_p", sampling.min_p);
    visit("seed", sampling.seed);
}

// A temperature is 0 or in [kMinTemperature, kMaxTemperature]. Others are refused: float cannot hold their quotients.
constexpr double kMinTemperature = 1e-6;
constexpr double kMaxTemperature = 1e6;

// Returns why the options are invalid, with the option's name; empty if they are valid.
const char* why_invalid(const SamplingOptions& options);

// Fills `probabilities` (as long as `logits`, sum 1, 0 for filtered tokens) with the distribution after a temperature
// above 0, top-k, top-p and min-p. All ties at the top-k border are kept, as in transformers. Ties at the top-p border
// are kept from the lowest id on; transformers uses an unstable sort. min-p keeps tokens with at least that share of
// the largest probability, up to rounding. Probabilities below 2^-100 of the largest become 0. -inf bans a token.
// Throws std::invalid_argument on options that are greedy or invalid, std::runtime_error on NaN and +inf, and
// NothingToSay if all are -inf.
void adjust(std::span<const float> logits, const SamplingOptions& options, std::span<float> probabilities);

// The lowest id of the largest value. Throws std::runtime_error if a value is NaN, or if there are no values.
TokenId arg_max(std::span<const float> values);

// Ids of the k largest values, the largest first; of equal values the lower id first. Ids of -inf are left out, so
// there may be fewer. No value may be NaN.
std::vector<TokenId> best_tokens(std::span<const float> values, std::size_t k);

// The token at quantile u in [0, 1) of a distribution whose sum may differ from 1 by rounding. Never returns a token of
// probability 0. Throws NothingToSay if the sum is 0, and std::runtime_error if it is not a number.
TokenId sample(std::span<const float> probabilities, double u);

// The token at quantile u of norm(max(0, factor * p - q)), a row that is never stored; -1 if it is 0 everywhere.
// Throws std::runtime_error if a value is NaN.
TokenId sample_excess(std::span<const float> p, std::span<const float> q, double u, double factor = 1);

// Entropy of a distribution in nats; NaN if a value is NaN.
double entropy_nats(std::span<const float> probabilities);

// Sum of max(0, factor * p - q); NaN if a value is NaN. Throws std::invalid_argument if the lengths differ.
double sum_of_excess(std::span<const float> p, std::span<const float> q, double factor = 1);

// logit / temperature, rounded to float. transformers sorts and compares these values, so neighbouring logits may tie.
float quotient(float logit, double temperature);

// The least logits that adjust() keeps with top_k > 0, and with min_p > 0 if the largest logit is `max`. If there are
// at most k logits, top-k keeps all. No logit may be NaN; the options must be valid and not greedy.
float top_k_border(std::span<const float> logits, const SamplingOptions& options);
float min_p_border(float max, const SamplingOptions& options);

} // namespace entrodraft::spec
