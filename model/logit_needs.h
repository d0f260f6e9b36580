// What is wanted of a pass's rows of logits, beside or instead of the logits themselves.
//
// Plain data, between those who ask (spec) and the decoders that answer. Called by decoder.h.
#pragma once

#include "model/token_id.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace entrodraft::model {

// What is made of each row of logits.
enum class LogitSummary {
    none,
    max,     // the largest and its place
    entropy, // the sums behind entropy and probabilities as well, made while the head's weights are read
};

// What a row's tokens are given before the best of them is looked for: noise(token) of spec/verify/gumbel.h, whose key
// and position these are, added to logit / temperature.
struct RowNoise {
    std::array<std::uint32_t, 2> key = {};
    std::uint64_t position = 0;
    double temperature = 0; // 0: no noise
};

// The best of a row's tokens with its noise.
struct NoisyToken {
    double value = 0;
    TokenId token = -1; // -1: none
    float logit = 0;    // its own, as it came
};

// When a chain's next rows will no longer be wanted, by what is known of its tokens: the stop rules of
// spec/stop/stop_rule.h as numbers. x is a token's entropy in nats.
struct ChainStop {
    enum class Kind {
        never,
        entropy,        // x >= threshold
        moving_average, // x^2 >= factor * mean of the window before it
        squares,        // sum of x^2 over the last window + 1 >= threshold
        probability,    // the token's own < threshold
        gain,           // the product of acceptances < least[t - 1] after t tokens
    };
    Kind kind = Kind::never;
    int first = 1; // token at which it is first looked at
    int window = 0;
    double threshold = 0;
    double factor = 0;
    // Of gain: acceptance = 1 / (1 + exp(-(weights . (1, sqrt(x) - 1.5, log(p) + 2)))).
    double weights[3] = {}; // plain arrays: devices read them
    static constexpr int kMaxLeast = 128;
    float least[kMaxLeast] = {};
};

// A chain that a decoder may go on with by itself: the best token of a row is read as the next row.
struct Chain {
    int max_rows = 1; // the pass's own row of logits included
    ChainStop stop;
};

// A row of the target's that a GPU verifies where it lies: by the row that the token behind it was drawn from. p and q
// are the softmaxes of both at the temperature, over the tokens that count.
struct DraftedRow {
    TokenId drafted = -1;                // the token behind it; -1: none was drafted
    const float* draft_logits = nullptr; // as PassResult::kept says; null where this rank has not drafted
    bool is_first = false;               // of its text's
    // p is scaled by what `block` calls the share of the drafted prefix that the target can use: 1 for the first row,
    // then min(1, share of the row before * its p / its q of the token drafted).
    bool is_scaled = false;
    float lenience = 1; // of VerifiedRow::overlap
    RowNoise noise;     // of the token emitted if the text ends here; of temperature 0: the row is not verified
};

// What comes of that. s is the scale of p, or 1.
struct VerifiedRow {
    double p = 0, q = 0; // of the token drafted
    double scale = 1;    // s
    double excess = 0;   // sum of max(0, s p - q)
    double overlap = 0;  // sum of min(p / lenience, q)
    TokenId next = -1;   // a sample of max(0, s p - q), of p where nothing was drafted; -1: no row, or no numbers in it
    std::int32_t unused = 0;
};

// What is wanted of the rows of logits.
struct LogitNeeds {
    LogitSummary summary = LogitSummary::none;
    bool rows = true;                 // the logits; where not, the rest serves, and a GPU keeps them to itself
    std::span<const RowNoise> noises; // [logit rows]; empty: none has noise
    const Chain* chain = nullptr;     // of a pass with one row of logits, its last row: more rows may come
    // Rows stay on the GPU (PassResult::kept), the first as number keep_from of those kept, until others are kept under
    // their numbers; -1: none stays. Only where Decoder::keeps_logits_on_device().
    int keep_from = -1;
    std::span<const DraftedRow>
        drafted; // [logit rows] to be verified; empty: none is. Only where Decoder::keeps_logits_on_device()

    LogitNeeds() = default;
    LogitNeeds(LogitSummary made, bool rows_too = true) : summary(made), rows(rows_too) {} // NOLINT: one says all
    LogitNeeds with_rows() const { return {summary, true}; }
    // What serves both, but for noises, chains and what follows them, which are each row's own. Local.
    LogitNeeds and_those_of(const LogitNeeds& other) const {
        return {std::max(summary, other.summary), rows || other.rows};
    }
};

} // namespace entrodraft::model
