// Sums over a row of logits, as a pass makes them on any device.
#pragma once

#include <cstdint>
#include <limits>

namespace entrodraft::model {

// The result of one walk over a row of logits, or over a part of it; merge() joins parts.
struct LogitStats {
    float max = 0;                                             // NaN where a logit is not a number
    std::int32_t arg_max = -1;                                 // lowest index of max; not meaningful for NaN
    double sum_exp = 0;                                        // sum of exp(x - max)
    double sum_shifted_exp = 0;                                // sum of (x - max) exp(x - max)
    float runner_up = -std::numeric_limits<float>::infinity(); // second-best value; equals max where two have it

    double log_sum_exp() const;
    double entropy_nats() const;
    double probability(float logit) const; // for a token of this row
};
LogitStats merge(const LogitStats& left, const LogitStats& right); // left holds the lower indices

} // namespace entrodraft::model
