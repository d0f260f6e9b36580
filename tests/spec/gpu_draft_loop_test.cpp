// A device that drafts on by itself gives the same as passes of one row, and stops where its rule says.
#include "spec/gpu/device_round.h"
#include "tests/model/gpu_models.h"

#include <functional>

namespace gpu_draft_loop_test {

using namespace entrodraft;
using model::Mask;
using model::Row;
using model::TokenId;
using model::WeightType;

struct DraftOnGpu : TestModel {
    explicit DraftOnGpu(const TestModelOptions& options) : TestModel(golden_directory("llama-target"), options) {}
    std::unique_ptr<spec::DeviceRound> device = spec::gpu::make_device_round();
};

// The text of single passes, one token each: the expected chain.
struct StepByStep {
    std::vector<TokenId> tokens;
    std::vector<double> entropies;
    std::vector<float> largest;
    std::vector<double> margins;
};

model::RowNoise noise_at(double temperature, std::size_t position) {
    return {{5, 9}, position, temperature};
}

// Makes a pass over the tokens that the cache does not hold yet. Returns how many rows its chain had.
std::size_t add_pass(DraftOnGpu& model, std::span<const TokenId> text, double temperature,
                     const spec::DeviceStopRule* rule, StepByStep& steps) {
    const std::vector<Row> rows = model.chain(text.subspan(static_cast<std::size_t>(model.decoder.cache().length(0))));
    const int last = static_cast<int>(rows.size()) - 1;
    const model::RowNoise noise = noise_at(temperature, text.size());
    model::LogitNeeds needs(model::LogitSummary::entropy, false);
    if (temperature > 0) needs.noises = std::span(&noise, 1);
    if (rule) needs.extension = model.device->draft(*rule, -1);
    const model::PassResult result = model.decoder.forward({.rows = rows,
                                                            .logit_rows = std::span(&last, 1),
                                                            .hidden_layers = {},
                                                            .mask = Mask::causal,
                                                            .needs = needs,
                                                            .summary_vocab = 500});
    EXPECT_TRUE(result.logits.empty()) << "nobody asked for them";
    for (std::size_t i = 0; i < result.summaries.size(); ++i) {
        steps.entropies.push_back(result.summaries[i].entropy_nats());
        steps.largest.push_back(result.summaries[i].max);
        const model::LogitStats& row = result.summaries[i];
        steps.tokens.push_back(temperature > 0 ? result.noisy[i].token : row.arg_max);
        steps.margins.push_back(temperature > 0 ? result.noisy[i].value - result.noisy[i].runner_up
                                                : static_cast<double>(row.max) - static_cast<double>(row.runner_up));
    }
    return result.summaries.size();
}

StepByStep step_by_step(DraftOnGpu& model, std::vector<TokenId> text, int n, double temperature) {
    StepByStep steps;
    model.decoder.cache().truncate(0, 0);
    while (static_cast<int>(steps.tokens.size()) < n) {
        EXPECT_EQ(add_pass(model, text, temperature, nullptr, steps), 1U);
        text.push_back(steps.tokens.back());
    }
    return steps;
}

StepByStep chain_of(DraftOnGpu& model, const std::vector<TokenId>& text, const spec::DeviceStopRule& rule,
                    double temperature) {
    StepByStep steps;
    model.decoder.cache().truncate(0, 0);
    add_pass(model, text, temperature, &rule, steps);
    EXPECT_EQ(model.decoder.cache().length(0), static_cast<int>(text.size() + steps.tokens.size()) - 1)
        << "the last token is not read";
    return steps;
}

TEST(GpuDraftLoop, AChainIsPassesOfOneRow) {
    const std::vector<TokenId> text = varied_tokens(5, 512);
    DraftOnGpu model(on_gpu(WeightType::bfloat16));
    for (const double temperature : {0.0, 1.0}) {
        const StepByStep steps = step_by_step(model, text, 9, temperature);
        for (const int most : {1, 2, 9, 9}) { // the last twice: the graph is used again
            const StepByStep chain = chain_of(model, text, {.max_rows = most}, temperature);
            EXPECT_EQ(chain.tokens, std::vector(steps.tokens.begin(), steps.tokens.begin() + most));
            EXPECT_EQ(chain.entropies, std::vector(steps.entropies.begin(), steps.entropies.begin() + most));
            EXPECT_EQ(chain.largest, std::vector(steps.largest.begin(), steps.largest.begin() + most));
        }
        // Other texts and slots find the cache as passes of one row would leave it.
        chain_of(model, text, {.max_rows = 9}, temperature);
        std::vector<TokenId> further = text;
        further.insert(further.end(), steps.tokens.begin(), steps.tokens.begin() + 8);
        model.decoder.cache().truncate(0, static_cast<int>(further.size()) - 1);
        const std::vector<Row> rows = model.chain(std::span(further).last(1));
        const int last = 0;
        const model::PassResult after = model.decoder.forward({.rows = rows,
                                                               .logit_rows = std::span(&last, 1),
                                                               .hidden_layers = {},
                                                               .mask = Mask::causal,
                                                               .needs = model::LogitSummary::entropy,
                                                               .summary_vocab = 500});
        EXPECT_EQ(after.summaries[0].max, steps.largest[8]);
    }
}

TEST(GpuDraftLoop, AChainStopsWhereItIsTold) {
    using Kind = spec::DeviceStopRule::Kind;
    const std::vector<TokenId> text = varied_tokens(5, 512);
    constexpr int kMax = 12;
    DraftOnGpu model(on_gpu());
    const StepByStep steps = step_by_step(model, text, kMax, 0);
    const auto x = [&](int t) { return steps.entropies[static_cast<std::size_t>(t - 1)]; };
    const auto length = [&](spec::DeviceStopRule rule) {
        rule.max_rows = kMax;
        return static_cast<int>(chain_of(model, text, rule, 0).tokens.size());
    };
    const auto first_t = [&](const std::function<bool(int t)>& fires) {
        for (int t = 1; t <= kMax; ++t)
            if (fires(t)) return t;
        return kMax;
    };
    // A threshold that some token after the second reaches.
    double threshold = 0;
    for (int t = 3; t <= 6; ++t)
        threshold = std::max(threshold, x(t));
    threshold = static_cast<float>(threshold) * (1 - 1e-6);
    EXPECT_EQ(length({.kind = Kind::entropy, .threshold = threshold}),
              first_t([&](int t) { return x(t) >= threshold; }));
    EXPECT_EQ(length({.kind = Kind::entropy, .first = 4, .threshold = 0}), 4);
    const auto mean_before = [&](int t, int window) {
        double sum = 0;
        const int n = std::min(t - 1, window);
        for (int i = 1; i <= n; ++i)
            sum += x(t - i) * x(t - i);
        return sum / std::max(n, 1);
    };
    EXPECT_EQ(length({.kind = Kind::moving_average, .window = 2, .factor = 0.9}),
              first_t([&](int t) { return t > 1 && x(t) * x(t) >= 0.9 * mean_before(t, 2); }));
    const double sum3 = x(1) * x(1) + x(2) * x(2) + x(3) * x(3);
    EXPECT_EQ(length({.kind = Kind::squares, .window = 7, .threshold = sum3 * (1 - 1e-6)}), 3);
    EXPECT_EQ(length({.kind = Kind::probability, .threshold = 1.1}), 1);
    EXPECT_EQ(length({.kind = Kind::probability, .threshold = 0}), kMax);
    spec::DeviceStopRule gain = {.kind = Kind::gain, .weights = {0, 0, 0}}; // every acceptance is a half
    std::fill(std::begin(gain.least), std::end(gain.least), 0.2f);
    EXPECT_EQ(length(gain), 3) << "an eighth is less than a fifth";
}

// The decision to go on depends on margins alone: of logits, or with noise of values.
TEST(GpuDraftLoop, AChainStopsBehindASmallMargin) {
    const std::vector<TokenId> text = varied_tokens(5, 512);
    constexpr int kMax = 12;
    DraftOnGpu model(on_gpu());
    for (const double temperature : {0.0, 1.0}) {
        const StepByStep steps = step_by_step(model, text, kMax, temperature);
        spec::DeviceStopRule rule = {.kind = spec::DeviceStopRule::Kind::gain, .weights = {4, 0, 0, 2}};
        int lengths = 0;
        for (const float least : {0.9F, 0.6F, 0.3F, 0.05F}) {
            std::fill(std::begin(rule.least), std::end(rule.least), least);
            rule.max_rows = kMax;
            double product = 1;
            int t = 0;
            while (t < kMax && product >= static_cast<double>(least)) {
                const double margin = std::min(steps.margins[static_cast<std::size_t>(t++)], 20.0);
                product /= 1 + std::exp(-(4 + 2 * (3 * std::log1p(margin) - 1.5)));
            }
            EXPECT_EQ(static_cast<int>(chain_of(model, text, rule, temperature).tokens.size()), t) << least;
            lengths += t > 1 && t < kMax ? 1 : 0;
        }
        EXPECT_GT(lengths, 0) << "nothing is shown";
    }
}

TEST(GpuDraftLoop, AChainEndsWithTheContext) {
    TestModelOptions options = on_gpu();
    options.decoder.capacity = 32;
    DraftOnGpu model(options);
    EXPECT_EQ(chain_of(model, varied_tokens(29, 512), {.max_rows = 12}, 0).tokens.size(), 4U) << "three more are read";
}

} // namespace gpu_draft_loop_test
