// Weights in and out of the packed form: every stored and packed type, any cut of outputs and inputs, any number of
// threads, and source bytes that are not aligned, as in a mapped file.
#include "model/cpu/packed_matrix.h"
#include "model/files/bad_file.h"
#include "model/files/half.h"
#include "model/files/tensor_values.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <stdexcept>
#include <string>

namespace packed_matrix_test {

using namespace entrodraft::model;
using entrodraft::dist::Slice;

// A matrix stored as [out][in], or as [in][out], at an odd address, and its numbers.
struct Stored {
    std::vector<std::byte> bytes;
    std::vector<float> values; // in the order of the file
    TensorView view;
    bool transposed;

    Stored(DiskType type, int outputs, int inputs, unsigned seed, bool turned = false) : transposed(turned) {
        std::mt19937 generator(seed);
        std::normal_distribution<float> normal;
        const std::size_t n = static_cast<std::size_t>(outputs) * static_cast<std::size_t>(inputs);
        const std::size_t size = type == DiskType::float32 ? 4 : 2;
        bytes.resize(n * size + 8);
        std::byte* data = bytes.data();
        while (reinterpret_cast<std::uintptr_t>(data) % 4 != 1)
            ++data;
        for (std::size_t i = 0; i < n; ++i) {
            float value = normal(generator);
            if (type == DiskType::float32) {
                std::memcpy(data + i * 4, &value, 4);
            } else {
                const bool brain = type == DiskType::bfloat16;
                const std::uint16_t bits = brain ? to_bfloat16(value) : to_float16(value);
                std::memcpy(data + i * 2, &bits, 2);
                value = brain ? from_bfloat16(bits) : from_float16(bits);
            }
            values.push_back(value);
        }
        view = {"w", "?", type, {outputs, inputs}, {data, n * size}, nullptr};
        if (transposed) view.shape = {inputs, outputs};
    }
    std::int64_t inputs() const { return view.shape[transposed ? 0 : 1]; }
    float at(std::int64_t output, std::int64_t input) const {
        return values[static_cast<std::size_t>(transposed ? input * view.shape[1] + output
                                                          : output * view.shape[1] + input)];
    }
    // What an output's weights are multiples of as int8.
    float scale_of(std::int64_t output) const {
        float largest = 0;
        for (std::int64_t input = 0; input < inputs(); ++input)
            largest = std::max(largest, std::fabs(at(output, input)));
        return largest / 127;
    }
    // Of groups that begin with the stored row.
    float four_bits(std::int64_t output, std::int64_t input) const {
        const std::int64_t begin = input / kInt4Group * kInt4Group;
        float largest = 0;
        for (std::int64_t i = begin; i < std::min(begin + kInt4Group, inputs()); ++i)
            if (std::fabs(at(output, i)) > std::fabs(largest)) largest = at(output, i);
        const float scale = from_bfloat16(to_bfloat16(largest / -8));
        return scale * std::clamp(std::nearbyint(at(output, input) * (1 / scale)), -8.0F, 7.0F);
    }
    float packed_as(WeightType type, std::int64_t output, std::int64_t input) const {
        const float value = at(output, input);
        if (type == WeightType::bfloat16) return from_bfloat16(to_bfloat16(value));
        if (type == WeightType::float16) return from_float16(to_float16(value));
        if (type == WeightType::float32) return value;
        if (type == WeightType::int4) return four_bits(output, input);
        const float scale = scale_of(output);
        return scale * std::nearbyint(value * (1 / scale));
    }
};

constexpr WeightType kTypes[] = {WeightType::float32, WeightType::bfloat16, WeightType::float16, WeightType::int8};

std::string name_of(DiskType type) {
    return type == DiskType::float32 ? "F32" : type == DiskType::float16 ? "F16" : "BF16";
}

// The rows of `parts`, one behind the other, packed for `threads` and read back.
void check(DiskType disk, WeightType type, int threads) {
    SCOPED_TRACE(name_of(disk) + " as " + to_string(type) + " for " + std::to_string(threads) + " threads");
    const Stored first(disk, 150, 37, 1), second(disk, 40, 50, 2);
    const std::vector<MatrixPart> parts = {
        {&first.view, {3, 124}, {5, 36}}, {&second.view, {0, 20}, {19, 50}}, {&first.view, {149, 150}, {0, 31}}};
    const int n = 121 + 20 + 1, k = 31;
    PackedMatrix matrix(n, k, format_of(type, 0), threads), behind(5, 3, format_of(type, 0), threads);
    WeightArena arena(threads);
    arena.place(matrix);
    arena.place(behind);
    arena.allocate();
    const Stored small(disk, 5, 3, 3);
    const MatrixPart small_part = {&small.view, {0, 5}, {0, 3}};
    for (int thread = 0; thread < threads; ++thread) {
        behind.load({&small_part, 1}, thread);
        matrix.load(parts, thread);
    }
    ASSERT_EQ(matrix.n_padded(), 144);
    const std::size_t scales = type == WeightType::int8 ? 144U * sizeof(float) : 0;
    ASSERT_EQ(matrix.bytes(), 144U * (type == WeightType::float32 ? 31U : 32U) * bytes_of(type) + scales);

    auto want = [&](int output, int input) {
        return output < 121   ? first.packed_as(type, 3 + output, 5 + input)
               : output < 141 ? second.packed_as(type, output - 121, 19 + input)
                              : first.packed_as(type, 149, input);
    };
    for (int output = 0; output < n; ++output) {
        std::vector<float> row(31, -9.0F);
        matrix.read_output(output, {0, 13}, row.data());
        matrix.read_output(output, {13, 31}, row.data());
        for (int input = 0; input < k; ++input)
            ASSERT_EQ(row[static_cast<std::size_t>(input)], want(output, input)) << output << ", " << input;
    }
    for (int output = 0; output < 5; ++output) {
        float row[3];
        behind.read_output(output, {0, 3}, row);
        for (int input = 0; input < 3; ++input)
            ASSERT_EQ(row[input], small.packed_as(type, output, input)) << "of the matrix behind";
    }

    // Multiplied by unit vectors, every weight comes out, and the padding is zero.
    std::vector<float> x(31 * 31, 0.0F), y(31 * 150, -9.0F), scratch(kernels::linear_scratch_floats(31, 31));
    for (std::size_t i = 0; i < 31; ++i)
        x[i * 31 + i] = 1;
    Slice covered = {0, 0};
    for (int thread = 0; thread < threads; ++thread) {
        const Slice mine = matrix.outputs_of(thread);
        ASSERT_EQ(mine.begin, covered.end) << "parts must tile the outputs";
        covered.end = mine.end;
        matrix.multiply(kernels::best_kernels(), thread, x.data(), 31, 31, y.data(), 150, false, scratch.data(), 3);
    }
    ASSERT_EQ(covered.end, matrix.n_padded());
    for (int input = 0; input < k; ++input)
        for (int output = 0; output < 150; ++output) {
            const float got = y[static_cast<std::size_t>(input * 150 + output)];
            ASSERT_FLOAT_EQ(got, output < n     ? want(output, input)
                                 : output < 144 ? 0.0F
                                                : -9.0F)
                << output << ", " << input;
        }
}

TEST(PackedMatrix, GivesBackWhatWasPackedForEveryTypeAndThreadCount) {
    for (const DiskType disk : {DiskType::float32, DiskType::float16, DiskType::bfloat16})
        for (const WeightType type : kTypes)
            for (int threads = 1; threads <= 5; ++threads)
                check(disk, type, threads);
}

// All weights of a matrix of one thread, [n][k].
std::vector<float> packed(WeightType type, int n, int k, const std::vector<MatrixPart>& parts,
                          std::int64_t first_input = 0) {
    PackedMatrix matrix(n, k, format_of(type, first_input), 1);
    WeightArena arena(1);
    arena.place(matrix);
    arena.allocate();
    matrix.load(parts, 0);
    std::vector<float> weights(static_cast<std::size_t>(n * k));
    for (int output = 0; output < n; ++output)
        matrix.read_output(output, {0, k}, weights.data() + static_cast<std::size_t>(output * k));
    return weights;
}

TEST(PackedMatrix, TakesMatricesStoredWithInputsFirst) {
    for (const DiskType disk : {DiskType::float32, DiskType::float16, DiskType::bfloat16})
        for (const WeightType type : kTypes) {
            SCOPED_TRACE(name_of(disk) + " as " + to_string(type));
            const Stored stored(disk, 90, 700, 6, true); // longer than a chunk of the packer
            const std::vector<float> weights = packed(
                type, 60, 650, {{&stored.view, {40, 80}, {30, 680}, true}, {&stored.view, {0, 20}, {30, 680}, true}});
            for (int output = 0; output < 60; ++output)
                for (int input = 0; input < 650; ++input)
                    ASSERT_EQ(weights[static_cast<std::size_t>(output * 650 + input)],
                              stored.packed_as(type, output < 40 ? 40 + output : output - 40, 30 + input))
                        << output << ", " << input;
        }
}

TEST(PackedMatrix, FillsUpWithZerosWhatNoPartNames) {
    for (const WeightType type : kTypes) {
        SCOPED_TRACE(to_string(type));
        const Stored stored(DiskType::bfloat16, 8, 40, 7);
        // 8 outputs of 13 inputs, 5 outputs of nothing, 8 outputs again; 27 further inputs are nobody's.
        const std::vector<float> weights =
            packed(type, 21, 40,
                   {{&stored.view, {0, 8}, {2, 15}}, {nullptr, {0, 5}, {0, 40}}, {&stored.view, {0, 8}, {0, 40}}});
        for (int output = 0; output < 21; ++output)
            for (int input = 0; input < 40; ++input) {
                const float want = output < 8    ? (input < 13 ? stored.packed_as(type, output, 2 + input) : 0)
                                   : output < 13 ? 0
                                                 : stored.packed_as(type, output - 13, input);
                ASSERT_EQ(weights[static_cast<std::size_t>(output * 40 + input)], want) << output << ", " << input;
            }
    }
}

TEST(PackedMatrix, EightBitWeightsAreTheSameWhateverSliceOfInputsARankHolds) {
    const Stored stored(DiskType::float32, 20, 600, 8);
    const std::vector<float> whole = packed(WeightType::int8, 20, 600, {{&stored.view, {0, 20}, {0, 600}}});
    const std::vector<float> left = packed(WeightType::int8, 20, 96, {{&stored.view, {0, 20}, {0, 96}}});
    const std::vector<float> right = packed(WeightType::int8, 20, 504, {{&stored.view, {0, 20}, {96, 600}}});
    for (std::size_t output = 0; output < 20; ++output) {
        for (std::size_t input = 0; input < 600; ++input)
            ASSERT_EQ(whole[output * 600 + input],
                      input < 96 ? left[output * 96 + input] : right[output * 504 + input - 96]);
        const float step = stored.scale_of(static_cast<std::int64_t>(output));
        for (std::size_t input = 0; input < 600; ++input)
            ASSERT_NEAR(whole[output * 600 + input], stored.values[output * 600 + input], step * 0.50001F);
    }
}

TEST(PackedMatrix, FourBitWeightsAreTheSameWhateverSliceOfInputsARankHolds) {
    for (const bool transposed : {false, true}) {
        const Stored stored(DiskType::bfloat16, 20, 600, 8, transposed);
        for (const Slice slice : {Slice{0, 600}, {0, 96}, {96, 600}, {37, 38}, {64, 130}, {500, 600}}) {
            const int k = static_cast<int>(slice.size());
            const MatrixPart part = {&stored.view, {0, 20}, slice, transposed};
            const std::vector<float> weights = packed(WeightType::int4, 20, k, {part}, slice.begin);
            for (int output = 0; output < 20; ++output)
                for (int i = 0; i < k; ++i)
                    ASSERT_EQ(weights[static_cast<std::size_t>(output * k + i)],
                              stored.four_bits(output, slice.begin + i))
                        << output << ", " << slice.begin + i;
        }
    }
}

TEST(PackedMatrix, FourBitWeightsAreMultipliedBehindTheirLead) {
    const Stored stored(DiskType::float32, 20, 300, 8);
    const MatrixPart part = {&stored.view, {0, 20}, {100, 300}};
    PackedMatrix matrix(20, 200, format_of(WeightType::int4, 100), 1);
    WeightArena arena(1);
    arena.place(matrix);
    arena.allocate();
    matrix.load({&part, 1}, 0);
    std::vector<float> x, y(32), scratch(kernels::linear_scratch_floats(1, scratch_inputs(200)));
    for (int i = 0; i < 200; ++i)
        x.push_back(std::nearbyint(256 * std::sin(static_cast<float>(i))) / 256); // whole numbers of 15 bits hold it
    matrix.multiply(kernels::best_kernels(), 0, x.data(), 200, 1, y.data(), 32, false, scratch.data(), 3);
    for (int output = 0; output < 32; ++output) {
        double want = 0;
        for (int i = 0; i < 200 && output < 20; ++i)
            want += static_cast<double>(stored.four_bits(output, 100 + i)) *
                    static_cast<double>(x[static_cast<std::size_t>(i)]);
        EXPECT_NEAR(y[static_cast<std::size_t>(output)], want, 2e-5) << output;
    }
}

// Of weights whose scale is that of so many inputs.
void expect_zeros_and_infinities(WeightType type, int inputs, int scaled_together, float too_small_for_a_scale) {
    Stored stored(DiskType::float32, 3, inputs, 9);
    const auto n = static_cast<std::size_t>(inputs);
    std::vector<float> values(3 * n, 0.0F); // an output of zeros, one with an infinity, one of a tiny weight
    values[n + 3] = std::numeric_limits<float>::infinity();
    values[2 * n] = too_small_for_a_scale;
    stored.view.bytes = std::as_bytes(std::span(values));
    const std::vector<float> weights = packed(type, 3, inputs, {{&stored.view, {0, 3}, {0, inputs}}});
    for (std::size_t input = 0; input < n; ++input) {
        EXPECT_EQ(weights[input], 0.0F);
        EXPECT_EQ(std::isnan(weights[n + input]), input < static_cast<std::size_t>(scaled_together));
        EXPECT_EQ(weights[2 * n + input], 0.0F);
    }
}

TEST(PackedMatrix, FourBitGroupsOfZerosAreZerosAndInfinitiesAreNotHidden) {
    expect_zeros_and_infinities(WeightType::int4, 128, 64, 1e-39F);
}

TEST(PackedMatrix, EightBitRowsOfZerosAreZerosAndInfinitiesAreNotHidden) {
    expect_zeros_and_infinities(WeightType::int8, 8, 8, 1e-40F);
}

TEST(PackedMatrix, GivesTheSameBitsForEveryThreadCountAndAddsWhereAsked) {
    const Stored stored(DiskType::float32, 200, 90, 4);
    const MatrixPart part = {&stored.view, {0, 200}, {0, 90}};
    std::vector<float> reference;
    for (int threads = 1; threads <= 5; ++threads) {
        PackedMatrix matrix(200, 90, {WeightType::float32}, threads);
        WeightArena arena(threads);
        arena.place(matrix);
        arena.allocate();
        std::vector<float> x, y(7 * 208, 0.5F), scratch(kernels::linear_scratch_floats(7, 90));
        for (int i = 0; i < 7 * 90; ++i)
            x.push_back(std::sin(static_cast<float>(i)));
        for (int thread = 0; thread < threads; ++thread) {
            matrix.load({&part, 1}, thread);
            matrix.multiply(kernels::best_kernels(), thread, x.data(), 90, 7, y.data(), 208, true, scratch.data(), 3);
        }
        if (threads == 1) reference = y;
        EXPECT_EQ(std::memcmp(y.data(), reference.data(), y.size() * sizeof(float)), 0) << threads << " threads";
    }
    double want = 0.5;
    for (int i = 0; i < 90; ++i)
        want += static_cast<double>(stored.at(17, i)) * std::sin(static_cast<double>(3 * 90 + i));
    EXPECT_NEAR(reference[3 * 208 + 17], want, 1e-4);
}

TEST(PackedMatrix, MoreThreadsThanUnitsLeaveSomeThreadsWithNothing) {
    const Stored stored(DiskType::float32, 20, 4, 5);
    const MatrixPart part = {&stored.view, {0, 20}, {0, 4}};
    PackedMatrix matrix(20, 4, {WeightType::float32}, 5);
    WeightArena arena(5);
    arena.place(matrix);
    arena.allocate();
    const std::vector<float> x = {1, 2, 3, 4};
    std::vector<float> y(32, -9.0F), scratch(kernels::linear_scratch_floats(1, 4));
    for (int thread = 0; thread < 5; ++thread) {
        matrix.load({&part, 1}, thread);
        matrix.multiply(kernels::best_kernels(), thread, x.data(), 4, 1, y.data(), 32, false, scratch.data(), 3);
    }
    EXPECT_EQ(matrix.outputs_of(4).size(), 0);
    for (int output = 0; output < 20; ++output)
        EXPECT_NEAR(y[static_cast<std::size_t>(output)],
                    stored.at(output, 0) + 2 * stored.at(output, 1) + 3 * stored.at(output, 2) +
                        4 * stored.at(output, 3),
                    1e-5);
}

TEST(ReadFloats, RefusesATypeThatHoldsNoWeights) {
    const std::string file = "dir/model.safetensors";
    const std::vector<std::byte> bytes(16);
    const TensorView view = {"layers.0.ids", "I32", DiskType::other, {4}, bytes, &file};
    float out[4];
    try {
        read_floats(view, {0, 4}, out);
        FAIL() << "integers were read as weights";
    } catch (const BadFile& error) {
        for (const char* word : {"dir/model.safetensors", "layers.0.ids", "I32"})
            EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
}

} // namespace packed_matrix_test
