// Weights w of features f, learnt online by Newton's steps. They are taken to wander, so that learning never ceases.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>

namespace entrodraft::spec {

// What LearnedWeights keep, of the first n weights.
struct WeightRows {
    std::size_t n = 0;
    std::size_t stride = 0; // of the covariance
    double* values = nullptr;
    double* covariance = nullptr;
    const double* max_variance = nullptr;
    const double* wander = nullptr;
};

// LearnedWeights::learn. `gain`: room for n. Local.
void learn_weights(const WeightRows& weights, const double* features, double slope, double curvature, double share,
                   double* gain);

template <std::size_t N> class LearnedWeights {
  public:
    using Vector = std::array<double, N>;

    // `variance` of each weight before anything is seen, and at most; `wander`: what it gains a step.
    LearnedWeights(const Vector& first, const Vector& variance, const Vector& wander)
        : values_(first), max_variance_(variance), wander_(wander) {
        for (std::size_t i = 0; i < N; ++i)
            covariance_[i * N + i] = variance[i];
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
    void learn(const Vector& features, double slope, double curvature, double share = 1) {
        const auto last = std::find_if(features.rbegin(), features.rend(), [](double feature) { return feature != 0; });
        n_seen_ = std::max(n_seen_, static_cast<std::size_t>(features.rend() - last));
        Vector gain;
        learn_weights({n_seen_, N, values_.data(), covariance_.data(), max_variance_.data(), wander_.data()},
                      features.data(), slope, curvature, share, gain.data());
    }

  private:
    static Vector filled(double value) {
        Vector vector;
        vector.fill(value);
        return vector;
    }

    Vector values_;
    std::array<double, N * N> covariance_{};
    Vector max_variance_, wander_;
    std::size_t n_seen_ = 0; // of the weights behind these, no feature was ever other than 0
};

} // namespace entrodraft::spec
