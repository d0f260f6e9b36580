// From logits to tokens: one-pass statistics of a row, and the adjusted distribution
// (temperature, then top-k, then top-p, then min-p, as Hugging Face transformers applies them).
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
    bool filters() const { return top_k > 0 || top_p < 1 || min_p > 0; }
};

// Calls visit(name, option) for each, by its name in JSON: packets, recordings and settings hold all that are here.
void visit_options(auto& sampling, const auto& visit) {
    visit("temperature", sampling.temperature);
    visit("top_k", sampling.top_k);
    visit("top_p", sampling.top_p);
    visit("min_p", sampling.min_p);
    visit("seed", sampling.seed);
}

// Temperatures outside 0 and [kMinTemperature, kMaxTemperature] are refused: float cannot hold their quotients.
constexpr double kMinTemperature = 1e-6;
constexpr double kMaxTemperature = 1e6;

// Empty when the options make sense; else what is wrong, naming the option.
const char* why_invalid(const SamplingOptions& options);

// Fills `probabilities` (as long as `logits`, sum 1, zeros where filtered) with the distribution after
// temperature > 0, top-k, top-p and min-p. Ties at the top-k border are all kept, as in transformers; of ties at the
// top-p border the lowest ids are kept (transformers leaves their order to an unstable sort); min-p keeps what has at
// least that share of the greatest probability, up to rounding. Probabilities below 2^-100 of the greatest become 0;
// -inf bans a token. Throws std::invalid_argument on options that are greedy or invalid, std::runtime_error on NaN and
// +inf, NothingToSay where there is only -inf.
void adjust(std::span<const float> logits, const SamplingOptions& options, std::span<float> probabilities);

// The lowest id of the largest value. Throws std::runtime_error where a value is NaN, or there is none.
TokenId arg_max(std::span<const float> values);

// The k largest values' ids, the largest first, the lower id first of equal ones; fewer where others are -inf.
// NaN-free.
std::vector<TokenId> best_tokens(std::span<const float> values, std::size_t k);

// The token at quantile u in [0, 1) of a distribution whose sum may differ from 1 by rounding. Never a token
// of probability 0. Throws NothingToSay where the sum is 0, std::runtime_error where it is not a number.
TokenId sample(std::span<const float> probabilities, double u);

// The token at quantile u of norm(max(0, factor * p - q)), without a row to hold it; -1 where that is 0 everywhere.
// Throws std::runtime_error where a value is NaN.
TokenId sample_excess(std::span<const float> p, std::span<const float> q, double u, double factor = 1);

// Entropy of a distribution in nats, NaN where a value is.
double entropy_nats(std::span<const float> probabilities);

// Sum of max(0, factor * p - q), NaN where a value is. Throws std::invalid_argument on lengths.
double sum_of_excess(std::span<const float> p, std::span<const float> q, double factor = 1);

// A logit over the temperature, rounded to float: what transformers sorts and compares, so that neighbouring logits may
// tie.
float quotient(float logit, double temperature);

// The borders that adjust() draws with top_k > 0, and with min_p > 0 beside a greatest logit of `max`: it keeps logits
// that are no less (with top-k all of `logits` where there are no more than k). NaN-free; options must be valid and not
// greedy.
float top_k_border(std::span<const float> logits, const SamplingOptions& options);
float min_p_border(float max, const SamplingOptions& options);

} // namespace entrodraft::spec
