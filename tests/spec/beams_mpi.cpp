// Beam search through the engine, over ranks: texts and scores are those of transformers for every family.
#include "tests/spec/beams_support.h"

#include <gtest/gtest.h>

namespace beams_mpi {

using namespace entrodraft;
using spec::Completion;

constexpr float kTolerance = 2e-4F; // of a score: a sum of up to 12 logarithmic probabilities

bool fits(const GoldenBeamModel& model, int ranks) {
    const model::ModelConfig config = model::read_config(model.directory / "target");
    return ranks <= config.n_heads && (!config.has_encoder() || ranks <= config.encoder.n_heads);
}

TEST(Beams, AreThoseOfTransformersForEveryFamily) {
    if (const std::string why = lacking_on_torch("beam search"); !why.empty()) GTEST_SKIP() << why;
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
                expect_found(found[i].found, expected[i].found, kTolerance, expected[i].name);
                EXPECT_EQ(found[i].tokens, expected[i].found.front().tokens);
            }
            if (testing::Test::HasFailure()) return; // one case says enough
        }
    }
    EXPECT_GT(n_models, 0);
}

} // namespace beams_mpi
