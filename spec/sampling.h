// From logits to what is said: one-pass statistics of a row, and the adjusted distribution
// (temperature, then top-k, then top-p, as Hugging Face transformers applies them).
//
// Pure functions of one row; called by the drafter, verify and the ranks' gather.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace entrodraft::spec {

using TokenId = std::int32_t;

struct SamplingOptions {
    double temperature = 0; // 0: greedy
    int top_k = 0;          // 0: off
    double top_p = 1;       // 1: off
    std::uint64_t seed = 0;

    bool greedy() const { return temperature == 0; }
};

// Empty when the options make sense; else what is wrong, naming the option. Local.
const char* why_invalid(const SamplingOptions& options);

// Fills `probabilities` (as long as `logits`, sum 1, zeros where filtered) with the distribution after
// temperature > 0, top-k and top-p. Ties at the top-k border are all kept, as transformers does. Local.
void adjust(std::span<const float> logits, const SamplingOptions& options, std::span<float> probabilities);

// The lowest id of the largest value. Local.
TokenId arg_max(std::span<const float> values);

// The token at quantile u in [0, 1) of a distribution whose sum may differ from 1 by rounding. Never a token
// of probability 0. Local.
TokenId sample(std::span<const float> probabilities, double u);

} // namespace entrodraft::spec
