// The stop rules, compared with values worked out by hand.
#include "spec/stop/stop_rule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>

namespace entrodraft::spec {
namespace stop_rule_test {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The rule's options with the numbers for which the sums below are worked out.
StopRuleOptions options_of(const std::string& rule) {
    StopRuleOptions options(rule);
    if (rule == "static") options.set("threshold", 2.25);
    if (rule == "cumulative") options.set("threshold", 10);
    if (rule == "moving-average") options.set("factor", 0.5);
    if (rule == "confidence") options.set("threshold", 0.4);
    return options;
}

// Another rule with the same caps.
StopRuleOptions instead(const StopRuleOptions& options, const std::string& rule) {
    StopRuleOptions other = options_of(rule);
    other.min_tokens = options.min_tokens;
    other.max_tokens = options.max_tokens;
    other.drop_stop_token = options.drop_stop_token;
    return other;
}

// The t at which a fresh round over these entropies stops; 0 if it does not.
int stop_of(StopRule& rule, const std::vector<double>& entropies) {
    rule.begin_round();
    for (std::size_t i = 0; i < entropies.size(); ++i)
        if (rule.decide({static_cast<float>(entropies[i]), 1}) != StopDecision::go_on) return static_cast<int>(i) + 1;
    return 0;
}

// A fresh gain model in which drafting costs next to nothing.
GainModel cheap_drafts() {
    return GainModel({.max_rows = 16, .draft_to_target_cost = 0.001, .costs = Costs{0.001, {1, 1}}});
}

int stop_of(const StopRuleOptions& options, const std::vector<double>& entropies) {
    GainModel gain = cheap_drafts();
    StopRule rule(options, &gain);
    return stop_of(rule, entropies);
}

TEST(StopRules, AreFoundByTheirNames) {
    EXPECT_GE(all_stop_rules().size(), 10u);
    for (const StopRuleType& rule : all_stop_rules())
        EXPECT_EQ(find_stop_rule(rule.name), &rule);
    EXPECT_EQ(stop_rule_names().front(), "static");
    EXPECT_EQ(stop_rule_names().back(), "expected-gain");
    EXPECT_EQ(find_stop_rule("Static"), nullptr);
    EXPECT_EQ(find_stop_rule(""), nullptr);
    EXPECT_THROW(StopRuleOptions("Static"), std::invalid_argument);
}

TEST(StopRules, AreValidByTheirDefaults) {
    for (const StopRuleType& rule : all_stop_rules()) {
        ASSERT_NE(rule.make, nullptr) << rule.name;
        EXPECT_EQ(why_invalid(StopRuleOptions(rule.name)), "");
    }
}

TEST(StopRule, StaticStopsAtTheThresholdAndNotBelow) {
    const auto options = options_of("static");
    EXPECT_EQ(stop_of(options, {2.25}), 1);
    EXPECT_EQ(stop_of(options, {2.2499, 2.2499, 2.3}), 3);
    EXPECT_EQ(stop_of(options, {1, 2, 2.2, 0}), 0);
    auto low = options;
    low.set("threshold", 0.3);
    EXPECT_EQ(stop_of(low, {0.1, 0.3}), 2);
    low.set("threshold", 0);
    EXPECT_EQ(stop_of(low, {0}), 1);
}

TEST(StopRule, MovingAverageNeverStopsAtTheFirstToken) {
    EXPECT_EQ(stop_of(options_of("moving-average"), {100}), 0);
}

TEST(StopRule, MovingAverageComparesSquaresWithTheMeanOfThoseBefore) {
    // lambda 0.5. t = 2: 1 >= 0.5 * 4 no. t = 3: 1.21 >= 0.5 * (4 + 1) / 2 = 1.25 no.
    // t = 4: 1.0404 >= 0.5 * (4 + 1 + 1.21) / 3 = 1.035 yes.
    EXPECT_EQ(stop_of(options_of("moving-average"), {2, 1, 1.1, 1.02}), 4);
    EXPECT_EQ(stop_of(options_of("moving-average"), {2, 1, 1.1, 1.01}), 0);
    auto equal = options_of("moving-average");
    equal.set("factor", 1); // at the border: 4 >= 1 * 4
    EXPECT_EQ(stop_of(equal, {2, 2}), 2);
}

TEST(StopRule, MovingAverageForgetsWhatIsOutsideItsWindow) {
    auto options = options_of("moving-average");
    options.set("factor", 1);
    options.set("window", 2);
    // t = 4 looks at 4 and 1 (mean 2.5): 2.56 >= 2.5 stops, though the mean with 100 is 35.
    EXPECT_EQ(stop_of(options, {10, 2, 1, 1.6}), 4);
    EXPECT_EQ(stop_of(options, {10, 2, 1, 1.58}), 0);
    options.set("window", 100); // longer than the phase: all tokens before count
    EXPECT_EQ(stop_of(options, {10, 2, 1, 1.6}), 0);
    EXPECT_EQ(stop_of(options, {10, 2, 1, 6}), 4); // 36 >= 35
}

TEST(StopRule, MovingAverageStopsWhereTheMeanIsZero) {
    EXPECT_EQ(stop_of(options_of("moving-average"), {0}), 0) << "nothing to compare with";
    EXPECT_EQ(stop_of(options_of("moving-average"), {0, 0, 0}), 2); // 0 >= 0.5 * 0
    EXPECT_EQ(stop_of(options_of("moving-average"), {0, 5}), 2);
    auto later = options_of("moving-average");
    later.min_tokens = 3;
    later.set("window", 1);
    EXPECT_EQ(stop_of(later, {1, 0, 0}), 3);
}

TEST(StopRule, CumulativeSumsSquaresOfTheTokenAndItsWindow) {
    const auto options = options_of("cumulative");
    EXPECT_EQ(stop_of(options, {3, 1}), 2);            // 9, 10
    EXPECT_EQ(stop_of(options, {3, 0.9, 0.4}), 0);     // 9, 9.81, 9.97
    EXPECT_EQ(stop_of(options, {std::sqrt(11.0)}), 1); // t = 1 counts
    auto narrow = options;
    narrow.set("window", 1); // the token and one before it: 9, 9, 4.25, 4.5
    EXPECT_EQ(stop_of(narrow, {3, 0, 2, 0.5, 2}), 0);
    EXPECT_EQ(stop_of(narrow, {1, 1, 3, 1}), 3);
    narrow.set("threshold", 4.25);
    EXPECT_EQ(stop_of(narrow, {0, 2, 0.5}), 3);
    auto wide = options;
    wide.set("window", 7);
    // Eight tokens of 1.1 give 9.68 and no more.
    EXPECT_EQ(stop_of(wide, {1.1, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1}), 0);
    EXPECT_EQ(stop_of(wide, {1.12, 1.12, 1.12, 1.12, 1.12, 1.12, 1.12, 1.12}), 8); // 10.04
}

TEST(StopRule, ConstantCountsTokensAndNothingElse) {
    auto options = options_of("constant");
    EXPECT_FALSE(options.looks_at_distribution());
    EXPECT_EQ(stop_of(options, {9, 9, 9, 9, 9, 9}), 5);
    EXPECT_EQ(stop_of(options, {kNan, kNan, kNan, kNan, kNan, kNan}), 5);
    options.set("tokens", 40); // capped
    EXPECT_EQ(stop_of(options, std::vector<double>(50)), 15);
    options.set("tokens", 1);
    EXPECT_EQ(stop_of(options, {0}), 1);
}

// Chains whose tokens are accepted with the chance that `rule` gives them, one after another.
std::vector<spec::DraftedChain> chains_by(const StopRuleOptions& rule, int n) {
    std::mt19937 random(5);
    std::uniform_real_distribution<float> uniform(0, 1);
    std::vector<spec::DraftedChain> chains(static_cast<std::size_t>(n));
    for (spec::DraftedChain& chain : chains) {
        const float entropy = 3 * uniform(random), probability = 0.05F + 0.95F * uniform(random);
        chain.tokens = {{entropy, probability, 0}};
        const double sum = rule.get("bias") - rule.get("entropy") * std::sqrt(static_cast<double>(entropy)) +
                           rule.get("probability") * std::log(static_cast<double>(probability));
        chain.accepted = static_cast<double>(uniform(random)) < 1 / (1 + std::exp(-sum)) ? 1 : 0;
    }
    return chains;
}

TEST(StopRule, DiscoStopsWhereAcceptanceIsUnlikely) {
    StopRuleOptions options("disco",
                            {{"bias", 2}, {"entropy", 1}, {"probability", 0}, {"position", 0.5}, {"threshold", 0.5}});
    // 2 - sqrt(x) - 0.5 (t - 1) < 0
    EXPECT_EQ(stop_of(options, {4.01}), 1);
    EXPECT_EQ(stop_of(options, {3.99, 2.26}), 2);
    EXPECT_EQ(stop_of(options, {3.99, 2.24, 0, 0.26}), 4);
    EXPECT_EQ(stop_of(options, {3.99, 2.24, 0, 0.24}), 0);
    options.set("threshold", 0);
    EXPECT_EQ(stop_of(options, {100, 100}), 0);
}

TEST(StopRule, DiscoFindsTheWeightsThatItsExamplesWereMadeBy) {
    const StopRuleOptions made_by("disco", {{"bias", 2.5}, {"entropy", 1.2}, {"probability", 0.8}});
    StopRuleOptions fitted("disco");
    fitted.type().fit(chains_by(made_by, 40000), fitted);
    for (const auto& [option, value] : {std::pair{"bias", 2.5}, {"entropy", 1.2}, {"probability", 0.8}})
        EXPECT_NEAR(fitted.get(option), value, 0.12) << option;
    // A weight that would be below 0 becomes 0; the others are fitted without it. Here probable tokens are rejected.
    std::vector<spec::DraftedChain> turned = chains_by(made_by, 4000);
    for (spec::DraftedChain& chain : turned)
        chain.accepted = chain.tokens[0].probability < 0.5F ? 1 : 0;
    fitted.type().fit(turned, fitted);
    EXPECT_EQ(fitted.get("probability"), 0);
    EXPECT_NEAR(fitted.get("bias"), 0, 0.3) << "as many are accepted as refused";
    // Tokens are all alike, or there are none: weights are finite all the same.
    for (spec::DraftedChain& chain : turned)
        chain.accepted = 1;
    fitted.type().fit(turned, fitted);
    EXPECT_EQ(why_invalid(fitted), "");
    fitted.type().fit({}, fitted);
    EXPECT_EQ(why_invalid(fitted), "");
    EXPECT_EQ(fitted.get("bias"), 0);
}

TEST(StopRule, EveryRuleStopsAtTheCap) {
    for (const std::string& kind : stop_rule_names()) {
        auto options = options_of(kind);
        options.max_tokens = 4;
        if (options.takes("tokens")) options.set("tokens", 9);
        EXPECT_EQ(stop_of(options, {0.5, 0.1, 0.01, 0, 0, 0}), 4) << kind; // falling entropies, for which no rule fires
    }
}

TEST(StopRule, NoRuleLooksBeforeTheLeastNumberOfTokens) {
    auto options = options_of("static");
    options.min_tokens = 3;
    EXPECT_EQ(stop_of(options, {9, 9, 9, 9}), 3);
    EXPECT_EQ(stop_of(options, {9, 9, 1, 9}), 4);
    options = instead(options, "constant");
    options.set("tokens", 2);
    EXPECT_EQ(stop_of(options, {9, 9, 9, 9}), 3);
    options = instead(options, "cumulative"); // entropies before the third still count
    EXPECT_EQ(stop_of(options, {3, 1, 0, 0}), 3);
    options = instead(options, "moving-average");
    EXPECT_EQ(stop_of(options, {1, 1, 0.1, 1}), 4);
}

TEST(StopRule, SaysWhetherTheRuleOrTheCapStoppedIt) {
    auto options = options_of("static");
    options.max_tokens = 2;
    StopRule rule(options);
    EXPECT_EQ(rule.end(), DraftEnd::none);
    EXPECT_EQ(stop_of(rule, {1, 1}), 2);
    EXPECT_EQ(rule.end(), DraftEnd::cap);
    EXPECT_EQ(stop_of(rule, {1, 5}), 2); // both hold: the rule is named
    EXPECT_EQ(rule.end(), DraftEnd::rule);
    rule.begin_round();
    EXPECT_EQ(rule.end(), DraftEnd::none);
    options = instead(options, "constant");
    options.set("tokens", 1);
    StopRule constant(options);
    EXPECT_EQ(stop_of(constant, {1}), 1);
    EXPECT_EQ(constant.end(), DraftEnd::rule);
}

TEST(StopRule, EntropyRulesDoNotFireWithoutAnEntropy) {
    for (const std::string& kind : stop_rule_names()) {
        if (!options_of(kind).looks_at_distribution()) continue;
        EXPECT_EQ(stop_of(options_of(kind), std::vector<double>(14, kNan)), 0) << kind;
        EXPECT_EQ(stop_of(options_of(kind), std::vector<double>(16, kNan)), 15) << kind;
    }
    EXPECT_EQ(stop_of(options_of("cumulative"), {3, kNan, 1}), 3);
}

TEST(StopRule, ForgetsTheRoundBefore) {
    StopRule cumulative(options_of("cumulative"));
    EXPECT_EQ(stop_of(cumulative, {3}), 0);
    EXPECT_EQ(stop_of(cumulative, {3}), 0);
    StopRule average(options_of("moving-average"));
    EXPECT_EQ(stop_of(average, {1}), 0);
    EXPECT_EQ(stop_of(average, {1}), 0);
}

// The length of a round of `rule`.
int length_of(StopRule& rule) {
    return stop_of(rule, std::vector<double>(200));
}

TEST(StopRule, HeuristicGrowsByTwoAndShrinksByOne) {
    StopRule rule(options_of("heuristic"));
    EXPECT_FALSE(rule.options().looks_at_distribution());
    EXPECT_EQ(length_of(rule), 5);
    rule.end_round({5, 5});
    EXPECT_EQ(length_of(rule), 7);
    rule.end_round({7, 6});
    EXPECT_EQ(length_of(rule), 6);
    rule.end_round({6, 0});
    EXPECT_EQ(length_of(rule), 5);
}

TEST(StopRule, HeuristicStaysBetweenOneAndTheCap) {
    StopRule rule(options_of("heuristic"));
    for (int i = 0; i < 10; ++i)
        rule.end_round({5, 0});
    EXPECT_EQ(length_of(rule), 1);
    rule.end_round({1, 1});
    EXPECT_EQ(length_of(rule), 3);
    for (int i = 0; i < 20; ++i)
        rule.end_round({5, 5});
    EXPECT_EQ(length_of(rule), 15);
    rule.end_round({15, 3}); // from the cap, not from the k that growth without the cap would have reached
    EXPECT_EQ(length_of(rule), 14);
    auto options = options_of("heuristic");
    options.set("tokens", 100);
    StopRule capped(options);
    capped.end_round({15, 3});
    EXPECT_EQ(length_of(capped), 14);
}

TEST(StopRule, HeuristicLearnsNothingFromRoundsCutShortOrEmpty) {
    StopRule rule(options_of("heuristic"));
    rule.end_round({3, 3, true});
    rule.end_round({3, 0, true});
    rule.end_round({0, 0});
    EXPECT_EQ(length_of(rule), 5);
}

TEST(StopRule, HeuristicStartsAfreshWithEachSequence) {
    StopRule rule(options_of("heuristic"));
    rule.end_round({5, 5});
    rule = StopRule(rule.options());
    EXPECT_EQ(length_of(rule), 5);
}

// transformers 4.37's `heuristic` schedule, which the thesis measures against: AssistedCandidateGenerator drafts
// min(k, what the budget leaves) tokens and its update_candidate_strategy compares the matches with k.
TEST(StopRule, PersistentHeuristicIsThatOfTransformersOverManyTexts) {
    auto options = options_of("heuristic");
    options.set("persistent", 1);
    options.max_tokens = Packet::kMaxDraftTokens;
    GainModel gain = cheap_drafts();
    std::mt19937 random(1);
    int k = 5, longest = 0, cut = 0;
    for (int text = 0; text < 200; ++text) {
        StopRule rule(options, &gain); // each text has its own
        for (int left = 1 + static_cast<int>(random() % 60); left > 0;) {
            ASSERT_EQ(length_of(rule), k) << "text " << text;
            const int drafted = std::min(k, left - 1);
            int matches = 0;
            while (matches < drafted && random() % 20 < 19)
                ++matches;
            rule.end_round({drafted, matches, drafted < k});
            cut += drafted < k ? 1 : 0;
            k = matches == k ? k + 2 : std::max(1, k - 1);
            longest = std::max(longest, k);
            left -= matches + 1;
        }
    }
    EXPECT_GT(longest, 15);
    EXPECT_GT(cut, 100);
}

TEST(StopRule, PersistentHeuristicGoesBeyondTheCapButNotBeyondAPacket) {
    auto options = options_of("heuristic");
    options.set("persistent", 1);
    GainModel gain = cheap_drafts();
    StopRule rule(options, &gain);
    for (int round = 0; round < 100; ++round) {
        rule.end_round({15, 15});
        EXPECT_LE(length_of(rule), 15) << "rounds keep to --max-draft-tokens";
    }
    options.max_tokens = Packet::kMaxDraftTokens;
    StopRule wide(options, &gain);
    EXPECT_EQ(length_of(wide), Packet::kMaxDraftTokens);
    wide.end_round({0, 0}); // a round without a draft teaches nothing
    EXPECT_EQ(length_of(wide), Packet::kMaxDraftTokens);
    wide.end_round({127, 3});
    StopRule next(options, &gain);
    EXPECT_EQ(length_of(next), Packet::kMaxDraftTokens - 1);
    StopRule foreseen = next; // of a round that is only foreseen nothing stays
    foreseen.end_round({.drafted = 126, .accepted = 1, .is_foreseen = true});
    EXPECT_EQ(length_of(foreseen), Packet::kMaxDraftTokens - 2);
    EXPECT_EQ(length_of(next), Packet::kMaxDraftTokens - 1);
    EXPECT_EQ(gain.kept_draft_tokens, Packet::kMaxDraftTokens - 1);
    EXPECT_THROW(StopRule{options}, std::invalid_argument) << "it has nothing to keep k in";
    try {
        options_of("adaptive").set("persistent", 1);
        FAIL() << "adaptive has no such switch";
    } catch (const std::invalid_argument& error) {
        EXPECT_STREQ(error.what(), "--stop-rule adaptive has no persistent");
    }
}

TEST(StopRule, ConstantLearnsNothing) {
    StopRule rule(options_of("constant"));
    rule.end_round({5, 5});
    EXPECT_EQ(length_of(rule), 5);
}

TEST(StopRule, DropsTheTokenThatFiredAThresholdRuleIfAsked) {
    auto options = options_of("static");
    options.drop_stop_token = true;
    StopRule rule(options);
    EXPECT_EQ(rule.decide({1, 1}), StopDecision::go_on);
    EXPECT_EQ(rule.decide({5, 1}), StopDecision::drop);
    options = instead(options, "constant"); // counts tokens, so none is dropped
    options.set("tokens", 1);
    EXPECT_EQ(StopRule(options).decide({5, 1}), StopDecision::stop);
}

TEST(StopRule, DropsATokenForWhatItIsWhereNoAcceptanceGoesByItsChance) {
    auto options = options_of("confidence");
    options.drop_stop_token = true;
    StopRule rule(options);
    EXPECT_EQ(rule.decide({1, 0.5F}), StopDecision::go_on);
    EXPECT_EQ(rule.decide({1, 0.3F}), StopDecision::drop);
    for (const Acceptance acceptance : {Acceptance::gumbel, Acceptance::typical, Acceptance::bild})
        EXPECT_EQ(why_biased(options, acceptance), "");
    for (const Acceptance acceptance : {Acceptance::rejection, Acceptance::block}) {
        const std::string why = why_biased(options, acceptance);
        EXPECT_EQ(why.find("--stop-rule confidence:drop would bias --acceptance " + to_string(acceptance)), 0u) << why;
        EXPECT_EQ(why_biased(instead(options, "static"), acceptance), "") << "it looks at the distribution alone";
        EXPECT_EQ(why_biased(options_of("confidence"), acceptance), "") << "it keeps the token";
    }
}

TEST(StopRule, AdaptiveMovesByOneFromThree) {
    StopRule rule(options_of("adaptive"));
    EXPECT_EQ(length_of(rule), 3);
    rule.end_round({3, 3});
    EXPECT_EQ(length_of(rule), 4);
    rule.end_round({4, 3});
    rule.end_round({3, 0});
    EXPECT_EQ(length_of(rule), 2);
    rule.end_round({2, 2, true});
    EXPECT_EQ(length_of(rule), 2);
}

TEST(StopRule, ConfidenceLooksAtTheDraftedTokensProbability) {
    StopRule rule(options_of("confidence"));
    EXPECT_EQ(rule.decide({9, 0.4F}), StopDecision::go_on);
    EXPECT_EQ(rule.decide({0, 0.39F}), StopDecision::stop);
    EXPECT_EQ(rule.decide({kNan, kNan}), StopDecision::go_on);
}

TEST(StopRule, SvipStopsWhereTheRootOfTheScaledEntropyIsHigh) {
    EXPECT_EQ(stop_of(options_of("svip"), {0.59, 0.61}), 2); // 0.3^2 / 0.15 = 0.6
}

TEST(StopRule, AdaedlLowersItsBarWhileMuchStands) {
    auto options = options_of("adaedl");
    // 1 - sqrt(0.2 x) < 0.6 from x = 0.8 on.
    EXPECT_EQ(stop_of(options, {0.79, 0.81}), 2);
    StopRule rule(options);
    for (int i = 0; i < 100; ++i)
        rule.end_round({4, 4});
    EXPECT_EQ(stop_of(rule, {0.81, 0.81}), 0);
    for (int i = 0; i < 300; ++i)
        rule.end_round({4, 0});
    EXPECT_EQ(stop_of(rule, {0.7}), 1);
    rule = StopRule(rule.options());
    EXPECT_EQ(stop_of(rule, {0.79, 0.81}), 2);
}

TEST(ExpectedGain, NeedsItsModel) {
    EXPECT_THROW(StopRule(options_of("expected-gain")), std::invalid_argument);
}

// A rule whose costs are fixed: t_draft, then t_target of 1, 2, ... rows.
struct GainRule {
    GainModel model;
    StopRule rule;
    GainRule(double t_draft, std::vector<double> t_target)
        : model({.max_rows = 16, .draft_to_target_cost = 0.1, .costs = Costs{t_draft, std::move(t_target)}}),
          rule(options_of("expected-gain"), &model) {}

