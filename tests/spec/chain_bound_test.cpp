// The oracle of chains bounds every rule: by brute force over small texts, and over random recordings and costs.
#include "spec/replay/chain_bound.h"

#include "spec/replay/simulate.h"
#include "tests/spec/recording_support.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace chain_bound_test {

using namespace entrodraft;

using Random = std::mt19937;

double uniform(Random& random, double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
}
int whole(Random& random, int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
}

// Costs of rows that are free, expensive, measured only here and there, or lower the more rows there are.
spec::Costs random_costs(Random& random) {
    spec::Costs costs;
    costs.t_draft = uniform(random, 0, 1);
    if (whole(random, 0, 1) == 1) costs.t_first_draft = costs.t_draft + uniform(random, 0, 1);
    if (whole(random, 0, 1) == 1) costs.t_round = uniform(random, 0, 0.5);
    const double slope = uniform(random, -0.05, 0.5);
    for (int rows = 1; rows <= whole(random, 1, 12); ++rows) {
        const double seconds = std::max(1 + slope * (rows - 1) + uniform(random, -0.2, 0.2), 0.05);
        const bool is_measured = rows == 1 || whole(random, 0, 4) > 0;
        costs.t_target.push_back(is_measured ? seconds : std::numeric_limits<double>::quiet_NaN());
    }
    return costs;
}

double seconds_of_round(int drafted, const spec::Costs& costs) {
    spec::Stats stats;
    stats.count_round(drafted, 0, drafted);
    return spec::predicted_seconds(stats, costs);
}

// The least of all ways to cut the rest of the text into rounds.
double brute_force(std::span<const spec::PlaceChain> places, const spec::Costs& costs) {
    if (places.empty()) return 0;
    double least = std::numeric_limits<double>::infinity();
    for (int drafted = 0; drafted <= places.front().longest; ++drafted) {
        const auto emitted = static_cast<std::size_t>(std::min(drafted, places.front().accepted) + 1);
        const double rest = brute_force(places.subspan(std::min(emitted, places.size())), costs);
        least = std::min(least, seconds_of_round(drafted, costs) + rest);
    }
    return least;
}

double seconds_of(std::span<const spec::PlaceChain> places, std::span<const int> drafts, const spec::Costs& costs) {
    double seconds = 0;
    for (std::size_t place = 0; place < places.size();) {
        EXPECT_LE(drafts[place], places[place].longest);
        seconds += seconds_of_round(drafts[place], costs);
        place += static_cast<std::size_t>(std::min(drafts[place], places[place].accepted)) + 1;
    }
    return seconds;
}

TEST(ChainBound, IsTheCheapestOfAllWaysToDraft) {
    Random random(1);
    int n_declined = 0, n_drafted = 0;
    for (int trial = 0; trial < 300; ++trial) {
        std::vector<spec::PlaceChain> places(static_cast<std::size_t>(whole(random, 0, 7)));
        for (spec::PlaceChain& place : places) {
            place.longest = whole(random, 0, 4);
            place.accepted = whole(random, 0, place.longest);
        }
        const spec::Costs costs = random_costs(random);
        const std::vector<int> drafts = spec::cheapest_drafts(places, costs);
        EXPECT_NEAR(seconds_of(places, drafts, costs), brute_force(places, costs), 1e-9) << trial;
        for (std::size_t place = 0; place < places.size(); ++place)
            (drafts[place] < places[place].accepted ? n_declined : n_drafted) += 1;
    }
    EXPECT_GT(n_declined, 100) << "no accepted token was too dear: the test shows little";
    EXPECT_GT(n_drafted, 100);
}

// Seven are accepted. Five rows cost as much as one; the sixth costs as much as five more rounds.
TEST(ChainBound, DraftsAPartOfWhatWouldBeAccepted) {
    const std::vector<spec::PlaceChain> places = {{7, 7}, {7, 6}, {7, 5}, {7, 4}, {7, 3}, {7, 2}, {7, 1}, {7, 0}};
    const spec::Costs costs = {0.01, {1, 1, 1, 1, 1, 6, 7, 8}};
    const std::vector<int> drafts = spec::cheapest_drafts(places, costs);
    EXPECT_LE(drafts[0], 4);
    EXPECT_NEAR(seconds_of(places, drafts, costs), 2 + 6 * 0.01, 1e-9);
    const spec::Costs dear = {2, {1, 1}};
    EXPECT_EQ(spec::cheapest_drafts(places, dear), std::vector<int>(8)) << "a draft pass costs two tokens";
}

