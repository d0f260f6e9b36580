// Random weights that a device makes are those that the host would read and convert, in every type and shard.
#include "model/families/names.h"
#include "model/families/read_config.h"
#include "model/footprint/inspection.h"
#include "model/gpu/weights.h"
#include "model/pass/self_check.h"
#include "model/weights/layer_plan.h"
#include "model/weights/tensor_shapes.h"
#include "tests/model/family_golden.h"
#include "tests/model/gpu_arrays.h"
#include "tests/model/gpu_models.h"
#include "tests/model/random_files.h"

#include <cstdint>
#include <fmt/format.h>

namespace gpu_random_weights_test {

using namespace entrodraft;
using namespace entrodraft::model;

std::vector<std::byte> bytes_of_matrices(const gpu::DeviceWeights& weights) {
    std::vector<std::byte> all;
    const gpu::Stream stream;
    const auto take = [&](const std::byte* from, std::size_t count) {
        const std::size_t at = all.size();
        all.resize(at + count);
        gpu::copy(stream, all.data() + at, from, count);
        stream.wait(gpu::kPatience);
    };
    const auto take_matrix = [&](const gpu::DeviceMatrix& matrix) {
        take(matrix.numbers.data(), matrix.numbers.size());
        take(matrix.scales.data(), matrix.scales.size());
    };
    weights.outer.each_matrix(take_matrix);
    for (const gpu::DeviceTensors& layer : weights.layers)
        layer.each_matrix(take_matrix);
    return all;
}

TEST(GpuRandomWeights, AreThoseOfAFileInEveryTypeAndShard) {
    for (const auto& pair : family_pairs_without(what_needs_cpu)) {
        const ModelConfig config = read_config(pair / "target");
        const Checkpoint random = random_checkpoint(config, 7);
        const TemporaryDirectory directory;
        const Checkpoint file = written(random, directory);
        for (const WeightType type : {WeightType::float32, WeightType::bfloat16, WeightType::float16, WeightType::int8,
                                      WeightType::int4, WeightType::float8})
            for (const int ranks : {1, 2, 4})
                for (int rank = 0; rank < ranks && ranks <= config.n_heads; ++rank) {
                    if (type == WeightType::int4 && ranks > 1) continue; // the cuts are no multiples of 64
                    SCOPED_TRACE(
                        fmt::format("{}, rank {} of {}, {}", pair.filename().string(), rank, ranks, to_string(type)));
                    const auto numbers = type == WeightType::float32   ? gpu::NumberType::float32
                                         : type == WeightType::float16 ? gpu::NumberType::float16
                                                                       : gpu::NumberType::bfloat16;
                    const RunShape run = {ranks, 1, 1, 1, type, true};
                    const RankNeeds needs = needs_of(config, run, rank);
                    const auto floats = static_cast<std::uint64_t>(float_count(config, needs.shard));
                    std::vector<std::vector<std::byte>> bytes;
                    for (const Checkpoint* from : {&random, &file})
                        bytes.push_back(
                            bytes_of_matrices(gpu::DeviceWeights(*from, config, needs.shard, numbers, type, {})));
                    EXPECT_TRUE(bytes[0] == bytes[1]);
                    EXPECT_EQ(needs.weight_bytes, bytes[0].size() + floats * sizeof(float));
                }
    }
}

TEST(GpuRandomWeights, MakeTheModelThatTheyMakeOnTheCpu) {
    for (const auto& pair : family_pairs_without(what_needs_cpu)) {
        SCOPED_TRACE(pair.filename());
        TestModelOptions options = on_gpu();
        TestModelOptions on_cpu;
        on_cpu.load = [](const Checkpoint&, const ModelConfig& config, const DecoderOptions& decoder,
                         dist::Communicator& tp, ThreadTeam& team) {
            return load_cpu_decoder(random_checkpoint(config, 7), config, decoder, tp, team);
        };
        options.load = [](const Checkpoint&, const ModelConfig& config, const DecoderOptions& decoder,
                          dist::Communicator& tp, ThreadTeam& team) {
            return load_on_gpu(random_checkpoint(config, 7), config, decoder, tp, team);
        };
        TestModel device(pair / "target", options), cpu(pair / "target", on_cpu);
        const std::vector<TokenId> tokens = varied_tokens(20, cpu.config.vocab_size);
        EXPECT_LE(relative_difference(device.read(tokens), cpu.read(tokens)), kRowBound);
    }
}

TEST(GpuSelfCheck, PassesEveryFamilyInEveryType) {
    for (const auto& pair : family_pairs_without(what_needs_cpu))
        for (const WeightType type : {WeightType::float32, WeightType::bfloat16, WeightType::float16, WeightType::int8,
                                      WeightType::int4, WeightType::float8}) {
            SCOPED_TRACE(pair.filename().string() + " in " + to_string(type));
            TestModelOptions on_cpu;
            if (type != WeightType::float8) on_cpu.decoder.weight_type = type;
            on_cpu.load = &load_cpu_decoder;
            TestModel device(pair / "target", on_gpu(type)), cpu(pair / "target", on_cpu);
            EXPECT_EQ(difference_of(device.decoder, cpu.decoder, self_check_bound(type, cpu.config)), "");
        }
}

} // namespace gpu_random_weights_test
