// Sampled text of cascades follows the target's distribution at each depth, whatever the order of models: chi-square
// over texts of toy models, each with its own seed, as with `--seed`. cascade_exactness_slow of ctest is long.
#include "tests/dist/manual_clock.h"
#include "tests/spec/exactness_support.h"
#include "tests/spec/toy_drafting.h"

#include <gtest/gtest.h>

#include <cmath>
#include <iostream>

namespace cascade_exactness_test {

using namespace entrodraft;
using spec::Acceptance;
using spec::ToyModel;

constexpr std::size_t kMaxDepth = 4;

// A target and four models. The first is nearest to it, as the largest model would be; the last knows nothing of it.
struct NearAndFar {
    ToyModel target{kVocab, 40, spec::options_of(1), 2};
    ToyModel models[kMaxDepth] = {
        ToyModel{kVocab, 40, spec::options_of(1), 1.5}, ToyModel{kVocab, 40, spec::options_of(1), 0.7},
        ToyModel{kVocab, 41, spec::options_of(1), 1}, ToyModel{kVocab, 42, spec::options_of(1), 2}};
};

spec::StopRuleOptions rule_of_depth(std::size_t level) {
    const std::string kRules[] = {"static", "adaptive", "static", "heuristic"};
    spec::StopRuleOptions rule = rule_of(kRules[level], 1, 4);
    if (kRules[level] == "static") rule.set("threshold", 1.0); // entropies are at most ln 3 = 1.1 nats
    return rule;
}

// The nearest `depth` models, each drafting for the one before it; or the farthest, in the opposite order.
std::unique_ptr<spec::Drafter> cascade_of(const NearAndFar& toys, std::size_t depth, bool nearest_first,
                                          const dist::Clock& clock) {
    const spec::DraftLimits limits{static_cast<int>(kVocab), {}};
    const auto source = [&](std::size_t level) {
        return std::make_unique<spec::ToySource>(toys.models[nearest_first ? level : kMaxDepth - 1 - level],
                                                 kPrompt.size());
    };
    std::unique_ptr<spec::Drafter> drafter = spec::make_chain_drafter(source(depth - 1), {limits, clock});
    for (std::size_t level = depth - 1; level-- > 0;)
        drafter = spec::make_cascade_drafter({source(level), std::move(drafter), rule_of_depth(level + 1), {}},
                                             {limits, clock});
    return drafter;
}

void expect_target_texts(int n_texts) {
    const NearAndFar toys;
    dist::ManualClock clock;
    for (const Acceptance acceptance : {Acceptance::rejection, Acceptance::block})
        for (std::size_t depth = 1; depth <= kMaxDepth; ++depth)
            for (const bool nearest_first : {true, false}) {
                const auto drafter = cascade_of(toys, depth, nearest_first, clock);
                spec::ToyRounds rounds(toys.target, *drafter, rule_of_depth(0), acceptance, nullptr, kPrompt);
                const double z = spec::chi_square_z(toys.target, 4, n_texts,
                                                    [&](std::uint64_t seed) { return rounds.text(4, 0, seed); });
                EXPECT_LT(z, kMaxZ) << to_string(acceptance) << ", depth " << depth;
                EXPECT_GT(rounds.accepted, n_texts / 20);
                EXPECT_LT(rounds.accepted, rounds.drafted);
                std::cout << to_string(acceptance) << ", " << depth
                          << (nearest_first ? " drafts, nearest" : " drafts, farthest") << " first: p "
                          << 0.5 * std::erfc(z / std::sqrt(2.0)) << " over " << n_texts << " texts\n";
            }
}

TEST(CascadeExactness, TextsFollowTheTargetAtEachDepthInBothOrders) {
    expect_target_texts(10000);
}

TEST(CascadeExactness, DISABLED_FourHundredThousandTextsFollowTheTarget) {
    expect_target_texts(400000);
}

} // namespace cascade_exactness_test
