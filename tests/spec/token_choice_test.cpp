// The choice of a draft's next token: processing of logits, the distribution of its entropy, and the random number.
#include "spec/draft/chain.h"

#include "spec/verify/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace entrodraft::spec {
namespace token_choice_test {

using model::LogitSummary;

const std::vector<float> kLogits = {1, 3, 2, 0, 2.5F};
const std::vector<TokenId> kPrefix = {4, 4, 2};

Request sampled(double temperature = 1) {
    Request request;
    request.prompt = {4, 4};
    request.sampling.temperature = temperature;
    request.sampling.seed = 6;
    request.sequence_key = 8;
    return request;
}

Request processed(double temperature) {
    Request request = sampled(temperature);
    request.processing.banned_tokens = {1};
    request.processing.logit_bias = {{3, 5.0F}};
    request.processing.repetition_penalty = 2;
    return request;
}

TokenChooser chooser_of(const Request& request, std::vector<TokenId> eos_tokens = {}) {
    TokenChooser chooser;
    chooser.begin_sequence(request, eos_tokens);
    return chooser;
}

model::LogitStats stats_of(const std::vector<float>& logits) {
    return model::kernels::best_kernels().logit_stats(logits.data(), static_cast<int>(logits.size()), 0);
}

TEST(TokenChooser, AsksThePassForWhatItNeedsAndNoMore) {
    const Request greedy = sampled(0), drawn = sampled(1), busy = processed(0);
    EXPECT_EQ(chooser_of(greedy).needs(false, Acceptance::rejection).summary, LogitSummary::max);
    EXPECT_EQ(chooser_of(greedy).needs(true, Acceptance::rejection).summary, LogitSummary::entropy);
    EXPECT_EQ(chooser_of(drawn).needs(false, Acceptance::rejection).summary, LogitSummary::none);
    EXPECT_EQ(chooser_of(drawn).needs(true, Acceptance::block).summary, LogitSummary::entropy);
    EXPECT_FALSE(chooser_of(greedy).needs(true, Acceptance::rejection).rows) << "the summary says it all";
    EXPECT_TRUE(chooser_of(drawn).needs(true, Acceptance::block).rows);
    EXPECT_TRUE(chooser_of(busy).needs(true, Acceptance::rejection).rows);
    EXPECT_EQ(chooser_of(busy).needs(true, Acceptance::rejection).summary, LogitSummary::none)
        << "logits change after it";
    EXPECT_TRUE(chooser_of(drawn).draws(Acceptance::rejection) && chooser_of(drawn).draws(Acceptance::block));
    EXPECT_FALSE(chooser_of(drawn).draws(Acceptance::gumbel) || chooser_of(greedy).draws(Acceptance::rejection));
}

TEST(TokenChooser, LeavesRowsAloneThatNothingIsAskedFor) {
    const Request request = sampled(0);
    TokenChooser chooser = chooser_of(request);
    const auto head = stats_of(kLogits);
    const SeenLogits row = chooser.see(kLogits, head, kPrefix, true);
    EXPECT_EQ(row.logits.data(), kLogits.data());
    EXPECT_EQ(row.stats.entropy_nats(), head.entropy_nats());
    EXPECT_EQ(chooser.best(row, 3, Acceptance::rejection).token, 1);
}

// docs/reference.md, Distributions: a raw distribution is the one after banned tokens alone.
TEST(TokenChooser, TakesEntropyAfterBansAndBeforePenalties) {
    const Request request = processed(0);
    TokenChooser chooser = chooser_of(request);
    const SeenLogits row = chooser.see(kLogits, {}, kPrefix, true);
    std::vector<float> banned = kLogits;
    banned[1] = -std::numeric_limits<float>::infinity();
    EXPECT_NEAR(row.stats.entropy_nats(), stats_of(banned).entropy_nats(), 1e-6);
    EXPECT_EQ(row.logits[1], banned[1]);
    EXPECT_EQ(row.logits[2], 1) << "penalised: it is in the prefix";
    EXPECT_EQ(row.logits[3], 5);
    EXPECT_EQ(row.logits[4], 1.25F);
    EXPECT_EQ(chooser.best(row, 3, Acceptance::rejection).token, 3);
    EXPECT_EQ(chooser.best(row, 3, Acceptance::rejection).margin(), 3.75) << "behind all that is done to logits";
    EXPECT_EQ(chooser.see(kLogits, {}, std::vector<TokenId>{4, 4}, false).logits[2], 2) << "not yet in the prefix";
}

TEST(TokenChooser, CountsTheEndOfTextAmongItsBans) {
    Request request = sampled(0);
    request.processing.min_new_tokens = 2;
    TokenChooser chooser = chooser_of(request, {1});
    const auto said_after = [&](const std::vector<TokenId>& prefix) {
        return chooser.best(chooser.see(kLogits, {}, prefix, false), prefix.size(), Acceptance::rejection).token;
    };
    EXPECT_EQ(said_after({4, 4}), 4);
    EXPECT_EQ(said_after({4, 4, 2}), 4);
    EXPECT_EQ(said_after({4, 4, 2, 2}), 1);
    EXPECT_EQ(said_after({4, 4, 0}), 4) << "those that were rejected count no longer";
}

TEST(TokenChooser, SamplesWithTheNumberOfPositionLevelAndTheRoundsStart) {
    const Request request = sampled(1);
    const TokenChooser chooser = chooser_of(request);
    const std::vector<float> q(100, 0.01F);
    for (const Acceptance acceptance : {Acceptance::rejection, Acceptance::block})
        for (const std::uint32_t level : {0U, 1U})
            for (std::uint64_t position = 10; position < 30; ++position) {
                const RandomStream random(6, 99, Purpose::draft_sample, level);
                EXPECT_EQ(chooser.sample_of(q, position, 7, {acceptance, 6, 99, level}),
                          sample(q, random.uniform(position, 0, 7)));
            }
}

TEST(TokenChooser, DrawsInPlaceByItsOwnNoiseOfPositionLevelAndTheRoundsStart) {
    const Request request = sampled(0.8);
    const TokenChooser chooser = chooser_of(request);
    std::set<std::uint64_t> positions;
    for (const std::uint32_t level : {0U, 1U})
        for (std::uint64_t round_start = 10; round_start < 15; ++round_start)
            for (std::uint64_t position = round_start; position < 20; ++position) {
                const model::RowNoise noise =
                    chooser.device_noise(position, round_start, {Acceptance::block, 6, 99, level});
                EXPECT_EQ(noise.key, RandomStream(6, 99, Purpose::draft_sample, level).key());
                EXPECT_NE(noise.key, RandomStream(6, 99, Purpose::resample, level).key());
                EXPECT_EQ(noise.temperature, 0.8);
                EXPECT_EQ(positions.insert(noise.position).second, level == 0) << "a number for every choice";
            }
}

TEST(TokenChooser, TakesTheNoiseOfTheSequenceWhateverItsLevel) {
    Request request = sampled(0.8);
    request.sampling.top_k = 3;
    TokenChooser chooser = chooser_of(request);
    for (std::uint64_t position = 0; position < 50; ++position) {
        const SeenLogits row = chooser.see(kLogits, {}, kPrefix, false);
        const BestToken best = chooser.best(row, position, Acceptance::gumbel);
        const BestToken want = gumbel_max_adjusted({kLogits, 0, position}, request.sampling, GumbelNoise(6, 8));
        EXPECT_EQ(best.token, want.token);
        EXPECT_EQ(best.margin(), want.margin());
    }
}

} // namespace token_choice_test
} // namespace entrodraft::spec