    void begin_text() { rule = StopRule(options_of("expected-gain"), &model); }
    // Drafts at `entropy` until the rule ends it. Returns the number of proposed tokens; `share` of them are accepted.
    int round(double entropy, double share) {
        rule.begin_round();
        int drafted = 0;
        while (rule.end() == DraftEnd::none && rule.wants_another()) {
            const StopDecision decision = rule.decide({static_cast<float>(entropy), 0.5F});
            if (decision != StopDecision::drop) ++drafted;
            if (decision != StopDecision::go_on) break;
        }
        rule.end_round({drafted, static_cast<int>(drafted * share), false, 0, 0});
        return drafted;
    }
};

TEST(ExpectedGain, DraftsToTheCapWhereEverythingStandsAndCostsLittle) {
    GainRule gain(0.01, {1, 1});
    int drafted = 0;
    for (int i = 0; i < 200; ++i)
        drafted = gain.round(0.1, 1);
    EXPECT_EQ(drafted, 15);
}

TEST(ExpectedGain, DraftsNothingWhereNothingStandsButNowAndThen) {
    GainRule gain(0.1, {1, 1.05});
    for (int i = 0; i < 200; ++i)
        gain.round(0.1, 0);
    int drafted = 0, rounds_with = 0;
    for (int i = 0; i < 6000; ++i) {
        const int now = gain.round(0.1, 0);
        EXPECT_LE(now, 1);
        drafted += now;
        rounds_with += now > 0;
    }
    EXPECT_GT(rounds_with, 0);
    EXPECT_LE(drafted, 20);
}

TEST(ExpectedGain, TriesATokenWhenATextBeginsAndLessAndLessWithinIt) {
    GainRule gain(0.1, {1, 1.05});
    for (int i = 0; i < 300; ++i)
        gain.round(0.1, 0);
    for (int text = 0; text < 5; ++text) {
        gain.begin_text();
        EXPECT_EQ(gain.round(0.1, 0), 1) << "the draft has just read the prompt";
        for (int i = 0; i < 100; ++i)
            EXPECT_EQ(gain.round(0.1, 0), 0);
    }
}

TEST(ExpectedGain, NeverTriesWhereEvenAPerfectDraftWouldNotPay) {
    GainRule gain(1, {1, 1.02});
    for (int i = 0; i < 100; ++i) {
        gain.begin_text();
        EXPECT_EQ(gain.round(0.1, 1), 0);
    }
}

TEST(ExpectedGain, TimesADraftPassBeforeItJudgesIt) {
    GainModel model({.max_rows = 16, .draft_to_target_cost = 5, .costs = {}}); // the weights say so, wrongly
    StopRule rule(options_of("expected-gain"), &model);
    const auto round = [&] {
        rule.begin_round();
        int drafted = 0;
        while (rule.end() == DraftEnd::none && rule.wants_another())
            if (++drafted; rule.decide({0.1F, 0.9F}) != StopDecision::go_on) break;
        rule.end_round({drafted, drafted, false, drafted * 0.05, 1});
        return drafted;
    };
    int drafted = 0;
    for (int i = 0; i < 300; ++i)
        drafted = round();
    EXPECT_GT(drafted, 5);
}

// Otherwise a draft whose first passes were delayed by another process would never be tried again.
TEST(ExpectedGain, TimesADraftAnewThatWasSlowLongAgo) {
    GainModel model({.max_rows = 16, .draft_to_target_cost = 0.1, .costs = {}});
    StopRule rule(options_of("expected-gain"), &model);
    int rounds_with_draft = 0;
    constexpr int kRounds = 8000, kSlow = 200, kLast = 500;
    for (int i = 0; i < kRounds; ++i) {
        rule.begin_round();
        int drafted = 0;
        while (rule.end() == DraftEnd::none && rule.wants_another())
            if (++drafted; rule.decide({0.1F, 0.9F}) != StopDecision::go_on) break;
        const double pass = i < kSlow ? 3 : 0.05;
        rule.end_round({drafted, drafted, false, drafted * pass, 1});
        rounds_with_draft += i >= kRounds - kLast && drafted > 0 ? 1 : 0;
    }
    EXPECT_GT(rounds_with_draft, 0.9 * kLast);
}

// A replica whose rule learns costs: a draft pass takes 0.1 seconds, one of the target 1, and 0.1 more a further row.
struct MeasuredGain {
    GainModel model{{.max_rows = 16, .draft_to_target_cost = 0.1, .costs = {}}};
    StopRule rule{options_of("expected-gain"), &model};
    std::int64_t n_accepted = 0;

