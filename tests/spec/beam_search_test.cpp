// The bookkeeping of beam search by hand: which beams go on, which are finished, when it ends. beams_mpi.cpp compares
// searches of models with transformers.
#include "spec/beams/beam_round.h"
#include "spec/beams/beam_rows.h"

#include <gtest/gtest.h>

#include <cmath>

namespace beam_search_test {

using namespace entrodraft::spec;
using Rows = std::vector<std::vector<BeamCandidate>>;

constexpr TokenId kEos = 9;
const std::vector<TokenId> kEnds = {kEos};

BeamOptions options(int num_beams, EarlyStopping early = EarlyStopping::no, double penalty = 1) {
    return {num_beams, penalty, early, num_beams};
}

std::vector<TokenId> first_tokens(const BeamSearch& search) {
    std::vector<TokenId> tokens;
    for (const BeamSearch::Beam& beam : search.running())
        tokens.push_back(beam.tokens.back());
    return tokens;
}

TEST(BeamSearch, KeepsTheBestOfAllContinuations) {
    BeamSearch search(options(2), 5, kEnds);
    search.step(Rows{{{3, -1}, {5, -2}, {7, -3}}});
    EXPECT_EQ(first_tokens(search), (std::vector<TokenId>{3, 5}));
    search.step(Rows{{{1, -4}, {2, -5}}, {{4, -0.5F}, {6, -1}}});
    EXPECT_EQ(search.running()[0].tokens, (std::vector<TokenId>{5, 4}));
    EXPECT_EQ(search.running()[1].tokens, (std::vector<TokenId>{5, 6}));
    EXPECT_EQ(search.running()[1].parent, 1);
    EXPECT_FLOAT_EQ(search.running()[1].score, -3);
}

TEST(BeamSearch, OfEqualScoresTheLowerBeamAndThenTheLowerTokenComesFirst) {
    BeamSearch search(options(3), 5, kEnds);
    search.step(Rows{{{2, -1}, {4, -1}, {8, -1}}});
    EXPECT_EQ(first_tokens(search), (std::vector<TokenId>{2, 4, 8}));
    search.step(Rows{{{7, -1}}, {{5, -1}, {6, -1}}, {{1, -1}}});
    EXPECT_EQ(first_tokens(search), (std::vector<TokenId>{7, 5, 6}));
    std::vector<float> row = {-2, -1, -1, -INFINITY, -1};
    const std::vector<BeamCandidate> best = best_candidates(row, 3);
    ASSERT_EQ(best.size(), 3U);
    EXPECT_EQ(best[0].token, 1);
    EXPECT_EQ(best[2].token, 4);
    EXPECT_EQ(best_candidates(row, 9).size(), 4U) << "a banned token is none";
}

TEST(BeamSearch, AnEndOfTextIsFinishedOnlyAmongTheFirst) {
    BeamSearch search(options(2), 5, kEnds);
    search.step(Rows{{{3, -1}, {5, -2}, {kEos, -3}}});
    EXPECT_TRUE(search.finished().empty());
    search.step(Rows{{{kEos, -1}, {1, -2}, {2, -3}}, {{4, -5}}});
    ASSERT_EQ(search.finished().size(), 1U);
    EXPECT_EQ(search.finished()[0].tokens, (std::vector<TokenId>{3, kEos}));
    EXPECT_FLOAT_EQ(search.finished()[0].score, -1) << "-2 over two tokens";
    EXPECT_EQ(first_tokens(search), (std::vector<TokenId>{1, 2})) << "as many beams go on";
}

TEST(BeamSearch, EarlyStoppingSaysWhenItEnds) {
    const Rows first = {{{kEos, -1}, {kEos - 1, -1.5F}, {3, -4}}};
    for (const EarlyStopping early : {EarlyStopping::yes, EarlyStopping::no, EarlyStopping::never}) {
        BeamSearch search(options(2, early, 2), 10, kEnds);
        search.step(first);
        EXPECT_FALSE(search.ended()) << "one is finished, of two";
        search.step(Rows{{{kEos, -1}, {2, -1.5F}, {4, -6}}, {{5, -7}}});
        ASSERT_EQ(search.finished().size(), 2U);
        // Two are finished, with scores -2.5 / 4 and -1. The best beam has -3: that is -0.75 now, at most -0.03 later.
        EXPECT_EQ(search.ended(), early == EarlyStopping::yes) << to_string(early);
        search.step(Rows{{{2, -9}, {4, -9}}, {{5, -9}}});
        EXPECT_EQ(search.ended(), early != EarlyStopping::never) << "-12 / 9 now, -12 / 100 at most";
    }
}

TEST(BeamSearch, TheLastTokenFinishesTheFirstBeams) {
    BeamSearch search(options(2), 1, kEnds);
    search.step(Rows{{{3, -1}, {5, -2}, {7, -3}}});
    EXPECT_TRUE(search.ended());
    ASSERT_EQ(search.finished().size(), 2U);
    EXPECT_FALSE(search.finished()[1].ended);
}

TEST(BeamRound, AcceptsLevelsThatHoldAllBeams) {
    BeamSearch search(options(2), 9, kEnds);
    const auto level = [](std::size_t row) { // the same for any row
        return std::vector<BeamCandidate>{{static_cast<TokenId>(row), -1}, {8, -2}, {7, -5}};
    };
    // Row 0 is the prompt's last token. Drafted are both beams after it, and one of the beams after these.
    const std::vector<TokenId> drafted = {8, 0, 2};
    const std::vector<std::int8_t> parents = {0, 0, 2};
    EXPECT_EQ(levels_of(1, parents), 2);
    const BeamOutcome outcome = advance(search, 1, drafted, parents, level);
    EXPECT_EQ(outcome.accepted, 1);
    EXPECT_EQ(search.length(), 2);
    EXPECT_EQ(outcome.ends.tokens, (std::vector<TokenId>{2, 8})) << "not 1 behind row 1, of the same score";
    EXPECT_EQ(outcome.ends.parents, (std::vector<std::int8_t>{2, 2}));
}

TEST(BeamRows, OfSeveralRanksAreThoseOfOne) {
    std::vector<float> row;
    for (int i = 0; i < 40; ++i)
        row.push_back(std::sin(static_cast<float>(3 * i)) * 4);
    const std::vector<float> log_probs = log_probs_of(row);
    const auto parts_of = [&](const std::vector<std::size_t>& ends) {
        std::vector<std::vector<std::byte>> parts;
        for (std::size_t begin = 0; const std::size_t end : ends) {
            const auto slice = std::span(row).subspan(begin, end - begin);
            parts.emplace_back(beam_row_bytes(5));
            encode_beam_row(beam_row_part(slice, slice, static_cast<TokenId>(begin), 5), 5, parts.back());
            begin = end;
        }
        return parts;
    };
    for (const auto& ends : {std::vector<std::size_t>{40}, {17, 40}, {3, 20, 40}}) {
        const std::vector<std::vector<std::byte>> parts = parts_of(ends);
        const std::vector<std::span<const std::byte>> spans(parts.begin(), parts.end());
        const std::vector<BeamCandidate> found = decode_beam_row(spans, 5), expected = best_candidates(log_probs, 5);
        ASSERT_EQ(found.size(), 5U);
        for (std::size_t i = 0; i < 5; ++i) {
            EXPECT_EQ(found[i].token, expected[i].token);
            EXPECT_NEAR(found[i].log_prob, expected[i].log_prob, 1e-5);
        }
    }
}

} // namespace beam_search_test
