// Guessed tokens: they follow what was seen before, and a draft model's passes that read them draft the same tokens.
#include "spec/draft/token_guesses.h"

#include "tests/spec/engine_support.h"

namespace token_guesses_test {

using namespace entrodraft;
using spec::Draft;
using spec::Request;
using spec::StopRule;
using spec::TokenGuesses;

void learn_all(TokenGuesses& guesses, const std::vector<TokenId>& text) {
    for (std::size_t end = 1; end <= text.size(); ++end)
        guesses.learn(std::span(text).first(end));
}

std::vector<TokenId> extended(const TokenGuesses& guesses, std::vector<TokenId> text, int most = 3) {
    guesses.extend(text, most);
    return text;
}

TEST(TokenGuesses, FollowTheLongestKnownEnd) {
    TokenGuesses guesses;
    EXPECT_EQ(extended(guesses, {1, 2}), (std::vector<TokenId>{1, 2})) << "nothing is known";
    for (int i = 0; i < 8; ++i)
        learn_all(guesses, {1, 2, 3, 4, 5, 9, 2, 7, 8, 6});
    EXPECT_EQ(extended(guesses, {1, 2}), (std::vector<TokenId>{1, 2, 3, 4, 5}));
    EXPECT_EQ(extended(guesses, {9, 2}), (std::vector<TokenId>{9, 2, 7, 8, 6}));
    EXPECT_EQ(extended(guesses, {9, 2}, 1), (std::vector<TokenId>{9, 2, 7}));
    EXPECT_EQ(extended(guesses, {9, 2}, 0), (std::vector<TokenId>{9, 2}));
}

TEST(TokenGuesses, EndWhereTheyAreSeldomRight) {
    TokenGuesses guesses;
    std::vector<TokenId> text = {1};
    for (TokenId next = 2; next < 400; ++next) { // token 1 is followed by another one each time
        text.insert(text.end(), {next, 1});
        guesses.learn(std::span(text).first(text.size() - 1));
        guesses.learn(text);
    }
    EXPECT_EQ(extended(guesses, {1}), (std::vector<TokenId>{1}));
}

TestModelOptions with_slots(int n_slots) {
    TestModelOptions options = {.threads = 2};
    options.decoder.n_slots = n_slots;
    return options;
}

// Two golden drafts, one with guesses, draft for the same texts.
struct Pair {
    explicit Pair(int n_slots)
        : plain_model(golden_directory("llama-draft"), with_slots(n_slots)),
          model(golden_directory("llama-draft"), with_slots(n_slots)), plain(make(plain_model, n_slots, false)),
          guessing(make(model, n_slots, true)) {}

    std::unique_ptr<spec::Drafter> make(TestModel& of, int n_slots, bool guesses) {
        return spec::make_chain_drafter(spec::make_model_source(of.decoder, 512, n_slots),
                                        {{.vocab_size = 512, .eos_tokens = {}}, clock, n_slots}, guesses);
    }

    TestModel plain_model, model;
    dist::SteadyClock clock;
    std::unique_ptr<spec::Drafter> plain, guessing;
};

std::vector<Draft> drafts_of(spec::Drafter& drafter, const std::vector<std::vector<TokenId>>& texts,
                             const Request& request, spec::Acceptance acceptance) {
    std::vector<StopRule> rules(texts.size(), StopRule(constant_rule(12)));
    std::vector<Draft> drafts(texts.size());
    std::vector<spec::DraftTask> tasks;
    for (std::size_t i = 0; i < texts.size(); ++i) {
        spec::ChoiceSetting choice = choice_of(request);
        choice.acceptance = acceptance;
        tasks.push_back({static_cast<int>(i), texts[i], 12, &request, choice, &rules[i], &drafts[i]});
    }
    drafter.propose(tasks);
    return drafts;
}

// Texts of a draft that repeats itself, some with tokens that the target has put in place of the draft's.
void expect_same_drafts(int n_slots, double temperature, spec::Acceptance acceptance) {
    Pair pair(n_slots);
    Request request;
    request.sampling.temperature = temperature;
    std::vector<std::vector<TokenId>> texts;
    for (int slot = 0; slot < n_slots; ++slot) {
        texts.push_back(golden_expectations("llama-draft").at(static_cast<std::size_t>(slot)).at("prompt"));
        pair.plain->begin_sequence(slot, request);
        pair.guessing->begin_sequence(slot, request);
    }
    int plain_passes = 0, passes = 0;
    for (int round = 0; round < 12; ++round) {
        const std::vector<Draft> want = drafts_of(*pair.plain, texts, request, acceptance),
                                 got = drafts_of(*pair.guessing, texts, request, acceptance);
        for (std::size_t i = 0; i < texts.size(); ++i) {
            ASSERT_EQ(got[i].tokens, want[i].tokens) << "round " << round << ", text " << i;
            EXPECT_TRUE(same_bits(got[i].entropies_nats, want[i].entropies_nats));
            EXPECT_TRUE(same_bits(got[i].q, want[i].q));
            EXPECT_EQ(want[i].passes, 12);
            EXPECT_EQ(want[i].further_rows, 0);
            EXPECT_GE(got[i].passes + got[i].further_rows, 12) << "each token has a row";
            plain_passes += want[i].passes;
            passes += got[i].passes;
            const auto accepted = static_cast<std::ptrdiff_t>((round * 5 + 3 * i) % 13);
            texts[i].insert(texts[i].end(), want[i].tokens.begin(), want[i].tokens.begin() + accepted);
            texts[i].push_back(static_cast<TokenId>((want[i].tokens.back() + round) % 512));
        }
    }
    if (temperature == 0) {
        EXPECT_LT(passes, plain_passes) << "no guess was right";
    }
}

TEST(TokenGuesses, ChangeNoGreedyDraft) {
    if (const std::string why = lacking_on_torch(kRowBits); !why.empty()) GTEST_SKIP() << why;
    for (const int n_slots : {1, 2, 3})
        expect_same_drafts(n_slots, 0, spec::Acceptance::rejection);
}

TEST(TokenGuesses, ChangeNoSampledDraft) {
    if (const std::string why = lacking_on_torch(kRowBits); !why.empty()) GTEST_SKIP() << why;
    for (const spec::Acceptance acceptance : {spec::Acceptance::rejection, spec::Acceptance::gumbel})
        for (const int n_slots : {1, 2})
            expect_same_drafts(n_slots, 0.5, acceptance);
}

} // namespace token_guesses_test
