// The results that a caller wants from a pass's rows of logits, in addition to the logits or instead of them.
//
// Plain data, between the callers that ask (spec) and the decoders that answer. decoder.h includes it.
#pragma once

#include "model/text/token_id.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>

namespace entrodraft::model {

class DeviceExtension;

// The summary that is made of each row of logits.
enum class LogitSummary {
    none,
    max,     // the largest and its place
    entropy, // also the sums for entropy and probabilities, made while the head's weights are read
};

// Noise that is added to a row's tokens before the best of them is chosen: logit / temperature + noise(token). noise()
// is that of spec/verify/random.h with this key and position.
struct RowNoise {
    std::array<std::uint32_t, 2> key = {};
    std::uint64_t position = 0;
    double temperature = 0; // 0: no noise
};

// The best of a row's tokens with noise.
struct NoisyToken {
    double value = 0;
    TokenId token = -1;                                          // -1: none
    float logit = 0;                                             // its logit without noise
    double runner_up = -std::numeric_limits<double>::infinity(); // second-best value
};

// The results that are wanted of the rows of logits.
struct LogitNeeds {
    LogitSummary summary = LogitSummary::none;
    bool rows = true;                 // the logits; if false, a GPU keeps them to itself
    std::span<const RowNoise> noises; // [logit rows]; empty: none has noise
    // The caller's work on the GPU that makes the rows (device_extension.h); null: none. Only for decoders on a GPU.
    DeviceExtension* extension = nullptr;

    LogitNeeds() = default;
    LogitNeeds(LogitSummary made, bool rows_too = true) : summary(made), rows(rows_too) {} // NOLINT: one is enough
    LogitNeeds with_rows() const { return {summary, true}; }
    // Returns needs that serve both, except noises and the extension, which belong to each pass's own rows.
    LogitNeeds and_those_of(const LogitNeeds& other) const {
        return {std::max(summary, other.summary), rows || other.rows};
    }
};

} // namespace entrodraft::model