// ---- recordings ----

constexpr int kCap = 12;

// A draft, or a head, that often agrees with a text of few different tokens.
spec::TextRecord random_text(Random& random, bool is_head) {
    constexpr int kTokens = 4;
    spec::TextRecord text;
    text.prompt = {1, 2};
    text.new_tokens = whole(random, 1, 30);
    text.max_new_tokens = text.new_tokens + whole(random, 0, 3);
    const double agreement = uniform(random, 0.3, 1);
    for (int place = 0; place < text.new_tokens + kCap; ++place)
        text.token.push_back(whole(random, 0, kTokens - 1));
    spec::DraftRecord draft;
    const auto add_seen = [&](std::vector<float>& entropy, std::vector<float>& probability,
                              std::vector<float>& margin) {
        entropy.push_back(static_cast<float>(uniform(random, 0, 5)));
        probability.push_back(static_cast<float>(uniform(random, 0.01, 1)));
        margin.push_back(static_cast<float>(uniform(random, 0, 5)));
    };
    for (const spec::TokenId token : text.token) {
        const bool agrees = uniform(random, 0, 1) < agreement;
        draft.token.push_back(agrees ? token : (token + 1) % kTokens);
        add_seen(draft.entropy, draft.probability, draft.margin);
        draft.rank.push_back(agrees ? 0 : 1);
        if (agrees && !is_head) continue;
        draft.astray_length.push_back(kCap);
        for (int i = 0; i < kCap; ++i) {
            draft.astray_token.push_back(whole(random, 0, kTokens - 1));
            add_seen(draft.astray_entropy, draft.astray_probability, draft.astray_margin);
        }
    }
    text.drafts = {draft};
    return text;
}

spec::RecordingHead head_of(bool is_head) {
    spec::RecordingHead head;
    head.drafts = {{"draft", "float32", 100}};
    if (is_head) head.drafts[0].head_tokens = 0;
    head.max_draft_tokens = kCap;
    head.vocab_size = 10;
    head.max_positions = 100;
    return head;
}

TEST(ChainBound, NoRuleIsFasterThanTheOracleOnAnyRecording) {
    Random random(2);
    int n_near = 0, n_bounded = 0;
    for (int trial = 0; trial < 150; ++trial) {
        const bool is_head = trial % 2 == 1;
        const spec::RecordingHead head = head_of(is_head);
        std::vector<spec::TextRecord> texts;
        for (int i = 0; i < 3; ++i)
            texts.push_back(random_text(random, is_head));
        std::vector<const spec::TextRecord*> pointers;
        for (const spec::TextRecord& text : texts)
            pointers.push_back(&text);
        const spec::Costs costs = random_costs(random);
        const int cap = whole(random, 1, kCap);
        spec::StopRuleOptions any;
        any.max_tokens = cap;
        std::vector<spec::ReplaySetting> settings = {{spec::ReplayKind::oracle, any, 0, costs},
                                                     {spec::ReplayKind::plain, any, 0, costs}};
        for (const spec::StopRuleOptions& rule : rule_settings(cap))
            settings.push_back({spec::ReplayKind::rule, rule, 0, costs});
        const std::vector<spec::Simulated> all = spec::simulate(head, pointers, settings, 1);
        for (const spec::Simulated& each : all)
            for (std::size_t i = 0; i < texts.size(); ++i) {
                const double seconds = each.texts[i].seconds, bound = all.front().texts[i].seconds;
                EXPECT_GE(seconds, bound * (1 - 1e-9))
                    << each.setting.rule.name() << ", trial " << trial << ", text " << i;
                ++n_bounded;
                n_near += seconds < 1.02 * bound ? 1 : 0;
            }
    }
    EXPECT_GT(n_bounded, 5000);
    EXPECT_GT(n_near, n_bounded / 50) << "the bound is far from all rules: it may be no draft at all";
}

} // namespace chain_bound_test
