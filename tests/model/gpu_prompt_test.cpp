// Chunks of prompts on a GPU: near to passes of few rows, and rounded by tokens and positions alone.
#include "tests/model/family_golden.h"
#include "tests/model/gpu_models.h"

#ifdef ENTRODRAFT_ON_STAND_IN
#include "tests/cuda_stand_in/cublasLt.h"
#endif

#include <stdexcept>

namespace gpu_prompt_test {

using namespace entrodraft;
using model::Row;
using model::TokenId;
using model::WeightType;

// What a model makes of tokens behind a prompt shows the bits of all that the prompt has left in the cache.
const std::vector<TokenId> kNext = {7, 11, 30};

std::vector<float> next_after(TestModel& model, std::span<const TokenId> prompt, int chunk = 0) {
    model.forget();
    model.read_prompt(prompt, 0, chunk);
    return model.read(kNext);
}

class GpuPromptFamilies : public FamilyGoldenTest {};

INSTANTIATE_TEST_SUITE_P(All, GpuPromptFamilies, testing::ValuesIn(family_models_without(model::what_needs_cpu)),
                         test_name);

TEST_P(GpuPromptFamilies, AChunkIsNearToPassesOfFewRows) {
    for (const auto& [type, bound] : {std::pair{WeightType::float32, kRowBound}, {WeightType::bfloat16, 0.05}}) {
        TestModel model(golden().directory, on_gpu(type));
        const std::vector<TokenId> prompt = varied_tokens(21, model.config.vocab_size);
        const std::vector<float> few_rows = [&] {
            model.read(prompt);
            return model.read(kNext);
        }();
        EXPECT_LT(relative_difference(next_after(model, prompt), few_rows), bound) << to_string(type);
    }
}

TEST(GpuPrompt, IsRoundedByItsTokensAndPositionsAlone) {
    for (const WeightType type : {WeightType::bfloat16, WeightType::float16, WeightType::float32}) {
        SCOPED_TRACE(to_string(type));
        TestModel model(golden_directory("llama-target"), on_gpu(type, 3));
        const std::vector<TokenId> text = varied_tokens(150, 512), other = varied_tokens(40, 512, 3);
        const std::span<const TokenId> prompt = std::span(text).first(37);
        const std::vector<float> alone = next_after(model, prompt);
        for (const int chunk : {1, 16, 30})
            EXPECT_TRUE(same_bits(next_after(model, prompt, chunk), alone)) << "cut into chunks of " << chunk;

        model.forget();
        model.read_prompt(text);
        model.decoder.cache().truncate(0, 37);
        EXPECT_TRUE(same_bits(model.read(kNext), alone)) << "the beginning of a longer prompt";

        model.decoder.cache().share(0, 1, 20); // a whole block in place, the rest copied
        model.read_prompt(prompt.subspan(20), 1);
        EXPECT_TRUE(same_bits(model.read(kNext, 128, 1), alone)) << "behind a prefix that another slot holds";

        model.forget(1);
        model.forget();
        model.read_prompt(other, 2);
        model.read_prompt(prompt.first(16));
        model.read(kNext, 1, 2); // between two chunks
        model.read_prompt(prompt.subspan(16));
        std::vector<Row> rows = model.chain(kNext, 0);
        for (const Row& row : model.chain(kNext, 2))
            rows.push_back({row.token, 2, row.position, row.parent < 0 ? -1 : row.parent + 3});
        EXPECT_TRUE(same_bits(model.forward(rows, TestModel::all_of(3)), alone)) << "beside another text";
    }
}

TEST(GpuPrompt, GoesThroughAnotherProductThanTheRowsBehindIt) {
    TestModel model(golden_directory("llama-target"), on_gpu());
    EXPECT_EQ(model.decoder.max_prompt_rows(), 512);
    EXPECT_EQ(model.decoder.note(), "");
    const std::vector<TokenId> prompt = varied_tokens(37, 512);
    model.read(prompt);
    const std::vector<float> few_rows = model.read(kNext);
    EXPECT_FALSE(same_bits(next_after(model, prompt), few_rows)) << "or the tests here see nothing";
}

TEST(GpuPrompt, ReturnsHiddenStatesAndKeepsItsBits) {
    TestModel model(golden_directory("llama-target"), on_gpu());
    const std::vector<TokenId> prompt = varied_tokens(37, 512);
    const std::vector<float> alone = next_after(model, prompt);
    model.forget();
    const std::vector<Row> rows = model.chain(prompt);
    const std::vector<int> layers = {3, 0};
    const auto hidden = [&](bool is_prompt) {
        model.forget();
        const model::PassResult result =
            model.decoder.forward({.rows = rows, .logit_rows = {}, .hidden_layers = layers, .is_prompt = is_prompt});
        return std::vector<float>(result.hidden.begin(), result.hidden.end());
    };
    const std::vector<float> few_rows = hidden(false), chunk = hidden(true);
    EXPECT_LE(relative_difference(chunk, few_rows), kRowBound);
    EXPECT_TRUE(same_bits(model.read(kNext), alone));
}

TEST(GpuPrompt, OfEightBitWeightsIsAPassLikeOthers) {
    for (const WeightType type : {WeightType::int8, WeightType::float8}) {
        TestModel model(golden_directory("llama-target"), on_gpu(type));
        EXPECT_EQ(model.decoder.max_prompt_rows(), 128);
        const std::vector<TokenId> prompt = varied_tokens(37, 512);
        model.read(prompt);
        const std::vector<float> few_rows = model.read(kNext);
        EXPECT_TRUE(same_bits(next_after(model, prompt), few_rows));
    }
}

TEST(GpuPrompt, LongerThanAChunkGoesOnInTheNext) {
    TestModelOptions options = on_gpu(WeightType::bfloat16);
    options.max_positions = 640;
    options.decoder.capacity = 0;
    TestModel model(golden_directory("llama-draft"), options);
    const std::vector<TokenId> prompt = varied_tokens(530, 512);
    model.read(prompt);
    const std::vector<float> few_rows = model.read(kNext), in_chunks = next_after(model, prompt);
    EXPECT_LT(relative_difference(in_chunks, few_rows), 0.05);
    EXPECT_TRUE(same_bits(next_after(model, prompt, 128), in_chunks));
}

TEST(GpuPrompt, RefusesWhatIsNoChunk) {
    TestModel model(golden_directory("llama-draft"), on_gpu(WeightType::bfloat16, 2));
    const std::vector<Row> rows = {{7, 0, 0, -1}, {8, 0, 1, 0}}, two_texts = {{7, 0, 0, -1}, {8, 1, 0, -1}};
    const std::vector<int> first = {0};
    const auto refused = [&](const model::Pass& pass) {
        EXPECT_THROW(model.decoder.forward(pass), std::invalid_argument);
    };
    refused({.rows = rows, .logit_rows = first, .hidden_layers = {}, .is_prompt = true});
    refused({.rows = rows, .logit_rows = {}, .hidden_layers = {}, .mask = model::Mask::by_parent, .is_prompt = true});
    refused({.rows = two_texts, .logit_rows = {}, .hidden_layers = {}, .is_prompt = true});
    const std::vector<Row> many = model.chain(varied_tokens(129, 512));
    refused({.rows = many, .logit_rows = {}, .hidden_layers = {}});
    model.decoder.forward({.rows = many, .logit_rows = {}, .hidden_layers = {}, .is_prompt = true});
}

#ifdef ENTRODRAFT_ON_STAND_IN
struct PlaceDependent {
    explicit PlaceDependent(int algorithms) { cuda_stand_in::set_place_dependent_algorithms(algorithms); }
    ~PlaceDependent() { cuda_stand_in::set_place_dependent_algorithms(0); }
};

TEST(GpuPrompt, AnAlgorithmWhoseRowsDependOnTheirPlaceIsNotTaken) {
    TestModel model(golden_directory("llama-target"), on_gpu());
    const std::vector<TokenId> prompt = varied_tokens(100, 512);
    const std::vector<float> expected = next_after(model, prompt);
    {
        const PlaceDependent first(1);
        TestModel next_algorithm(golden_directory("llama-target"), on_gpu());
        EXPECT_EQ(next_algorithm.decoder.note(), "");
        EXPECT_TRUE(same_bits(next_after(next_algorithm, prompt), expected));
        EXPECT_FALSE(same_bits(next_after(model, prompt), expected)) << "or the loading above has proved nothing";
    }
    const PlaceDependent all(2);
    TestModel own_kernels(golden_directory("llama-target"), on_gpu());
    EXPECT_NE(own_kernels.decoder.note().find("by our own kernels"), std::string::npos) << own_kernels.decoder.note();
    EXPECT_EQ(own_kernels.decoder.max_prompt_rows(), 512) << "ranks may differ in what they find";
    own_kernels.read(prompt);
    const std::vector<float> few_rows = own_kernels.read(kNext);
    EXPECT_TRUE(same_bits(next_after(own_kernels, prompt), few_rows));
}
#endif

} // namespace gpu_prompt_test
