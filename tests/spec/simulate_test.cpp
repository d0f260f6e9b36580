// Replays of a recording make the rounds of real runs: all counts are the same, for every rule.
#include "spec/replay/simulate.h"

#include "tests/spec/recording_support.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace simulate_test {

using namespace entrodraft;

constexpr int kCap = 15;
const spec::Costs kCosts = {
    0.1, {1, 1.02, 1.04, 1.06, 1.1, 1.15, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 2, 2.1}, 0.15};

std::vector<spec::Request> requests(double temperature) {
    std::vector<spec::Request> all;
    const std::vector<std::vector<spec::TokenId>> prompts = {{1, 2, 3}, {40, 12, 7, 9}, {5}, {100, 101, 102, 103, 104}};
    for (const auto& prompt : prompts) {
        spec::Request request = request_of(prompt, 40);
        request.sampling.temperature = temperature;
        request.sampling.seed = 7;
        all.push_back(request);
    }
    return all;
}

// Requests with penalties and bans; sampled ones also with filters.
std::vector<spec::Request> filtered_requests(double temperature) {
    std::vector<spec::Request> all = requests(temperature);
    for (spec::Request& request : all) {
        request.processing.no_repeat_ngram_size = 2;
        request.processing.repetition_penalty = 1.2;
        request.processing.banned_tokens = {3, 17};
        if (temperature == 0) continue;
        request.sampling.top_k = 40;
        request.sampling.top_p = 0.9;
    }
    return all;
}

void expect_equal(const spec::Stats& replayed, const spec::Stats& real) {
    EXPECT_EQ(replayed.new_tokens, real.new_tokens);
    EXPECT_EQ(replayed.rounds, real.rounds);
    EXPECT_EQ(replayed.drafted, real.drafted);
    EXPECT_EQ(replayed.accepted, real.accepted);
    EXPECT_EQ(replayed.target_passes, real.target_passes);
    EXPECT_EQ(replayed.draft_passes, real.draft_passes);
    EXPECT_EQ(replayed.drafting_rounds, real.drafting_rounds);
    EXPECT_EQ(replayed.passes_of_rows, real.passes_of_rows);
    EXPECT_EQ(replayed.rounds_of_accepted, real.rounds_of_accepted);
    EXPECT_EQ(replayed.drafted_levels, real.drafted_levels);
    const auto same = [](const spec::Acceptances& a, const spec::Acceptances& b) {
        return a.verified == b.verified && a.accepted == b.accepted;
    };
    EXPECT_TRUE(std::ranges::equal(replayed.by_position, real.by_position, same));
}

// Records with the pair's draft, or with a head in its place.
std::unique_ptr<spec::Drafter> drafter_of(TestPair& pair, const LoadedHead* head,
                                          const std::optional<spec::TreeOptions>& tree = std::nullopt) {
    spec::DrafterParts parts{{pair.limits(), pair.clock, 1}};
    if (head) parts.head = &head->modules;
    if (!head) parts.models = {&pair.draft.decoder};
    parts.tree = tree;
    return spec::drafter_type(head ? "head" : "model").make(parts);
}

// Replays and runs every rule in several settings. Returns the tokens accepted by all of them.
std::int64_t compare(TestPair& pair, const std::vector<spec::Request>& requests, bool noisy, int cap = kCap,
                     const LoadedHead* head = nullptr) {
    const RecordedTexts recorded = record_texts(pair, requests, noisy, cap, 5, {}, head);
    std::int64_t accepted = 0;
    for (const spec::StopRuleOptions& rule : rule_settings(cap)) {
        const spec::ReplaySetting setting = {spec::ReplayKind::rule, rule, 0, kCosts};
        const auto simulated = simulate(recorded.head, recorded.pointers(), std::span(&setting, 1), 1);
        spec::Replay replay(recorded.head, setting);
        RunOptions options;
        options.rule = rule;
        options.acceptance = noisy ? spec::Acceptance::gumbel : spec::Acceptance::rejection;
        options.costs = kCosts;
        if (head) options.hidden_layers = head->head.target_layers;
        const auto drafter = drafter_of(pair, head);
        const auto texts = pair.run(requests, options, drafter.get());
        for (std::size_t i = 0; i < texts.size(); ++i) {
            SCOPED_TRACE(describe(rule) + ", text " + std::to_string(i));
            expect_equal(replay.replay(recorded.texts[i]), texts[i].stats);
            EXPECT_EQ(simulated.front().texts[i].new_tokens, texts[i].stats.new_tokens);
            EXPECT_DOUBLE_EQ(simulated.front().texts[i].seconds, predicted_seconds(texts[i].stats, kCosts));
        }
        accepted += simulated.front().stats.accepted;
    }
    return accepted;
}

