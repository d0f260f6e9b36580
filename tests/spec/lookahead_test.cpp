// The pool and the window of lookahead decoding, and the trees that its drafter makes of them. The target is a function
// of the token before.
#include "spec/draft/drafter.h"
#include "spec/draft/lookahead.h"
#include "spec/verify/token_tree.h"
#include "tests/dist/manual_clock.h"
#include "tests/spec/engine_support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace lookahead_test {

using namespace entrodraft;
using spec::LookaheadOptions;
using Tokens = std::vector<TokenId>;

Tokens tails(const spec::NgramPool& pool, TokenId first) {
    const std::span<const TokenId> found = pool.tails_of(first);
    return {found.begin(), found.end()};
}

TEST(NgramPool, KeepsTheMostRecentDistinctNgramsOfAFirstToken) {
    spec::NgramPool pool(3, 2);
    EXPECT_TRUE(tails(pool, 1).empty());
    pool.add(Tokens{1, 2, 3});
    pool.add(Tokens{1, 4, 5});
    pool.add(Tokens{7, 8, 9});
    EXPECT_EQ(tails(pool, 1), (Tokens{4, 5, 2, 3}));
    EXPECT_EQ(tails(pool, 7), (Tokens{8, 9}));
    pool.add(Tokens{1, 2, 3}); // added again, so it is the latest now
    EXPECT_EQ(tails(pool, 1), (Tokens{2, 3, 4, 5}));
    pool.add(Tokens{1, 6, 6}); // the oldest one leaves
    EXPECT_EQ(tails(pool, 1), (Tokens{6, 6, 2, 3}));
    EXPECT_TRUE(tails(pool, 2).empty());
    pool.clear();
    EXPECT_TRUE(tails(pool, 7).empty());
}

TEST(LookaheadWindow, MovesOnByATokenAndThenHoldsTheTargetsGuesses) {
    spec::LookaheadWindow window({3, 4, 1});
    window.begin(Tokens{5, 6});
    for (int level = 0; level < 3; ++level)
        for (int column = level == 0 ? 1 : 0; column < 3; ++column)
            EXPECT_TRUE(window.guess(level, column) == 5 || window.guess(level, column) == 6);
    window.slide(Tokens{10, 11, 12});
    EXPECT_FALSE(window.is_filled());
    window.slide(Tokens{20, 21, 22});
    EXPECT_TRUE(window.is_filled());
    window.slide(Tokens{30, 31, 32});
    EXPECT_EQ(window.guess(0, 1), 11); // the guess after the text's token is the next guess now
    EXPECT_EQ(window.guess(0, 2), 12);
    EXPECT_EQ(window.guess(1, 0), 20);
    EXPECT_EQ(window.guess(2, 2), 32);
    window.begin(Tokens{5});
    EXPECT_FALSE(window.is_filled());
    EXPECT_EQ(window.guess(2, 2), 5);
}

spec::DrafterValues values_of(const LookaheadOptions& options) {
    return {{"window", options.window}, {"ngram", options.ngram}, {"candidates", options.candidates}};
}

TEST(LookaheadOptions, SayWhatIsWrongWithThem) {
    const spec::DrafterType& type = spec::drafter_type("lookahead");
    EXPECT_EQ(type.all_values({}), values_of({}));
    EXPECT_EQ(type.most_tokens(type.all_values(values_of({16, 5, 16}))), 127);
    for (const LookaheadOptions& wrong : {LookaheadOptions{0, 3, 1}, {1, 1, 1}, {1, 3, 0}, {17, 5, 16}})
        EXPECT_THROW(type.all_values(values_of(wrong)), std::invalid_argument);
}

// Rounds of one greedy text after `prompt`, with a target whose next token depends on the one before.
struct Rounds {
    explicit Rounds(const LookaheadOptions& options, Tokens prompt, std::vector<TokenId> ends = {})
        : tokens(std::move(prompt)), rule(constant_rule(127)) {
        spec::DrafterParts parts{{{kVocab, std::move(ends)}, clock}};
        drafter = spec::drafter_type("lookahead").make(parts, values_of(options));
        request.prompt = tokens;
        drafter->begin_sequence(0, request);
    }
    static TokenId after(TokenId token) { return (token * 5 + 1) % kVocab; } // visits all tokens, one after another

