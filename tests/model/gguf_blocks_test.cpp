// Blocks of GGUF files: random ones of every type against what PyPI's gguf dequantises them to (make_gguf_blocks.py),
// bit for bit, and as CPUs hold them; and types that are not served. Models of such blocks are with the quantised
// checkpoints (make_gguf.py).
#include "model/cpu/packing.h"
#include "model/families/config.h"
#include "model/families/read_config.h"
#include "model/files/bad_file.h"
#include "model/files/checkpoint.h"
#include "model/files/gguf_blocks.h"
#include "model/files/gguf_file.h"
#include "tests/model/gguf_bytes.h"
#include "tests/model/golden_models.h"
#include "tests/model/temporary_directory.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fmt/format.h>
#include <fstream>
#include <set>

namespace entrodraft::model {
namespace gguf_test {

json goldens() {
    return json::parse(std::ifstream(source_directory() / "tests/model/gguf_blocks.json"));
}

// As make_gguf_blocks.py has it.
std::uint64_t mixed(std::uint64_t word) {
    word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9u;
    word = (word ^ word >> 27) * 0x94d049bb133111ebu;
    return word ^ word >> 31;
}
std::string random_blocks(std::uint64_t number, std::size_t count, std::size_t size) {
    std::string bytes(count * size, '\0');
    for (std::size_t i = 0; i < bytes.size(); ++i)
        bytes[i] = static_cast<char>(mixed(i + (number << 32)) & 255);
    for (std::size_t block = 0; block < count; ++block) {
        const auto fill = [&](std::size_t at, std::size_t n, char with) {
            bytes.replace(block * size + at, n, n, with);
        };
        if (block % 16 == 13) fill(0, 4, 0);
        if (block % 16 == 14) fill(size - 4, 4, 0);
        if (block % 16 == 15) fill(0, size, block % 32 == 15 ? '\0' : '\xff');
    }
    return bytes;
}

// The blocks of a type as a matrix of a file, four to a row.
class Blocks {
  public:
    static constexpr std::uint64_t kOfRow = 4;

    Blocks(const json& of, std::size_t count) {
        const std::uint64_t inputs = of.at("inputs").get<std::uint64_t>() * kOfRow;
        const auto number = of.at("number").get<std::uint32_t>();
        const std::string bytes = gguf({}, {{"t", {inputs, count / kOfRow}, number, 0}}) +
                                  random_blocks(number, count, of.at("bytes").get<std::size_t>());
        file_ = open_gguf(directory_.write("model.gguf", bytes));
    }
    const TensorView& tensor() const { return file_.parts.at(0).tensors.at(0); }
    std::vector<float> values() const {
        std::vector<float> values(static_cast<std::size_t>(tensor().shape[0] * tensor().shape[1]));
        read_quantized(tensor(), 0, 1, static_cast<int>(values.size()), values.data());
        return values;
    }

  private:
    const TemporaryDirectory directory_;
    GgufFile file_;
};

std::string digest_of(std::span<const float> values, std::size_t first) {
    std::uint64_t digest = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const std::uint32_t bits = std::isnan(values[i]) ? 0x7fc00000u : std::bit_cast<std::uint32_t>(values[i]);
        digest ^= mixed(bits | std::uint64_t{first + i} << 32);
    }
    return fmt::format("{:016x}", digest);
}

TEST(GgufBlocks, OfEveryTypeAreDequantisedToTheBit) {
    const json all = goldens();
    const auto n_blocks = all.at("blocks").get<std::size_t>(),
               of_digest = all.at("blocks_of_digest").get<std::size_t>();
    std::set<std::uint32_t> seen;
    for (const auto& [name, of] : all.at("types").items()) {
        SCOPED_TRACE(name);
        const Blocks blocks(of, n_blocks);
        EXPECT_EQ(blocks.tensor().dtype, name);
        seen.insert(of.at("number").get<std::uint32_t>());
        const std::vector<float> values = blocks.values();
        const std::size_t n = of_digest * of.at("inputs").get<std::size_t>();
        ASSERT_EQ(values.size(), n * of.at("digests").size());
        for (std::size_t i = 0; i < of.at("digests").size(); ++i)
            EXPECT_EQ(digest_of(std::span(values).subspan(i * n, n), i * n), of.at("digests")[i].get<std::string>())
                << "part " << i;
    }
    for (std::uint32_t number = 0; number < 64; ++number)
        if (const BlockType* type = block_type(number); type && type->codes) {
            EXPECT_TRUE(seen.contains(number)) << type->name;
        }
}

// Parts of rows too, as ranks and experts read them.
TEST(GgufBlocks, ReadAnyPartOfARow) {
    const json all = goldens();
    for (const auto& [name, of] : all.at("types").items()) {
        SCOPED_TRACE(name);
        const Blocks blocks(of, 64);
        const std::vector<float> values = blocks.values();
        const std::int64_t inputs = blocks.tensor().shape[1];
        for (const auto& [first, count] : {std::pair(inputs + 5, 23), {2 * inputs + 40, 60}, {3 * inputs - 1, 1}}) {
            std::vector<float> part(static_cast<std::size_t>(count));
            read_quantized(blocks.tensor(), first, 1, count, part.data());
            EXPECT_EQ(std::memcmp(part.data(), &values[static_cast<std::size_t>(first)], part.size() * 4), 0);
        }
    }
}

// A unit as CPUs hold it is the file's weights to the bit, whatever part of a row it is of, and takes as many bytes.
TEST(GgufBlocks, AreHeldAsTheDequantisedWeights) {
    const json all = goldens();
    for (const auto& [name, of] : all.at("types").items()) {
        const Blocks blocks(of, 64);
        const QuantizedMatrix& matrix = *blocks.tensor().quantized;
        const std::vector<float> values = blocks.values();
        const std::int64_t inputs = matrix.inputs;
        for (const dist::Slice slice : {dist::Slice{0, inputs}, dist::Slice{16, inputs - 48}}) {
            const PackedFormat format = format_of(blocks.tensor(), slice);
            StoredWeights rows[kernels::kLanes];
            for (int lane = 0; lane < kernels::kLanes; ++lane)
                rows[lane] = {&blocks.tensor(), lane * inputs, 1, inputs, slice};
            const auto k = static_cast<int>(slice.size());
            std::vector<std::byte> unit(unit_bytes_of(format, k));
            pack_unit(format, rows, k, nullptr, unit.data());
            const BlockType& type = *matrix.of.block;
            if (k == inputs && type.steps.bits > 0) {
                const double bits = 8.0 * static_cast<double>(unit.size()) / (kernels::kLanes * k);
                EXPECT_NEAR(bits, type.held_bits(), 0.01 * bits) << name;
                if (name != "TQ1_0" && name != "Q1_0") {
                    EXPECT_LE(bits, 1.05 * 8 * type.bytes / type.inputs) << name;
                }
            }
            for (int lane = 0; lane < kernels::kLanes; ++lane) {
                std::vector<float> held(static_cast<std::size_t>(k));
                unpack_row({format, k, unit.data()}, lane, 0, {0, k}, held.data());
                for (int i = 0; i < k; ++i) {
                    const std::int64_t input = slice.begin + i;
                    const float want = values[static_cast<std::size_t>(lane * inputs + input)];
                    const float got = held[static_cast<std::size_t>(i)];
                    if (!std::isfinite(want)) {
                        EXPECT_FALSE(std::isfinite(got));
                    } else {
                        ASSERT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(want))
                            << name << ", output " << lane << ", input " << input;
                    }
                }
            }
        }
    }
}