TEST(Simulate, CountsWhatAGreedyRunCounts) {
    TestPair pair(golden_directory("llama-target"), golden_directory("llama-draft"));
    EXPECT_GT(compare(pair, requests(0), false), 100) << "nothing was accepted: the test shows little";
}

// k goes on from text to text, in their order, and further than one text would take it.
TEST(Simulate, APersistentHeuristicGoesOnWithTheNextText) {
    TestPair pair(golden_directory("llama-target"), golden_directory("llama-target"));
    const RecordedTexts recorded = record_texts(pair, requests(0), false, 38);
    spec::StopRuleOptions rule = rule_of("heuristic", 5, 38);
    const auto drafted = [&](bool persistent) {
        rule.set("persistent", persistent ? 1 : 0);
        const spec::ReplaySetting setting = {spec::ReplayKind::rule, rule, 0, kCosts};
        return simulate(recorded.head, recorded.pointers(), std::span(&setting, 1), 1).front().stats;
    };
    EXPECT_LT(drafted(true).rounds, drafted(false).rounds) << "a draft that is the target itself";
}

TEST(Simulate, CountsWhatAGumbelRunCounts) {
    TestPair pair(golden_directory("llama-target"), golden_directory("llama-draft"));
    EXPECT_GT(compare(pair, requests(0.7), true), 100);
}

TEST(Simulate, CountsAlikeWithFiltersPenaltiesAndBans) {
    TestPair pair(golden_directory("llama-target"), golden_directory("llama-draft"));
    compare(pair, filtered_requests(0.8), true);
    compare(pair, filtered_requests(0), false);
}

TEST(Simulate, CountsAlikeWhereTextsEndEarly) {
    TestPair pair(golden_directory("llama-target"), golden_directory("llama-draft"));
    std::vector<spec::Request> all = requests(0);
    const auto plain = pair.run(all);
    for (std::size_t i = 0; i < all.size(); ++i) // a stop string from the text itself, each at another place
        all[i].stop_strings = {plain[i].text.substr(plain[i].text.size() / 2, 1 + i)};
    const auto stopped = pair.run(all);
    int n_stopped = 0;
    for (const spec::Completion& text : stopped)
        n_stopped += text.finish_reason == spec::FinishReason::stop ? 1 : 0;
    EXPECT_GT(n_stopped, 0);
    compare(pair, all, false);
    // The token that is emitted most often becomes an end of text.
    for (spec::Request& request : all)
        request.stop_strings.clear();
    TestModelOptions ends;
    ends.eos_token_ids = {plain[0].tokens[plain[0].tokens.size() / 2], plain[1].tokens[20]};
    TestPair ending(golden_directory("llama-target"), golden_directory("llama-draft"), ends);
    EXPECT_EQ(ending.run(all)[0].finish_reason, spec::FinishReason::eos);
    compare(ending, all, false);
    for (spec::Request& request : all)
        request.ignore_eos = true;
    compare(ending, all, false);
}

TEST(Simulate, CountsAlikeWhereContextsEnd) {
    TestModelOptions narrow;
    narrow.max_positions = 30;
    TestPair pair(golden_directory("llama-target"), golden_directory("llama-draft"), narrow);
    compare(pair, requests(0), false);
}

TEST(Simulate, CountsAlikeWithLongDrafts) {
    TestPair pair(golden_directory("llama-target"), golden_directory("llama-draft"));
    compare(pair, {requests(0).front()}, false, 38);
}

