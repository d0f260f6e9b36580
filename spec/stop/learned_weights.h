// Weights w of features f, learnt online by Newton's steps. They are taken to wander, so that learning never ceases.
#pragma once

#include <array>
#include <cstddef>
#include <numeric>

namespace entrodraft::spec {

template <std::size_t N> class LearnedWeights {
  public:
    using Vector = std::array<double, N>;

    // `variance` of each weight before anything is seen, and at most; `wander`: what it gains a step.
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
    // One observation: the first and second derivatives of its loss in w . f, the first with its sign turned. Of one
    // that comes in parts, `share` says how much of it this is.
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
};

template <std::size_t N>
void LearnedWeights<N>::learn(const Vector& features, double slope, double curvature, double share) {
    Vector gain;
    for (std::size_t i = 0; i < N; ++i) {
        if (covariance_[i][i] < max_variance_[i]) covariance_[i][i] += share * wander_[i];
        gain[i] = std::inner_product(features.begin(), features.end(), covariance_[i].begin(), 0.0);
    }
    const double spread = std::inner_product(features.begin(), features.end(), gain.begin(), 0.0);
    const double scale = share / (1 + share * curvature * spread);
    for (std::size_t i = 0; i < N; ++i) {
        values_[i] += scale * slope * gain[i];
        for (std::size_t j = 0; j < N; ++j)
            covariance_[i][j] -= scale * curvature * gain[i] * gain[j];
    }
}

} // namespace entrodraft::spec
