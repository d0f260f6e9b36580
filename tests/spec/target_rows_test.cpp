// The rows that ranks send: their form for given options, the same rows however the vocabulary is cut, and one rank's
// gather as a whole. Over ranks: processing_mpi.cpp and exactness_mpi.cpp.
#include "spec/round/target_rows.h"

#include "tests/spec/engine_support.h"

#include <cmath>
#include <limits>
#include <set>

namespace target_rows_test {

using namespace entrodraft;
using spec::Acceptance;
using spec::RowFormat;

spec::SamplingOptions sampling_of(double temperature, int top_k = 0, double top_p = 1, double min_p = 0) {
    spec::SamplingOptions sampling;
    sampling.temperature = temperature;
    sampling.top_k = top_k;
    sampling.top_p = top_p;
    sampling.min_p = min_p;
    return sampling;
}

spec::VerifyOptions verifying(Acceptance acceptance, double lenience = 1) {
    spec::VerifyOptions options;
    options.acceptance.kind = acceptance;
    options.acceptance.lenience = lenience;
    return options;
}

TEST(RowFormat, IsTheLeastThatOptionsNeed) {
    for (const Acceptance kind : {Acceptance::rejection, Acceptance::block, Acceptance::gumbel})
        EXPECT_EQ(row_format(verifying(kind), sampling_of(0)), RowFormat::arg_max);
    EXPECT_EQ(row_format(verifying(Acceptance::rejection, 0.5), sampling_of(0)), RowFormat::logits);
    for (const Acceptance kind : {Acceptance::typical, Acceptance::bild})
        EXPECT_EQ(row_format(verifying(kind), sampling_of(0)), RowFormat::logits);
    for (const Acceptance kind : {Acceptance::rejection, Acceptance::block, Acceptance::typical, Acceptance::bild})
        for (const auto& sampling : {sampling_of(1), sampling_of(1, 5), sampling_of(1, 0, 0.9)})
            EXPECT_EQ(row_format(verifying(kind), sampling), RowFormat::logits);
    EXPECT_EQ(row_format(verifying(Acceptance::gumbel), sampling_of(1)), RowFormat::gumbel_max);
    EXPECT_EQ(row_format(verifying(Acceptance::gumbel), sampling_of(1, 5)), RowFormat::shortlist);
    EXPECT_EQ(row_format(verifying(Acceptance::gumbel), sampling_of(1, 5, 0.5)), RowFormat::shortlist);
    EXPECT_EQ(row_format(verifying(Acceptance::gumbel), sampling_of(1, 0, 1, 0.1)), RowFormat::shortlist);
    EXPECT_EQ(row_format(verifying(Acceptance::gumbel), sampling_of(1, 0, 0.9)), RowFormat::logits);
}

// `block` may have used the numbers of rejected tokens. So there the numbers depend on the round's start too.
TEST(Rows, VerifiedInPlaceAreResampledByNumbersOfTheirOwn) {
    const std::vector<TokenId> drafted = {5, 9};
    spec::Request request = request_of({1, 2, 3}, 10);
    request.sampling = sampling_of(0.6);
    request.sampling.seed = 4;
    request.sequence_key = 6;
    for (const Acceptance kind : {Acceptance::rejection, Acceptance::block}) {
        const spec::GatherSetting setting = {.options = verifying(kind, kind == Acceptance::block ? 1 : 0.5)};
        const spec::RowEncoder unverified(setting, request), rows(setting, request, true);
        std::set<std::uint64_t> positions;
        for (const std::size_t start : {std::size_t{3}, std::size_t{4}}) {
            const std::vector<TokenId> prefix(start, 1);
            const spec::ScoredSequence scored = {0, 0, prefix, drafted, spec::chain_parents(drafted.size())};
            EXPECT_EQ(unverified.drafted_row(scored, 0).noise.temperature, 0) << "not verified on the device";
            for (std::size_t i = 0; i <= drafted.size(); ++i) {
                const spec::DraftedRow row = rows.drafted_row(scored, i);
                EXPECT_EQ(row.noise.key, spec::RandomStream(4, 6, spec::Purpose::resample).key());
                EXPECT_EQ(row.noise.temperature, 0.6);
                EXPECT_EQ(row.drafted, i < 2 ? drafted[i] : -1);
                EXPECT_EQ(row.is_first, i == 0);
                EXPECT_EQ(row.is_scaled, kind == Acceptance::block);
                EXPECT_EQ(row.lenience, kind == Acceptance::block ? 1 : 0.5F);
                positions.insert(row.noise.position);
            }
        }
        EXPECT_EQ(positions.size(), kind == Acceptance::block ? 6U : 4U) << to_string(kind);
    }
}

spec::LogitProcessing everything() {
    spec::LogitProcessing processing;
    processing.repetition_penalty = 1.3;
    processing.presence_penalty = 0.5;
    processing.frequency_penalty = -0.25;
    processing.no_repeat_ngram_size = 2;
    processing.min_new_tokens = 6;
    processing.logit_bias = {{3, 1.5F}, {20, -2}};
    processing.banned_tokens = {5, 21};
    return processing;
}

// Ranks process their slices of every row, each row with its own prefix. Together these are the whole rows processed.
TEST(Rows, AreProcessedOnOneToFourSlicesAsOnTheWhole) {
    constexpr std::size_t kVocab = 24, kRows = 6;
    const std::vector<TokenId> prompt = varied_tokens(7, kVocab), drafted = varied_tokens(kRows - 1, kVocab, 3);
    std::vector<float> rows;
    for (std::size_t i = 0; i < kRows * kVocab; ++i)
        rows.push_back(std::sin(static_cast<float>(3 * i)));
    spec::LogitProcessor processor(everything(), prompt, std::vector<TokenId>{2, 23});
    std::vector<float> whole = rows;
    processor.apply_to_rows(drafted, spec::chain_parents(drafted.size()), whole);
    EXPECT_FALSE(same_bits(whole, rows));
    for (std::size_t ranks = 1; ranks <= 4; ++ranks) {
        std::vector<float> together(rows.size());
        const std::size_t local = kVocab / ranks;
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            std::vector<float> mine;
            for (std::size_t row = 0; row < kRows; ++row)
                for (std::size_t i = 0; i < local; ++i)
                    mine.push_back(rows[row * kVocab + rank * local + i]);
            spec::LogitProcessor own(everything(), prompt, std::vector<TokenId>{2, 23});
            own.apply_to_rows(drafted, spec::chain_parents(drafted.size()), mine, static_cast<TokenId>(rank * local));
            for (std::size_t i = 0; i < mine.size(); ++i)
                together[i / local * kVocab + rank * local + i % local] = mine[i];
        }
        EXPECT_TRUE(same_bits(together, whole)) << ranks << " ranks";
    }
}

