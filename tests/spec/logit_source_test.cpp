// Sources of logits: rows depend on the right tokens, and are the same in a batch and one by one.
#include "spec/draft/chain.h"
#include "spec/draft/token_table.h"
#include "spec/verify/random.h"
#include "spec/verify/sampling.h"
#include "tests/model/golden_models.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace entrodraft::spec {
namespace logit_source_test {

constexpr int kVocab = 37;

std::vector<TokenId> text_of(std::size_t n) {
    const RandomStream chance(3, 0, Purpose::draft_sample);
    std::vector<TokenId> text;
    for (std::size_t i = 0; i < n; ++i)
        text.push_back(static_cast<TokenId>(chance.uniform(i) * kVocab));
    return text;
}

TokenTable table() {
    TokenCounter counter(kVocab, 0);
    counter.add(text_of(500));
    return TokenTable(counter.take());
}

std::vector<float> copy(std::span<const float> row) {
    return {row.begin(), row.end()};
}

SourceLogits rows_after(LogitSource& source, std::span<const TokenId> text, std::size_t n, model::LogitNeeds needs) {
    const TextEnd end = {0, text, n};
    return source.rows_after(std::span(&end, 1), needs);
}

// The rows of the last n tokens at once are those of each prefix alone, and summaries are those of the rows.
void expect_rows_of_prefixes(LogitSource& source) {
    const std::vector<TokenId> text = text_of(30);
    for (const std::size_t n : {std::size_t{1}, std::size_t{4}, std::size_t{30}}) {
        ASSERT_LE(n, source.facts().max_rows);
        const SourceLogits rows = rows_after(source, text, n, model::LogitSummary::entropy);
        std::vector<std::vector<float>> found;
        std::vector<model::LogitStats> summaries;
        for (std::size_t i = 0; i < n; ++i) {
            found.push_back(copy(rows.row(i)));
            summaries.push_back(rows.summary(i));
        }
        for (std::size_t i = 0; i < n; ++i) {
            const auto prefix = std::span(text).first(text.size() - n + 1 + i);
            const SourceLogits alone = rows_after(source, prefix, 1, model::LogitSummary::none);
            EXPECT_TRUE(alone.summaries.empty());
            EXPECT_EQ(copy(alone.row(0)), found[i]) << n << " rows, row " << i;
            EXPECT_EQ(summaries[i].arg_max, arg_max(found[i]));
            std::vector<float> p(found[i].size());
            SamplingOptions plain;
            plain.temperature = 1;
            adjust(found[i], plain, p);
            EXPECT_NEAR(summaries[i].entropy_nats(), entropy_nats(p), 1e-4);
        }
    }
}

TEST(TableSource, GivesTheTablesRows) {
    const TokenTable counts = table();
    for (const int order : {1, 2}) {
        const auto source = make_table_source(counts, order, kVocab);
        expect_rows_of_prefixes(*source);
        const std::vector<TokenId> text = text_of(9);
        std::vector<float> row(kVocab);
        counts.row(order, text.back(), row);
        EXPECT_EQ(copy(rows_after(*source, text, 1, model::LogitSummary::none).row(0)), row);
        double sum = 0;
        for (const float x : row)
            sum += std::exp(static_cast<double>(x));
        EXPECT_NEAR(sum, 1, 1e-5) << "log-probabilities";
    }
    EXPECT_EQ(make_table_source(counts, 1, kVocab)->facts().name, "unigram");
    EXPECT_EQ(make_table_source(counts, 2, kVocab)->facts().name, "bigram");
    EXPECT_THROW(make_table_source(counts, 3, kVocab), std::invalid_argument);
    EXPECT_THROW(make_table_source(counts, 0, kVocab), std::invalid_argument);
}

TEST(TableSource, OfBigramsLooksAtTheLastTokenAlone) {
    const TokenTable counts = table();
    const auto bigram = make_table_source(counts, 2, kVocab), unigram = make_table_source(counts, 1, kVocab);
    const std::vector<TokenId> a = {1, 2, 3}, b = {9, 3}, c = {1, 2, 4};
    const auto of = [](LogitSource& source, const std::vector<TokenId>& text) {
        return copy(rows_after(source, text, 1, model::LogitSummary::none).row(0));
    };
    EXPECT_EQ(of(*bigram, a), of(*bigram, b));
    EXPECT_NE(of(*bigram, a), of(*bigram, c));
    EXPECT_EQ(of(*unigram, a), of(*unigram, c));
}

TEST(RandomSource, GivesRowsOfPlaceAndLastToken) {
    const auto source = make_random_source(kVocab);
    expect_rows_of_prefixes(*source);
    const auto of = [&](const std::vector<TokenId>& text) {
        return copy(rows_after(*source, text, 1, model::LogitSummary::none).row(0));
    };
    EXPECT_EQ(of({1, 2, 3}), of({7, 7, 3}));
    EXPECT_NE(of({1, 2, 3}), of({1, 2, 4}));
    EXPECT_NE(of({1, 2, 3}), of({1, 2, 3, 3}));
    EXPECT_EQ(of({1, 2, 3}),
              copy(rows_after(*make_random_source(kVocab), std::vector{1, 2, 3}, 1, model::LogitSummary::none).row(0)));
}

TEST(RandomSource, IsNowSureAndNowUnsure) {
    const auto source = make_random_source(kVocab);
    double least = 100, most = 0;
    const std::vector<TokenId> text = text_of(40);
    const SourceLogits rows = rows_after(*source, text, 40, model::LogitSummary::entropy);
    for (std::size_t i = 0; i < 40; ++i) {
        least = std::min(least, rows.summary(i).entropy_nats());
        most = std::max(most, rows.summary(i).entropy_nats());
    }
    EXPECT_LT(least, 2);
    EXPECT_GT(most, 3);
}

// Several rows of a text are not a chain that the model went on with by itself: their own tokens have not been read.
TEST(ModelSource, ReadsWhatFollowsSeveralRowsLikeAnyText) {
    if (const std::string why = lacking_on_torch(kRowBits); !why.empty()) GTEST_SKIP() << why;
    TestModel model(golden_directory("llama-draft")), again(golden_directory("llama-draft"));
    const auto source = make_model_source(model.decoder, 500), alone = make_model_source(again.decoder, 500);
    source->begin_sequence(0, {});
    alone->begin_sequence(0, {});
    std::vector<TokenId> text = {7, 12, 19, 4, 31};
    const SourceLogits rows = rows_after(*source, text, 3, model::LogitSummary::entropy);
    const std::vector<TokenId> emitted = {rows.summary(0).arg_max, rows.summary(1).arg_max, 9};
    text.insert(text.end(), emitted.begin(), emitted.end());
    EXPECT_EQ(copy(rows_after(*source, text, 1, model::LogitSummary::none).row(0)),
              copy(rows_after(*alone, text, 1, model::LogitSummary::none).row(0)));
}

} // namespace logit_source_test
} // namespace entrodraft::spec
