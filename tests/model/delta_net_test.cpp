// Linear attention's states: whatever is read, cut back, kept of trees and shared, what comes next has the bits of a
// text that was read from the beginning, token by token.
#include "tests/model/delta_texts.h"

namespace delta_net_test {

using namespace entrodraft;

constexpr int kVocab = DeltaTexts::kVocab;

TestModelOptions on_cpu(int threads = 1) {
    TestModelOptions options;
    options.threads = threads;
    options.load = &model::load_cpu_decoder;
    return options;
}

struct DeltaNet : testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, DeltaNet, testing::Values(1, 2));

TEST_P(DeltaNet, HasTheBitsOfAFreshTextAfterWhateverHasBeenCutKeptAndShared) {
    if (const std::string why = lacking_on_torch("linear attention"); !why.empty()) GTEST_SKIP() << why;
    DeltaTexts texts(on_cpu(GetParam())), fresh(on_cpu());
    expect_bits_of_fresh_texts(texts, {fresh}, 120);
}

TEST_P(DeltaNet, FollowsTreesThatGrowPassByPassOverLongTexts) {
    if (const std::string why = lacking_on_torch("linear attention"); !why.empty()) GTEST_SKIP() << why;
    DeltaTexts texts(on_cpu(GetParam()), 300), fresh(on_cpu());
    for (int i = 0; i < 4; ++i) {
        texts.read(0, varied_tokens(128, kVocab, i));
        texts.read_branch(0, 280, 100, 279 - i);
        expect_bits_of_fresh_text(texts, 0, {fresh}, "tree " + std::to_string(i));
    }
}

TEST(DeltaNetStates, CanBeCutByWhatARoundDraftsAndNotToWhereNoneIs) {
    if (const std::string why = lacking_on_torch("linear attention"); !why.empty()) GTEST_SKIP() << why;
    DeltaTexts texts(on_cpu());
    for (int i = 0; i < 5; ++i)
        texts.read(0, varied_tokens(100, kVocab, i));
    constexpr int kRead = 500, kReach = model::RecurrentStates::kReach;
    EXPECT_EQ(texts.cache().reach(0, kRead - kReach), kRead - kReach);
    EXPECT_EQ(texts.cache().reach(0, 50), 0);
    EXPECT_THROW(texts.cache().truncate(0, 50), std::logic_error);
    EXPECT_THROW(texts.cache().keep(0, 50, {}), std::logic_error);
    EXPECT_THROW(texts.cache().share(0, 1, 50), std::logic_error);
    EXPECT_EQ(texts.cache().length(0), kRead);
    texts.cut(0, 0);
    EXPECT_EQ(texts.cache().length(0), 0);
}

TEST(DeltaNetStates, RefuseATreeThatTheyHaveNoRoomFor) {
    if (const std::string why = lacking_on_torch("linear attention"); !why.empty()) GTEST_SKIP() << why;
    DeltaTexts texts(on_cpu());
    for (int i = 0; i < 3; ++i)
        texts.read(0, varied_tokens(100, kVocab, i));
    EXPECT_THROW(texts.read_branch(0, 500, 100, 3), std::invalid_argument);
}

TEST(DeltaNetStates, AreShardedByKeyHeads) {
    const model::ModelConfig config = small_linear_config();
    EXPECT_EQ(model::shard_of(config, 1, 2).linear_keys, (dist::Slice{1, 2}));
    model::ModelConfig more_heads = config;
    more_heads.n_heads = 4;
    EXPECT_THROW(model::shard_of(more_heads, 0, 3), std::invalid_argument);
}

} // namespace delta_net_test
