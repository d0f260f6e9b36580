// disco: stops where a classifier of drafted tokens gives one too small a chance of being accepted.
//
// Paper: Mamou et al. 2024, "Dynamic Speculation Lookahead Accelerates Speculative Decoding of Large Language Models"
// (DISCO). Theirs is a small network over the ten largest probabilities, entropy and position; this is a logistic
// regression over entropy, the token's own probability and its position, whose four weights `tune` fits.
// Formula: 1 / (1 + exp(-(b - e sqrt(x_t) + p log c_t - n (t - 1)))) < h. Weights do not go below 0: of two tokens the
// one of more entropy, less probability, or further on is never the surer one.
// On a device: it is asked after each row.
#include "spec/stop/stop_rule.h"

#include <algorithm>
#include <cmath>

namespace entrodraft::spec {

namespace {

constexpr std::size_t kWeights = 4;
constexpr std::array<const char*, kWeights> kOptions = {"disco-bias", "disco-entropy", "disco-probability",
                                                        "disco-position"};
using Vector = std::array<double, kWeights>;

// `position` from 0.
Vector features_of(const DraftedToken& token, int position) {
    return {1, -std::sqrt(static_cast<double>(token.entropy_nats)), std::log(static_cast<double>(token.probability)),
            -static_cast<double>(position)};
}

double chance_of(const Vector& weights, const Vector& features) {
    double sum = 0;
    for (std::size_t i = 0; i < kWeights; ++i)
        if (weights[i] != 0) sum += weights[i] * features[i];
    return 1 / (1 + std::exp(-sum));
}

class Disco final : public StopCondition {
  public:
    explicit Disco(const StopRuleOptions& options) : threshold_(options.get("disco-threshold")) {
        for (std::size_t i = 0; i < kWeights; ++i)
            weights_[i] = options.get(kOptions[i]);
    }

    std::unique_ptr<StopCondition> clone() const override { return std::make_unique<Disco>(*this); }
    bool fires(const Drafting& drafting) override {
        return chance_of(weights_, features_of(drafting.tokens.back(), drafting.drafted() - 1)) < threshold_;
    }

  private:
    double threshold_;
    Vector weights_ = {};
};

// ---- fitting ----

struct Example {
    Vector features;
    bool accepted = false;
};

// A token behind one that was refused is refused as well.
std::vector<Example> examples_of(std::span<const DraftedChain> chains) {
    std::vector<Example> examples;
    for (const DraftedChain& chain : chains)
        for (int i = 0; i < static_cast<int>(chain.tokens.size()); ++i) {
            const Example example = {features_of(chain.tokens[static_cast<std::size_t>(i)], i), i < chain.accepted};
            if (std::ranges::all_of(example.features, [](double x) { return std::isfinite(x); }))
                examples.push_back(example);
        }
    return examples;
}

// x of a x = b, of a symmetric and positive definite matrix.
Vector solve(std::array<Vector, kWeights> a, Vector b) {
    for (std::size_t i = 0; i < kWeights; ++i)
        for (std::size_t row = i + 1; row < kWeights; ++row) {
            const double factor = a[row][i] / a[i][i];
            for (std::size_t column = i; column < kWeights; ++column)
                a[row][column] -= factor * a[i][column];
            b[row] -= factor * b[i];
        }
    for (std::size_t i = kWeights; i-- > 0;) {
        for (std::size_t column = i + 1; column < kWeights; ++column)
            b[i] -= a[i][column] * b[column];
        b[i] /= a[i][i];
    }
    return b;
}

// The most probable weights, those that are not `used` being 0, by Newton's steps; each is taken to be normal around 0
// with a deviation of 10, so that they exist where all examples are alike.
Vector fit_weights(std::span<const Example> examples, const std::array<bool, kWeights>& used) {
    constexpr int kSteps = 30;
    constexpr double kPrecision = 0.01, kLongestStep = 5;
    Vector weights = {};
    for (int step = 0; step < kSteps; ++step) {
        Vector gradient = {};
        std::array<Vector, kWeights> curvature = {};
        for (const auto& [features, accepted] : examples) {
            const double chance = chance_of(weights, features), error = (accepted ? 1 : 0) - chance;
            for (std::size_t i = 0; i < kWeights; ++i) {
                gradient[i] += error * features[i];
                for (std::size_t j = 0; j < kWeights; ++j)
                    curvature[i][j] += chance * (1 - chance) * features[i] * features[j];
            }
        }
        for (std::size_t i = 0; i < kWeights; ++i) {
            gradient[i] = used[i] ? gradient[i] - kPrecision * weights[i] : 0;
            for (std::size_t j = 0; j < kWeights; ++j)
                if (i != j && !(used[i] && used[j])) curvature[i][j] = 0;
            curvature[i][i] += kPrecision;
        }
        const Vector change = solve(curvature, gradient);
        const double longest = std::abs(std::ranges::max(change, {}, [](double x) { return std::abs(x); }));
        for (std::size_t i = 0; i < kWeights; ++i)
            weights[i] += change[i] * std::min(1.0, kLongestStep / longest);
        if (longest < 1e-9) break;
    }
    return weights;
}

// The weight that is furthest below 0 is left out, until none is.
void fit(std::span<const DraftedChain> chains, StopRuleOptions& options) {
    const std::vector<Example> examples = examples_of(chains);
    std::array<bool, kWeights> used = {true, true, true, true};
    Vector weights = fit_weights(examples, used);
    for (auto least = std::ranges::min_element(weights); *least < 0; least = std::ranges::min_element(weights)) {
        used[static_cast<std::size_t>(least - weights.begin())] = false;
        weights = fit_weights(examples, used);
    }
    for (std::size_t i = 0; i < kWeights; ++i)
        options.set(kOptions[i], weights[i]);
}

StopRuleParameter weight(std::size_t i, const char* symbol, const char* label, const char* help, double value) {
    return {.option = kOptions[i], .symbol = symbol, .label = label, .help = help, .default_value = value};
}

} // namespace

StopRuleType disco_rule() {
    // Weights as fitted to the demo pair, greedy, roughly.
    return {.name = "disco",
            .position = 95,
            .looks_at = LooksAt::token,
            .parameters = {{.option = "disco-threshold",
                            .symbol = "H",
                            .label = "threshold",
                            .help = "of {}: least chance of a drafted token",
                            .default_value = 0.3,
                            .max = 1,
                            .grid = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6}},
                           weight(0, "B", "bias", "of {}: of the chance of a token that the draft is sure of", 1.4),
                           weight(1, "E", "entropy", "of {}: what the root of the entropy takes from it", 0.1),
                           weight(2, "P", "probability", "of {}: what the logarithm of the probability does", 0.4),
                           weight(3, "N", "position", "of {}: what each token before it does", 0.5)},
            .make = make_stop_condition<Disco>,
            .fit = fit};
}

} // namespace entrodraft::spec
