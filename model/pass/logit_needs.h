// What is wanted of a pass's rows of logits, beside or instead of the logits themselves.
//
// Plain data, between those who ask (spec) and the decoders that answer. Called by decoder.h.
#pragma once

#include "model/text/token_id.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>

namespace entrodraft::model {

class DeviceExtension;

// What is made of each row of logits.
enum class LogitSummary {
    none,
    max,     // the largest and its place
    entropy, // the sums behind entropy and probabilities as well, made while the head's weights are read
};

// What a row's tokens are given before the best of them is looked for: noise(token) of spec/verify/random.h, whose key
// and position these are, added to logit / temperature.
struct RowNoise {
    std::array<std::uint32_t, 2> key = {};
    std::uint64_t position = 0;
    double temperature = 0; // 0: no noise
};

// The best of a row's tokens with its noise.
struct NoisyToken {
    double value = 0;
    TokenId token = -1;                                          // -1: none
    float logit = 0;                                             // its own, as it came
    double runner_up = -std::numeric_limits<double>::infinity(); // second-best value
};

// What is wanted of the rows of logits.
struct LogitNeeds {
    LogitSummary summary = LogitSummary::none;
    bool rows = true;                 // the logits; where not, the rest serves, and a GPU keeps them to itself
    std::span<const RowNoise> noises; // [logit rows]; empty: none has noise
    // Work of the caller's on the GPU that makes the rows (device_extension.h); null: none. Only of decoders on a GPU.
    DeviceExtension* extension = nullptr;

    LogitNeeds() = default;
    LogitNeeds(LogitSummary made, bool rows_too = true) : summary(made), rows(rows_too) {} // NOLINT: one says all
    LogitNeeds with_rows() const { return {summary, true}; }
    // What serves both, but for noises and the extension, which are each row's own.
    LogitNeeds and_those_of(const LogitNeeds& other) const {
        return {std::max(summary, other.summary), rows || other.rows};
    }
};

} // namespace entrodraft::model