// One rank: gathers a pass over a prompt's last token and two drafted ones.
class OneRanksGather : public testing::Test {
  protected:
    OneRanksGather() : target_(golden_directory("llama-draft")), prompt_(varied_tokens(12, 512)) {
        target_.read(std::span(prompt_).first(prompt_.size() - 1));
    }

    // The gathered rows, and their logits, [3][512], before processing.
    struct Gathered {
        spec::TargetRows rows;
        std::vector<float> logits;
    };
    Gathered gather(spec::TargetGather& gather, const spec::Request& request, std::uint64_t status = 0) {
        gather.begin_sequence(0, request);
        target_.decoder.cache().truncate(0, static_cast<int>(prompt_.size()) - 1);
        const std::vector<TokenId> tokens = {prompt_.back(), drafted_[0], drafted_[1]};
        const std::vector<model::Row> rows = target_.chain(tokens);
        const std::vector<int> logit_rows = TestModel::all_of(rows.size());
        const spec::ScoredSequence scored = {0, 0, prompt_, drafted_, spec::chain_parents(drafted_.size())};
        const model::PassResult scores = target_.decoder.forward({.rows = rows,
                                                                  .logit_rows = logit_rows,
                                                                  .hidden_layers = {},
                                                                  .mask = model::Mask::causal,
                                                                  .needs = gather.needs(std::span(&scored, 1)),
                                                                  .summary_vocab = kKnown});
        gather.start(status, std::span(&scored, 1), scores);
        Gathered gathered = {gather.finish(dist::Deadline::after_seconds(10)).at(0), {}};
        for (std::size_t row = 0; row < 3; ++row) {
            const auto from = scores.logits.subspan(row * scores.logits_stride, 512);
            gathered.logits.insert(gathered.logits.end(), from.begin(), from.end());
        }
        return gathered;
    }
    spec::Request request(double temperature, const spec::LogitProcessing& processing = {}) const {
        spec::Request made = request_of(prompt_, 10);
        made.sampling.temperature = temperature;
        made.sampling.seed = 4;
        made.processing = processing;
        return made;
    }
    spec::TargetGather gather_of(Acceptance acceptance) {
        spec::GatherSetting setting = {verifying(acceptance), &target_.config, &target_.decoder, 1, 0};
        setting.options.vocab_size = kKnown;
        return {setting, target_.self, 1};
    }

