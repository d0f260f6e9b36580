// Look-ups in all texts of a run: matches in other texts, forgetting, and texts that stay those of plain decoding.
#include "spec/draft/run_texts.h"

#include "tests/spec/engine_support.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace run_texts_test {

using namespace entrodraft;
using Tokens = std::vector<TokenId>;

spec::NgramOptions lengths(int shortest, int longest, int full = 0) {
    spec::NgramOptions options;
    options.shortest = shortest;
    options.longest = longest;
    options.full = full;
    return options;
}

TEST(RunTexts, FindsTheEndOfATextInAnother) {
    spec::RunTexts texts(lengths(2, 3));
    const auto first = texts.begin(), second = texts.begin();
    texts.follow(first, Tokens{1, 2, 3, 4, 5, 6});
    texts.follow(second, Tokens{9, 3});
    EXPECT_FALSE(texts.find(second)) << "one token is too short";
    texts.follow(second, Tokens{9, 3, 4});
    ASSERT_TRUE(texts.find(second));
    EXPECT_EQ(texts.find(second)->length, 2);
    EXPECT_EQ(texts.find(second)->token(0), 5);
    EXPECT_EQ(texts.find(second)->token(1), 6);
    EXPECT_EQ(texts.find(second)->token(2), std::nullopt) << "it ends where the other ends";
    texts.follow(second, Tokens{1, 2, 3, 4});
    ASSERT_TRUE(texts.find(second));
    EXPECT_EQ(texts.find(second)->length, 4) << "as far as they agree, not as an n-gram is long";
    texts.follow(second, Tokens{7, 5, 6});
    EXPECT_FALSE(texts.find(second)) << "nothing follows there yet";
    texts.follow(first, Tokens{1, 2, 3, 4, 5, 6, 8});
    EXPECT_EQ(texts.find(second)->token(0), 8) << "texts grow beside each other";
    EXPECT_FALSE(texts.find(first));
    texts.end(first);
    EXPECT_EQ(texts.find(second)->token(0), 8) << "what has ended stays";
}

TEST(RunTexts, OneTextsOwnPlacesAreLeftToItsIndex) {
    const auto texts = std::make_shared<spec::RunTexts>(lengths(1, 4));
    const auto new_index = [&] { return spec::make_run_index(spec::make_ngram_index(lengths(1, 4)), texts); };
    const auto one = new_index();
    auto other = new_index();
    one->follow(Tokens{1, 2, 3, 1, 2});
    EXPECT_FALSE(texts->find(0));
    EXPECT_FALSE(one->find()->in_corpus);
    EXPECT_EQ(one->find()->token(0), 3);
    other->follow(Tokens{3, 1, 2, 6});
    EXPECT_TRUE(one->find()->in_corpus) << "3 tokens of the other, 2 of its own";
    EXPECT_EQ(one->find()->token(0), 6);
    other = new_index();
    other->follow(Tokens{8, 3, 1});
    EXPECT_EQ(other->find()->length, 2) << "of the text that has ended, the latest";
    EXPECT_EQ(other->find()->token(0), 2);
}

TEST(RunTexts, WholeContinuationsAlone) {
    spec::RunTexts texts(lengths(1, 2, 3));
    const auto first = texts.begin(), second = texts.begin();
    texts.follow(first, Tokens{1, 2, 3, 4});
    texts.follow(second, Tokens{2});
    EXPECT_FALSE(texts.find(second)) << "2 tokens follow";
    texts.follow(first, Tokens{1, 2, 3, 4, 5, 6});
    ASSERT_TRUE(texts.find(second));
    EXPECT_EQ(texts.find(second)->token(2), 5);
    EXPECT_EQ(texts.find(second)->token(3), std::nullopt);
}

TEST(RunTexts, ForgetsTheOldestThatHaveEnded) {
    spec::RunTexts texts(lengths(1, 3), 100);
    const auto under_way = texts.begin();
    texts.follow(under_way, Tokens{1, 2, 3, 4});
    std::uint32_t last = 0;
    for (TokenId i = 0; i < 40; ++i) {
        last = texts.begin();
        texts.follow(last, Tokens{100 + i, 200 + i, 300 + i, 400 + i, 500 + i});
        texts.end(last);
        EXPECT_LE(texts.n_tokens(), 100U);
    }
    const auto asks = texts.begin();
    const auto finds = [&](TokenId token) {
        texts.follow(asks, Tokens{token});
        return texts.find(asks).has_value();
    };
    EXPECT_TRUE(finds(139)) << "the latest";
    EXPECT_FALSE(finds(100)) << "the first";
    EXPECT_TRUE(finds(2)) << "of a text under way";
}

// Batches whose texts begin alike, with drafts as long as possible: texts are plain ones, and other texts help.
TEST(RunTexts, TextsOfABatchArePlainOnesInFewerRounds) {
    TestModelOptions model_options;
    model_options.decoder.n_slots = 4;
    TestPair pair(golden_directory("llama-target"), golden_directory("llama-draft"), model_options);
    for (const bool gumbel : {false, true}) {
        std::vector<spec::Request> requests, plain;
        for (int i = 0; i < 12; ++i) { // three batches of texts that differ in their first token only
            spec::Request request = request_of({static_cast<TokenId>(1 + i / 6), 40, 12, 7, 9}, 30);
            request.id = std::to_string(i);
            request.sampling.temperature = gumbel ? 0.3 : 0;
            requests.push_back(request);
            request.plain = true;
            plain.push_back(request);
        }
        RunOptions options;
        options.acceptance = spec::Acceptance::gumbel;
        options.rule = constant_rule(5);
        const std::vector<spec::Completion> texts = pair.run(plain, options);
        std::map<std::string, std::int64_t> rounds;
        for (const char* name : {"ngram", "suffix"})
            for (const auto where : {spec::LookupTexts::own, spec::LookupTexts::run}) {
                spec::DrafterParts parts{{pair.limits(), pair.clock, 4}};
                const auto drafter = spec::drafter_type(name).make(parts, {{"texts", static_cast<int>(where)}});
                const std::vector<spec::Completion> drafted = pair.run(requests, options, drafter.get());
                std::int64_t& counted = rounds[std::string(name) + (where == spec::LookupTexts::run ? "+run" : "")];
                for (std::size_t i = 0; i < texts.size(); ++i) {
                    EXPECT_EQ(drafted[i].tokens, texts[i].tokens) << name << ' ' << i;
                    counted += drafted[i].stats.rounds;
                }
            }
        if (gumbel) continue; // each text has its own noise
        EXPECT_LT(rounds["ngram+run"], rounds["ngram"]);
        EXPECT_LT(rounds["suffix+run"], rounds["suffix"]);
    }
}

} // namespace run_texts_test