TEST(Simulate, TheOracleDraftsWhatStandsAndPaysAndNoMore) {
    TestPair pair(golden_directory("llama-target"), golden_directory("llama-draft"));
    const RecordedTexts recorded = record_texts(pair, requests(0), false, kCap);
    spec::ReplaySetting setting;
    setting.kind = spec::ReplayKind::oracle;
    setting.costs = kCosts;
    setting.rule = constant_rule(kCap, kCap);
    const auto oracle = simulate(recorded.head, recorded.pointers(), std::span(&setting, 1), 1).front().stats;
    EXPECT_EQ(oracle.drafted, oracle.accepted);
    EXPECT_EQ(oracle.draft_passes, oracle.accepted);
    // If drafts and rows are free, it has as few rounds as the longest drafts.
    setting.costs = {0, {1}};
    const auto free = simulate(recorded.head, recorded.pointers(), std::span(&setting, 1), 1).front().stats;
    const auto longest = pair.run(requests(0), {.rule = constant_rule(kCap, kCap)});
    spec::Stats real;
    for (const spec::Completion& text : longest)
        real += text.stats;
    EXPECT_EQ(free.rounds, real.rounds);
    EXPECT_GE(oracle.rounds, real.rounds);
    setting.costs = {1.5, {1}};
    const auto dear = simulate(recorded.head, recorded.pointers(), std::span(&setting, 1), 1).front().stats;
    EXPECT_EQ(dear.drafted, 0) << "a draft pass costs more than a token";
    setting.kind = spec::ReplayKind::plain;
    const auto plain = simulate(recorded.head, recorded.pointers(), std::span(&setting, 1), 1).front().stats;
    EXPECT_EQ(plain.rounds, plain.new_tokens);
    EXPECT_EQ(plain.draft_passes, 0);
}

TEST(Simulate, SeveralThreadsCountAlike) {
    TestPair pair(golden_directory("llama-target"), golden_directory("llama-draft"));
    const RecordedTexts recorded = record_texts(pair, requests(0), false, kCap);
    std::vector<spec::ReplaySetting> settings;
    for (const spec::StopRuleOptions& rule : rule_settings(kCap))
        settings.push_back({spec::ReplayKind::rule, rule, 0, kCosts});
    const auto alone = simulate(recorded.head, recorded.pointers(), settings, 1);
    const auto together = simulate(recorded.head, recorded.pointers(), settings, 3);
    for (std::size_t i = 0; i < settings.size(); ++i)
        expect_equal(together[i].stats, alone[i].stats);
}

TEST(Simulate, KeepsLittleOfEachTextSoThatManySettingsFit) {
    // A thousand settings over a thousand texts: a million of them.
    EXPECT_LE(sizeof(decltype(spec::Simulated::texts)::value_type), 32U);
}

// ---- trees ----

const std::vector<std::string> kRecordedTrees = {"3,2,1", "eagle2:4:4", "expected-gain:4:4"};

// Replays and runs trees that are not wider than the recorded ones. Returns the tokens accepted by all of them.
std::int64_t compare_trees(TestPair& pair, const std::vector<spec::Request>& requests, bool noisy,
                           const LoadedHead* head = nullptr) {
    const RecordedTexts recorded = record_texts(pair, requests, noisy, kCap, 5, kRecordedTrees, head);
    std::int64_t accepted = 0;
    for (const char* shape : {"3,2,1", "2,1", "1,1,1", "2,2", "eagle2:4:4", "eagle2:4:3", "eagle2:2:4", "eagle2:3:1",
                              "expected-gain:4:4", "expected-gain:4:2", "expected-gain:2:3"})
        for (const int tokens : {63, 5}) {
            const spec::TreeOptions tree = spec::parse_tree(shape);
            spec::ReplaySetting setting;
            setting.rule = spec::tree_rule(tree, tokens);
            setting.costs = kCosts;
            setting.tree = tree;
            spec::Replay replay(recorded.head, setting);
            RunOptions options;
            options.rule = setting.rule;
            options.acceptance = noisy ? spec::Acceptance::gumbel : spec::Acceptance::rejection;
            options.costs = kCosts;
            if (head) options.hidden_layers = head->head.target_layers;
            const auto drafter = drafter_of(pair, head, tree);
            const auto texts = pair.run(requests, options, drafter.get());
            for (std::size_t i = 0; i < texts.size(); ++i) {
                SCOPED_TRACE(shape + (", " + std::to_string(tokens)) + " tokens, text " + std::to_string(i));
                const spec::Stats counts = replay.replay(recorded.texts[i]);
                expect_equal(counts, texts[i].stats);
                accepted += counts.accepted;
            }
        }
    return accepted;
}

TEST(Simulate, CountsWhatTreesCount) {
    if (const std::string why = lacking_on_torch(kRowBits); !why.empty()) GTEST_SKIP() << why;
    TestPair pair(golden_directory("llama-target"), golden_directory("llama-draft"));
    EXPECT_GT(compare_trees(pair, requests(0), false), 100) << "nothing was accepted: the test shows little";
    EXPECT_GT(compare_trees(pair, requests(0.7), true), 100);
}

