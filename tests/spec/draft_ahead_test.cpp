// Drafting ahead, phase by phase, by hand: the broadcast draft, the foreseen outcome, and who drafted it.
#include "tests/dist/manual_clock.h"
#include "tests/spec/engine_support.h"

#include <gtest/gtest.h>

namespace draft_ahead_test {

using namespace entrodraft;
using namespace entrodraft::spec;

const std::filesystem::path kDraft = golden_directory("llama-draft");
constexpr int kDrafted = 3, kScripted = 2;
constexpr TokenId kScript = 7;

// One text under `constant`, greedy, with as many hidden passes as prepared drafts need.
struct Bench {
    TestModel shard{kDraft, slots()};
    model::Decoder& model = shard.decoder;
    dist::ManualClock clock;
    DraftLimits limits;
    Request request;
    GainModel gain{{}};
    StopRule rule{constant_rule(kDrafted), &gain};
    std::unique_ptr<Drafter> drafter;
    std::vector<TokenId> text = golden_expectations("llama-draft").at(1).at("prompt").get<std::vector<TokenId>>();
    Draft draft;

    explicit Bench(std::unique_ptr<Drafter> backup) {
        limits.vocab_size = shard.config.vocab_size;
        request = request_of(text, 64);
        request.ignore_eos = true;
        drafter =
            make_ahead_drafter(model, {.outcomes = 4, .passes = 1 + kDrafted}, {limits, clock}, std::move(backup));
        drafter->begin_sequence(0, request);
        drafter->prefill(0, text);
    }

    static TestModelOptions slots() {
        TestModelOptions options;
        options.decoder.n_slots = 5;
        return options;
    }

    void broadcast() { drafter->propose({0, text, rule.options().max_tokens, &request, {}, &rule, &draft, 40}); }
    // The draft model's own text after the present one.
    std::vector<TokenId> continuation(int n) {
        TestModel other(kDraft);
        const auto chain = model_drafter_of(other.decoder, limits, clock);
        StopRule longest(constant_rule(n), &gain);
        Draft own;
        chain->begin_sequence(0, request);
        chain->propose({0, text, n, &request, {}, &longest, &own, 40});
        return own.tokens;
    }
};

const auto kNever = [] { return false; };

TEST(DraftAhead, BroadcastsWhatItPreparedWhereTheRoundEndedAsForeseen) {
    Bench bench(nullptr);
    const std::vector<TokenId> emitted = bench.continuation(2 * kDrafted + 1);
    bench.broadcast();
    EXPECT_TRUE(std::ranges::equal(bench.draft.tokens, std::span(emitted).first(kDrafted)));
    EXPECT_EQ(bench.draft.passes, kDrafted);
    bench.drafter->draft_ahead(kNever);
    bench.text.insert(bench.text.end(), emitted.begin(),
                      emitted.begin() + kDrafted + 1); // all accepted, then the most likely
    bench.broadcast();
    EXPECT_EQ(bench.draft.ahead.hits, 1);
    EXPECT_EQ(bench.draft.passes, 0) << "all of it was hidden";
    EXPECT_TRUE(std::ranges::equal(bench.draft.tokens, std::span(emitted).subspan(kDrafted + 1, kDrafted)));
}

TEST(DraftAhead, ABackupDraftsWhereNobodyForesawTheEndAndTheModelForeseesWhatFollows) {
    Bench bench(std::make_unique<ScriptedDrafter>(kScripted, [](std::size_t) { return kScript; }));
    bench.broadcast(); // nothing was prepared yet
    EXPECT_EQ(bench.draft.tokens, (std::vector<TokenId>{kScript, kScript}));
    EXPECT_EQ(bench.draft.passes, 0);
    bench.drafter->draft_ahead(kNever);
    const std::vector<TokenId> emitted = bench.continuation(1 + kDrafted);
    bench.text.push_back(emitted.front()); // none is accepted; the model's own choice is emitted
    bench.broadcast();
    EXPECT_EQ(bench.draft.ahead.hits, 1);
    EXPECT_EQ(bench.draft.passes, 0);
    EXPECT_TRUE(std::ranges::equal(bench.draft.tokens, std::span(emitted).subspan(1, kDrafted)));
    bench.drafter->draft_ahead(kNever);
    bench.text.push_back(kScript); // an outcome that was not prepared
    bench.broadcast();
    EXPECT_EQ(bench.draft.ahead.hits, 0);
    EXPECT_EQ(bench.draft.tokens, (std::vector<TokenId>{kScript, kScript}));
}

TEST(DraftAhead, TheModelDraftsWhereTheBackupHasNothing) {
    Bench bench(std::make_unique<ScriptedDrafter>(0, [](std::size_t) { return kScript; }));
    const std::vector<TokenId> emitted = bench.continuation(kDrafted);
    bench.broadcast();
    EXPECT_EQ(bench.draft.tokens, emitted);
    EXPECT_EQ(bench.draft.passes, kDrafted);
}

} // namespace draft_ahead_test
