// The engine over encoder-decoder models on a GPU, where drafts go on by themselves: greedy text is what
// transformers generates, and speculative text is plain text.
#include "spec/gpu/device_round.h"
#include "tests/model/encoder_decoders.h"
#include "tests/model/gpu_models.h"
#include "tests/spec/exactness_support.h"

namespace gpu_encoder_decoders_of_engines_test {

using namespace entrodraft;
using model::WeightType;
using spec::Acceptance;
using spec::Completion;
using spec::Request;

constexpr int kTokens = 8;

struct Case : EncoderDecoderPair {
    using EncoderDecoderPair::EncoderDecoderPair;

    // The texts of the two shorter sources.
    std::vector<Request> requests(double temperature) const {
        std::vector<Request> requests;
        for (std::size_t i = 1; i < golden.texts.size(); ++i) {
            const auto& [source, text] = golden.texts[i];
            Request request = request_of(text.tokens, kTokens);
            request.source = source;
            request.processing.banned_tokens = banned_tokens(directory / "target");
            request.sequence_key = i;
            request.sampling = {.temperature = temperature, .seed = 7 + i};
            requests.push_back(request);
        }
        return requests;
    }
};

TEST(GpuEncoderDecoderEngine, SpeculativeTextIsPlainText) {
    for (const auto& [name, type, n_slots, temperature] : {std::tuple{"t5", WeightType::float32, 1, 0.0},
                                                           {"marian", WeightType::int8, 1, 0.8},
                                                           {"bart", WeightType::int8, 2, 0.0}}) {
        SCOPED_TRACE(name);
        const Case models(name);
        TestPair pair(models.directory / "target", models.directory / "draft", on_gpu(type, n_slots));
        pair.device = spec::gpu::make_device_round();
        RunOptions run;
        run.n_slots = n_slots;
        run.acceptance = temperature > 0 ? Acceptance::gumbel : Acceptance::rejection;
        run.rule = constant_rule(3);
        const std::vector<Completion> plain = pair.run(plainly(models.requests(temperature)), run);
        const std::vector<Completion> texts = pair.run(models.requests(temperature), run);
        ASSERT_EQ(texts.size(), plain.size());
        for (std::size_t i = 0; i < plain.size(); ++i) {
            EXPECT_EQ(texts[i].tokens, plain[i].tokens) << "text " << i;
            EXPECT_GT(texts[i].stats.drafted, 2);
            const std::vector<TokenId>& greedy = models.golden.texts[i + 1].text.greedy;
            if (type != WeightType::float32) continue;
            EXPECT_EQ(plain[i].tokens, std::vector<TokenId>(greedy.begin(), greedy.begin() + kTokens)) << i;
        }
    }
}

} // namespace gpu_encoder_decoders_of_engines_test