    void begin_text() { rule = StopRule(options_of("expected-gain"), &model); }
    // Seconds that the draft takes in a round of a text with so much left and unread, where all is accepted or nothing.
    double round(bool accepted, int unread = 0, int left = 1000, int texts = 1) {
        rule.begin_round({.texts = texts, .unread = unread, .left = left});
        int drafted = 0;
        while (rule.end() == DraftEnd::none && rule.wants_another())
            if (++drafted; rule.decide({1, 0.5F}) != StopDecision::go_on) break;
        const double reading = drafted > 0 ? 0.01 * unread : 0;
        n_accepted += accepted ? drafted : 0;
        rule.end_round({.drafted = drafted,
                        .accepted = accepted ? drafted : 0,
                        .draft_seconds = 0.1 * drafted,
                        .target_seconds = 1 + 0.1 * drafted,
                        .caught_up = drafted > 0 ? unread : 0,
                        .catch_up_seconds = reading});
        return reading + 0.1 * drafted;
    }
};

TEST(ExpectedGain, ReadsAPromptWhereTheRestOfTheTextPaysForIt) {
    MeasuredGain gain;
    for (int i = 0; i < 200; ++i)
        gain.round(true, i == 0 ? 100 : 0);
    EXPECT_EQ(gain.round(true, 3000, 25), 0) << "30 seconds of reading for 25 of decoding";
    EXPECT_GT(gain.round(true, 3000, 200), 30);
    for (int i = 0; i < 100; ++i)
        gain.model.policy.learn_length(20, 200);
    EXPECT_EQ(gain.round(true, 3000, 200), 0) << "texts end long before they must";
}

// The chance is 0.7 while nothing is known; the cost is 0.72 of a pass and 0.09 for the row.
TEST(ExpectedGain, TellsWhyItDraftsNothing) {
    GainRule dear(0.72, {1, 1.09});
    dear.model.policy.drafted(true); // no probe is due
    for (int i = 0; i < 3; ++i)
        dear.round(0.5, 1);
    const DraftWorth worth = dear.model.worth();
    EXPECT_GE(worth.declined, 2);
    EXPECT_EQ(worth.declined_for_reading, 0);
    EXPECT_DOUBLE_EQ(worth.pass, 0.72);
    EXPECT_NEAR(worth.row, 0.09, 1e-12);
    EXPECT_TRUE(worth.is_pass_timed);
    EXPECT_LT(worth.acceptance, worth.pass + worth.row);
    EXPECT_TRUE(worth.row_costs.empty()) << "nothing is learnt where costs are given";
    MeasuredGain reads;
    for (int i = 0; i < 200; ++i)
        reads.round(true, i == 0 ? 100 : 0);
    const std::int64_t before = reads.model.worth().declined_for_reading;
    reads.round(true, 3000, 25);
    EXPECT_EQ(reads.model.worth().declined_for_reading, before + 1);
    EXPECT_GT(reads.model.worth().reading, 0);
}

// A row costs a tenth of a pass.
TEST(ExpectedGain, TellsWhatRowsCostOnceTheyHaveChangedOften) {
    GainModel model({.max_rows = 16, .draft_to_target_cost = 0.1, .costs = {}});
    const std::vector<DraftedToken> tokens(6, DraftedToken{1, 0.5F});
    const auto learn = [&](int drafted) {
        model.learn({{.accepted = drafted, .draft_seconds = 0.1 * drafted, .target_seconds = 1 + 0.1 * drafted},
                     std::span(tokens).first(static_cast<std::size_t>(drafted)),
                     0,
                     static_cast<double>(drafted)});
    };
    for (int round = 0; round < 50; ++round)
        learn(4);
    EXPECT_TRUE(model.worth().row_costs.empty()) << "all passes were of five rows";
    for (int round = 0; round < 300; ++round)
        learn(1 + round % 6);
    const std::vector<double> costs = model.worth().row_costs;
    ASSERT_EQ(costs.size(), 16U);
    EXPECT_DOUBLE_EQ(costs[0], 1);
    EXPECT_GT(costs[4], 1.2);
    EXPECT_LT(costs[4], 1.8);
}

TEST(ExpectedGain, ReadsAPromptOnlyWhereTheOtherTextsOfTheBatchCouldDraftAsWell) {
    MeasuredGain gain;
    for (int i = 0; i < 200; ++i)
        gain.round(true, i == 0 ? 100 : 0);
    EXPECT_EQ(gain.round(true, 300, 200, 8), 0) << "a row for each takes 0.8 seconds in place of a pass of 1.7";
    EXPECT_GT(gain.round(true, 300, 200, 1), 3);
}

TEST(ExpectedGain, ReadsNothingForTokensThatNeedNoPass) {
    MeasuredGain gain;
    for (int i = 0; i < 200; ++i)
        gain.round(true, i == 0 ? 100 : 0);
    gain.rule.begin_round({.unread = 3000, .left = 25});
    EXPECT_TRUE(gain.rule.wants_another({0, 0}));
    EXPECT_EQ(gain.rule.decide({0, 1}), StopDecision::go_on);
    EXPECT_FALSE(gain.rule.wants_another()) << "behind it a pass comes, and the prompt before it";
}

TEST(ExpectedGain, GoesOnReadingAPromptThatTakesRounds) {
    MeasuredGain gain;
    for (int i = 0; i < 5000; ++i)
        gain.round(false); // this leaves 25 seconds for trials
    gain.begin_text();
    for (const int unread : {500, 400, 300}) {
        gain.rule.begin_round({.unread = unread, .left = 1000});
        EXPECT_TRUE(gain.rule.wants_another()) << unread;
        gain.rule.end_round({.target_seconds = 1, .caught_up = 100, .catch_up_seconds = 1});
    }
}

// Texts of 3,000 tokens. The draft reads as much as the rule wants; the probability that its first token is accepted
// depends on that. Returns the number of texts that were read whole.
int texts_read_whole(double by_all, double by_end, int left, int n_texts) {
    MeasuredGain gain;
    int whole = 0;
    std::uint64_t drawn = 0;
    for (int text = 0; text < n_texts; ++text) {
        gain.begin_text();
        gain.rule.begin_round({.unread = 3000, .left = left, .may_begin_within = true});
        int unread = gain.rule.round().unread;
        const bool reads_all = unread == 3000;
        EXPECT_TRUE(reads_all || unread == 256);
        whole += reads_all ? 1 : 0;
        for (int remaining = left; remaining > 0; unread = 0) {
            drawn = drawn * 6364136223846793005U + 1442695040888963407U;
            const bool accepted = static_cast<double>(drawn >> 40U) < (reads_all ? by_all : by_end) * 0x1p24;
            const std::int64_t before = gain.n_accepted;
            gain.round(accepted, unread, remaining);
            remaining -= static_cast<int>(gain.n_accepted - before) + 1;
        }
    }
    return whole;
}

TEST(ExpectedGain, ReadsTheBeginningOfLongTextsWhereThatBringsMore) {
    EXPECT_GT(texts_read_whole(0.95, 0.5, 2000, 60), 50);
    EXPECT_LT(texts_read_whole(0.7, 0.7, 2000, 60), 4) << "to learn that the end does as well";
    EXPECT_GT(texts_read_whole(0.7, 0.7, 2000, 60), 0);
    EXPECT_EQ(texts_read_whole(0.95, 0.5, 25, 60), 0) << "30 seconds of reading for 25 tokens";
}

TEST(ExpectedGain, SpendsHalfAHundredthOfTheRunOnDraftsThatBringNothing) {
    for (const int prompt : {10, 1000}) {
        MeasuredGain gain;
        for (int i = 0; i < 100; ++i)
            gain.round(false);
        double drafting = 0;
        constexpr int kTexts = 400, kRounds = 25;
        for (int text = 0; text < kTexts; ++text) {
            gain.begin_text();
            for (int i = 0; i < kRounds; ++i)
                drafting += gain.round(false, prompt + i, kRounds - i);
        }
        EXPECT_LT(drafting, 0.006 * kTexts * kRounds) << prompt;
        if (prompt == 10) {
            EXPECT_GT(drafting, 0.002 * kTexts * kRounds) << "it is to notice when drafts become good";
        }
    }
}

TEST(ExpectedGain, OneSequenceOfABatchDraftsWhileNothingIsKnown) {
    MeasuredGain gain;
    StopRule other(options_of("expected-gain"), &gain.model);
    const auto both_begin = [&] {
        for (StopRule* rule : {&gain.rule, &other})
            rule->begin_round({.load = {1, 2}});
        const bool first = gain.rule.wants_another();
        return std::pair(first, other.wants_another());
    };
    EXPECT_EQ(both_begin(), std::pair(true, false));
    for (int i = 0; i < 8; ++i)
        gain.round(true);
    EXPECT_EQ(both_begin(), std::pair(true, true));
}

TEST(ExpectedGain, ComesBackWhenTokensStandAgain) {
    GainRule gain(0.05, {1, 1.02});
    for (int i = 0; i < 300; ++i)
        gain.round(0.1, 0);
    int drafted = 0;
    for (int i = 0; i < 1500; ++i)
        drafted = gain.round(0.1, 1);
    EXPECT_GT(drafted, 5);
}

// A token of 0.65 pays here, one of 0.5 does not: a stretch of the latter must not end drafting for good.
TEST(ExpectedGain, ComesBackSoonAfterAStretchThatNearlyPaid) {
    GainRule gain(0.2, {1, 1.35});
    for (int i = 0; i < 2000; ++i)
        gain.round(1, i % 2 == 0 ? 1 : 0);
    int drafted = 0;
    for (int i = 0; i < 600; ++i)
        drafted += std::min(gain.round(1, 1), 1);
    EXPECT_GT(drafted, 400);
}

TEST(ExpectedGain, DoesNotDraftWhereADraftPassCostsAsMuchAsATargetPass) {
    GainRule gain(1, {1, 1});
    int drafted = 0;
    for (int i = 0; i < 100; ++i)
        drafted += gain.round(0.1, 0.5);
    for (int i = 0; i < 200; ++i)
        EXPECT_LE(gain.round(0.1, 0.5), 1);
}

TEST(ExpectedGain, StopsAtUncertainTokensAndGoesOnAtCertainOnes) {
    GainRule gain(0.1, {1, 1.1});
    for (int i = 0; i < 300; ++i) {
        gain.round(0.1, 1);
        gain.round(5, 0);
    }
    EXPECT_GT(gain.round(0.1, 1), 3);
    EXPECT_LE(gain.round(5, 0), 1);
}

TEST(ExpectedGain, KeepsEveryDrawnTokenAndDropsLookedUpOnesThatDoNotPay) {
    GainRule gain(0.01, {1, 2, 3}); // rows cost as much as plain decoding; passes cost little
    gain.rule.begin_round();
    EXPECT_NE(gain.rule.decide({6, 0.001F}), StopDecision::drop);
    gain.rule.begin_round();
    EXPECT_EQ(gain.rule.decide({kNan, kNan, 1}), StopDecision::drop);
}

// Tokens and the run's history are the same: the text in which more were accepted than expected is drafted further.
TEST(ExpectedGain, DraftsFurtherInATextWhereMoreStandsThanExpected) {
    const auto drafted_after = [](bool lucky_text) {
        GainRule gain(0.1, {1, 1});
        for (int i = 0; i < 300; ++i) { // the two kinds of texts take turns
            const bool lucky = i % 2 == (lucky_text ? 1 : 0);
            gain.begin_text();
            for (int round = 0; round < 10; ++round)
                gain.round(3, lucky ? 1 : 0);
        }
        return gain.round(3, 1);
    };
    EXPECT_GT(drafted_after(true), drafted_after(false) + 1);
}

TEST(GainModel, EachTextOfABatchTellsItsShareOfThePass) {
    GainModel model({.max_rows = 32, .draft_to_target_cost = 0.1, .costs = {}});
    PassTimes times(0.1);
    for (int pass = 0; pass < 50; ++pass)
        for (int text = 0; text < 16; ++text) {
            const int beside = pass % 2 == 0 ? 15 : 23;
            const double seconds = (pass % 2 == 0 ? 1 : 1.4) * (1 + 0.05 * (pass * 5 % 7 - 3));
            model.learn({{.target_seconds = seconds, .batch_load = {beside, 16}}, {}});
            times.learn_target(beside + 1, seconds, 1.0 / 16);
        }
    EXPECT_DOUBLE_EQ(model.costs.target_seconds(24), times.target_seconds(24));
}

// If a pass takes as long as its rows, a second token of each text brings nothing, though the last of them costs less
// than a token in so wide a pass.
TEST(GainModel, WhatABatchSavesIsReckonedByRoundsInWhichNoTextDrafts) {
    constexpr int kTexts = 4;
    const auto run = [](auto seconds_of) {
        GainModel model({.max_rows = 32, .draft_to_target_cost = 0.1, .costs = {}});
        const DraftedToken token = {1, 0.5F};
        for (int round = 0; round < 400; ++round) {
            const int drafted = round % 2, rows = kTexts * (1 + drafted);
            for (int text = 0; text < kTexts; ++text)
                model.learn({{.accepted = drafted,
                              .target_seconds = seconds_of(rows),
                              .batch_load = {rows - 1 - drafted, kTexts}},
                             std::span(&token, static_cast<std::size_t>(drafted))});
        }
        return model.policy.affords(100); // of 2,400 at most
    };
    EXPECT_FALSE(run([](int rows) { return 1.0 * rows; }));
    EXPECT_TRUE(run([](int rows) { return kTexts + 0.1 * (rows - kTexts); }));
}

TEST(GainModel, CountsWhatARoundCostsBesideItsPasses) {
    const Costs costs = {0.1, {1, 1.5}, std::nullopt, 0.25};
    const GainModel model({.max_rows = 4, .draft_to_target_cost = 0.1, .costs = costs});
    EXPECT_DOUBLE_EQ(model.costs.target_seconds(1), 1.25);
    EXPECT_DOUBLE_EQ(model.costs.target_seconds(2), 1.75);
    EXPECT_DOUBLE_EQ(model.costs.target_seconds(4), 2.75); // as the measured ones grew
    EXPECT_DOUBLE_EQ(model.costs.draft_seconds(2), 0.2);
}

const CostOptions kFixedCosts = {.max_rows = 8, .draft_to_target_cost = 0.1, .costs = Costs{0.1, {1}}};

TEST(GainModel, LearnsAcceptanceByEntropyAndForgetsSlowly) {
    GainModel model(kFixedCosts);
    const std::vector<DraftedToken> tokens = {{0.2F, 0.5F}, {3.2F, 0.5F}};
    for (int i = 0; i < 1000; ++i)
        model.learn({{.accepted = 1}, tokens, 0, 2}); // the first is accepted, the second rejected
    EXPECT_GT(model.acceptance.of(tokens[0], 0), 0.95);
    EXPECT_LT(model.acceptance.of(tokens[1], 0), 0.05);
    EXPECT_NEAR(model.acceptance.mean(), 0.5, 0.01);
    EXPECT_NEAR(model.pace.tokens_per_second(), 2 / 1.2, 1e-9);
    for (int i = 0; i < 3000; ++i)
        model.learn({{.accepted = 0}, tokens, 0, 2});
    EXPECT_LT(model.acceptance.of(tokens[0], 0), 0.1);
}

TEST(GainModel, LearnsAcceptanceByTheTokensProbabilityWhereEntropySaysNothing) {
    GainModel model(kFixedCosts);
    const std::vector<DraftedToken> tokens = {{2, 0.9F}, {2, 0.05F}};
    for (int i = 0; i < 300; ++i)
        model.learn({{.accepted = 1}, tokens, 0, 2});
    EXPECT_GT(model.acceptance.of(tokens[0], 0), 0.95);
    EXPECT_LT(model.acceptance.of(tokens[1], 0), 0.05);
}

TEST(GainModel, LearnsAcceptanceByTheMarginWhereNothingElseSaysAnything) {
    GainModel model(kFixedCosts);
    const std::vector<DraftedToken> tokens = {{2, 0.3F, 0, 2.5F}, {2, 0.3F, 0, 0.05F}};
    EXPECT_GT(model.acceptance.of(tokens[0], 0), model.acceptance.of(tokens[1], 0) + 0.3) << "as most pairs have it";
    for (int i = 0; i < 300; ++i)
        model.learn({{.accepted = 1}, tokens, 0, 2});
    EXPECT_GT(model.acceptance.of(tokens[0], 0), 0.95);
    EXPECT_LT(model.acceptance.of(tokens[1], 0), 0.05);
    const double of_unknown = model.acceptance.of({2, 0.3F}, 0);
    EXPECT_GT(of_unknown, 0.2);
    EXPECT_LT(of_unknown, 0.8);
    EXPECT_GT(model.acceptance.of({2, 0.3F, 0, std::numeric_limits<float>::infinity()}, 0), 0.95) << "the only one";
}

TEST(GainModel, TrustsTheTextsLuckAsFarAsItHoldsTrue) {
    GainModel telling(kFixedCosts), mute(kFixedCosts);
    const std::vector<DraftedToken> token = {{2, 0.3F}};
    for (int i = 0; i < 600; ++i) {
        const bool lucky = i % 2 == 0, accepted = i % 4 < 2;
        telling.learn({{.accepted = lucky ? 1 : 0}, token, lucky ? 0.3 : -0.3, 1});
        mute.learn({{.accepted = accepted ? 1 : 0}, token, lucky ? 0.3 : -0.3, 1});
    }
    EXPECT_GT(telling.acceptance.of(token[0], 0.3), 0.9);
    EXPECT_LT(telling.acceptance.of(token[0], -0.3), 0.1);
    EXPECT_NEAR(mute.acceptance.of(token[0], 0.3), 0.5, 0.1);
    EXPECT_NEAR(mute.acceptance.of(token[0], -0.3), 0.5, 0.1);
}

TEST(GainModel, KeepsTokensThatWereLookedUpApart) {
    GainModel model(kFixedCosts);
    const DraftedToken drawn = {2, 0.3F}, matched = {kNan, kNan, 3}, longer = {kNan, kNan, 5};
    const double before = model.acceptance.of(drawn, 0), before_longer = model.acceptance.of(longer, 0);
    for (int i = 0; i < 200; ++i)
        model.learn({{.accepted = 1}, std::vector{matched}, 0, 0});
    EXPECT_GT(model.acceptance.of(matched, 0), 0.95);
    EXPECT_EQ(model.acceptance.of(longer, 0), before_longer);
    EXPECT_EQ(model.acceptance.of(drawn, 0), before);
}

TEST(GainModel, LearnsNothingFromTokensBehindTheFirstThatFell) {
    GainModel whole(kFixedCosts), verified(kFixedCosts);
    const std::vector<DraftedToken> tokens = {{0.2F, 0.9F}, {2.2F, 0.1F}};
    for (int i = 0; i < 50; ++i) {
        whole.learn({{.accepted = 0}, tokens, 0, 2});
        verified.learn({{.accepted = 0}, std::span(tokens).first(1), 0, 2});
    }
    EXPECT_EQ(whole.acceptance.of(tokens[1], 0), verified.acceptance.of(tokens[1], 0));
    EXPECT_EQ(whole.acceptance.mean(), verified.acceptance.mean());
}

TEST(GainModel, StaysFiniteWhateverItIsShown) {
    GainModel model(kFixedCosts);
    const std::vector<DraftedToken> odd = {{0, 1}, {12, 0}, {-1e-9F, 1}, {0, 0}};
    for (int i = 0; i < 20000; ++i) {
        const auto n = static_cast<int>(odd.size());
        model.learn({{.accepted = i / 5000 % 2 == 0 ? n : i % n}, odd, i % 3 - 1.0, 4});
    }
    for (const DraftedToken& token : odd) {
        const double acceptance = model.acceptance.of(token, 0);
        EXPECT_TRUE(acceptance > 0 && acceptance < 1) << acceptance;
    }
}

TEST(StopRuleOptions, AreRefusedWithTheOptionsName) {
    const auto names = [](const StopRuleOptions& options, const std::string& option) {
        EXPECT_EQ(why_invalid(options).find(option), 0u) << why_invalid(options);
        EXPECT_THROW(StopRule{options}, std::invalid_argument);
    };
    const StopRuleOptions good;
    EXPECT_EQ(why_invalid(good), "");
    EXPECT_THROW(StopRuleOptions("moving-average", {{"threshold", 2}}), std::invalid_argument);
    EXPECT_THROW(options_of("moving-average").get("threshold"), std::invalid_argument);
    for (const double threshold : {-1.0, kNan, std::numeric_limits<double>::infinity()})
        names({"static", {{"threshold", threshold}}},
              "--stop-rule static: threshold must be a number that is not negative");
    for (const double factor : {0.0, -1.0, kNan})
        names({"moving-average", {{"factor", factor}}}, "--stop-rule moving-average: factor must be a number above 0");
    names({"moving-average", {{"window", 0}}}, "--stop-rule moving-average: window must be");
    names({"constant", {{"tokens", 0}}}, "--stop-rule constant: tokens must be");
    names({"confidence", {{"threshold", 1.5}}}, "--stop-rule confidence: threshold must be from 0 to 1");
    for (const int most : {0, 128}) {
        StopRuleOptions bad = good;
        bad.max_tokens = most;
        names(bad, "--max-draft-tokens");
    }
    for (const int least : {0, 16}) {
        StopRuleOptions bad = good;
        bad.min_tokens = least;
        names(bad, "--stop-rule moving-average: min must be");
    }
    EXPECT_EQ(StopRuleOptions("cumulative").get("threshold"), 1);
    EXPECT_EQ(StopRuleOptions("static").get("threshold"), 0.75);
}

} // namespace stop_rule_test
} // namespace entrodraft::spec
