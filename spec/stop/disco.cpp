// disco: stops where a classifier gives the drafted token too small a chance of being accepted.
//
// Paper: Mamou et al. 2024, "Dynamic Speculation Lookahead Accelerates Speculative Decoding of Large Language Models"
// (DISCO). The paper has a small network over the ten largest probabilities, entropy and position. This rule has a
// logistic regression over entropy, the token's own probability and its position; `tune` fits its four weights.
// Formula: 1 / (1 + exp(-(b - e sqrt(x_t) + p log c_t - n (t - 1)))) < h. Weights are never below 0. So more entropy,
// less probability or a later position never increases a token's chance.
// On a device: the rule is asked after each row.
#include "spec/stop/stop_rule.h"

#include <algorithm>
#include <cmath>

namespace entrodraft::spec {

namespace {

constexpr std::size_t kWeights = 4;
constexpr std::array<const char*, kWeights> kWeightNames = {"bias", "entropy", "probability", "position"};
using Vector = std::array<double, kWeights>;

// `position` counts from 0.
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
    explicit Disco(const StopRuleOptions& options) : threshold_(options.get("threshold")) {
        for (std::size_t i = 0; i < kWeights; ++i)
            weights_[i] = options.get(kWeightNames[i]);
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

// A token after a rejected one counts as rejected too.
std::vector<Example> examples_of(std::span<const DraftedChain> chains) {
    std::vector<Example> examples;
    for (const DraftedChain& chain : chains)
        for (int i = 0; i < static_cast<int>(chain.tokens.size()); ++i) {
            const Example example = {features_of(chain.tokens[i], i), i < chain.accepted};
            if (std::ranges::all_of(example.features, [](double x) { return std::isfinite(x); }))
                examples.push_back(example);
        }
    return examples;
}

// The most probable weights; those that are not `used` are 0. Each begins at 0 with a deviation of 10, so that a
// solution exists even if all examples are alike.
Vector fit_weights(std::span<const Example> examples, const std::array<bool, kWeights>& used) {
    constexpr double kVariance = 100;
    LearnedWeights<kWeights> weights({}, kVariance, 0);
    for (const auto& [features, accepted] : examples) {
        Vector seen = features;
        for (std::size_t i = 0; i < kWeights; ++i)
            if (!used[i]) seen[i] = 0;
        const double chance = chance_of(weights.values(), seen);
        weights.learn(seen, (accepted ? 1 : 0) - chance, chance * (1 - chance));
    }
    return weights.values();
}

// Leaves out the weight that is furthest below 0, until none is below 0.
void fit(std::span<const DraftedChain> chains, StopRuleOptions& options) {
    const std::vector<Example> examples = examples_of(chains);
    std::array<bool, kWeights> used = {true, true, true, true};
    Vector weights = fit_weights(examples, used);
    for (auto least = std::ranges::min_element(weights); *least < 0; least = std::ranges::min_element(weights)) {
        used[least - weights.begin()] = false;
        weights = fit_weights(examples, used);
    }
    for (std::size_t i = 0; i < kWeights; ++i)
        options.set(kWeightNames[i], weights[i]);
}

} // namespace

StopRuleType disco_rule() {
    // The defaults are about the weights that were fitted to the demo pair, greedy.
    return {
        .name = "disco",
        .position = 95,
        .looks_at = LooksAt::token,
        .parameters = {{.name = "threshold", .default_value = 0.3, .max = 1, .grid = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6}},
                       {.name = kWeightNames[0], .default_value = 1.4},
                       {.name = kWeightNames[1], .default_value = 0.1},
                       {.name = kWeightNames[2], .default_value = 0.4},
                       {.name = kWeightNames[3], .default_value = 0.5}},
        .make = make_stop_condition<Disco>,
        .fit = fit};
}

} // namespace entrodraft::spec
