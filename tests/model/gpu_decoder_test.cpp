// The forward pass on a GPU, one rank: against transformers for every family, against the CPU, and bit for bit against
// itself however rows are grouped. Run on a GPU where there is one, and everywhere on the stand-in for CUDA.
#include "tests/model/family_golden.h"
#include "tests/model/gpu_models.h"
#include "tests/model/temporary_directory.h"
#include "tests/model/tree_bits.h"

#include <random>

namespace gpu_decoder_test {

using namespace entrodraft;
using model::Mask;
using model::Row;
using model::TokenId;
using model::WeightType;

class GpuFamilies : public FamilyGoldenTest {};

INSTANTIATE_TEST_SUITE_P(All, GpuFamilies, testing::ValuesIn(family_models_without(model::what_needs_cpu)), test_name);

TEST_P(GpuFamilies, LogitsAndGreedyTokensAreThoseOfTransformers) {
    TestModel model(golden().directory, on_gpu());
    for (const FamilyText& text : golden().texts) {
        model.forget();
        std::vector<TokenId> tokens = text.tokens;
        tokens.insert(tokens.end(), text.greedy.begin(), text.greedy.end());
        const std::vector<float> logits = model.read(tokens);
        EXPECT_LE(worst_kept_row(logits, text), kRowBound);
        EXPECT_EQ(said_of(logits, text, golden().known), text.greedy);
    }
}

TEST_P(GpuFamilies, BitsOfARowDoNotDependOnTheRowsOfItsPass) {
    TestModel model(golden().directory, on_gpu(WeightType::bfloat16));
    const std::vector<TokenId> tokens = varied_tokens(19, model.config.vocab_size);
    const std::vector<float> together = model.read(tokens);
    for (const int chunk : {1, 9}) {
        model.forget();
        EXPECT_TRUE(same_bits(model.read(tokens, chunk), together)) << "chunks of " << chunk;
    }
    expect_bits_of_branches(model, random_tree(13, 19, model.config.vocab_size));
}

TEST(GpuDecoder, BitsOfATreeOfMoreNodesThanAPassAreThoseOfItsBranchesAlone) {
    constexpr int kPass = 70, kPasses = 2;
    for (const WeightType type : {WeightType::float32, WeightType::bfloat16}) {
        TestModelOptions wide = on_gpu(type);
        wide.decoder.tree_positions = kPass * kPasses;
        TestModel model(golden_directory("llama-target"), wide);
        const std::vector<TokenId> prompt = varied_tokens(19, 512);
        model.read(prompt);
        const std::vector<Row> rows = random_tree(kPass * kPasses, 19, 512);
        const std::vector<int> wanted = TestModel::all_of(kPass);
        std::vector<float> last; // logits of the last pass
        for (std::size_t begin = 0; begin < rows.size(); begin += kPass) {
            const model::PassResult result = model.decoder.forward({.rows = std::span(rows).subspan(begin, kPass),
                                                                    .logit_rows = wanted,
                                                                    .hidden_layers = {},
                                                                    .mask = Mask::by_parent,
                                                                    .cached_nodes = std::span(rows).first(begin)});
            last.assign(result.logits.begin(), result.logits.end());
        }
        for (int node = kPass * kPasses - 1; node >= kPass * (kPasses - 1); node -= 31) {
            std::vector<TokenId> branch;
            for (const int each : branch_to(rows, node))
                branch.push_back(rows[model::index(each)].token);
            model.decoder.cache().truncate(0, 19);
            const std::vector<float> alone = model.read(branch);
            const std::size_t row = model::index(node - kPass * (kPasses - 1));
            EXPECT_TRUE(same_bits(std::span(last).subspan(row * 512, 512), std::span(alone).last(512)))
                << "node " << node;
        }
    }
}

TEST(GpuDecoder, SixteenBitWeightsStayNearTheCpus) {
    const std::vector<TokenId> tokens = varied_tokens(60, 512);
    for (const auto& [type, bound] : {std::pair{WeightType::bfloat16, 0.05}, {WeightType::float16, 0.006}}) {
        TestModelOptions cpu;
        cpu.decoder.weight_type = type;
        TestModel reference(golden_directory("llama-target"), cpu),
            model(golden_directory("llama-target"), on_gpu(type));
        EXPECT_LT(relative_difference(model.read(tokens), reference.read(tokens)), bound) << to_string(type);
        EXPECT_GE(model.decoder.weight_bytes(), reference.decoder.weight_bytes()); // rows are padded to 64 numbers
        EXPECT_LE(model.decoder.weight_bytes(), reference.decoder.weight_bytes() * 8 / 5);
        EXPECT_EQ(model.decoder.operations_per_row(), reference.decoder.operations_per_row());
    }
}

TEST(GpuDecoder, Int8WeightsStayNearFloat32) {
    const std::vector<TokenId> tokens = varied_tokens(40, 512);
    for (const char* directory : {"llama-target", "llama-draft"}) {
        TestModel reference(golden_directory(directory)), model(golden_directory(directory), on_gpu(WeightType::int8)),
            wide(golden_directory(directory), on_gpu(WeightType::bfloat16));
        const std::vector<float> together = model.read(tokens);
        EXPECT_LT(relative_difference(together, reference.read(tokens)), 0.08) << directory;
        EXPECT_LT(model.decoder.weight_bytes(), wide.decoder.weight_bytes());
        model.forget();
        EXPECT_TRUE(same_bits(model.read(tokens, 3), together)) << "a row hangs on those beside it";
    }
}

TEST(GpuDecoder, Int4WeightsAreThoseOfTheCpu) {
    const std::vector<TokenId> tokens = varied_tokens(40, 512);
    const auto directory = golden_directory("llama-target");
    TestModelOptions on_cpu;
    on_cpu.decoder.weight_type = WeightType::int4;
    on_cpu.load = &model::load_cpu_decoder;
    TestModel reference(directory, on_cpu), model(directory, on_gpu(WeightType::int4)),
        int8(directory, on_gpu(WeightType::int8));
    const std::vector<float> together = model.read(tokens);
    EXPECT_LT(relative_difference(together, reference.read(tokens)), 0.25); // its embedding has 4 bits as well
    EXPECT_LT(model.decoder.weight_bytes(), int8.decoder.weight_bytes());
    model.forget();
    EXPECT_TRUE(same_bits(model.read(tokens, 3), together)) << "a row hangs on those beside it";
}

TEST(GpuDecoder, Float8WeightsStayNearFloat32) {
    const std::vector<TokenId> tokens = varied_tokens(40, 512);
    const auto directory = golden_directory("llama-target");
    TestModel reference(directory), model(directory, on_gpu(WeightType::float8)),
        int8(directory, on_gpu(WeightType::int8));
    const std::vector<float> together = model.read(tokens);
    EXPECT_LT(relative_difference(together, reference.read(tokens)), 0.3);
    EXPECT_EQ(model.decoder.weight_bytes(), int8.decoder.weight_bytes());
    model.forget();
    EXPECT_TRUE(same_bits(model.read(tokens, 3), together)) << "a row hangs on those beside it";
}

// A weight that is no number spoils its output, and does not pass for a number of 8 bits.
TEST(GpuDecoder, EightBitWeightsThatAreNoNumbersSayNone) {
    constexpr std::size_t kSpoilt = 5; // of the 512 tokens, whose embedding is the head
    const TemporaryDirectory copy;
    std::filesystem::copy(golden_directory("llama-draft"), copy.path());
    std::fstream file(copy.path() / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    std::uint64_t header_bytes = 0;
    file.read(reinterpret_cast<char*>(&header_bytes), sizeof header_bytes);
    std::string header(header_bytes, ' ');
    file.read(header.data(), static_cast<std::streamsize>(header.size()));
    const auto embedding = nlohmann::json::parse(header).at("model.embed_tokens.weight");
    const auto row_bytes = embedding.at("shape").at(1).get<std::size_t>() * sizeof(float);
    const auto begin = sizeof header_bytes + header_bytes + embedding.at("data_offsets").at(0).get<std::size_t>();
    const float none = std::numeric_limits<float>::quiet_NaN();
    file.seekp(static_cast<std::streamoff>(begin + kSpoilt * row_bytes));
    file.write(reinterpret_cast<const char*>(&none), sizeof none);
    file.close();
    const std::vector<TokenId> tokens = {7, 11, 300};
    for (const WeightType type : {WeightType::int8, WeightType::float8}) {
        TestModel whole(golden_directory("llama-draft"), on_gpu(type)), spoilt(copy.path(), on_gpu(type));
        const std::vector<float> want = whole.read(tokens), got = spoilt.read(tokens);
        for (std::size_t i = 0; i < want.size(); ++i) {
            if (i % 512 == kSpoilt)
                EXPECT_TRUE(std::isnan(got[i])) << to_string(type) << ", " << got[i];
            else
                EXPECT_EQ(got[i], want[i]) << to_string(type) << ", token " << i % 512;
        }
    }
}

TEST(GpuDecoder, SlotsOfAPassKeepTheirOwnTexts) {
    TestModel model(golden_directory("llama-target"), on_gpu(WeightType::bfloat16, 3));
    const std::vector<TokenId> a = varied_tokens(20, 512), b = varied_tokens(31, 512, 3);
    const std::vector<float> of_a = model.read(a), of_b = model.read(b, 128, 2);
    for (const int slot : {0, 2})
        model.forget(slot);
    std::vector<Row> rows = model.chain(b, 2);
    for (const Row& row : model.chain(a, 1))
        rows.push_back({row.token, 1, row.position, row.parent < 0 ? -1 : row.parent + 31});
    std::vector<float> together = model.forward(rows, TestModel::all_of(rows.size()));
    EXPECT_TRUE(same_bits(std::span<const float>(together).first(of_b.size()), of_b));
    EXPECT_TRUE(same_bits(std::span<const float>(together).subspan(of_b.size()), of_a));
}

TEST(GpuDecoder, UsesAStoredHeadThoughTheConfigTiesIt) {
    TestModelOptions tied = on_gpu();
    tied.load = [](const model::Checkpoint& checkpoint, const model::ModelConfig& config,
                   const model::DecoderOptions& options, dist::Communicator& tp, model::ThreadTeam& team) {
        model::ModelConfig changed = config;
        changed.tied_embeddings = true;
        return load_on_gpu(checkpoint, changed, options, tp, team);
    };
    TestModel model(golden_directory("llama-target"), tied), own(golden_directory("llama-target"), on_gpu());
    const std::vector<TokenId> tokens = varied_tokens(7, 512);
    const std::vector<float> logits = model.read(tokens), expected = own.read(tokens);
    EXPECT_TRUE(same_bits(logits, expected));
}

TEST(GpuDecoder, LogitsOfSomeRowsAreThoseOfAll) {
    TestModel model(golden_directory("llama-target"), on_gpu(WeightType::float16));
    const std::vector<TokenId> tokens = varied_tokens(11, 512);
    const std::vector<float> all = model.read(tokens);
    model.forget();
    const std::vector<Row> rows = model.chain(tokens);
    const std::vector<int> wanted = {10, 3, 4};
    const std::vector<float> some = model.forward(rows, wanted);
    for (std::size_t i = 0; i < wanted.size(); ++i)
        EXPECT_TRUE(same_bits(std::span<const float>(some).subspan(i * 512, 512),
                              std::span<const float>(all).subspan(static_cast<std::size_t>(wanted[i]) * 512, 512)));
    model.forget();
    EXPECT_TRUE(model.forward(rows, {}).empty()) << "a pass that only fills the cache";
    EXPECT_EQ(model.decoder.cache().length(0), 11);
}

TEST(GpuDecoder, TruncatingForkingSharingAndKeepingArePassesOverWhatIsLeft) {
    for (const WeightType type : {WeightType::float32, WeightType::bfloat16}) {
        TestModel model(golden_directory("llama-target"), on_gpu(type, 3));
        const std::vector<TokenId> text = varied_tokens(50, 512), more = varied_tokens(9, 512, 5);
        model.read(text);
        const std::vector<float> expected = [&] {
            TestModel fresh(golden_directory("llama-target"), on_gpu(type, 3));
            fresh.read(std::span(text).first(37));
            return fresh.read(more);
        }();
        model::KvCache& cache = model.decoder.cache();
        cache.share(0, 1, 37); // two whole blocks lie in slot 0, five positions are copied
        EXPECT_TRUE(same_bits(model.read(more, 128, 1), expected));
        cache.fork(0, 2);
        cache.truncate(2, 37);
        EXPECT_TRUE(same_bits(model.read(more, 2, 2), expected));
        cache.truncate(1, 0);
        cache.truncate(0, 37);
        EXPECT_TRUE(same_bits(model.read(more, 1), expected));
    }
}

#ifdef ENTRODRAFT_ON_STAND_IN
TEST(GpuDecoder, ATextThatGrowsTakesNoOtherGraph) {
    TestModelOptions options = on_gpu(WeightType::bfloat16);
    options.max_positions = 300;
    TestModel model(golden_directory("llama-target"), options);
    model.read(varied_tokens(250, 512));
    model.read(varied_tokens(2, 512), 1); // at once, then captured
    const long before = cuda_stand_in::graphs_made();
    model.read(varied_tokens(8, 512), 1); // beyond a block of keys
    EXPECT_EQ(cuda_stand_in::graphs_made(), before);
}

// As many as the cost model of bench/gpu_path.py has: bench/hardware.json.
TEST(GpuDecoder, ALayerTakesEightKernels) {
    long kernels = 0, layers = 0; // that the larger model has more
    for (const auto& [name, sign] : {std::pair{"llama-target", 1}, {"llama-draft", -1}}) {
        TestModel model(golden_directory(name), on_gpu(WeightType::bfloat16));
        const long before = cuda_stand_in::grids_run();
        model.read(varied_tokens(5, 512));
        kernels += sign * (cuda_stand_in::grids_run() - before);
        layers += sign * model.config.n_layers;
    }
    EXPECT_EQ(kernels, 8 * layers);
}

TEST(GpuDecoder, ASpanOfTheCacheIsCopiedAndABranchKeptByOneKernel) {
    TestModel model(golden_directory("llama-target"), on_gpu(WeightType::bfloat16, 2));
    model.read(varied_tokens(50, 512));
    const long before = cuda_stand_in::grids_run();
    model.decoder.cache().share(0, 1, 37);
    EXPECT_EQ(cuda_stand_in::grids_run() - before, 1);
    model.decoder.cache().keep(0, 34, std::vector<int>{0, 2, 3, 7, 9, 15});
    EXPECT_EQ(cuda_stand_in::grids_run() - before, 2);
}
#endif

// Around the end of a block of keys.
TEST(GpuDecoder, BitsOfATreesBranchesAreThoseOfTheirTextsAlone) {
    struct Setting {
        WeightType type;
        std::vector<int> windows, lengths; // of the text before the tree, falling
    };
    for (const Setting& setting : {Setting{WeightType::float32, {}, {257, 250}},
                                   {WeightType::float32, {130, 0, 130}, {140}},
                                   {WeightType::bfloat16, {}, {256, 255, 1}},
                                   {WeightType::bfloat16, {130, 0, 130}, {257, 250}},
                                   {WeightType::float16, {}, {250}},
                                   {WeightType::int8, {}, {255}},
                                   {WeightType::float8, {}, {250}}}) {
        SCOPED_TRACE(to_string(setting.type));
        TestModelOptions options = on_gpu(setting.type);
        options.max_positions = 300;
        options.windows = setting.windows;
        TestModel model(golden_directory("llama-target"), options);
        model.read(varied_tokens(setting.lengths.front(), 512));
        for (const int length : setting.lengths) {
            model.decoder.cache().truncate(0, length);
            expect_bits_of_branches(model, random_tree(14, length, 512));
        }
    }
}

TEST(GpuDecoder, ATreeBesideAChainAndOneWithACommonBeginningKeepTheirBits) {
    TestModel model(golden_directory("llama-target"), on_gpu(WeightType::bfloat16, 3));
    model.read(varied_tokens(50, 512));
    model.decoder.cache().share(0, 1, 37);
    model.read(varied_tokens(9, 512, 3), 128, 2);
    std::vector<Row> rows = random_tree(11, 50, 512);
    const std::vector<float> alone = model.forward(rows, TestModel::all_of(11), Mask::by_parent);
    model.decoder.cache().truncate(0, 50);
    const std::vector<TokenId> more = varied_tokens(4, 512, 5);
    std::vector<float> chains[2] = {model.read(more, 128, 1), model.read(more, 128, 2)};
    model.decoder.cache().truncate(1, 37);
    model.decoder.cache().truncate(2, 9);
    for (const int slot : {1, 2})
        for (Row row : model.chain(more, slot)) {
            if (row.parent >= 0) row.parent += 11 + 4 * (slot - 1);
            rows.push_back(row);
        }
    const std::vector<float> together = model.forward(rows, TestModel::all_of(rows.size()), Mask::by_parent);
    EXPECT_TRUE(same_bits(std::span(together).first(11 * 512), alone));
    EXPECT_TRUE(same_bits(std::span(together).subspan(11 * 512, 4 * 512), chains[0]));
    EXPECT_TRUE(same_bits(std::span(together).subspan(15 * 512), chains[1]));
}

TEST(GpuDecoder, WindowsOfLayersAreTheCpus) {
    const std::vector<TokenId> tokens = varied_tokens(30, 512);
    std::vector<float> of[2];
    for (const bool gpu : {false, true}) {
        TestModelOptions options = on_gpu();
        options.windows = {7, 0, 7};
        if (!gpu) options.load = &model::load_cpu_decoder;
        TestModel model(golden_directory("llama-target"), options);
        of[gpu] = model.read(tokens);
    }
    EXPECT_LE(relative_difference(of[1], of[0]), kRowBound);
}

TEST(GpuDecoder, SummariesAndHiddenStatesAreTheCpus) {
    const std::vector<TokenId> tokens = varied_tokens(9, 512);
    std::vector<model::LogitStats> stats[2];
    std::vector<float> hidden[2];
    const std::vector<int> logit_rows = {2, 8}, layers = {0, 1, 3};
    for (const bool gpu : {false, true}) {
        TestModelOptions options = on_gpu();
        if (!gpu) options.load = &model::load_cpu_decoder;
        TestModel model(golden_directory("llama-target"), options);
        const std::vector<Row> rows = model.chain(tokens);
        for (int again = 0; again < 3; ++again) { // a GPU at once, then captured, then by the graph
            model.forget();
            const model::PassResult result = model.decoder.forward({.rows = rows,
                                                                    .logit_rows = logit_rows,
                                                                    .hidden_layers = layers,
                                                                    .needs = model::LogitSummary::entropy,
                                                                    .summary_vocab = 500});
            EXPECT_TRUE(again == 0 || same_bits(result.hidden, hidden[gpu]));
            stats[gpu].assign(result.summaries.begin(), result.summaries.end());
            hidden[gpu].assign(result.hidden.begin(), result.hidden.end());
        }
    }
    ASSERT_EQ(stats[1].size(), 2U);
    for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(stats[1][i].arg_max, stats[0][i].arg_max);
        EXPECT_NEAR(stats[1][i].max, stats[0][i].max, 1e-4 * std::abs(stats[0][i].max));
        EXPECT_NEAR(stats[1][i].entropy_nats(), stats[0][i].entropy_nats(), 1e-4);
    }
    EXPECT_LE(relative_difference(hidden[1], hidden[0]), kRowBound);
}

} // namespace gpu_decoder_test
