#include "tests/spec/engine_support.h"

namespace entrodraft::spec {

TEST(RepeatDrafter, DraftsTheLastTokenAgain) {
    const dist::SteadyClock clock;
    const auto type = std::ranges::find(all_drafters(), "repeat", &DrafterType::name);
    ASSERT_NE(type, all_drafters().end());
    const std::unique_ptr<Drafter> drafter = type->make({{{.vocab_size = 9, .eos_tokens = {}}, clock}});
    const Request request;
    drafter->begin_sequence(0, request);
    StopRule rule(constant_rule(3));
    rule.begin_sequence();
    Draft draft;
    const std::vector<TokenId> text = {4, 7};
    drafter->propose({0, text, 10, &request, choice_of(request), &rule, &draft});
    EXPECT_EQ(draft.tokens, std::vector<TokenId>(3, 7));
}

} // namespace entrodraft::spec
