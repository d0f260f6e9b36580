// A cascade's middle model over toys: it drafts what it would emit alone, within every bound, and it counts the rounds
// of its levels. Its exactness is in exactness_test.cpp and verify_lengths_test.cpp.
#include "spec/draft/chain.h"

#include <gtest/gtest.h>

#include "tests/dist/manual_clock.h"
#include "tests/spec/toy_drafting.h"

namespace entrodraft::spec {
namespace cascade_test {

StopRuleOptions constant(int k, int max_tokens = 15) {
    StopRuleOptions options("constant", {{"tokens", k}});
    options.max_tokens = max_tokens;
    return options;
}

struct Sizes {
    std::size_t context = 1000, max_rows = 16, inner_context = 1000;
};

// A middle and a small toy of five tokens, and a cascade over them.
struct Levels {
    ToyModel middle{5, 1, options_of(1)}, small{5, 2, options_of(1)};
    dist::ManualClock clock;
    DraftLimits limits{5, {}};
    Request request;
    ToySource* middle_source = nullptr; // the cascade's middle model
    std::unique_ptr<Drafter> drafter;

    explicit Levels(const StopRuleOptions& inner = constant(3), const Sizes& sizes = {},
                    std::vector<TokenId> eos_tokens = {}) {
        limits.eos_tokens = std::move(eos_tokens);
        drafter =
            cascade(make_chain_drafter(std::make_unique<ToySource>(small, 0, sizes.inner_context), {limits, clock}),
                    inner, sizes);
        begin(0);
    }
    std::unique_ptr<Drafter> cascade(std::unique_ptr<Drafter> inner, const StopRuleOptions& rule, const Sizes& sizes) {
        auto source = std::make_unique<ToySource>(middle, 0, sizes.context, sizes.max_rows);
        middle_source = source.get();
        return make_cascade_drafter({std::move(source), std::move(inner), rule, {}}, {limits, clock});
    }
    void begin(double temperature, std::uint64_t key = 0) {
        request.sampling.temperature = temperature;
        request.sequence_key = key;
        drafter->begin_sequence(0, request);
    }
    Draft draft(const Tokens& text, const StopRuleOptions& rule, int max_tokens = 100,
                Acceptance acceptance = Acceptance::rejection) {
        StopRule state(rule);
        Draft result;
        const ChoiceSetting choice = {acceptance, request.sampling.seed, request.sequence_key};
        drafter->propose({0, text, max_tokens, &request, choice, &state, &result});
        EXPECT_EQ(result.q.size(), request.sampling.greedy() || acceptance == Acceptance::gumbel
                                       ? 0
                                       : result.tokens.size() * middle.vocab());
        q.assign(result.q.begin(), result.q.end());
        return result;
    }
    std::vector<float> q; // of the last draft
};

TEST(CascadeDrafter, SaysWhatItsMiddleModelWouldSayAlone) {
    for (const auto& [temperature, acceptance] :
         {std::pair{0.0, Acceptance::rejection}, {0.0, Acceptance::block}, {1.0, Acceptance::gumbel}})
        for (std::uint64_t key = 0; key < 20; ++key) {
            Levels levels;
            levels.begin(temperature, key);
            const Draft found = levels.draft({4, 3}, constant(9), 100, acceptance);
            const auto alone =
                make_chain_drafter(std::make_unique<ToySource>(levels.middle), {levels.limits, levels.clock});
            alone->begin_sequence(0, levels.request);
            StopRule rule(constant(9));
            Draft wanted;
            const Tokens text = {4, 3};
            alone->propose({0, text, 100, &levels.request, {acceptance, 0, key}, &rule, &wanted});
            EXPECT_EQ(found.tokens, wanted.tokens);
            EXPECT_EQ(found.end, DraftEnd::rule);
            EXPECT_LT(found.passes, 9) << "no pass brought two tokens";
        }
}

TEST(CascadeDrafter, HandsUpTheMiddleModelsDistributions) {
    Levels levels;
    const StopRuleOptions never("static", {{"threshold", 100}});
    for (std::uint64_t key = 0; key < 20; ++key) {
        levels.begin(1, key);
        Tokens text = {2};
        const Draft draft = levels.draft(text, never, 8);
        ASSERT_EQ(draft.tokens.size(), 8U);
        for (std::size_t i = 0; i < draft.tokens.size(); ++i) {
            const std::vector<float>& row = levels.middle.after(text);
            for (std::size_t token = 0; token < row.size(); ++token)
                EXPECT_NEAR(levels.q[i * row.size() + token], row[token], 1e-6);
            EXPECT_NEAR(draft.entropies_nats[i], entropy_nats(row), 1e-5);
            EXPECT_NEAR(draft.probabilities[i], row[static_cast<std::size_t>(draft.tokens[i])], 1e-5);
            text.push_back(draft.tokens[i]);
        }
    }
}

TEST(CascadeDrafter, LooksAtAdjustedDistributionsWhereAsked) {
    StopRuleOptions inner("static");
    inner.entropy_of = EntropyOf::adjusted;
    StopRuleOptions never = inner;
    never.set("threshold", 100);
    for (const auto& [temperature, acceptance] :
         {std::pair{0.0, Acceptance::rejection}, {0.5, Acceptance::rejection}, {0.5, Acceptance::gumbel}})
        for (std::uint64_t key = 0; key < 10; ++key) {
            Levels levels(inner);
            if (temperature > 0) levels.request.sampling.top_k = 3;
            levels.begin(temperature, key);
            const Draft draft = levels.draft({2}, never, 8, acceptance);
            ASSERT_EQ(draft.tokens.size(), 8U);
            Tokens text = {2};
            for (std::size_t i = 0; i < draft.tokens.size(); ++i) {
                std::vector<float> logits, row(5);
                for (const float p : levels.middle.after(text))
                    logits.push_back(std::log(p));
                adjust(logits, temperature > 0 ? levels.request.sampling : options_of(1), row);
                EXPECT_NEAR(draft.entropies_nats[i], entropy_nats(row), 1e-5);
                EXPECT_NEAR(draft.probabilities[i], row[static_cast<std::size_t>(draft.tokens[i])], 1e-5);
                text.push_back(draft.tokens[i]);
            }
        }
}

TEST(CascadeDrafter, CountsWhatItsLevelsDid) {
    Levels levels;
    levels.begin(1, 7);
    Stats sum;
    std::int64_t tokens = 0, passes = 0;
    for (TokenId token = 0; token < 5; ++token) {
        levels.middle_source->passes = 0;
        const Draft draft = levels.draft({token}, constant(6));
        ASSERT_EQ(draft.levels.size(), 1U);
        const Stats& level = draft.levels[0];
        EXPECT_EQ(level.rounds, draft.passes);
        EXPECT_EQ(level.target_passes, levels.middle_source->passes);
        EXPECT_EQ(level.new_tokens, level.accepted + level.rounds);
        EXPECT_GE(level.new_tokens, static_cast<std::int64_t>(draft.tokens.size()));
        EXPECT_EQ(level.draft_passes, level.drafted) << "the small one drafts a token a pass";
        tokens += static_cast<std::int64_t>(draft.tokens.size());
        passes += draft.passes;
        add_levels(sum.levels, draft.levels);
    }
    EXPECT_EQ(tokens, 30);
    EXPECT_EQ(sum.levels[0].rounds, passes);
    EXPECT_GT(sum.levels[0].accepted, 0);
    EXPECT_LT(sum.levels[0].accepted, sum.levels[0].drafted);
}

TEST(CascadeDrafter, OfThreeLevelsCountsBoth) {
    Levels levels;
    levels.drafter = levels.cascade(std::move(levels.drafter), constant(4), {});
    levels.begin(1, 7);
    EXPECT_EQ(levels.drafter->facts().name, "toy<toy<toy");
    const Draft draft = levels.draft({1}, constant(9));
    ASSERT_EQ(draft.levels.size(), 2U);
    EXPECT_EQ(draft.levels[0].rounds, draft.passes);
    EXPECT_EQ(draft.levels[0].draft_passes, draft.levels[1].rounds);
    EXPECT_GE(draft.levels[1].new_tokens, draft.levels[0].drafted);
    EXPECT_EQ(draft.levels[1].draft_passes, draft.levels[1].drafted);
}

TEST(CascadeDrafter, OfOneTokenNeedsNoInnerDraft) {
    Levels levels;
    const Draft draft = levels.draft({1}, constant(5), 1);
    EXPECT_EQ(draft.tokens.size(), 1U);
    EXPECT_EQ(draft.passes, 1);
    EXPECT_EQ(draft.end, DraftEnd::budget);
    EXPECT_EQ(draft.levels[0].drafted, 0);
    EXPECT_EQ(draft.levels[0].draft_passes, 0);
    const Draft nothing = levels.draft({1}, constant(5), 0);
    EXPECT_TRUE(nothing.tokens.empty());
    EXPECT_EQ(nothing.end, DraftEnd::budget);
    EXPECT_EQ(nothing.passes, 0);
}

TEST(CascadeDrafter, KeepsToEveryBudget) {
    for (int most = 1; most <= 8; ++most)
        for (const double temperature : {0.0, 1.0}) {
            Levels levels;
            levels.begin(temperature, static_cast<std::uint64_t>(most));
            const Draft draft = levels.draft({1, 2}, constant(15), most);
            EXPECT_EQ(draft.tokens.size(), static_cast<std::size_t>(most));
            EXPECT_EQ(draft.end, DraftEnd::budget);
            EXPECT_EQ(levels.draft({1, 2}, constant(15, most)).tokens.size(), static_cast<std::size_t>(most));
        }
}

// The source of each model checks that nothing is read past its context.
TEST(CascadeDrafter, ReadsNoFurtherThanItsModels) {
    for (std::size_t length = 1; length <= 12; ++length) {
        Levels levels(constant(3), {10, 16, 8});
        const Tokens text(length, 1);
        const Draft draft = levels.draft(text, constant(6));
        EXPECT_EQ(draft.tokens.size(), std::min<std::size_t>(6, length > 10 ? 0 : 11 - length)) << length;
        EXPECT_EQ(draft.end, length > 5 ? DraftEnd::context : DraftEnd::rule) << length;
        if (length > 8) {
            EXPECT_EQ(draft.levels[0].drafted, 0) << "the small one cannot read so far";
        }
    }
}

TEST(CascadeDrafter, AsksForNoMoreRowsThanAPassGives) {
    Levels levels(constant(9), {1000, 3, 1000});
    levels.begin(1, 3);
    const Draft draft = levels.draft({1}, constant(12));
    EXPECT_EQ(draft.tokens.size(), 12U);
    EXPECT_LE(draft.levels[0].passes_of_rows.size(), 4U);
}

TEST(CascadeDrafter, EndsAtTheEndOfTextWhereverAnInnerDraftHasIt) {
    Levels open;
    const Tokens text = open.draft({3}, constant(8)).tokens;
    for (const TokenId eos : text) {
        const auto end = std::find(text.begin(), text.end(), eos) + 1;
        Levels levels(constant(4), {}, {eos});
        const Draft draft = levels.draft({3}, constant(8));
        EXPECT_EQ(draft.tokens, Tokens(text.begin(), end));
        EXPECT_EQ(draft.end, end == text.end() ? DraftEnd::rule : DraftEnd::end_of_text);
        levels.request.ignore_eos = true;
        EXPECT_EQ(levels.draft({3}, constant(8)).tokens, text);
    }
}

TEST(CascadeDrafter, DropsTheTokenThatFiresWhereAsked) {
    Levels levels;
    levels.begin(1, 5);
    StopRuleOptions rule("static", {{"threshold", 0}});
    EXPECT_EQ(levels.draft({1}, rule).tokens.size(), 1U);
    rule.drop_stop_token = true;
    const Draft nothing = levels.draft({1}, rule);
    EXPECT_TRUE(nothing.tokens.empty());
    EXPECT_EQ(nothing.end, DraftEnd::rule);
    EXPECT_EQ(nothing.passes, 1);
    EXPECT_EQ(nothing.levels[0].rounds, 1) << "what was done counts all the same";
}

TEST(CascadeDrafter, TakesOtherNumbersWhereTheRoundAboveBeganElsewhere) {
    Levels levels;
    int differ = 0;
    for (std::uint64_t key = 0; key < 20; ++key) {
        levels.begin(1, key);
        const Draft first = levels.draft({1, 2}, constant(6));
        EXPECT_EQ(levels.draft({1, 2}, constant(6)).tokens, first.tokens) << "nothing but the round's start counts";
        const Draft second = levels.draft({1, 2, first.tokens[0]}, constant(5));
        differ += !std::equal(second.tokens.begin(), second.tokens.end(), first.tokens.begin() + 1);
    }
    EXPECT_GT(differ, 10);
}

} // namespace cascade_test
} // namespace entrodraft::spec
