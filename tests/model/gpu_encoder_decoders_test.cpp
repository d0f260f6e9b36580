// Encoder-decoder models on a GPU: transformers' logits on any number of ranks, rows whose bits are their own, sources
// of several chunks, and graphs whose source changes.
#include "dist/comm/nccl_comm.h"
#include "tests/dist/thread_ranks.h"
#include "tests/model/encoder_decoders.h"
#include "tests/model/gpu_models.h"
#include "tests/model/tree_bits.h"

namespace gpu_encoder_decoders_test {

using namespace entrodraft;
using model::TokenId;
using model::WeightType;

// Targets: on the stand-in each takes seconds, and drafts differ in sizes alone.
class GpuEncoderDecoders : public EncoderDecoderTest {};
INSTANTIATE_TEST_SUITE_P(All, GpuEncoderDecoders, testing::ValuesIn(models_of(encoder_decoder_pairs(), {"target"})),
                         test_name);

std::vector<float> read_after(TestModel& model, std::span<const TokenId> source, std::span<const TokenId> tokens,
                              int chunk = 128, int slot = 0) {
    model.forget(slot);
    model.decoder.encode(slot, source);
    return model.read(tokens, chunk, slot);
}

// Passes of 16 rows run at once, then captured, then as a graph, which other sources follow.
TEST_P(GpuEncoderDecoders, LogitsAndGreedyTokensAreThoseOfTransformers) {
    TestModel model(golden().directory, on_gpu());
    for (const auto& [source, text] : texts()) {
        std::vector<float> logits = read_after(model, source, whole_text(text), 16);
        EXPECT_LE(worst_kept_row(logits, text), kRowBound);
        ban_tokens(golden(), logits);
        EXPECT_EQ(said_of(logits, text, golden().known), text.greedy);
    }
}

TEST_P(GpuEncoderDecoders, BitsOfARowDoNotDependOnTheRowsOfItsPass) {
    TestModel model(golden().directory, on_gpu(WeightType::bfloat16, 2));
    const std::vector<TokenId> tokens = varied_tokens(13, model.config.vocab_size);
    const std::vector<TokenId>&source = texts()[2].source, &another = texts()[1].source;
    const std::vector<float> together = read_after(model, source, tokens),
                             other = read_after(model, another, tokens, 128, 1);
    for (const int chunk : {1, 5})
        EXPECT_TRUE(same_bits(read_after(model, source, tokens, chunk), together)) << chunk;
    model.forget(0);
    model.forget(1);
    std::vector<model::Row> rows = model.chain(tokens, 0);
    for (model::Row row : model.chain(tokens, 1)) {
        row.parent += row.parent < 0 ? 0 : 13;
        rows.push_back(row);
    }
    const std::vector<float> both = model.forward(rows, TestModel::all_of(rows.size()));
    EXPECT_TRUE(same_bits(std::span(both).first(both.size() / 2), together));
    EXPECT_TRUE(same_bits(std::span(both).last(both.size() / 2), other));
    model.forget();
    model.read(tokens);
    expect_bits_of_branches(model, random_tree(13, 13, model.config.vocab_size));
}

TEST_P(GpuEncoderDecoders, ATextInChunksAsPromptsHaveThemIsNearToPassesOfFewRows) {
    for (const auto& [type, bound] : {std::pair{WeightType::float32, kRowBound}, {WeightType::bfloat16, 0.05}}) {
        TestModel model(golden().directory, on_gpu(type));
        const std::vector<TokenId> tokens = varied_tokens(21, model.config.vocab_size), next = {7, 11};
        read_after(model, texts()[1].source, tokens);
        const std::vector<float> few_rows = model.read(next);
        model.forget();
        model.read_prompt(tokens);
        EXPECT_LT(relative_difference(model.read(next), few_rows), bound) << to_string(type);
    }
}

// Of 8-bit weights sources are read 128 tokens at a time.
TEST_P(GpuEncoderDecoders, OtherTypesOfWeightsStayNearFloat32) {
    const auto& [source, text] = texts()[0];
    ASSERT_GT(source.size(), 128U);
    TestModel reference(golden().directory);
    const std::vector<float> exact = read_after(reference, source, text.tokens);
    for (const auto& [type, bound] : {std::pair{WeightType::bfloat16, 0.05}, {WeightType::int8, 0.15}}) {
        TestModel model(golden().directory, on_gpu(type));
        EXPECT_LE(relative_difference(read_after(model, source, text.tokens), exact), bound) << to_string(type);
    }
}

TEST(GpuEncoderDecoder, ASourceOfSeveralChunksIsReadAsOnTheCpu) {
    const auto directory = source_directory() / "tests/model/encoder_decoders/t5-gated-tied/target";
    TestModelOptions cpu, gpu = on_gpu();
    cpu.max_source = gpu.max_source = 700;
    TestModel reference(directory, cpu), model(directory, gpu);
    const std::vector<TokenId> tokens = varied_tokens(9, model.config.vocab_size);
    for (const int length : {513, 3}) {
        const std::vector<TokenId> source = varied_tokens(length, model.config.vocab_size, 3);
        EXPECT_LE(relative_difference(read_after(model, source, tokens), read_after(reference, source, tokens)),
                  kRowBound)
            << length;
    }
}

TEST(GpuEncoderDecoder, LogitsOfShardedModelsAreThoseOfTransformers) {
    if (!kOnStandIn) GTEST_SKIP() << "its ranks are threads, which share a GPU: NCCL refuses that";
    for (const int n_ranks : {2, 4})
        test::ThreadRanks(n_ranks).run([&](dist::Communicator& ranks) {
            const auto sums = dist::make_nccl_comm(ranks, {.close_seconds = 1, .gather_seconds = 20},
                                                   dist::Deadline::after_seconds(20));
            for (const auto& pair : encoder_decoder_pairs()) {
                const EncoderDecoderGolden golden = read_encoder_decoder(pair / (n_ranks == 2 ? "draft" : "target"));
                TestModelOptions options = on_gpu();
                options.tp = sums.get();
                TestModel model(golden.whole.directory, options);
                const auto& [source, text] = golden.texts[2];
                const std::vector<TokenId> tokens = whole_text(text);
                const std::vector<float> mine = read_after(model, source, tokens, 9);
                const dist::Slice own = model.decoder.local_vocab();
                const auto vocab = static_cast<std::size_t>(model.config.vocab_size);
                std::vector<float> whole(tokens.size() * vocab);
                for (std::size_t row = 0; row < tokens.size(); ++row)
                    std::copy_n(mine.begin() + static_cast<std::ptrdiff_t>(row) * own.size(), own.size(),
                                whole.begin() + static_cast<std::ptrdiff_t>(row * vocab) + own.begin);
                ranks.all_reduce_sum(whole.data(), whole.size(), dist::Deadline::after_seconds(60));
                EXPECT_LE(worst_kept_row(whole, text), kRowBound) << golden.whole.name() << ", " << n_ranks;
                ban_tokens(golden.whole, whole);
                EXPECT_EQ(said_of(whole, text, golden.whole.known), text.greedy);
            }
        });
}

} // namespace gpu_encoder_decoders_test