    // Returns the number of accepted drafted tokens.
    int round(int left = 127, int most = 127) {
        spec::DraftTask task = {0, tokens, left, &request, {}, &rule, &draft, left};
        task.max_nodes = most;
        drafter->propose(task);
        const auto said = [&](int node) {
            return after(node < 0 ? tokens.back() : draft.tokens[static_cast<std::size_t>(node)]);
        };
        int node = -1;
        Tokens emitted;
        for (int next = -1;; node = next) {
            emitted.push_back(said(node));
            next = -1;
            for (const int child : spec::children_of(draft.parents, node))
                if (draft.tokens[static_cast<std::size_t>(child)] == emitted.back()) next = child;
            if (next < 0) break;
        }
        const int accepted = static_cast<int>(emitted.size()) - 1;
        drafter->observe(0, {.accepted = accepted, .token_after = [&](int each) { return std::optional(said(each)); }});
        tokens.insert(tokens.end(), emitted.begin(), emitted.end());
        return accepted;
    }

    static constexpr int kVocab = 1024;
    dist::ManualClock clock;
    Tokens tokens;
    spec::StopRule rule;
    spec::Request request;
    spec::Draft draft;
    std::unique_ptr<spec::Drafter> drafter;
};

// The window begins with a token that the text reaches after 40 rounds; by then the window is 40 tokens further.
TEST(Lookahead, FindsWhatComesWhereTheTextHasNeverBeen) {
    TokenId ahead = 1;
    for (int i = 0; i < 40; ++i)
        ahead = Rounds::after(ahead);
    Rounds rounds({3, 4, 2}, {ahead, ahead, ahead, 1});
    for (int i = 0; i < 40; ++i)
        EXPECT_EQ(rounds.round(), 0) << i;
    int accepted = 0;
    for (int i = 0; i < 10; ++i)
        accepted += rounds.round();
    EXPECT_EQ(accepted, 30); // N - 1 tokens a round, besides the next token
    EXPECT_EQ(std::set<TokenId>(rounds.tokens.begin(), rounds.tokens.end()).size(), rounds.tokens.size() - 3);
}

// The tree has a window's rows and n-grams of N - 1 tokens. Siblings differ.
TEST(Lookahead, DraftsAWindowAndTheNgramsOfThePool) {
    const LookaheadOptions options{3, 4, 2};
    Rounds rounds(options, {9, 1, 2, 3, 9, 4, 5, 6, 9, 7, 8, 6, 9});
    rounds.round();
    const Tokens& drafted = rounds.draft.tokens;
    EXPECT_LE(static_cast<int>(drafted.size()), options.max_tokens());
    EXPECT_GE(static_cast<int>(drafted.size()), 2 * 3);
    EXPECT_TRUE(std::equal(drafted.begin(), drafted.begin() + 3, Tokens{7, 8, 6}.begin())); // the latest first
    const spec::Parents parents = rounds.draft.parents;
    for (int node = -1; node < static_cast<int>(drafted.size()); ++node) {
        EXPECT_LE(spec::depth_of(parents, node), options.window + options.ngram - 3 + 1);
        std::set<TokenId> siblings;
        const std::vector<int> children = spec::children_of(parents, node);
        for (const int child : children)
            siblings.insert(drafted[static_cast<std::size_t>(child)]);
        EXPECT_EQ(siblings.size(), children.size());
    }
    for (const int most : {0, 1, 4}) {
        rounds.round(127, most);
        EXPECT_EQ(static_cast<int>(rounds.draft.tokens.size()), most);
    }
    for (const int left : {0, 1, 3}) {
        rounds.round(left);
        const int n_drafted = static_cast<int>(rounds.draft.tokens.size());
        EXPECT_TRUE(left == 0 ? n_drafted == 0 : n_drafted > left) << "the end of a text bounds depth alone";
        for (int node = 0; node < n_drafted; ++node)
            EXPECT_LE(spec::depth_of(rounds.draft.parents, node), left);
    }
}

TEST(Lookahead, DraftsNothingBehindTheEndOfAText) {
    std::vector<TokenId> ends;
    for (TokenId token = 0; token < Rounds::kVocab; token += 2)
        ends.push_back(token);
    Rounds rounds({3, 4, 2}, {1, 2, 4, 6, 1}, ends);
    for (int i = 0; i < 20; ++i) {
        rounds.round();
        for (const std::int8_t parent : rounds.draft.parents)
            if (parent >= 0) {
                EXPECT_EQ(rounds.draft.tokens[static_cast<std::size_t>(parent)] % 2, 1);
            }
    }
}

TEST(Lookahead, KnowsNothingOfTheTextBefore) {
    Rounds fresh({3, 4, 2}, {1, 2, 3}), used({3, 4, 2}, {700, 701, 702});
    for (int i = 0; i < 20; ++i)
        used.round();
    used.tokens = used.request.prompt = {1, 2, 3};
    used.drafter->begin_sequence(0, used.request);
    for (int i = 0; i < 20; ++i) {
        EXPECT_EQ(used.round(), fresh.round());
        EXPECT_EQ(used.draft.tokens, fresh.draft.tokens);
    }
}