TEST(Simulate, CountsWhatTreesCountWithFiltersPenaltiesAndBans) {
    if (const std::string why = lacking_on_torch(kRowBits); !why.empty()) GTEST_SKIP() << why;
    TestPair pair(golden_directory("llama-target"), golden_directory("llama-draft"));
    compare_trees(pair, filtered_requests(0.8), true);
    compare_trees(pair, filtered_requests(0), false);
}

TEST(Simulate, CountsWhatTreesCountWhereTextsAndContextsEnd) {
    if (const std::string why = lacking_on_torch(kRowBits); !why.empty()) GTEST_SKIP() << why;
    TestModelOptions narrow;
    narrow.max_positions = 30;
    narrow.decoder.tree_room = spec::Packet::kMaxDraftTokens; // as in every run with trees
    TestPair pair(golden_directory("llama-target"), golden_directory("llama-draft"), narrow);
    compare_trees(pair, requests(0), false);
    TestPair wide(golden_directory("llama-target"), golden_directory("llama-draft"));
    std::vector<spec::Request> all = requests(0);
    const auto plain = wide.run(all);
    for (std::size_t i = 0; i < all.size(); ++i)
        all[i].stop_strings = {plain[i].text.substr(plain[i].text.size() / 2, 1 + i)};
    compare_trees(wide, all, false);
    TestModelOptions ends;
    ends.eos_token_ids = {plain[0].tokens[plain[0].tokens.size() / 2], plain[1].tokens[20]};
    TestPair ending(golden_directory("llama-target"), golden_directory("llama-draft"), ends);
    compare_trees(ending, requests(0), false);
}

// ---- heads ----

struct SimulateHeads : testing::TestWithParam<std::string> {};

TEST_P(SimulateHeads, CountWhatRunsCount) {
    if (const std::string why = lacking_on_torch(kRowBits); !why.empty()) GTEST_SKIP() << why;
    const bool is_demo = GetParam() == "demo";
    const auto demo = source_directory() / "model/demo";
    const auto target = is_demo ? demo / "target" : head_directory(head_target(GetParam()));
    TestPair pair(target, target);
    LoadedHead head(is_demo ? demo / "eagle3" : head_directory(GetParam()), target, pair.target.team);
    compare(pair, filtered_requests(0.8), true, 8, &head);
    compare_trees(pair, filtered_requests(0), false, &head);
    const std::int64_t accepted = compare(pair, requests(0), false, kCap, &head);
    const std::int64_t accepted_of_trees = compare_trees(pair, requests(0.7), true, &head);
    if (!is_demo) return; // the other heads are random
    EXPECT_GT(accepted, 100);
    EXPECT_GT(accepted_of_trees, 100);
}

INSTANTIATE_TEST_SUITE_P(Of, SimulateHeads,
                         testing::Values("demo", "eagle", "medusa", "hydra", "mlp-speculator", "peagle"), name_of_head);

TEST(Simulate, RefusesTreesThatWereNotRecorded) {
    TestPair pair(golden_directory("llama-target"), golden_directory("llama-draft"));
    const auto why_not = [](const RecordedTexts& recorded, const char* shape) -> std::string {
        spec::ReplaySetting setting;
        setting.tree = spec::parse_tree(shape);
        setting.rule = spec::tree_rule(*setting.tree);
        setting.costs = kCosts;
        try {
            spec::Replay(recorded.head, setting).replay(recorded.texts.front());
        } catch (const std::exception& error) {
            return error.what();
        }
        return {};
    };
    const RecordedTexts chains = record_texts(pair, {requests(0).front()}, false, kCap);
    EXPECT_NE(why_not(chains, "2,1").find("the recording holds 0"), std::string::npos);
    const RecordedTexts narrow = record_texts(pair, {requests(0).front()}, false, kCap, 5, {"2,1"});
    EXPECT_EQ(why_not(narrow, "2,1"), "");
    EXPECT_NE(why_not(narrow, "2,2,1").find("not recorded"), std::string::npos);
    EXPECT_NE(why_not(narrow, "3,1").find("the recording holds 2"), std::string::npos);
}

TEST(Simulate, RefusesWhatTheRecordingDoesNotHold) {
    spec::RecordingHead head;
    head.drafts.resize(1);
    head.drafts[0].context = 10;
    spec::ReplaySetting setting;
    setting.rule = constant_rule(5, 20);
    setting.costs = kCosts;
    EXPECT_THROW(spec::Replay(head, setting), std::invalid_argument);
    setting.rule = constant_rule(5, 15);
    setting.draft = 1;
    EXPECT_THROW(spec::Replay(head, setting), std::invalid_argument);
}

} // namespace simulate_test
