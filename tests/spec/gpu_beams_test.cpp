// Beam search on a GPU: in float32 its texts and scores are transformers'; with a draft they are the same to the bit.
#include "spec/draft/beams.h"
#include "spec/gpu/device_round.h"
#include "tests/model/gpu_models.h"
#include "tests/spec/beams_support.h"

#include <gtest/gtest.h>

namespace gpu_beams_test {

using namespace entrodraft;
using model::WeightType;
using spec::Completion;

struct GpuBeams : TestPair {
    GpuBeams(const GoldenBeamModel& model, int n_slots, WeightType type = WeightType::float32)
        : TestPair(model.directory / "target", model.directory / "draft", options(model, n_slots, type)) {
        device = spec::gpu::make_device_round();
    }
    static TestModelOptions options(const GoldenBeamModel& model, int n_slots, WeightType type) {
        TestModelOptions options = beam_options(on_gpu(type), model, n_slots);
        options.decoder.capacity = 0; // as the model has it
        return options;
    }
};

// Two prompts of a case with 4 or 8 beams, of models with and without an encoder, with banned tokens (the host selects
// their rows), ALiBi, a window.
std::vector<GoldenBeamModel> some_models() {
    std::vector<GoldenBeamModel> models = golden_beam_models(13);
    std::erase_if(models, [](const GoldenBeamModel& model) {
        const std::string name = model.directory.filename();
        return name != "t5" && name != "marian" && name != "falcon-rw" && name != "gemma2" && name != "llama";
    });
    for (std::size_t i = 0; i < models.size(); ++i) {
        models[i].cases = {models[i].cases.at(1 + i % 2)};
        models[i].cases[0].resize(2);
    }
    return models;
}

TEST(GpuBeams, AreThoseOfTransformers) {
    const std::vector<GoldenBeamModel> models = some_models();
    EXPECT_EQ(models.size(), 5U);
    for (const GoldenBeamModel& model : models) {
        SCOPED_TRACE(model.directory.filename());
        GpuBeams pair(model, 2);
        const std::vector<GoldenBeams>& expected = model.cases[0];
        const std::vector<Completion> found = pair.run(plainly(requests_of(expected)), beam_run(2));
        ASSERT_EQ(found.size(), expected.size());
        for (std::size_t i = 0; i < found.size(); ++i)
            expect_found(found[i].found, expected[i].found, kScoreTolerance, expected[i].name);
    }
}

TEST(GpuBeams, WithADraftAreThoseWithout) {
    BeamCounts counts;
    for (GoldenBeamModel& model : some_models()) {
        const bool is_llama = model.directory.filename() == "llama";
        if (!is_llama && model.directory.filename() != "t5") continue;
        SCOPED_TRACE(model.directory.filename());
        std::vector<GoldenBeams>& cases = model.cases[0];
        for (GoldenBeams& each : cases)
            each.request.beams.num_beams = 3;
        GpuBeams pair(model, 2, is_llama ? WeightType::bfloat16 : WeightType::float32);
        const auto drafter =
            spec::make_beam_drafter(pair.draft.decoder, {pair.limits(), pair.clock, 2}, pair.device.get());
        RunOptions run = beam_run(2);
        const std::vector<Completion> plain = pair.run(plainly(requests_of(cases)), run, drafter.get());
        run.costs = costs_of_rows(0.02, 0.005);
        expect_same_beams(pair.run(requests_of(cases), run, drafter.get()), plain, cases, counts);
    }
    expect_saved_rounds(counts);
}

} // namespace gpu_beams_test
