// Beam search through the engine, over ranks: for every family texts and scores are those of transformers.
#include "model/families/read_config.h"
#include "spec/draft/beams.h"
#include "tests/spec/beams_support.h"

#include <gtest/gtest.h>

namespace beams_mpi {

using namespace entrodraft;
using spec::Completion;

bool fits(const GoldenBeamModel& model, int ranks) {
    const model::ModelConfig config = model::read_config(model.directory / "target");
    return ranks <= config.n_heads && (!config.has_encoder() || ranks <= config.encoder.n_heads);
}

TEST(Beams, AreThoseOfTransformersForEveryFamily) {
    Ranks ranks;
    const int n_ranks = ranks.replica->size();
    int n_models = 0;
    for (const GoldenBeamModel& model : golden_beam_models(n_ranks == 1 ? 1 : 5)) {
        SCOPED_TRACE(model.directory.filename());
        if (!fits(model, n_ranks)) continue;
        ++n_models;
        TestPair pair(model.directory / "target", model.directory / "draft", beam_options(ranks.options(), model, 3),
                      ranks.replica.get());
        for (const std::vector<GoldenBeams>& expected : model.cases) {
            const std::vector<Completion> found = pair.run(plainly(requests_of(expected)), beam_run(3));
            EXPECT_EQ(found.size(), ranks.coordinates() ? expected.size() : 0U);
            for (std::size_t i = 0; i < found.size(); ++i) {
                expect_found(found[i].found, expected[i].found, kScoreTolerance, expected[i].name);
                EXPECT_EQ(found[i].tokens, expected[i].found.front().tokens);
            }
            if (testing::Test::HasFailure()) return; // one failed case is enough
        }
    }
    EXPECT_GT(n_models, 0);
}

TEST(Beams, WithADraftAreThoseWithoutForEveryFamily) {
    Ranks ranks;
    BeamCounts counts;
    for (const GoldenBeamModel& model : golden_beam_models(ranks.replica->size() == 1 ? 7 : 11)) {
        SCOPED_TRACE(model.directory.filename());
        if (!fits(model, ranks.replica->size())) continue;
        const TestModelOptions options = beam_options(ranks.options(), model, 2);
        TestPair pair(model.directory / "target", model.directory / "draft", options, ranks.replica.get());
        const auto drafter = spec::make_beam_drafter(pair.draft.decoder, {pair.limits(), pair.clock, 2});
        for (const std::vector<GoldenBeams>& cases : model.cases) {
            RunOptions run = beam_run(2);
            const std::vector<Completion> plain = pair.run(plainly(requests_of(cases)), run, drafter.get());
            for (const auto& [draft, row] : {std::pair{0.001, 0.0}, {0.1, 0.02}}) {
                run.costs = costs_of_rows(draft, row);
                expect_same_beams(pair.run(requests_of(cases), run, drafter.get()), plain, cases, counts);
            }
            if (testing::Test::HasFailure()) return; // one failed case is enough
        }
    }
    if (ranks.coordinates()) expect_saved_rounds(counts);
}

// Trials become rarer across texts, and their cost does not depend on the number of texts.
TEST(Beams, WhereRowsAreDearNextToNothingIsDrafted) {
    Ranks ranks;
    const GoldenBeamModel model = golden_beam_models(27).at(0);
    if (!fits(model, ranks.replica->size())) GTEST_SKIP() << "fewer heads than ranks";
    TestPair pair(model.directory / "target", model.directory / "draft", beam_options(ranks.options(), model, 1),
                  ranks.replica.get());
    const auto drafter = spec::make_beam_drafter(pair.draft.decoder, {pair.limits(), pair.clock, 1});
    RunOptions run = beam_run(1);
    run.costs = costs_of_rows(0.5, 0.5);
    std::int64_t rounds = 0, passes = 0;
    for (const Completion& each : pair.run(requests_of(model.cases.at(0)), run, drafter.get())) {
        rounds += each.stats.rounds;
        passes += each.stats.draft_passes;
    }
    if (!ranks.coordinates()) return;
    EXPECT_GT(rounds, 60);
    EXPECT_GT(passes, 0);
    EXPECT_LE(passes, 6) << "after 8 rounds, 16, 32, ...";
}

} // namespace beams_mpi