// As a draft's may be.
TEST(GgufBlocks, AreRoundedAgainAsTheirNumbersAre) {
    const json all = goldens();
    for (const char* name : {"Q5_0", "Q6_K", "Q8_0"}) {
        const Blocks blocks(all.at("types").at(name), 64);
        const std::vector<float> values = blocks.values();
        TensorView numbers = blocks.tensor();
        numbers.type = DiskType::float32;
        numbers.bytes = std::as_bytes(std::span(values));
        const std::int64_t inputs = numbers.shape[1];
        for (const WeightType type : {WeightType::int8, WeightType::int4}) {
            const PackedFormat format = format_of(type, 0);
            const auto packed = [&](const TensorView& tensor) {
                StoredWeights rows[kernels::kLanes];
                for (int lane = 0; lane < kernels::kLanes; ++lane)
                    rows[lane] = {&tensor, lane * inputs, 1, inputs, {0, inputs}};
                std::vector<std::byte> unit(unit_bytes_of(format, static_cast<int>(inputs)));
                std::vector<float> scales(kernels::kLanes);
                pack_unit(format, rows, static_cast<int>(inputs), scales.data(), unit.data());
                for (const float& scale : scales)
                    for (const std::byte byte : std::as_bytes(std::span(&scale, 1)))
                        unit.push_back(byte);
                return unit;
            };
            EXPECT_EQ(packed(blocks.tensor()), packed(numbers)) << name << ", " << to_string(type);
        }
    }
}

// ---- what is not served ----

json small_llama() {
    return {{"general.architecture", "llama"},
            {"llama.embedding_length", 128U},
            {"llama.feed_forward_length", 32U},
            {"llama.block_count", 1U},
            {"llama.attention.head_count", 2U},
            {"llama.context_length", 64U},
            {"llama.attention.layer_norm_rms_epsilon", 1e-5}};
}

TEST(GgufBlocks, OfTypesThatAreNotServedAreRefusedByNameWithTheirWeights) {
    for (const auto& [number, bytes, name] : std::vector<std::tuple<std::uint32_t, std::size_t, std::string>>{
             {9, 576, "Q8_1 9"}, {26, 2048, "I32 26"}, {31, 0, "Q4_0_4_4 31"}, {77, 0, "number 77"}}) {
        SCOPED_TRACE(name);
        const TemporaryDirectory directory;
        const std::size_t first = 128 * 4 * 4, second = (bytes + 31) / 32 * 32; // of a size that is known, or not
        const auto path = directory.write("model.gguf", gguf(small_llama(),
                                                             {{"token_embd.weight", {128, 4}, 0, 0},
                                                              {"blk.0.ffn_up.weight", {128, 4}, number, first},
                                                              {"output_norm.weight", {128}, 0, first + second}},
                                                             first + second + 512));
        EXPECT_EQ(read_config(path).hidden_size, 128);
        try {
            Checkpoint::open(path);
            ADD_FAILURE() << "opened";
        } catch (const BadFile& error) {
            const std::string what = error.what();
            EXPECT_NE(what.find("tensor 'blk.0.ffn_up.weight' is of ggml's type " + name + ","), std::string::npos)
                << what;
            EXPECT_NE(what.find("llama-quantize"), std::string::npos) << what;
        }
    }
}

} // namespace gguf_test
} // namespace entrodraft::model
