// A stop rule as numbers, for a device that drafts by itself: plain data, which StopCondition::forecast fills and
// spec/gpu/draft_loop.cu reads.
#pragma once

namespace entrodraft::spec {

// When no further token will be wanted, by what is known of those drafted in the loop; x is a token's entropy in nats.
struct DeviceStopRule {
    enum class Kind {
        never,
        entropy,        // x >= threshold
        moving_average, // x^2 >= factor * mean of the window before it
        squares,        // sum of x^2 over the last window + 1 >= threshold
        probability,    // the token's own < threshold
        gain,           // the product of acceptances < least[t - 1] after t tokens
    };
    int max_rows = 1; // the pass's own row of logits included
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

} // namespace entrodraft::spec
