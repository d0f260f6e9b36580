// Learns weights w of features f online, by Newton's steps. The weights are assumed to wander, so learning never stops.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>

namespace entrodraft::spec {

template <std::size_t N> class LearnedWeights {
  public:
    using Vector = std::array<double, N>;

    // `variance`: of each weight at first, and at most. `wander`: the variance that a weight gains in a step.
    LearnedWeights(const Vector& first, const Vector& variance, const Vector& wander)
        : values_(first), max_variance_(variance), wander_(wander) {
        for (std::size_t i = 0; i < N; ++i)
            covariance_[i][i] = variance[i];
    }
    LearnedWeights(const Vector& first, double variance, double wander)
        : LearnedWeights(first, filled(variance), filled(wander)) {}

    const Vector& values() const { return values_; }
    void set(std::size_t i, double value) { values_[i] = value; }
    double product(const Vector& features) const {
        return std::inner_product(features.begin(), features.end(), values_.begin(), 0.0);
    }
    // Learns from one observation. `slope`: minus the first derivative of its loss in w . f. `curvature`: the second
    // one. `share`: the part of the observation that this call reports, if the observation comes in parts.
    void learn(const Vector& features, double slope, double curvature, double share = 1);

  private:
    static Vector filled(double value) {
        Vector vector;
        vector.fill(value);
        return vector;
    }

    Vector values_;
    std::array<Vector, N> covariance_{};
    Vector max_variance_, wander_;
    std::size_t n_seen_ = 0; // the weights from this one on have had no feature but 0
};

// Between rounds the models' passes push these weights out of the processor's caches. So this touches only the weights
// in use.
template <std::size_t N>
void LearnedWeights<N>::learn(const Vector& features, double slope, double curvature, double share) {
    const auto last = std::find_if(features.rbegin(), features.rend(), [](double feature) { return feature != 0; });
    n_seen_ = std::max(n_seen_, static_cast<std::size_t>(features.rend() - last));
    Vector gain{};
    for (std::size_t i = 0; i < n_seen_; ++i) {
        Vector& row = covariance_[i];
        if (row[i] < max_variance_[i]) row[i] += share * wander_[i];
        for (std::size_t j = 0; features[i] != 0 && j < n_seen_; ++j)
            gain[j] += features[i] * row[j];
    }
    const double spread = std::inner_product(features.begin(), features.end(), gain.begin(), 0.0);
    const double scale = share / (1 + share * curvature * spread);
    for (std::size_t i = 0; i < n_seen_; ++i) {
        values_[i] += scale * slope * gain[i];
        const double step = scale * curvature * gain[i];
        for (std::size_t j = 0; j < n_seen_; ++j)
            covariance_[i][j] -= step * gain[j];
    }
}

} // namespace entrodraft::spec