    static constexpr int kKnown = 500; // of 512: the others are padding
    TestModel target_;
    std::vector<TokenId> prompt_, drafted_ = {7, 300};
};

TEST_F(OneRanksGather, FindsTheArgMaxOfTheTokensThatCount) {
    spec::LogitProcessing processing;
    processing.repetition_penalty = 1.5;
    processing.logit_bias = {{490, 30.0F}, {300, 25.0F}};
    processing.no_repeat_ngram_size = 1; // drafted tokens are banned after themselves
    for (const bool processes : {false, true}) {
        spec::TargetGather one = gather_of(Acceptance::rejection);
        const spec::Request asked = request(0, processes ? processing : spec::LogitProcessing{});
        auto [rows, logits] = gather(one, asked);
        EXPECT_EQ(rows.format(), RowFormat::arg_max);
        EXPECT_EQ(one.encoder(0).needs().summary, processes ? model::LogitSummary::none : model::LogitSummary::max);
        if (processes)
            spec::LogitProcessor(processing, prompt_, {})
                .apply_to_rows(drafted_, spec::chain_parents(drafted_.size()), logits);
        for (std::size_t row = 0; row < 3; ++row) {
            const auto known = std::span(logits).subspan(row * 512, kKnown);
            const spec::BestToken best = rows.best(row);
            EXPECT_EQ(best.token, spec::arg_max(known)) << row;
            EXPECT_EQ(best.value, static_cast<double>(known[static_cast<std::size_t>(best.token)]));
            float second = -std::numeric_limits<float>::infinity();
            for (std::size_t i = 0; i < known.size(); ++i)
                if (static_cast<TokenId>(i) != best.token) second = std::max(second, known[i]);
            EXPECT_EQ(best.runner_up, static_cast<double>(second)) << row;
        }
    }
}

TEST_F(OneRanksGather, HandsOverProcessedLogitsOfTheTokensThatCount) {
    for (const bool processes : {false, true}) {
        spec::TargetGather one = gather_of(Acceptance::rejection);
        const spec::Request asked = request(1, processes ? everything() : spec::LogitProcessing{});
        auto [rows, logits] = gather(one, asked);
        EXPECT_EQ(rows.format(), RowFormat::logits);
        if (processes)
            spec::LogitProcessor(everything(), prompt_, std::vector<TokenId>{0})
                .apply_to_rows(drafted_, spec::chain_parents(drafted_.size()), logits);
        for (std::size_t row = 0; row < 3; ++row)
            EXPECT_TRUE(same_bits(rows.logits(row), std::span(logits).subspan(row * 512, kKnown))) << row;
    }
}