// Drafts the text's next tokens and one wrong token, and keeps the target's tokens that it is given.
class Prophet final : public spec::Drafter {
  public:
    explicit Prophet(Tokens text) : Drafter({.name = "prophet"}), text_(std::move(text)) {}
    void begin_sequence(int, const spec::Request&) override {}
    void propose(std::span<const spec::DraftTask> tasks) override {
        const spec::DraftTask& task = tasks.front();
        begin_ = task.tokens.size();
        spec::begin_draft(task, spec::kNoContext);
        if (task.max_tokens < 3) return;
        task.draft->add(0, {}, -1);
        task.draft->add(text_[begin_], {}, -1);
        task.draft->add(text_[begin_ + 1], {}, 1);
    }
    void observe(int, const spec::TargetOutcome& outcome) override {
        if (!outcome.token_after || begin_ + 3 > text_.size()) return;
        EXPECT_EQ(outcome.accepted, 2);
        EXPECT_EQ(outcome.token_after(-1), text_[begin_]);
        EXPECT_EQ(outcome.token_after(1), text_[begin_ + 1]);
        EXPECT_EQ(outcome.token_after(2), text_[begin_ + 2]);
        ++told;
    }

    int told = 0;

  private:
    Tokens text_;
    std::size_t begin_ = 0;
};

TEST(Lookahead, TheEngineTellsWhatTheTargetHasBehindEachRow) {
    TestPair pair(golden_directory("llama-target"), golden_directory("llama-draft"));
    for (const bool gumbel : {false, true})
        for (const int top_k : {0, 5}) { // rows are sent as best tokens, then as shortlists
            spec::Request request;
            request.prompt = varied_tokens(9, 500);
            request.max_new_tokens = 20;
            request.ignore_eos = true;
            request.sampling.temperature = gumbel ? 1 : 0;
            request.sampling.top_k = gumbel ? top_k : 0;
            RunOptions options;
            options.acceptance = spec::Acceptance::gumbel;
            options.rule = constant_rule(3);
            spec::Request plain = request;
            plain.plain = true;
            Tokens text = request.prompt;
            const Tokens more = pair.run({plain}, options).front().tokens;
            text.insert(text.end(), more.begin(), more.end());
            Prophet prophet(text);
            EXPECT_EQ(pair.run({request}, options, &prophet).front().tokens, more);
            EXPECT_GT(prophet.told, 4);
        }
}

// The number of rounds that draft, of `n_rounds` in which nothing is ever accepted and a row takes a second.
int rounds_that_draft(int n_rounds, const std::optional<spec::Costs>& costs) {
    spec::GainModel gain({6, 0.1, costs});
    spec::StopRule rule(rule_of("expected-gain", 1, 5), &gain);
    dist::ManualClock clock;
    spec::DrafterParts parts{{{100, {}}, clock}};
    const auto drafter = spec::drafter_type("lookahead").make(parts);
    spec::Request request;
    request.prompt = {0};
    drafter->begin_sequence(0, request);
    Tokens tokens = {0};
    spec::Draft draft;
    int drafting = 0;
    for (int i = 0; i < n_rounds; ++i) {
        spec::DraftTask task{0, tokens, 5, &request, {}, &rule, &draft, 5};
        task.gain = &gain;
        task.max_nodes = 5;
        drafter->propose(task);
        drafting += draft.tokens.empty() ? 0 : 1;
        drafter->observe(0, {.token_after = [](int) { return std::optional<TokenId>(99); }});
        spec::RoundFeedback feedback = spec::feedback_of(draft, {});
        feedback.target_seconds = static_cast<double>(feedback.rows);
        rule.end_round(feedback);
        tokens.push_back(static_cast<TokenId>(i % 90));
    }
    return drafting;
}

TEST(Lookahead, IsTriedLessAndLessWhereItDoesNotPay) {
    const int drafting = rounds_that_draft(300, spec::Costs{0, {1, 2, 3, 4, 5, 6}, std::nullopt});
    EXPECT_GT(drafting, 0);
    EXPECT_LT(drafting, 10);
}

// The first rounds, while the cost is not known, cost more than a two-hundredth of the run.
TEST(Lookahead, IsNotTriedAgainBeforeTheRunAffordsIt) {
    const int drafting = rounds_that_draft(2000, std::nullopt);
    EXPECT_GT(drafting, 0);
    EXPECT_LT(drafting, 12);
}

} // namespace lookahead_test
