// Synthetic recordings: what stands in them, and what replays of them come to.
#include "entrodraft/spec/simulate.h"
#include "entrodraft/spec/synthetic.h"

#include <gtest/gtest.h>
#include <stdexcept>

namespace {

using namespace entrodraft;
using spec::StopRuleKind;

spec::SyntheticOptions options_of(double alpha, double slope, int texts, int new_tokens, int cap = 15) {
    spec::SyntheticOptions options;
    options.alpha = alpha;
    options.slope = slope;
    options.texts = texts;
    options.new_tokens = new_tokens;
    options.max_draft_tokens = cap;
    options.costs = {0.1, {1}};
    return options;
}

// Of the places whose entropy lies in [from, to), the share at which the draft is right.
double share_right(const spec::SyntheticRecording& recording, double from = 0, double to = 1e9) {
    double right = 0, all = 0;
    for (const spec::TextRecord& text : recording.texts)
        for (std::size_t i = 0; i < text.places(); ++i) {
            const spec::DraftRecord& draft = text.drafts[0];
            if (draft.entropy[i] < from || draft.entropy[i] >= to) continue;
            right += draft.token[i] == text.token[i] ? 1 : 0;
            all += 1;
        }
    return right / all;
}

spec::Stats replayed(const spec::SyntheticRecording& recording, StopRuleKind kind, int k = 5) {
    spec::StopRuleOptions rule;
    rule.kind = kind;
    rule.num_draft_tokens = k;
    rule.max_tokens = recording.head.max_draft_tokens;
    const spec::ReplaySetting setting = {spec::ReplayKind::rule, rule, 0, recording.head.costs.front()};
    return simulate(recording.head, recording.pointers(), std::span(&setting, 1), 1).front().stats;
}

TEST(Synthetic, MeanAcceptanceIsAsAsked) {
    for (const double slope : {0.0, spec::kSyntheticSlope})
        for (const double alpha : {0.03, 0.3, 2.0 / 3, 0.9})
            EXPECT_NEAR(share_right(make_synthetic(options_of(alpha, slope, 100, 1000, 1))), alpha, 0.01)
                << "slope " << slope;
    EXPECT_EQ(share_right(make_synthetic(options_of(0, spec::kSyntheticSlope, 1, 1000))), 0);
    EXPECT_EQ(share_right(make_synthetic(options_of(1, spec::kSyntheticSlope, 1, 1000))), 1);
}

TEST(Synthetic, AlmostAllStandsBelowTwoNatsAndLittleAboveFive) {
    const auto recording = make_synthetic(options_of(2.0 / 3, spec::kSyntheticSlope, 100, 1000, 1));
    EXPECT_GT(share_right(recording, 0, 2), 0.94);
    EXPECT_LT(share_right(recording, 5), 0.1);
    const auto blind = make_synthetic(options_of(2.0 / 3, 0, 100, 1000, 1));
    EXPECT_NEAR(share_right(blind, 5), 2.0 / 3, 0.02);
}

// Places are independent, so that rules which look at no entropy see the textbook's world.
TEST(Synthetic, ConstantDraftsBringWhatTheClosedFormSays) {
    for (const double slope : {0.0, spec::kSyntheticSlope})
        for (const double alpha : {0.3, 0.75})
            for (const int k : {1, 4, 7}) {
                const spec::Stats stats =
                    replayed(make_synthetic(options_of(alpha, slope, 20, 5000)), StopRuleKind::constant, k);
                const double expected = spec::expected_tokens(alpha, k);
                EXPECT_NEAR(stats.mean_acceptance_length(), expected, 0.015 * expected) << alpha << ", k " << k;
                EXPECT_EQ(stats.new_tokens, 100'000);
            }
}

TEST(Synthetic, ReplaysWithEveryRuleToTheLongestDraft) {
    const auto recording = make_synthetic(options_of(0.6, spec::kSyntheticSlope, 30, 40, 100));
    for (const StopRuleKind kind : spec::all_stop_rules()) {
        const spec::Stats stats = replayed(recording, kind, 100);
        EXPECT_EQ(stats.new_tokens, 30 * 40) << to_string(kind);
        EXPECT_GT(stats.accepted, 0) << to_string(kind);
    }
}

TEST(Synthetic, IsTheSameForASeedAndAnotherForAnother) {
    spec::SyntheticOptions options = options_of(0.5, spec::kSyntheticSlope, 3, 50);
    const auto first = make_synthetic(options), second = make_synthetic(options);
    options.seed = 1;
    const auto other = make_synthetic(options);
    EXPECT_EQ(first.texts[2].drafts[0].token, second.texts[2].drafts[0].token);
    EXPECT_EQ(first.texts[2].drafts[0].astray_entropy, second.texts[2].drafts[0].astray_entropy);
    EXPECT_NE(first.texts[2].drafts[0].entropy, other.texts[2].drafts[0].entropy);
    EXPECT_NE(first.texts[1].drafts[0].entropy, first.texts[2].drafts[0].entropy);
}

TEST(Synthetic, RefusesOptionsThatMakeNoSense) {
    for (const double alpha : {-0.1, 1.1})
        EXPECT_THROW(make_synthetic(options_of(alpha, 1, 1, 1)), std::invalid_argument);
    EXPECT_THROW(make_synthetic(options_of(0.5, -1, 1, 1)), std::invalid_argument);
    EXPECT_THROW(make_synthetic(options_of(0.5, 1, 0, 1)), std::invalid_argument);
    EXPECT_THROW(make_synthetic(options_of(0.5, 1, 1, 0)), std::invalid_argument);
    EXPECT_THROW(make_synthetic(options_of(0.5, 1, 1, 1, 0)), std::invalid_argument);
}

} // namespace
