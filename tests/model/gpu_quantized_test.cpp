// Quantised checkpoints (make_quantized.py) on a GPU: the CPU's logits of the same codes, which are those of
// transformers (quantized_test.cpp), whole and sharded; memory as planned; and what is refused. Run as
// gpu_decoder_test.cpp is.
#include "dist/comm/nccl_comm.h"
#include "model/cpu/packing.h"
#include "model/families/read_config.h"
#include "model/files/bad_file.h"
#include "model/footprint/inspection.h"
#include "model/gpu/weights.h"
#include "tests/dist/thread_ranks.h"
#include "tests/model/family_golden.h"
#include "tests/model/gpu_arrays.h"
#include "tests/model/gpu_models.h"

#include <atomic>
#include <optional>
#include <set>
#include <string>

namespace gpu_quantized_test {

using namespace entrodraft;
using model::TokenId;
using model::WeightType;

ModelDirectories portable_quantized_models() {
    ModelDirectories models = quantized_models();
    std::erase_if(models,
                  [](const std::string& model) { return !model::what_needs_cpu(model::read_config(model)).empty(); });
    return models;
}

class GpuQuantized : public FamilyGoldenTest {
  protected:
    bool has_experts() const { return model::read_config(golden().directory).n_expert_layers() > 0; }
    // The model of Q4_K moves further than others: in bfloat16 some ten times as far as in float16, as they do.
    double sensitivity() const { return golden().directory.parent_path().filename() == "gguf-q4_k" ? 2.5 : 1; }
    static TestModelOptions on_cpu() {
        TestModelOptions options;
        options.load = &model::load_cpu_decoder;
        return options;
    }
};

INSTANTIATE_TEST_SUITE_P(All, GpuQuantized, testing::ValuesIn(portable_quantized_models()), name_of_format);

// Of a row's logits, the best and the next best, as a share of the largest.
double margin_of(std::span<const float> row) {
    std::vector<float> sorted(row.begin(), row.end());
    std::ranges::sort(sorted, std::greater<>());
    return (sorted[0] - sorted[1]) / std::max(std::abs(sorted.front()), std::abs(sorted.back()));
}

// Activations have 16 bits; in bfloat16 so have the values of tables, where float16 is much finer.
TEST_P(GpuQuantized, LogitsAreTheCpusUpToRoundedActivations) {
    TestModel reference(golden().directory, on_cpu());
    for (const auto& [type, usual] : {std::pair{WeightType::float16, 0.006}, {WeightType::bfloat16, 0.05}}) {
        if (has_experts() && type == WeightType::bfloat16)
            continue; // so rounded, rows take other experts here and there
        const double bound = usual * sensitivity();
        TestModel model(golden().directory, on_gpu(type));
        const bool is_linear = model.config.n_linear_layers() > 0; // whose short keys rounding turns here and there
        std::size_t n_compared = 0;
        std::vector<double> distances;
        for (const FamilyText& text : golden().texts) {
            reference.forget();
            model.forget();
            const std::vector<TokenId> tokens = whole_text(text);
            const std::vector<float> expected = reference.read(tokens), got = model.read(tokens);
            const auto width = static_cast<std::size_t>(model.config.vocab_size);
            for (std::size_t row = 0; row < tokens.size(); ++row) {
                const auto of_cpu = std::span(expected).subspan(row * width, width),
                           of_gpu = std::span(got).subspan(row * width, width);
                distances.push_back(relative_difference(of_gpu, of_cpu));
                if (is_linear && distances.back() > bound) continue;
                EXPECT_LE(distances.back(), bound) << to_string(type) << ", row " << row;
                if (margin_of(of_cpu) < 2 * bound) continue;
                EXPECT_EQ(best_of(of_gpu, golden().known), best_of(of_cpu, golden().known)) << "row " << row;
                ++n_compared;
            }
        }
        EXPECT_GT(n_compared, 10U) << to_string(type);
        if (!is_linear) continue;
        EXPECT_LE(distance_of(distances, model.config), bound) << to_string(type);
    }
}

TEST_P(GpuQuantized, BitsOfARowDoNotDependOnTheRowsOfItsPass) {
    TestModel model(golden().directory, on_gpu(WeightType::float16));
    const auto tokens = std::span(golden().texts.front().tokens).first(10);
    const std::vector<float> together = model.read(tokens);
    for (const int chunk : {1, 3}) {
        model.forget();
        EXPECT_TRUE(same_bits(model.read(tokens, chunk), together)) << chunk << " rows";
    }
}

TEST_P(GpuQuantized, MemoryIsAsPlanned) {
    const model::ModelConfig config = model::read_config(golden().directory);
    const WeightType type = automatic_type(config, true);
    TestModel model(golden().directory, on_gpu(type));
    model::ModelConfig plain = config;
    plain.quantization.reset();
    const auto planned = [&](const model::ModelConfig& of) {
        return needs_of(of, {.length = 16, .type = type, .on_gpu = true}, 0).weight_bytes;
    };
    // A tied one of numbers is the head, which is counted.
    const bool is_apart = !config.tied_embeddings || config.quantization->memory_bits > 0;
    const std::size_t embedding = (is_apart ? 2 : 0) * static_cast<std::size_t>(config.vocab_size) *
                                  static_cast<std::size_t>(model::gpu::aligned(config.hidden_size));
    EXPECT_LE(model.decoder.weight_bytes() + embedding, planned(config));
    // Planned beyond it: biases, norms, zeros that are 0, padding of small experts; GGUF is planned by the mean of all
    // matrices, from which those of a model so small are far.
    const bool is_gguf = config.quantization->memory_bits > 0;
    const double least = is_gguf ? 0.33 : has_experts() ? 0.4 : 0.7;
    EXPECT_GT(static_cast<double>(model.decoder.weight_bytes() + embedding),
              least * static_cast<double>(planned(config)));
    if (is_gguf) return;
    EXPECT_LT(planned(config), planned(plain) * 9 / 10);
}

TEST_P(GpuQuantized, AreNotRoundedASecondTime) {
    for (const WeightType type : {WeightType::int8, WeightType::float32})
        EXPECT_THROW(TestModel(golden().directory, on_gpu(type)), std::invalid_argument) << to_string(type);
}

// Where a rank's inputs begin with a group; else the cut is refused by name.
TEST_P(GpuQuantized, TwoRanksSayWhatOneSays) {
    if (!kOnStandIn) GTEST_SKIP() << "ranks are threads of one process here";
    TestModel reference(golden().directory, on_cpu());
    const std::vector<TokenId> tokens = whole_text(golden().texts.front());
    const std::vector<float> expected = reference.read(tokens);
    const auto width = static_cast<std::size_t>(reference.config.vocab_size);
    std::atomic<int> n_refused = 0;
    test::ThreadRanks(2).run([&](dist::Communicator& ranks) {
        const auto soon = [] { return dist::Deadline::after_seconds(20); };
        const auto sums = dist::make_nccl_comm(ranks, {.close_seconds = 1, .gather_seconds = 20}, soon());
        TestModelOptions options = on_gpu(WeightType::float16);
        options.tp = sums.get();
        std::optional<TestModel> model;
        try {
            model.emplace(golden().directory, options);
        } catch (const model::BadFile& error) {
            const std::string refusal = error.what();
            EXPECT_TRUE(refusal.find("take another number of ranks") != refusal.npos ||
                        refusal.find("run it on one rank") != refusal.npos)
                << refusal;
            ++n_refused;
        }
        ranks.barrier(soon());
        if (n_refused > 0) return; // as ranks of the program agree
        const std::vector<float> got = model->read(tokens);
        const dist::Slice own = model->decoder.local_vocab();
        const auto n = static_cast<std::size_t>(own.size());
        for (std::size_t row = 0; row < tokens.size(); ++row) {
            const auto of_cpu = std::span(expected).subspan(row * width + static_cast<std::size_t>(own.begin), n);
            EXPECT_LE(relative_difference(std::span(got).subspan(row * n, n), of_cpu), 0.006 * sensitivity())
                << "row " << row;
        }
        ranks.barrier(soon());
    });
    const std::set<std::string> cut = {"bitsandbytes-fp4",
                                       "bitsandbytes-fp4-double",
                                       "bitsandbytes-nf4",
                                       "bitsandbytes-nf4-double",
                                       "float8-block",
                                       "float8-block-latent",
                                       "float8-block-linear",
                                       "float8-block-linear-experts",
                                       "gguf-every-type",
                                       "gguf-q4_0-phi3",
                                       "gguf-q8_0-mixtral",
                                       "gptq-act-order",
                                       "mxfp4",
                                       "packed-int4"};
    EXPECT_EQ(n_refused > 0, cut.contains(golden().directory.parent_path().filename().string()));
}

} // namespace gpu_quantized_test
