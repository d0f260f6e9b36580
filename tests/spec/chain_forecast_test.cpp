// The forecast that a stop rule gives a device ends chains where the rule itself does, row by row.
#include "spec/stop/stop_rule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace entrodraft::spec {
namespace chain_forecast_test {

using Tokens = std::vector<DraftedToken>;

// Computes as spec/gpu/draft_loop.cu does.
int rows_of(const DeviceStopRule& stop, const Tokens& tokens) {
    using Kind = DeviceStopRule::Kind;
    double product = 1;
    for (int t = 1;; ++t) {
        const auto x = [&](int at) {
            return static_cast<double>(tokens[static_cast<std::size_t>(at - 1)].entropy_nats);
        };
        const auto p = static_cast<double>(tokens[static_cast<std::size_t>(t - 1)].probability);
        const auto margin = static_cast<double>(tokens[static_cast<std::size_t>(t - 1)].margin);
        product /= 1 + std::exp(-(stop.weights[0] + stop.weights[1] * (std::sqrt(x(t)) - 1.5) +
                                  stop.weights[2] * (std::log(std::max(p, 1e-4)) + 2) +
                                  stop.weights[3] * (3 * std::log1p(margin) - 1.5)));
        const int before = std::min(t - 1, stop.window);
        double earlier = 0;
        for (int i = t - before; i < t; ++i)
            earlier += x(i) * x(i);
        bool fires = false;
        switch (stop.kind) {
        case Kind::never:
            break;
        case Kind::entropy:
            fires = x(t) >= stop.threshold;
            break;
        case Kind::moving_average:
            fires = before > 0 && x(t) * x(t) >= stop.factor * earlier / before;
            break;
        case Kind::squares:
            fires = earlier + x(t) * x(t) >= stop.threshold;
            break;
        case Kind::probability:
            fires = p < stop.threshold;
            break;
        case Kind::gain:
            fires = product < static_cast<double>(stop.least[t - 1]);
            break;
        }
        if (t >= stop.max_rows || (fires && t >= stop.first)) return t;
    }
}

int rows_of(StopRule& rule, const Tokens& tokens, int most) {
    int rows = 0;
    while (rows < most && rule.wants_another())
        if (rule.decide(tokens[static_cast<std::size_t>(rows++)]) != StopDecision::go_on) break;
    return rows;
}

Tokens random_tokens(std::mt19937& random, std::size_t n) {
    std::uniform_real_distribution<float> uniform(0, 1);
    Tokens tokens;
    for (std::size_t i = 0; i < n; ++i) {
        const float entropy = 4 * uniform(random) * uniform(random);
        tokens.push_back({entropy, std::exp(-entropy) * (0.5F + 0.5F * uniform(random)), 0, 2 * uniform(random)});
    }
    return tokens;
}

// Learns rounds in which tokens of low entropy and large margin are accepted, as the rule's history of the run.
void learn_rounds(StopRule& rule, std::mt19937& random) {
    for (int round = 0; round < 60; ++round) {
        rule.begin_round();
        const Tokens tokens = random_tokens(random, 15);
        const int drafted = rows_of(rule, tokens, 15);
        int accepted = 0;
        const auto is_accepted = [](const DraftedToken& token) { return token.entropy_nats < 0.5F + token.margin; };
        while (accepted < drafted && is_accepted(tokens[static_cast<std::size_t>(accepted)]))
            ++accepted;
        rule.end_round({drafted, accepted, false, 0.05 * drafted, 1 + 0.05 * drafted});
    }
}

TEST(ChainForecast, ComesToWhatTheRuleDoesRowByRow) {
    for (const std::string& kind : stop_rule_names()) {
        for (const int min_tokens : {1, 3}) {
            SCOPED_TRACE(kind + ", at least " + std::to_string(min_tokens));
            StopRuleOptions options(kind);
            options.min_tokens = min_tokens;
            if (options.takes("threshold")) options.set("threshold", 0.4);
            GainModel gain({.max_rows = 16, .draft_to_target_cost = 0.05, .costs = Costs{0.05, {1, 1.05, 1.1, 1.15}}});
            StopRule rule(options, &gain);
            std::mt19937 random(7);
            learn_rounds(rule, random);
            int different = 0, longer_chains = 0, seen[16] = {};
            constexpr int kTexts = 300;
            for (int text = 0; text < kTexts; ++text) {
                const Tokens tokens = random_tokens(random, 15);
                rule.begin_round();
                const bool begins = rule.wants_another();
                const DeviceStopRule chain = rule.forecast(12);
                rule.begin_round();
                const int by_rule = rows_of(rule, tokens, 12);
                if (!begins) continue; // no forecast is asked for
                ++seen[by_rule];
                longer_chains += chain.max_rows > 1 ? 1 : 0;
                different += rows_of(chain, tokens) == by_rule ? 0 : 1;
            }
            if (longer_chains == 0) continue; // the rule has no form on devices: it is asked after each row
            EXPECT_LE(different, kind == "expected-gain" ? 3 : 0) << "of " << kTexts; // its thresholds are float32
            const bool counts = options.type().looks_at == LooksAt::nothing;
            int lengths = 0;
            for (const int n : seen)
                lengths += n > 0 ? 1 : 0;
            EXPECT_GE(lengths, counts ? 1 : 3) << "the rule always does the same: nothing is shown";
        }
    }
}

TEST(ChainForecast, AsksForOneRowWhereTheRunIsNotKnownYet) {
    GainModel gain({.max_rows = 16, .draft_to_target_cost = 0.05, .costs = {}});
    EXPECT_EQ(StopRule({"expected-gain"}, &gain).forecast(12).max_rows, 1);
}

} // namespace chain_forecast_test
} // namespace entrodraft::spec
