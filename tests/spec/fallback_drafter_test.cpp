// A combination of drafters: the first that drafts anything has the round, and the cost of the others is counted.
#include "spec/draft/drafter.h"

#include <gtest/gtest.h>

namespace entrodraft::spec {
namespace fallback_drafter_test {

// Drafts `tokens`, in a given number of passes and seconds.
class Fixed final : public Drafter {
  public:
    Fixed(std::string name, std::vector<TokenId> tokens, int passes, double seconds, std::size_t bytes, int& drafts)
        : Drafter({.name = std::move(name), .weight_bytes = bytes}), tokens_(std::move(tokens)), passes_(passes),
          seconds_(seconds), drafts_(drafts) {}
    void begin_sequence(int, const Request&) override { ++drafts_; }
    void prefill(int, std::span<const TokenId>) override { ++drafts_; }
    void propose(std::span<const DraftTask> tasks) override {
        ++drafts_;
        StopRule& rule = *tasks.front().rule;
        Draft& draft = *tasks.front().draft;
        draft.clear();
        rule.begin_round();
        for (const TokenId token : tokens_) {
            rule.decide({});
            draft.add(token, {});
        }
        draft.passes = passes_;
        draft.seconds = seconds_;
        draft.entropy_seconds = seconds_ / 2;
        draft.end = tokens_.empty() ? DraftEnd::no_match : DraftEnd::cap;
    }

  private:
    std::vector<TokenId> tokens_;
    int passes_;
    double seconds_;
    int& drafts_; // calls so far
};

std::unique_ptr<Drafter> first_of(const std::vector<std::vector<TokenId>>& drafts, std::vector<int>& calls) {
    calls.assign(drafts.size(), 0);
    std::vector<std::unique_ptr<Drafter>> drafters;
    for (std::size_t i = 0; i < drafts.size(); ++i)
        drafters.push_back(std::make_unique<Fixed>("d" + std::to_string(i), drafts[i], static_cast<int>(i) + 1,
                                                   static_cast<double>(i) + 1, 10 * (i + 1), calls[i]));
    return make_fallback_drafter(std::move(drafters));
}

Draft draft_of(Drafter& drafter) {
    StopRule rule(StopRuleOptions("constant"));
    Draft draft;
    const Request request;
    const std::vector<TokenId> text = {1};
    drafter.propose({0, text, 10, &request, {}, &rule, &draft});
    return draft;
}

TEST(FirstOf, GivesTheRoundToTheFirstThatDraftsAnything) {
    std::vector<int> calls;
    const auto first = first_of({{7, 8}, {9}}, calls);
    EXPECT_EQ(draft_of(*first).tokens, (std::vector<TokenId>{7, 8}));
    EXPECT_EQ(calls, (std::vector<int>{1, 0})) << "the second need not even be asked";
    const auto second = first_of({{}, {9}, {5}}, calls);
    const Draft draft = draft_of(*second);
    EXPECT_EQ(draft.tokens, (std::vector<TokenId>{9}));
    EXPECT_EQ(draft.end, DraftEnd::cap);
    EXPECT_EQ(calls, (std::vector<int>{1, 1, 0}));
}

TEST(FirstOf, CountsWhatAllCost) {
    std::vector<int> calls;
    const Draft draft = draft_of(*first_of({{}, {}, {5}}, calls));
    EXPECT_EQ(draft.passes, 1 + 2 + 3);
    EXPECT_EQ(draft.seconds, 6);
    EXPECT_EQ(draft.entropy_seconds, 3);
}

TEST(FirstOf, DraftsNothingWhereNoneDoes) {
    std::vector<int> calls;
    const Draft draft = draft_of(*first_of({{}, {}}, calls));
    EXPECT_TRUE(draft.tokens.empty());
    EXPECT_EQ(draft.end, DraftEnd::no_match);
}

TEST(FirstOf, TellsAllOfThemOfSequencesAndPrompts) {
    std::vector<int> calls;
    const auto drafter = first_of({{1}, {2}}, calls);
    const Request request;
    drafter->begin_sequence(0, request);
    drafter->prefill(0, request.prompt);
    EXPECT_EQ(calls, (std::vector<int>{2, 2}));
    EXPECT_EQ(drafter->facts().name, "d0,d1");
    EXPECT_EQ(drafter->facts().weight_bytes, 20U) << "a round's drafts read those of the largest at most";
    EXPECT_THROW(make_fallback_drafter({}), std::invalid_argument);
}

} // namespace fallback_drafter_test
} // namespace entrodraft::spec
