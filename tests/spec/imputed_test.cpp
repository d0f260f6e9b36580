// The approximation of Kluser 2024, compared with the exact replay: by hand, and where the two must agree.
#include "spec/replay/simulate.h"

#include "tests/spec/recording_support.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

namespace imputed_test {

using namespace entrodraft;

// Costs of the thesis, with seconds for milliseconds: 7 a draft pass, 34 a target pass of any rows.
const spec::Costs kCosts = {7, {34}};

spec::RecordingHead head_of_ten_tokens() {
    spec::RecordingHead head;
    head.drafts = {{"draft", "float32", 100}};
    head.max_draft_tokens = 15;
    head.vocab_size = 100;
    head.max_positions = 100;
    return head;
}

// The draft agrees with the text except at places 2, 4 and 8. With drafts of 2 tokens a run makes these rounds, by
// places: 0 1 (2), 3 4, 5 6 (7), 8, 9. The places in brackets are the target's own tokens, not drafted ones.
spec::TextRecord ten_tokens() {
    spec::TextRecord text;
    text.prompt = {1};
    text.new_tokens = text.max_new_tokens = 10;
    spec::DraftRecord draft;
    draft.entropy = {0.5F, 1, 9, 0.5F, 3, 1, 0.5F, 9, 4, 0.5F};
    for (int place = 0; place < 10; ++place) {
        text.token.push_back(10 + place);
        const bool agrees = place != 2 && place != 4 && place != 8;
        draft.token.push_back(agrees ? 10 + place : 50);
        draft.probability.push_back(0.9F);
        draft.margin.push_back(1);
        draft.rank.push_back(agrees ? 0 : 1);
        if (!agrees) draft.astray_length.push_back(0);
        text.target_entropy.push_back(place == 2 ? 0.2F : place == 7 ? 2.5F : 8);
        text.target_log_probability.push_back(std::log(0.4F));
        text.target_margin.push_back(1);
    }
    text.drafts = {draft};
    return text;
}

spec::StopRuleOptions rule_with(const char* rule, const char* parameter, double value) {
    spec::StopRuleOptions options(rule);
    options.set(parameter, value);
    return options;
}

spec::Stats replayed(const spec::StopRuleOptions& rule, int imputed_from,
                     spec::ReplayKind kind = spec::ReplayKind::rule) {
    spec::ReplaySetting setting = {kind, rule, 0, kCosts};
    setting.imputed_from = imputed_from;
    const spec::RecordingHead head = head_of_ten_tokens();
    return spec::Replay(head, setting).replay(ten_tokens());
}

struct Counts {
    std::int64_t rounds = 0, drafted = 0, accepted = 0;
    double cost = 0;
};

void expect_counts(const spec::Stats& stats, const Counts& by_hand) {
    EXPECT_EQ(stats.new_tokens, 10);
    EXPECT_EQ(stats.rounds, by_hand.rounds);
    EXPECT_EQ(stats.draft_passes, by_hand.drafted);
    EXPECT_EQ(stats.drafted, by_hand.drafted);
    EXPECT_EQ(stats.accepted, by_hand.accepted);
    EXPECT_DOUBLE_EQ(predicted_seconds(stats, kCosts), by_hand.cost);
}

// The sequence is 0.5 1 0.2* 0.5 3 1 0.5 2.5* 4 0.5 (*: the target's), rejected at places 4 and 8. Below 2 nats a round
// drafts 0 1 2 3 4, and 4 are accepted; the next drafts 5 6 7, all accepted; nothing is left to draft for place 9.
TEST(Imputed, AStaticThresholdByHand) {
    expect_counts(replayed(rule_with("static", "threshold", 2), 2), {3, 8, 7, 8 * 7 + 3 * 34});
    // In the run itself the draft's 9 nats end the round at place 2: 0 1 2, 3 4, 5 6 7, then place 9.
    expect_counts(replayed(rule_with("static", "threshold", 2), 0), {4, 8, 6, 8 * 7 + 4 * 34});
}

// 1 >= 4 * 0.25 at place 1; 9 >= 4 * 0.25 at place 4; 6.25 >= 4 * (1 + 0.25) / 2 at place 7.
TEST(Imputed, AMovingAverageByHand) {
    expect_counts(replayed(rule_with("moving-average", "factor", 4), 2), {4, 7, 6, 7 * 7 + 4 * 34});
}

// Probabilities are 0.9, except the target's, 0.4, at places 2 and 7. Rounds: 0 1 2; 4 5 6 7, none accepted; 5 6 7; 9.
TEST(Imputed, AConfidenceByHand) {
    expect_counts(replayed(rule_with("confidence", "threshold", 0.5), 2), {4, 10, 6, 10 * 7 + 4 * 34});
}

// Rounds are 0 1 2 3, 5 6 7, then place 9. A run that drafts 1 token a round leaves out places 1, 4, 6 and 8, which all
// count as accepted: 0 1, 3 to 8.
TEST(Imputed, TheOracleStopsBeforeWhatTheSequenceRejects) {
    expect_counts(replayed(rule_with("constant", "tokens", 15), 2, spec::ReplayKind::oracle),
                  {3, 7, 7, 7 * 7 + 3 * 34});
    expect_counts(replayed(rule_with("constant", "tokens", 15), 1, spec::ReplayKind::oracle),
                  {2, 8, 8, 8 * 7 + 2 * 34});
}

TEST(Imputed, RefusesWhatHasNoSequence) {
    const spec::RecordingHead head = head_of_ten_tokens();
    spec::ReplaySetting setting = {spec::ReplayKind::rule, spec::StopRuleOptions("static"), 0, kCosts};
    setting.imputed_from = 16;
    EXPECT_THROW(spec::Replay(head, setting), std::invalid_argument) << "more than was recorded";
    setting.imputed_from = 5;
    setting.ahead = 2;
    EXPECT_THROW(spec::Replay(head, setting), std::invalid_argument);
    setting.ahead = 0;
    EXPECT_NO_THROW(spec::Replay(head, setting));
    setting.tree = spec::parse_tree("1,1");
    EXPECT_THROW(spec::Replay(head, setting), std::invalid_argument);
}

// A rule that drafts as the run did meets the run's own rounds. If a stop token ends a draft after the target's
// rejection, the approximation drafts longer, as it goes on with the text's tokens there.
TEST(Imputed, ARunsOwnLengthIsReplayedExactly) {
    TestPair plain(golden_directory("llama-target"), golden_directory("llama-draft"));
    std::vector<spec::Request> requests = {request_of({1, 2, 3}, 40), request_of({5}, 25), request_of({40, 12, 7}, 1)};
    const auto texts = plain.run(requests);
    std::int64_t accepted = 0;
    for (const bool stops : {false, true}) {
        TestModelOptions ends;
        if (stops) ends.eos_token_ids = {texts[0].tokens[20], texts[1].tokens[13]};
        ends.max_positions = 38;
        TestPair pair(golden_directory("llama-target"), golden_directory("llama-draft"), ends);
        for (const bool noisy : {false, true}) {
            for (spec::Request& request : requests)
                request.sampling.temperature = noisy ? 0.7 : 0;
            const RecordedTexts recorded = record_texts(pair, requests, noisy, 15);
            for (const int length : {1, 2, 5, 15}) {
                spec::ReplaySetting exact = {spec::ReplayKind::rule, constant_rule(length), 0, kCosts}, imputed = exact;
                imputed.imputed_from = length;
                spec::Replay exactly(recorded.head, exact), approximately(recorded.head, imputed);
                for (const spec::TextRecord& text : recorded.texts) {
                    const spec::Stats a = exactly.replay(text), b = approximately.replay(text);
                    EXPECT_EQ(a.rounds_of_accepted, b.rounds_of_accepted) << length;
                    accepted += a.accepted;
                    if (stops) continue;
                    EXPECT_EQ(a.passes_of_rows, b.passes_of_rows) << length;
                    EXPECT_EQ(a.draft_passes, b.draft_passes) << length;
                }
            }
        }
    }
    EXPECT_GT(accepted, 50) << "nothing was accepted: the test shows little";
}

} // namespace imputed_test