TEST_F(OneRanksGather, FindsTheNoisyBestInEveryForm) {
    for (const auto& sampling :
         {sampling_of(1), sampling_of(0.7, 20), sampling_of(1, 0, 0.8), sampling_of(1, 0, 1, 0.1)})
        for (const bool processes : {false, true}) {
            spec::TargetGather one = gather_of(Acceptance::gumbel);
            spec::Request asked = request(1, processes ? everything() : spec::LogitProcessing{});
            asked.sampling = sampling;
            asked.sampling.seed = 9;
            asked.sequence_key = 77;
            auto [rows, logits] = gather(one, asked);
            if (processes)
                spec::LogitProcessor(everything(), prompt_, std::vector<TokenId>{0})
                    .apply_to_rows(drafted_, spec::chain_parents(drafted_.size()), logits);
            for (std::size_t row = 0; row < 3; ++row) {
                SCOPED_TRACE("row " + std::to_string(row) + ", top-k " + std::to_string(sampling.top_k) + ", top-p " +
                             std::to_string(sampling.top_p));
                const spec::BestToken best = rows.best(row);
                const spec::BestToken want =
                    gumbel_max_adjusted({std::span(logits).subspan(row * 512, kKnown), 0, prompt_.size() + row},
                                        asked.sampling, spec::GumbelNoise(9, 77));
                EXPECT_EQ(best.token, want.token);
                if (rows.format() == RowFormat::shortlist)
                    EXPECT_TRUE(std::isnan(best.margin()));
                else
                    EXPECT_EQ(best.margin(), want.margin());
            }
        }
}

// A GPU need not send rows that are not asked for: it then copies a few bytes a row.
TEST_F(OneRanksGather, AsksForLogitsOnlyWhereNothingElseServes) {
    spec::LogitProcessing processing;
    processing.repetition_penalty = 1.5;
    const spec::ScoredSequence scored = {0, 0, prompt_, drafted_, spec::chain_parents(drafted_.size())};
    struct Case {
        Acceptance acceptance;
        double temperature;
        bool processes, rows, noise;
    };
    for (const Case& each : {Case{Acceptance::rejection, 0, false, false, false},
                             {Acceptance::rejection, 0, true, true, false},
                             {Acceptance::rejection, 1, false, true, false},
                             {Acceptance::gumbel, 1, false, false, true},
                             {Acceptance::gumbel, 1, true, true, false}}) {
        spec::TargetGather gather = gather_of(each.acceptance);
        const spec::Request asked = request(each.temperature, each.processes ? processing : spec::LogitProcessing{});
        gather.begin_sequence(0, asked);
        const model::LogitNeeds needs = gather.needs(std::span(&scored, 1));
        EXPECT_EQ(needs.rows, each.rows);
        ASSERT_EQ(needs.noises.size(), each.noise ? 3U : 0U);
        for (std::size_t row = 0; row < needs.noises.size(); ++row) {
            EXPECT_EQ(needs.noises[row].key, spec::GumbelNoise(4, asked.sequence_key).key());
            EXPECT_EQ(needs.noises[row].position, prompt_.size() + row);
            EXPECT_EQ(needs.noises[row].temperature, each.temperature);
        }
    }
}

TEST_F(OneRanksGather, CarriesStatusWordsWithRowsAndWithout) {
    spec::TargetGather one = gather_of(Acceptance::rejection);
    gather(one, request(0), 3);
    EXPECT_TRUE(one.any_status(3));
    EXPECT_FALSE(one.any_status(1));
    one.start(1, {}, {});
    one.finish(dist::Deadline::after_seconds(10));
    EXPECT_TRUE(one.any_status(1));
    EXPECT_FALSE(one.any_status(3));
}

} // namespace target_rows_test
