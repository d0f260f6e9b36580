#include "spec/stop/learned_weights.h"

namespace entrodraft::spec {

// Between rounds the models' weights go through the caches: what is not touched here need not come back into them.
void learn_weights(const WeightRows& weights, const double* features, double slope, double curvature, double share,
                   double* gain) {
    const std::size_t n = weights.n;
    std::fill_n(gain, n, 0.0);
    for (std::size_t i = 0; i < n; ++i) {
        double* row = weights.covariance + i * weights.stride;
        if (row[i] < weights.max_variance[i]) row[i] += share * weights.wander[i];
        for (std::size_t j = 0; features[i] != 0 && j < n; ++j)
            gain[j] += features[i] * row[j];
    }
    const double spread = std::inner_product(features, features + n, gain, 0.0);
    const double scale = share / (1 + share * curvature * spread);
    for (std::size_t i = 0; i < n; ++i) {
        weights.values[i] += scale * slope * gain[i];
        double* row = weights.covariance + i * weights.stride;
        const double step = scale * curvature * gain[i];
        for (std::size_t j = 0; j < n; ++j)
            row[j] -= step * gain[j];
    }
}

} // namespace entrodraft::spec
