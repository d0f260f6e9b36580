// Weights that are made up: the same, wherever and in whatever slices they are read.
#include "model/cpu/weights.h"
#include "model/families/names.h"
#include "model/families/read_config.h"
#include "model/files/half.h"
#include "model/weights/layer_plan.h"
#include "model/weights/planned_values.h"
#include "model/weights/tensor_shapes.h"
#include "tests/model/family_golden.h"
#include "tests/model/random_files.h"

#include <algorithm>
#include <cmath>

namespace random_weights_test {

using namespace entrodraft;
using namespace entrodraft::model;

constexpr std::uint64_t kSeed = 7;

std::vector<float> values_of(const Checkpoint& checkpoint, const std::string& name) {
    return read_vector(checkpoint, name);
}

TEST(RandomWeights, AreEvenlySpreadAndExactInEveryType) {
    GeneratedValues values = {true, 11, 0};
    constexpr int kCount = 1 << 16;
    std::vector<float> all(kCount);
    read_generated(values, 0, 1, kCount, all.data());
    double sum = 0, squares = 0;
    for (const float each : all) {
        EXPECT_EQ(from_bfloat16(to_bfloat16(each)), each);
        EXPECT_EQ(from_float16(to_float16(each)), each);
        sum += each;
        squares += static_cast<double>(each) * each;
    }
    EXPECT_NEAR(sum / kCount, 0, 4 * 0.018 / std::sqrt(kCount));
    EXPECT_NEAR(std::sqrt(squares / kCount), 0.01804, 2e-4);
    for (const auto& [first, stride, count] :
         {std::tuple{3, 1, 40}, std::tuple{0, 1, 7}, std::tuple{5, 9, 33}, std::tuple{64, 2, 8}}) {
        std::vector<float> some(static_cast<std::size_t>(count));
        read_generated(values, first, stride, count, some.data());
        for (int i = 0; i < count; ++i)
            EXPECT_EQ(some[static_cast<std::size_t>(i)], all[static_cast<std::size_t>(first + i * stride)]);
    }
}

TEST(RandomWeights, DependOnSeedAndTensorAndNormsMultiplyByOne) {
    for (const auto& pair : family_pairs()) {
        SCOPED_TRACE(pair.filename());
        const ModelConfig config = read_config(pair / "target");
        const Checkpoint one = random_checkpoint(config, kSeed), other = random_checkpoint(config, kSeed + 1);
        EXPECT_NO_THROW(check_shapes(config, one));
        const ModelNames names = names_of(config, one);
        const RankShard whole = shard_of(config, 0, 1);
        const TensorPlan first = plan_layer(config, names, 0, whole), second = plan_layer(config, names, 1, whole);
        const auto output_of = [](const TensorPlan& plan) {
            const auto output = std::ranges::find(plan.matrices, Role::output, &PlannedMatrix::role);
            return output->rows.front().tensor->names.weight;
        };
        EXPECT_NE(values_of(one, output_of(first)), values_of(other, output_of(first)));
        EXPECT_NE(values_of(one, output_of(first)), values_of(one, output_of(second)));
        for (const PlannedVector& vector : first.vectors) {
            const VectorValues values = read_planned(one, config, whole, vector);
            if (vector.role != Role::attention_norm && vector.role != Role::delta_norm) continue;
            for (const float value : values.weight)
                EXPECT_EQ(value, 1);
        }
        for (const PlannedMatrix& matrix : first.matrices)
            for (const float value : read_biases(one, matrix))
                EXPECT_EQ(value, 0);
        std::int64_t count = 0;
        for (const auto& [name, tensor] : one.tensors()) {
            std::int64_t elements = 1;
            for (const std::int64_t dim : tensor.shape)
                elements *= dim;
            count += elements;
        }
        EXPECT_EQ(count, parameter_count(config));
        EXPECT_EQ(one.total_bytes(), static_cast<std::uint64_t>(count) * bytes_of(config.stored_type));
    }
}

TEST(RandomWeights, MakeTheModelOfAFileThatHoldsThem) {
    for (const auto& pair : family_pairs()) {
        const ModelConfig config = read_config(pair / "target");
        const Checkpoint random = random_checkpoint(config, kSeed);
        const TemporaryDirectory directory;
        const Checkpoint file = written(random, directory);
        for (const WeightType type :
             {WeightType::float32, WeightType::bfloat16, WeightType::float16, WeightType::int8, WeightType::int4}) {
            SCOPED_TRACE(pair.filename().string() + " in " + to_string(type));
            dist::SelfComm alone;
            ThreadTeam team(2);
            DecoderOptions options;
            options.weight_type = type;
            const std::vector<TokenId> tokens = varied_tokens(9, config.vocab_size);
            std::vector<Row> rows;
            for (int i = 0; i < 9; ++i)
                rows.push_back({tokens[static_cast<std::size_t>(i)], 0, i, i - 1});
            std::vector<std::vector<float>> logits;
            for (const Checkpoint* from : {&random, &file}) {
                const auto decoder = load_cpu_decoder(*from, config, options, alone, team);
                const int last = 8;
                const PassResult result = decoder->forward(
                    {.rows = rows, .logit_rows = {&last, 1}, .hidden_layers = {}, .mask = Mask::causal});
                logits.emplace_back(result.logits.begin(), result.logits.end());
            }
            EXPECT_TRUE(same_bits(logits[0], logits[1]));
        }
    }
}

// All that a rank holds of a layer's matrices, as they are multiplied.
std::vector<float> matrices_of(const Checkpoint& checkpoint, const ModelConfig& config, int rank, int ranks,
                               WeightType type) {
    ThreadTeam team(1);
    DecoderOptions options;
    options.weight_type = type;
    ModelWeights weights(checkpoint, config, shard_of(config, rank, ranks), options, team);
    std::vector<float> all;
    for (const HeldWeights& layer : weights.layers)
        layer.each_matrix([&](const ShardedLinear& linear) {
            for (int output = 0; output < linear.matrix().n(); ++output) {
                std::vector<float> row(static_cast<std::size_t>(linear.matrix().k()));
                linear.matrix().read_output(output, {0, linear.matrix().k()}, row.data());
                all.insert(all.end(), row.begin(), row.end());
            }
        });
    return all;
}

TEST(RandomWeights, OfEveryShardAreThoseOfTheFilesShard) {
    for (const auto& pair : family_pairs()) {
        const ModelConfig config = read_config(pair / "target");
        const Checkpoint random = random_checkpoint(config, kSeed);
        const TemporaryDirectory directory;
        const Checkpoint file = written(random, directory);
        for (const int ranks : {1, 2, 4})
            for (int rank = 0; rank < ranks && ranks <= config.n_heads; ++rank)
                for (const WeightType type : {WeightType::bfloat16, WeightType::int8, WeightType::int4}) {
                    SCOPED_TRACE(
                        fmt::format("{}, rank {} of {}, {}", pair.filename().string(), rank, ranks, to_string(type)));
                    EXPECT_TRUE(same_bits(matrices_of(random, config, rank, ranks, type),
                                          matrices_of(file, config, rank, ranks, type)));
                }
    }
}

} // namespace random_weights_test
