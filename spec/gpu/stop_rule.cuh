// A stop rule as numbers (DeviceStopRule). One thread asks it after each drafted token.
//
// Included by draft_loop.cu and tree_loop.cu.
#pragma once

#include "spec/gpu/kernels.h"

#include "model/gpu/simt.cuh"

namespace entrodraft::spec::gpu {

// Compute as LogitStats does, rounded to float32 as for rules.
template <typename Stats> __device__ double entropy_of(const Stats& stats) {
    const double entropy = log(stats.sum_exp) - stats.sum_shifted_exp / stats.sum_exp;
    return static_cast<double>(static_cast<float>(entropy > 0 ? entropy : 0));
}
template <typename Stats> __device__ double probability_of(const Stats& stats, float logit) {
    return exp(static_cast<double>(logit) - static_cast<double>(stats.max)) / stats.sum_exp;
}

// Computes as TokenChance does. The margin of a ranked token is not known: NaN.
__device__ inline double acceptance(const double (&weights)[4], double entropy, double probability, double margin) {
    const double ahead = margin >= 0 ? 3 * log1p(margin < 20 ? margin : 20) - 1.5 : 0;
    const double z = weights[0] + weights[1] * (sqrt(entropy) - 1.5) +
                     weights[2] * (log(probability > 1e-4 ? probability : 1e-4) + 2) + weights[3] * ahead;
    const double chance = 1 / (1 + exp(-z));
    return chance < 0.005 ? 0.005 : chance > 0.995 ? 0.995 : chance;
}

// Returns whether the draft ends after the t-th token, which has this row, logit and margin. Must be called for each
// token in order.
template <typename Stats>
__device__ bool stops(const DeviceStopRule& stop, RuleHistory& history, int t, const Stats& stats, float logit,
                      float margin) {
    const double x = stats.sum_exp > 0 ? entropy_of(stats) : 0, probability = probability_of(stats, logit);
    if (t == 1) history.product = 1;
    history.squares[t - 1] = x * x;
    if (stop.kind == DeviceStopRule::Kind::gain)
        history.product *= acceptance(stop.weights, x, probability, static_cast<double>(margin));
    if (t < stop.first) return false;
    const int before = t - 1 < stop.window ? t - 1 : stop.window;
    double earlier = 0;
    for (int i = t - 1 - before; i < t - 1; ++i)
        earlier += history.squares[i];
    const double latest = history.squares[t - 1];
    switch (stop.kind) {
    case DeviceStopRule::Kind::never:
        return false;
    case DeviceStopRule::Kind::entropy:
        return x >= stop.threshold;
    case DeviceStopRule::Kind::moving_average:
        return before > 0 && latest >= stop.factor * earlier / before;
    case DeviceStopRule::Kind::squares:
        return earlier + latest >= stop.threshold;
    case DeviceStopRule::Kind::probability:
        return probability < stop.threshold;
    case DeviceStopRule::Kind::gain:
        return history.product < static_cast<double>(stop.least[t - 1]);
    }
    return false;
}

} // namespace entrodraft::spec::gpu
