// Every kernel of every instruction set that this processor has, against sums in double, and the promise that all of
// the project's exactness is on: a row's bits do not depend on what is computed with it.
#include "model/cpu/kernels.h"
#include "model/files/half.h"
#include "model/host/buffer.h"
#include "model/pass/kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace kernels_test {

using namespace entrodraft::model;
using namespace entrodraft::model::kernels;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> random_floats(std::size_t n, unsigned seed, float spread = 1.0F) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal(0.0F, spread);
    std::vector<float> values(n);
    for (float& value : values)
        value = normal(generator);
    return values;
}

bool same_bits(const float* a, const float* b, std::size_t n) {
    return std::memcmp(a, b, n * sizeof(float)) == 0;
}

class KernelTable : public testing::TestWithParam<const char*> {
  protected:
    void SetUp() override {
        table_ = kernels_named(GetParam());
        if (table_ == nullptr) GTEST_SKIP() << "this processor or build has no " << GetParam() << " kernels";
    }
    const Kernels& table() const { return *table_; }

  private:
    const Kernels* table_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(All, KernelTable,
                         testing::Values("amx", "avx512bf16", "avx512vnni", "avx512", "avx2", "portable"),
                         [](const auto& kernel) { return std::string(kernel.param); });

TEST(Kernels, AreKnownByNameAndTheBestIsOneOfThem) {
    ASSERT_NE(kernels_named("portable"), nullptr);
    EXPECT_EQ(kernels_named("mmx"), nullptr);
    EXPECT_EQ(kernels_named(best_kernels().name), &best_kernels());
    for (const char* name : {"amx", "avx512bf16", "avx512vnni", "avx512", "avx2"}) {
        if (const Kernels* table = kernels_named(name)) {
            EXPECT_STREQ(table->name, name);
            EXPECT_STRNE(best_kernels().name, "portable");
        }
    }
}

// ---- linear ----

// Where the weight of (output, input) lies, counted in elements: kernels.h, LinearArgs.
std::size_t place_of(WeightType type, std::size_t k, std::size_t output, std::size_t input) {
    const std::size_t unit = output / kLanes, lane = output % kLanes;
    const std::size_t inputs = 4 / bytes_of(type), lines = (k + inputs - 1) / inputs;
    const std::size_t line = (unit * lines + input / inputs) * inputs * kLanes;
    if (type == WeightType::float16) return line + input % inputs * kLanes + lane;
    return line + lane * inputs + input % inputs;
}

// Units of weights in one of the types, and what they are as numbers.
struct Units {
    Buffer memory;
    std::vector<float> values;  // [outputs][k], before the scale
    std::vector<float> scales;  // [outputs]
    std::vector<float> offsets; // [outputs][k], of groups: those that values hold

    // The scales of int4 are of groups, and in the values.
    Units(WeightType type, int n_inputs, int units, WeightGroups groups = {}) {
        if (groups.size > 0) {
            make_grouped(type, n_inputs, units, groups);
            return;
        }
        const auto k = static_cast<std::size_t>(n_inputs), outputs = static_cast<std::size_t>(units) * kLanes;
        values = random_floats(k * outputs, 7U + static_cast<unsigned>(n_inputs * units));
        scales = random_floats(outputs, 8);
        memory = Buffer(static_cast<std::size_t>(units) * (k + 3) * kLanes * bytes_of(type));
        if (type == WeightType::int8)
            std::memset(memory.data(), 128, memory.bytes());
        else
            std::fill(scales.begin(), scales.end(), 1.0F);
        for (std::size_t output = 0; output < outputs; ++output)
            for (std::size_t input = 0; input < k; ++input)
                put(type, place_of(type, k, output, input), values[output * k + input]);
    }
    void make_grouped(WeightType type, int n_inputs, int units, WeightGroups groups) {
        const GroupedUnit of(groups, n_inputs);
        const auto k = static_cast<std::size_t>(n_inputs), size = static_cast<std::size_t>(groups.size);
        const std::size_t outputs = static_cast<std::size_t>(units) * kLanes;
        std::mt19937 generator(7U + static_cast<unsigned>(n_inputs * units));
        std::normal_distribution<float> normal;
        memory = Buffer(static_cast<std::size_t>(units) * of.bytes());
        std::fill_n(memory.as<std::byte>(), memory.bytes(), std::byte{0x5a}); // codes that no input has
        scales.assign(outputs, 1.0F);
        for (std::size_t output = 0; output < outputs; ++output) {
            std::byte* unit = memory.as<std::byte>() + output / kLanes * of.bytes();
            const std::size_t lane = output % kLanes;
            // The worth of a step: a half of an outer group, 0: of scales, 1: of offsets.
            const auto outer_half = [&](std::size_t group, std::size_t which) {
                const std::size_t outer = (static_cast<std::size_t>(groups.outer_lead) + group * size) / 256;
                const std::size_t at = outer * (groups.has_offsets ? 2 : 1) + which;
                const std::uint16_t half = to_float16(0.25F + 0.01F * static_cast<float>((at + lane) % 13));
                std::memcpy(unit + of.outer() + (at * kLanes + lane) * 2, &half, 2);
                return from_float16(half);
            };
            const auto put_fact = [&](std::size_t group, bool is_offset, float value) {
                const std::size_t at = group * kLanes + lane;
                std::byte* to = unit + (is_offset ? of.offsets() : 0);
                std::uint16_t brief = to_bfloat16(value);
                const int step = std::clamp(static_cast<int>(value * 20), -128, 127);
                switch (groups.scales) {
                case ScaleType::float32:
                    std::memcpy(to + at * 4, &value, 4);
                    return value;
                case ScaleType::bfloat16:
                    std::memcpy(to + at * 2, &brief, 2);
                    return from_bfloat16(brief);
                case ScaleType::float16:
                    brief = to_float16(value);
                    std::memcpy(to + at * 2, &brief, 2);
                    return from_float16(brief);
                case ScaleType::steps:
                    to[at] = static_cast<std::byte>(step);
                    return outer_half(group, is_offset ? 1 : 0) * static_cast<float>(step);
                case ScaleType::nibbles:
                    break;
                }
                if (is_offset) // the upper half of the scale's byte
                    unit[at] = (unit[at] & std::byte{15}) | static_cast<std::byte>((step & 15) << 4);
                else
                    unit[at] = static_cast<std::byte>(step & 15);
                return outer_half(group, is_offset ? 1 : 0) * static_cast<float>(step & 15);
            };
            std::vector<float> scale_of, offset_of;
            for (std::size_t group = 0; group < static_cast<std::size_t>(of.groups); ++group) {
                scale_of.push_back(put_fact(group, false, normal(generator)));
                const float offset = groups.has_offsets ? normal(generator) * 4 : 0;
                offset_of.push_back(groups.has_offsets ? put_fact(group, true, offset) : 0);
            }
            for (std::size_t input = 0; input < k; ++input) {
                const std::size_t at = input + static_cast<std::size_t>(groups.lead), group = at / size;
                const float code = put_code(type, groups, unit + of.codes(), lane, at, normal(generator));
                values.push_back(code * scale_of[group] - offset_of[group]);
                offsets.push_back(offset_of[group]);
            }
        }
    }
    // Of a unit's lines; returns what the code is.
    static float put_code(WeightType type, const WeightGroups& groups, std::byte* lines, std::size_t lane,
                          std::size_t at, float random) {
        if (type == WeightType::float8) {
            const std::uint8_t bits = to_float8(random * 0.1F); // subnormal ones among them
            lines[at / 4 * kLanes * 4 + at % 4 * kLanes + lane] = static_cast<std::byte>(bits);
            return from_float8(bits);
        }
        const int most = (1 << groups.bits) - 1;
        const int code = std::clamp(static_cast<int>((random * 0.5F + 1) * static_cast<float>(most) / 2), 0, most);
        // Where the lines of a block put bit `bit` of input `at % 32`.
        const int low = groups.bits == 8 ? 8 : groups.bits >= 4 ? 4 : 2;
        std::byte* block = lines + at / 32 * static_cast<std::size_t>(groups.bits) * kLanes * 4;
        for (int bit = 0; bit < groups.bits; ++bit) {
            const bool is_high = bit >= low;
            const int width = is_high ? groups.bits - low : low, in = is_high ? bit - low : bit;
            const auto quad = static_cast<int>(at % 32 / 4);
            const auto line = static_cast<std::size_t>((is_high ? low : 0) + quad / (8 / width));
            std::byte& byte = block[line * kLanes * 4 + lane * 4 + at % 4];
            const auto mask = static_cast<std::byte>(1 << (quad % (8 / width) * width + in));
            byte = (code >> bit & 1) != 0 ? byte | mask : byte & ~mask;
        }
        return static_cast<float>((groups.numbers ? groups.numbers[code] : code) - groups.less);
    }
    void put(WeightType type, std::size_t place, float& value) {
        switch (type) {
        case WeightType::float32:
            memory.as<float>()[place] = value;
            return;
        case WeightType::bfloat16:
            memory.as<std::uint16_t>()[place] = to_bfloat16(value);
            value = from_bfloat16(to_bfloat16(value));
            return;
        case WeightType::float16:
            memory.as<std::uint16_t>()[place] = to_float16(value);
            value = from_float16(to_float16(value));
            return;
        case WeightType::int8:
            value = std::clamp(std::nearbyint(value * 60), -127.0F, 127.0F);
            memory.as<std::uint8_t>()[place] = static_cast<std::uint8_t>(static_cast<int>(value) + 128);
            return;
        case WeightType::int4:
        case WeightType::float8:
            throw std::invalid_argument("not a type of single weights on CPUs");
        }
    }
};

// One call over `rows` rows of `x`, on results that hold `before`; the floats between the rows must stay.
std::vector<float> run_linear(const Kernels& table, LinearArgs args, int rows, const std::vector<float>& before) {
    std::vector<float> y = before, scratch(linear_scratch_floats(rows, args.groups.lead + args.k) + 1, -5.0F);
    args.rows = rows;
    args.scratch = scratch.data();
    args.y = y.data();
    table.linear(args);
    EXPECT_EQ(scratch.back(), -5.0F) << "written behind the scratch of " << rows << " rows";
    return y;
}

// Of a prompt's chunk activations are rounded as bfloat16 weights are, by those kernels that gain by it.
void check_linear(const Kernels& table, WeightType type, int k, int units, bool add, bool is_prompt,
                  WeightGroups groups = {}, int digits = 3) {
    constexpr int kRows = 20;
    const Units weights(type, k, units, groups);
    const int width = units * kLanes;
    LinearArgs args;
    args.w = weights.memory.data();
    args.type = type;
    args.scales = type == WeightType::int8 ? weights.scales.data() : nullptr; // of ungrouped ones
    args.groups = groups;
    args.digits = digits;
    args.k = k;
    args.units = units;
    args.x_stride = static_cast<std::size_t>(k) + 3;
    args.y_stride = static_cast<std::size_t>(width) + 5;
    args.add = add;
    args.is_prompt = is_prompt;
    std::vector<float> x = random_floats(kRows * args.x_stride, 3);
    const std::vector<float> before = random_floats(kRows * args.y_stride, 5);
    args.x = x.data();

    const std::vector<float> all = run_linear(table, args, kRows, before);
    const std::vector<float> as_given = x;
    const bool has_pairs = &table == kernels_named("amx") || &table == kernels_named("avx512bf16");
    if (has_pairs && is_prompt && type == WeightType::bfloat16)
        for (float& value : x)
            value = from_bfloat16(to_bfloat16(value));
    // With weights of whole numbers 32 inputs become whole numbers under the largest of them.
    const bool has_digits = type == WeightType::int8 || type == WeightType::int4;
    const double half_step = !has_digits ? 0 : digits == 1 ? 0.5 / 127 : digits == 2 ? 0.5 / 0x7f7f : 1.2e-7;
    const auto block_of = [&](std::size_t i) { return (i + static_cast<std::size_t>(groups.lead)) / 32; };
    std::vector<std::vector<double>> largest(kRows, std::vector<double>(block_of(static_cast<std::size_t>(k)) + 1));
    for (std::size_t r = 0; r < kRows; ++r)
        for (std::size_t i = 0; i < static_cast<std::size_t>(k); ++i) {
            double& most = largest[r][block_of(i)];
            most = std::max(most, std::fabs(static_cast<double>(x[r * args.x_stride + i])));
        }
    for (std::size_t r = 0; r < kRows; ++r) {
        for (std::size_t out = 0; out < args.y_stride; ++out) {
            const std::size_t at = r * args.y_stride + out;
            if (out >= static_cast<std::size_t>(width)) {
                ASSERT_EQ(all[at], before[at]) << "written behind row " << r;
                continue;
            }
            double want = 0, size = 0, rounding = 0;
            for (std::size_t i = 0; i < static_cast<std::size_t>(k); ++i) {
                const double weight = static_cast<double>(weights.values[out * static_cast<std::size_t>(k) + i]) *
                                      static_cast<double>(weights.scales[out]);
                const double term = static_cast<double>(x[r * args.x_stride + i]) * weight;
                want += term;
                size += std::fabs(term);
                if (!weights.offsets.empty()) // which is added by itself
                    size += 2 * std::fabs(static_cast<double>(x[r * args.x_stride + i]) *
                                          static_cast<double>(weights.offsets[out * static_cast<std::size_t>(k) + i]));
                rounding += half_step * largest[r][block_of(i)] * std::fabs(weight);
            }
            if (add) want += before[at], size += std::fabs(before[at]);
            // Of groups with offsets what is taken off again rounds too.
            const int terms = k + 2 + (groups.has_offsets ? 20 : 0);
            ASSERT_NEAR(all[at], want, size * terms * 6e-8 + rounding + 1e-30) << "row " << r << ", output " << out;
        }
    }
    x = as_given;
    for (int rows = 1; rows < kRows; ++rows) {
        const std::vector<float> some = run_linear(table, args, rows, before);
        for (std::size_t r = 0; r < kRows; ++r) {
            const float* expected = (r < static_cast<std::size_t>(rows) ? all : before).data() + r * args.y_stride;
            ASSERT_TRUE(same_bits(some.data() + r * args.y_stride, expected, args.y_stride))
                << "row " << r << " of a call of " << rows << " rows";
        }
    }
}

TEST_P(KernelTable, LinearEqualsDoubleSumsAndARowsBitsDoNotDependOnTheNumberOfRows) {
    for (const WeightType type : {WeightType::float32, WeightType::bfloat16, WeightType::float16, WeightType::int8})
        for (const int units : {1, 2, 3, 4, 7})
            for (const int k : {1, 7, 72, 129, kLinearPiece - 1, kLinearPiece + 1})
                for (const auto& [add, is_prompt] : {std::pair(false, false), {true, false}, {true, true}}) {
                    SCOPED_TRACE(to_string(type) + ", " + std::to_string(units) + " units, k " + std::to_string(k) +
                                 (add ? ", add" : "") + (is_prompt ? ", of a prompt" : ""));
                    check_linear(table(), type, k, units, add, is_prompt);
                    if (HasFatalFailure()) return;
                }
}

struct GroupedCase {
    WeightType type;
    WeightGroups groups;
    int digits = 3;
};
std::vector<GroupedCase> grouped_cases() {
    constexpr ScaleType kFloats = ScaleType::float32, kBriefs = ScaleType::bfloat16, kSteps = ScaleType::steps;
    static constexpr std::uint8_t kNumbers[16] = {0,   9,   17,  33,  64,  90,  100, 120,
                                                  128, 130, 150, 160, 200, 222, 250, 255};
    return {
        {WeightType::int4, {16}},
        {WeightType::int4, {16, 0, kFloats, true}},
        {WeightType::int4, {32, 5, kFloats}},
        {WeightType::int4, {64}},
        {WeightType::int4, {64, 63, kFloats, true}},
        {WeightType::int4, {128, 16, kBriefs, true}},
        {WeightType::int4, {512, 300}},
        {WeightType::int4, {16}, 1},
        {WeightType::int4, {.size = 16, .has_offsets = true}, 2},
        {WeightType::int4, {.size = 32, .has_offsets = true}, 1},
        {WeightType::int4, {64, 9}, 2},
        {WeightType::int4, {.size = 256, .has_offsets = true}, 2},
        {WeightType::int8, {.size = 32, .scales = kFloats, .has_offsets = true, .bits = 8, .less = 128}},
        {WeightType::int8, {.size = 128, .lead = 7, .bits = 8, .less = 128}},
        {WeightType::int8, {.size = 16, .lead = 3, .has_offsets = true, .bits = 8, .less = 128}, 1},
        {WeightType::int8, {.size = 64, .scales = kFloats, .bits = 8, .less = 128}, 2},
        // As GGUF files have them: Q2_K, Q3_K, Q4_1, Q4_K, Q5_0, Q5_K, Q6_K, Q8_0, IQ4_NL, IQ4_XS, TQ2_0.
        {WeightType::int4, {.size = 16, .scales = ScaleType::nibbles, .has_offsets = true, .bits = 2, .less = 0}, 1},
        {WeightType::int4, {.size = 16, .lead = 8, .scales = kSteps, .bits = 3, .less = 4, .outer_lead = 32}, 2},
        {WeightType::int4, {.size = 32, .scales = ScaleType::float16, .has_offsets = true, .less = 0}},
        {WeightType::int4, {.size = 32, .scales = kSteps, .has_offsets = true, .less = 0, .outer_lead = 224}, 2},
        {WeightType::int8, {.size = 32, .lead = 16, .scales = ScaleType::float16, .bits = 5, .less = 16}, 2},
        {WeightType::int8, {.size = 32, .scales = kSteps, .has_offsets = true, .bits = 5, .less = 0}, 1},
        {WeightType::int8, {.size = 16, .scales = kSteps, .bits = 6, .less = 32, .outer_lead = 128}},
        {WeightType::int8, {.size = 32, .scales = ScaleType::float16, .bits = 8, .less = 128}, 1},
        {WeightType::int4, {.size = 32, .scales = ScaleType::float16, .less = 128, .numbers = kNumbers}, 2},
        {WeightType::int4, {.size = 32, .scales = kSteps, .less = 128, .numbers = kNumbers, .outer_lead = 64}, 1},
        {WeightType::int4, {.size = 256, .scales = ScaleType::float16, .bits = 2, .less = 1}, 3},
        {WeightType::float8, {.size = 128, .lead = 32, .scales = kFloats, .bits = 8, .less = 0}},
        {WeightType::float8, {.size = 512, .bits = 8, .less = 0}},
    };
}

TEST_P(KernelTable, LinearOfGroupsEqualsDoubleSumsAndARowsBitsDoNotDependOnTheNumberOfRows) {
    for (const auto& [type, groups, digits] : grouped_cases())
        for (const int units : {1, 3, 5})
            for (const int k : {0, 1, 72, 129, kLinearPiece + 1}) {
                SCOPED_TRACE(to_string(type) + ", " + std::to_string(units) + " units, k " + std::to_string(k) +
                             ", groups of " + std::to_string(groups.size) + " and " + std::to_string(groups.bits) +
                             " bits behind " + std::to_string(groups.lead) + ", " + std::to_string(digits) + " digits");
                check_linear(table(), type, k, units, k == 72, false, groups, digits);
                if (HasFatalFailure()) return;
            }
}

TEST_P(KernelTable, LinearOfGroupsTakesInputsInAnyOrder) {
    constexpr int k = 200, kRows = 7;
    for (const WeightType type : {WeightType::int4, WeightType::float8}) {
        const WeightGroups groups = {.size = 32, .bits = type == WeightType::int4 ? 4 : 8};
        const Units weights(type, k, 3, groups);
        std::vector<std::int32_t> order(k);
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), std::mt19937(3));
        const std::vector<float> x = random_floats(std::size_t{kRows} * k, 9);
        std::vector<float> ordered(x.size());
        for (std::size_t i = 0; i < x.size(); ++i)
            ordered[i] = x[i / k * k + static_cast<std::size_t>(order[i % k])];
        LinearArgs args;
        args.w = weights.memory.data();
        args.type = type;
        args.groups = groups;
        args.k = k;
        args.units = 3;
        args.x = ordered.data();
        args.x_stride = k;
        args.y_stride = 3 * kLanes;
        for (const int rows : {1, kRows}) {
            const std::vector<float> before(static_cast<std::size_t>(rows) * args.y_stride);
            args.x = ordered.data();
            args.order = nullptr;
            const std::vector<float> want = run_linear(table(), args, rows, before);
            args.x = x.data();
            args.order = order.data();
            const std::vector<float> got = run_linear(table(), args, rows, before);
            EXPECT_TRUE(same_bits(got.data(), want.data(), got.size())) << to_string(type) << ", " << rows;
        }
    }
}

TEST_P(KernelTable, APromptsRowThatHoldsNoNumberSpoilsNoOther) {
    constexpr int k = 33;
    const Units weights(WeightType::bfloat16, k, 1);
    std::vector<float> x = random_floats(std::size_t{2} * k, 3);
    x[k - 1] = std::nanf("");
    LinearArgs args;
    args.w = weights.memory.data();
    args.type = WeightType::bfloat16;
    args.k = k;
    args.units = 1;
    args.x = x.data();
    args.x_stride = k;
    args.y_stride = kLanes;
    args.is_prompt = true;
    const std::vector<float> y = run_linear(table(), args, 2, std::vector<float>(std::size_t{2} * kLanes));
    for (std::size_t i = 0; i < kLanes; ++i) {
        EXPECT_TRUE(std::isnan(y[i])) << i;
        EXPECT_TRUE(std::isfinite(y[kLanes + i])) << i;
    }
}

TEST_P(KernelTable, LinearReadsSubnormalAndSpecialHalves) {
    // Weights that a shift of the exponent alone would get wrong.
    constexpr int kWidth = 16;
    std::vector<std::uint16_t> halves = {0x0000, 0x8000, 0x0001, 0x03ff, 0x0400, 0x83ff, 0x7bff, 0xfbff,
                                         0x3c00, 0x3c01, 0xbc00, 0x7c00, 0xfc00, 0x0200, 0x8001, 0x3555};
    for (const WeightType type : {WeightType::float16, WeightType::bfloat16}) {
        Buffer memory(kWidth * 4);
        for (std::size_t i = 0; i < kWidth; ++i)
            memory.as<std::uint16_t>()[place_of(type, 1, i, 0)] = halves[i];
        const float x = 1;
        float y[kWidth];
        LinearArgs args;
        args.w = memory.data();
        args.type = type;
        args.k = 1;
        args.units = 1;
        args.x = &x;
        args.x_stride = 1;
        args.rows = 1;
        std::vector<float> scratch(linear_scratch_floats(1, 1));
        args.scratch = scratch.data();
        args.y = y;
        args.y_stride = kWidth;
        table().linear(args);
        for (std::size_t i = 0; i < kWidth; ++i)
            EXPECT_EQ(y[i], type == WeightType::float16 ? from_float16(halves[i]) : from_bfloat16(halves[i])) << i;
    }
}

TEST_P(KernelTable, TheSumsThatAMultiplicationKeepsDoNotDependOnTheRowsBesideThem) {
    constexpr int kRows = 20, kInputs = 150, kUnits = 7, kCounted = kUnits * kLanes - 21;
    const std::vector<float> x = random_floats(static_cast<std::size_t>(kRows) * kInputs, 9);
    for (const WeightType type :
         {WeightType::float32, WeightType::bfloat16, WeightType::float16, WeightType::int8, WeightType::int4}) {
        const WeightGroups groups = {type == WeightType::int4 ? 64 : 0};
        const Units weights(type, kInputs, kUnits, groups);
        LinearArgs args;
        args.groups = groups;
        args.w = weights.memory.data();
        args.type = type;
        args.scales = weights.scales.data();
        args.k = kInputs;
        args.units = kUnits;
        args.x_stride = kInputs;
        args.y_stride = kUnits * kLanes;
        args.stats_outputs = kCounted;
        const auto run = [&](int first, int rows, std::vector<LaneStats>& stats) {
            std::vector<float> y(static_cast<std::size_t>(rows) * args.y_stride);
            std::vector<float> scratch(linear_scratch_floats(rows, kInputs));
            stats.resize(static_cast<std::size_t>(rows));
            for (LaneStats& each : stats)
                each.clear();
            args.x = x.data() + static_cast<std::size_t>(first) * kInputs;
            args.rows = rows;
            args.y = y.data();
            args.scratch = scratch.data();
            args.stats = stats.data();
            table().linear(args);
            return y;
        };
        std::vector<LaneStats> all, one;
        for (const int rows : {3, 5, 8, 20}) {
            const std::vector<float> y = run(0, rows, all);
            for (int r = 0; r < rows; ++r) {
                run(r, 1, one);
                ASSERT_EQ(std::memcmp(&one[0], &all[static_cast<std::size_t>(r)], sizeof(LaneStats)), 0)
                    << to_string(type) << ", row " << r << " of " << rows;
                const float* logits = y.data() + static_cast<std::size_t>(r) * args.y_stride;
                const LogitStats kept = table().finish_stats(one[0], logits, kCounted, 0);
                const LogitStats walked = table().logit_stats(logits, kCounted, 0);
                EXPECT_EQ(kept.arg_max, walked.arg_max);
                EXPECT_EQ(kept.runner_up, walked.runner_up);
                EXPECT_NEAR(kept.entropy_nats(), walked.entropy_nats(), 1e-5 * (1 + walked.entropy_nats()));
            }
        }
    }
}

// A sum that were scaled anew with every unit would gather that scale's rounding.
TEST_P(KernelTable, TheSumsThatAMultiplicationKeepsAreThoseOfDoublesHoweverManyTheLogits) {
    constexpr int kInputs = 4, kUnits = 2048, kLogits = kUnits * kLanes;
    for (const float spread : {0.01F, 1.0F, 3.0F}) {
        const std::vector<float> weights = random_floats(static_cast<std::size_t>(kLogits) * kInputs, 12, spread);
        Buffer memory(weights.size() * sizeof(float));
        std::copy(weights.begin(), weights.end(), memory.as<float>());
        const float x[kInputs] = {0.5F, 0.5F, -0.5F, 0.5F};
        std::vector<float> y(kLogits), scratch(linear_scratch_floats(1, kInputs));
        LaneStats sums;
        sums.clear();
        LinearArgs args;
        args.w = memory.data();
        args.k = kInputs;
        args.units = kUnits;
        args.x = x;
        args.x_stride = kInputs;
        args.rows = 1;
        args.y = y.data();
        args.y_stride = kLogits;
        args.scratch = scratch.data();
        args.stats = &sums;
        args.stats_outputs = kLogits;
        table().linear(args);
        double sum = 0, shifted = 0;
        const double top = static_cast<double>(*std::max_element(y.begin(), y.end()));
        for (const float logit : y) {
            const double d = static_cast<double>(logit) - top;
            sum += std::exp(d);
            shifted += d * std::exp(d);
        }
        const LogitStats stats = table().finish_stats(sums, y.data(), kLogits, 0);
        const double entropy = std::log(sum) - shifted / sum;
        EXPECT_NEAR(stats.entropy_nats(), entropy, 5e-6 * entropy) << "spread " << spread;
        EXPECT_NEAR(stats.log_sum_exp(), top + std::log(sum), 5e-6) << "spread " << spread;
    }
}

// A block's sums are whole numbers, and what follows is one sequence of roundings.
TEST_P(KernelTable, WeightsOfWholeNumbersGiveTheBitsOfEveryOtherInstructionSet) {
    const Kernels& portable = *kernels_named("portable");
    std::vector<GroupedCase> cases = grouped_cases();
    cases.push_back({WeightType::int8, {}});
    for (const auto& [type, groups, unused] : cases)
        for (const int k : {1, 60, 64, 65, 700})
            for (const int digits : {1, 2, 3}) {
                if (type == WeightType::float8) continue;
                constexpr int kUnits = 3;
                const Units weights(type, k, kUnits, groups);
                LinearArgs args;
                args.w = weights.memory.data();
                args.type = type;
                args.groups = groups;
                args.digits = digits;
                args.scales = weights.scales.data();
                args.k = k;
                args.units = kUnits;
                args.x_stride = static_cast<std::size_t>(k);
                args.y_stride = kUnits * kLanes;
                std::vector<float> x = random_floats(130 * args.x_stride, 10);
                x[args.x_stride / 2] = 3e-38F; // a row of little, if it is alone
                args.x = x.data();
                for (const int rows : {1, 2, 3, 17, 65, 130}) {
                    const std::vector<float> before(static_cast<std::size_t>(rows) * args.y_stride, 0.5F);
                    const std::vector<float> a = run_linear(table(), args, rows, before);
                    const std::vector<float> b = run_linear(portable, args, rows, before);
                    ASSERT_TRUE(same_bits(a.data(), b.data(), a.size()))
                        << to_string(type) << ", groups of " << groups.size << ", " << k << " inputs, " << digits
                        << " digits, " << rows << " rows";
                }
            }
}

// One row of k equal values x against one unit of equal weights and scales.
float multiply_equal(const Kernels& table, int k, float x, int weight, float scale) {
    const std::size_t inputs = static_cast<std::size_t>(k + 3) / 4 * 4;
    Buffer memory(inputs * kLanes);
    std::memset(memory.data(), weight + 128, memory.bytes());
    const std::vector<float> row(static_cast<std::size_t>(k), x), scales(kLanes, scale);
    std::vector<float> y(kLanes), scratch(linear_scratch_floats(1, k));
    LinearArgs args;
    args.w = memory.data();
    args.type = WeightType::int8;
    args.scales = scales.data();
    args.k = k;
    args.units = 1;
    args.x = row.data();
    args.x_stride = row.size();
    args.rows = 1;
    args.y = y.data();
    args.y_stride = kLanes;
    args.scratch = scratch.data();
    table.linear(args);
    for (const float value : y)
        EXPECT_TRUE(value == y[0] || (std::isnan(value) && std::isnan(y[0])));
    return y[0];
}

TEST_P(KernelTable, EightBitWeightsTakeRowsOfAnyMagnitudeAndManyInputs) {
    for (const float x : {1.0F, -1.9921875F, 1.99999988F, 3e-39F, 1e-30F, -1e30F, 3.0e35F, 0.0F})
        for (const int weight : {1, -127, 127}) {
            const double want = static_cast<double>(x) * weight * 7 * 1e-3;
            const double got = static_cast<double>(multiply_equal(table(), 7, x, weight, 1e-3F));
            // Below 2^-104 what is lost of a value is 2^-127.
            EXPECT_NEAR(got, want, std::fabs(want) * 5e-7 + std::fabs(weight) * 7e-3 * 6e-39) << x << " * " << weight;
        }
    constexpr int kInputs = 1 << 17;
    for (const int weight : {-127, 127}) {
        const double want = static_cast<double>(kInputs) * 1.9921875 * weight;
        EXPECT_NEAR(multiply_equal(table(), kInputs, 1.9921875F, weight, 1.0F), want, std::fabs(want) * 1e-2);
    }
}

TEST_P(KernelTable, EightBitWeightsDoNotHideWhatIsNoNumber) {
    EXPECT_TRUE(std::isnan(multiply_equal(table(), 20, std::numeric_limits<float>::quiet_NaN(), 3, 1.0F)));
    EXPECT_FALSE(std::isfinite(multiply_equal(table(), 20, kInfinity, 3, 1.0F)));
}

// ---- attention ----

constexpr WeightType kKvTypes[] = {WeightType::float32, WeightType::bfloat16, WeightType::float16, WeightType::int8};

// Keys and values of one head in a cache; what lies behind the last key is large, as stale memory may be.
struct Head {
    int head_dim;
    int n_keys;
    std::vector<float> key_rows; // [n_keys][head_dim], as the cache has rounded them
    std::vector<float> values;   // [n_keys][head_dim]
    std::shared_ptr<KvCache> cache;

    // The first n_beginning keys and values are those of another, if there is one.
    Head(int dim, int keys, WeightType type = WeightType::float32, unsigned seed = 21, const Head* beginning = nullptr,
         int n_beginning = 0)
        : head_dim(dim), n_keys(keys), key_rows(random_floats(static_cast<std::size_t>(dim * keys), seed)),
          values(random_floats(static_cast<std::size_t>(dim * keys), seed + 1)),
          cache(cache_of(dim, keys, type, 1e4F)) {
        if (beginning) {
            std::copy_n(beginning->key_rows.begin(), n_beginning * dim, key_rows.begin());
            std::copy_n(beginning->values.begin(), n_beginning * dim, values.begin());
        }
        for (int j = 0; j < keys; ++j) {
            float *key = key_rows.data() + j * dim, *value = values.data() + j * dim;
            if (j >= n_beginning)
                cache->put({.position = j}, key, value);
            else // rounded already, and not again
                cache->copy_in({.position = j}, *beginning->cache, {.position = j}, 1);
            cache->read({.position = j}, key, value);
        }
    }

    WeightType type() const { return cache->shape().type; }
    KvHead memory() const { return cache->head(0, 0, 0); }

    // Makes a cache of one number everywhere, also behind the last key.
    static std::shared_ptr<KvCache> cache_of(int dim, int keys, WeightType type, float number) {
        auto made = std::make_shared<KvCache>(KvCache::Shape{
            .n_layers = 1, .n_kv_heads = 1, .head_dim = dim, .n_slots = 1, .capacity = keys, .type = type});
        const std::vector<float> row(static_cast<std::size_t>(dim), number);
        for (int j = 0; j < made->shape().capacity; ++j)
            made->put({.position = j}, row.data(), row.data());
        return made;
    }
};

// The same keys and values in two places: the first n_prefix, and the rest; none where the other has them.
struct SplitHead {
    std::shared_ptr<KvCache> prefix, own;

    SplitHead(const Head& head, int n_prefix) : prefix(without_numbers(head)), own(without_numbers(head)) {
        prefix->copy_in({}, *head.cache, {}, n_prefix);
        own->copy_in({.position = n_prefix}, *head.cache, {.position = n_prefix}, head.n_keys - n_prefix);
    }
    static std::shared_ptr<KvCache> without_numbers(const Head& head) {
        return Head::cache_of(head.head_dim, head.n_keys, head.type(), std::numeric_limits<float>::quiet_NaN());
    }
};

struct Query {
    int n_keys = 0;
    int first_key = 0;
    bool masked = false;
    std::vector<std::uint64_t> mask;
    std::vector<float> bias; // of every key
};

std::vector<float> run_attention(const Kernels& table, const Head& head, const std::vector<float>& q,
                                 const std::vector<Query>& queries, int mask_begin, std::size_t first,
                                 std::size_t count, float soft_cap, int n_prefix = 0) {
    const auto dim = static_cast<std::size_t>(head.head_dim);
    const std::size_t stride = static_cast<std::size_t>(head.n_keys + 15) / 16 * 16;
    std::vector<float> out(count * dim, -7.0F), scratch(count * stride, std::numeric_limits<float>::quiet_NaN());
    AttentionArgs args;
    args.n_queries = static_cast<int>(count);
    args.head_dim = args.value_dim = head.head_dim;
    args.scale = 1.0F / std::sqrt(static_cast<float>(head.head_dim));
    args.scratch = scratch.data();
    args.scratch_stride = stride;
    std::optional<SplitHead> split;
    if (n_prefix > 0) {
        split.emplace(head, n_prefix);
        args.prefix = split->prefix->head(0, 0, 0);
        args.n_prefix = n_prefix;
    }
    args.kv_type = head.type();
    args.soft_cap = soft_cap;
    for (std::size_t i = 0; i < count; ++i) {
        if (!queries[first + i].bias.empty()) args.bias[i] = queries[first + i].bias.data();
        args.kv[i] = split ? split->own->head(0, 0, 0) : head.memory();
        args.mask_begin[i] = mask_begin;
        args.q[i] = q.data() + (first + i) * dim;
        args.out[i] = out.data() + i * dim;
        args.n_keys[i] = queries[first + i].n_keys;
        args.first_key[i] = queries[first + i].first_key;
        if (queries[first + i].masked) args.mask[i] = queries[first + i].mask.data();
    }
    table.attention(args);
    return out;
}

std::vector<double> attention_in_double(const Head& head, const float* q, const Query& query, int mask_begin,
                                        double soft_cap) {
    const auto dim = static_cast<std::size_t>(head.head_dim);
    std::vector<double> weights, out(dim, 0.0);
    double top = -1e300, sum = 0;
    for (int j = 0; j < query.n_keys; ++j) {
        const int bit = j - mask_begin;
        const bool seen =
            !query.masked || bit < 0 || ((query.mask[static_cast<std::size_t>(bit / 64)] >> (bit % 64)) & 1U) != 0;
        double score = 0;
        for (std::size_t d = 0; d < dim; ++d)
            score +=
                static_cast<double>(q[d]) * static_cast<double>(head.key_rows[static_cast<std::size_t>(j) * dim + d]);
        score /= std::sqrt(static_cast<double>(dim));
        if (soft_cap > 0) score = soft_cap * std::tanh(score / soft_cap);
        score = seen ? score : -1e300;
        if (!query.bias.empty()) score += static_cast<double>(query.bias[static_cast<std::size_t>(j)]);
        top = std::max(top, score);
        weights.push_back(score);
    }
    for (double& weight : weights) {
        weight = weight <= -1e299 ? 0 : std::exp(weight - top);
        sum += weight;
    }
    for (std::size_t j = 0; j < weights.size(); ++j)
        for (std::size_t d = 0; d < dim; ++d)
            out[d] += weights[j] / sum * static_cast<double>(head.values[j * dim + d]);
    return out;
}

// `count` queries that see up to `keys` keys: causal lengths, or random masks over the last third.
std::vector<Query> make_queries(int count, int keys, bool masked, int& mask_begin) {
    std::mt19937 generator(static_cast<unsigned>(keys * 8 + count));
    std::vector<Query> queries(static_cast<std::size_t>(count));
    mask_begin = masked ? keys - keys / 3 : keys;
    for (int i = 0; i < count; ++i) {
        Query& query = queries[static_cast<std::size_t>(i)];
        query.n_keys = std::max(1, keys - (count - 1 - i) / 2); // queries of a group share a length
        query.masked = masked && i % 3 != 2;
        query.mask = {generator() | (std::uint64_t{generator()} << 32), generator() | std::uint64_t{1} << 63};
        const int own = query.n_keys - 1 - mask_begin;
        if (own >= 0) query.mask[static_cast<std::size_t>(own / 64)] |= std::uint64_t{1} << (own % 64);
    }
    return queries;
}

void check_attention(const Kernels& table, int dim, int keys, bool masked, float soft_cap, bool biased,
                     WeightType type = WeightType::float32) {
    const Head head(dim, keys, type);
    for (int count = 1; count <= kMaxQueries; ++count) {
        int mask_begin = 0;
        std::vector<Query> queries = make_queries(count, keys, masked, mask_begin);
        for (int i = 0; biased && i < count; ++i)
            if (i % 3 != 1)
                queries[static_cast<std::size_t>(i)].bias =
                    random_floats(static_cast<std::size_t>(keys + 15) / 16 * 16, 24U + static_cast<unsigned>(i), 2.0F);
        const auto n = static_cast<std::size_t>(count), width = static_cast<std::size_t>(dim);
        const std::vector<float> q = random_floats(n * width, 23, 2.0F);
        const std::vector<float> together = run_attention(table, head, q, queries, mask_begin, 0, n, soft_cap);
        for (std::size_t i = 0; i < n; ++i) {
            const std::vector<double> want =
                attention_in_double(head, q.data() + i * width, queries[i], mask_begin, soft_cap);
            for (std::size_t d = 0; d < width; ++d)
                ASSERT_NEAR(together[i * width + d], want[d], 2e-5) << "query " << i << " of " << count << ", " << d;
            const std::vector<float> alone = run_attention(table, head, q, queries, mask_begin, i, 1, soft_cap);
            ASSERT_TRUE(same_bits(alone.data(), together.data() + i * width, width))
                << "query " << i << " alone and among " << count;
        }
    }
}

TEST_P(KernelTable, AttentionEqualsDoubleSumsAndAQuerysBitsDoNotDependOnTheOthers) {
    for (const int dim : {2, 8, 20, 40, 64, 128})
        for (const int keys : {1, 2, 15, 16, 17, 33, 100, 257})
            for (const bool masked : {false, true}) {
                SCOPED_TRACE("head_dim " + std::to_string(dim) + ", " + std::to_string(keys) + " keys" +
                             (masked ? ", masks" : ""));
                check_attention(table(), dim, keys, masked, 0, false);
                if (HasFatalFailure()) return;
            }
}

TEST_P(KernelTable, AttentionReadsKeysAndValuesOfEveryType) {
    for (const WeightType type : kKvTypes)
        for (const int dim : {2, 20, 40, 64, 128})
            for (const int keys : {1, 17, 100})
                for (const bool masked : {false, true}) {
                    SCOPED_TRACE(to_string(type) + ", head_dim " + std::to_string(dim) + ", " + std::to_string(keys) +
                                 " keys" + (masked ? ", masks" : ""));
                    check_attention(table(), dim, keys, masked, 0, false, type);
                    if (HasFatalFailure()) return;
                }
}

TEST_P(KernelTable, AttentionCapsScoresAndThenAddsEachKeysBias) {
    for (const float soft_cap : {0.0F, 1.5F, 50.0F})
        for (const bool biased : {false, true})
            for (const bool masked : {false, true})
                for (const int keys : {5, 16, 100}) {
                    SCOPED_TRACE("cap " + std::to_string(soft_cap) + (biased ? ", bias" : "") +
                                 (masked ? ", masks" : ""));
                    check_attention(table(), 40, keys, masked, soft_cap, biased);
                    if (HasFatalFailure()) return;
                }
}

// Queries of three sequences that begin alike, in one call, against each alone.
void check_attention_apart(const Kernels& table, int dim, int n_prefix, int count, WeightType type) {
    const Head longest(dim, n_prefix + 20, type);
    const Head heads[] = {Head(dim, n_prefix + 1, type, 31, &longest, n_prefix),
                          Head(dim, n_prefix + 7, type, 33, &longest, n_prefix),
                          Head(dim, n_prefix + 20, type, 35, &longest, n_prefix)};
    const SplitHead split[] = {SplitHead(heads[0], n_prefix), SplitHead(heads[1], n_prefix),
                               SplitHead(heads[2], n_prefix)};
    const auto width = static_cast<std::size_t>(dim), stride = static_cast<std::size_t>(n_prefix + 32);
    const std::vector<float> q = random_floats(static_cast<std::size_t>(count) * width, 37, 2.0F),
                             bias = random_floats(stride, 38);
    const std::uint64_t mask = 0b101;
    std::vector<float> out(q.size()), alone(q.size()),
        scratch(kMaxQueries * stride, std::numeric_limits<float>::quiet_NaN());
    AttentionArgs args;
    args.head_dim = args.value_dim = dim;
    args.kv_type = type;
    args.scale = 0.3F;
    args.scratch_stride = stride;
    args.scratch = scratch.data();
    AttentionArgs together = args;
    together.apart = count > 1;
    together.n_queries = count;
    together.n_prefix = n_prefix;
    together.prefix = split[1].prefix->head(0, 0, 0);
    const auto fill = [&](AttentionArgs& to, std::size_t at, std::size_t query, const Head& head) {
        to.q[at] = q.data() + query * width;
        to.n_keys[at] = head.n_keys;
        if (count == 5) to.first_key[at] = std::min(n_prefix, 10 + static_cast<int>(query) * 9);
        if (count % 2 == 0 && head.n_keys > n_prefix + 3) {
            to.mask[at] = &mask;
            to.mask_begin[at] = head.n_keys - 3;
        }
        if (count == 3) to.bias[at] = bias.data();
    };
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
        fill(together, i, i, heads[i % 3]);
        together.out[i] = out.data() + i * width;
        together.kv[i] = split[i % 3].own->head(0, 0, 0);
        AttentionArgs one = args;
        fill(one, 0, i, heads[i % 3]);
        one.n_queries = 1;
        one.out[0] = alone.data() + i * width;
        one.kv[0] = heads[i % 3].memory();
        table.attention(one);
    }
    table.attention(together);
    ASSERT_TRUE(same_bits(out.data(), alone.data(), out.size()))
        << count << " queries of " << dim << " behind " << n_prefix << " keys";
}

TEST_P(KernelTable, AttentionGivesQueriesOfSequencesThatBeginAlikeTheBitsOfEachAlone) {
    for (const WeightType type : kKvTypes)
        for (const int dim : {2, 8, 20, 40, 64, 80, 128})
            for (const int n_prefix : {16, 48, 240})
                for (int count = 1; count <= kMaxQueries; ++count) {
                    check_attention_apart(table(), dim, n_prefix, count, type);
                    if (HasFatalFailure()) return;
                }
}

TEST_P(KernelTable, AttentionGivesTheSameBitsWhereverTheFirstKeysLie) {
    for (const int dim : {2, 8, 20, 40, 64, 80, 128}) {
        for (const int keys : {17, 33, 48, 100, 257}) {
            const Head head(dim, keys, kKvTypes[static_cast<std::size_t>(keys / 16 + dim) % 4]);
            for (int count = 1; count <= kMaxQueries; ++count) {
                const bool masked = keys % 2 == 0;
                int mask_begin = 0;
                std::vector<Query> queries = make_queries(count, keys, masked, mask_begin);
                for (std::size_t i = 0; i < queries.size(); ++i) {
                    if (count == 5) queries[i].first_key = std::min(queries[i].n_keys, mask_begin) / 2 + (i == 0);
                    if (count % 2 == 0) queries[i].bias = random_floats(272, 25U + static_cast<unsigned>(i));
                }
                const auto n = static_cast<std::size_t>(count), width = static_cast<std::size_t>(dim);
                const std::vector<float> q = random_floats(n * width, 26, 2.0F);
                const float soft_cap = count == 3 ? 5.0F : 0.0F;
                const auto attended = [&](int n_prefix) {
                    return run_attention(table(), head, q, queries, mask_begin, 0, n, soft_cap, n_prefix);
                };
                const std::vector<float> whole = attended(0);
                for (const int n_prefix : {16, 32, 48, 96, 240, 256}) {
                    if (n_prefix > keys - 3) continue; // below the shortest query
                    ASSERT_TRUE(same_bits(attended(n_prefix).data(), whole.data(), n * width))
                        << count << " queries of " << dim << " over " << keys << " keys, of them shared " << n_prefix;
                }
            }
        }
    }
}

// ---- elementwise ----

TEST_P(KernelTable, RmsNormEqualsItsFormula) {
    for (const int n : {1, 5, 16, 31, 48, 72, 100, 512}) {
        const auto count = static_cast<std::size_t>(n);
        const std::vector<float> x = random_floats(count, 31, 3.0F), weight = random_floats(count, 32);
        std::vector<float> out(count + 1, -7.0F);
        table().rms_norm(x.data(), weight.data(), n, 1e-5F, out.data());
        double squares = 0;
        for (const float value : x)
            squares += static_cast<double>(value) * static_cast<double>(value);
        const double scale = 1 / std::sqrt(squares / n + 1e-5);
        for (std::size_t i = 0; i < count; ++i) {
            const double want = static_cast<double>(x[i]) * scale * static_cast<double>(weight[i]);
            ASSERT_NEAR(out[i], want, std::fabs(want) * 3e-6) << n << ", " << i;
        }
        EXPECT_EQ(out[count], -7.0F) << "written behind the end";
    }
    float zero = 0, one = 1, out = -1;
    table().rms_norm(&zero, &one, 1, 1e-5F, &out);
    EXPECT_EQ(out, 0.0F);
}

TEST_P(KernelTable, LayerNormEqualsItsFormulaAlsoFarFromZero) {
    for (const int n : {1, 5, 16, 31, 48, 72, 100, 768})
        for (const float centre : {0.0F, 30.0F}) {
            const auto count = static_cast<std::size_t>(n);
            std::vector<float> x = random_floats(count, 33, 3.0F);
            for (float& value : x)
                value += centre;
            const std::vector<float> weight = random_floats(count, 34), bias = random_floats(count, 35);
            double mean = 0, variance = 0;
            for (const float value : x)
                mean += static_cast<double>(value) / n;
            for (const float value : x)
                variance += (static_cast<double>(value) - mean) * (static_cast<double>(value) - mean) / n;
            const double scale = 1 / std::sqrt(variance + 1e-5);
            for (const bool with_weight : {false, true})
                for (const bool with_bias : {false, true}) {
                    std::vector<float> out(count + 1, -7.0F);
                    table().layer_norm(x.data(), with_weight ? weight.data() : nullptr,
                                       with_bias ? bias.data() : nullptr, n, 1e-5F, out.data());
                    for (std::size_t i = 0; i < count; ++i) {
                        const double normed = (static_cast<double>(x[i]) - mean) * scale;
                        const double factor = with_weight ? weight[i] : 1, term = with_bias ? bias[i] : 0;
                        ASSERT_NEAR(out[i], normed * factor + term, 2e-6 * (1 + centre) * (1 + std::fabs(factor)))
                            << n << ", " << i;
                    }
                    EXPECT_EQ(out[count], -7.0F) << "written behind the end";
                }
        }
}

double activated(Activation activation, double x) {
    switch (activation) {
    case Activation::silu:
        return x / (1 + std::exp(-x));
    case Activation::gelu:
        return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::gelu_tanh:
        return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
    case Activation::relu:
        return x > 0 ? x : 0;
    }
    return 0;
}

constexpr Activation kActivations[] = {Activation::silu, Activation::gelu, Activation::gelu_tanh, Activation::relu};

TEST_P(KernelTable, ActivationsEqualTheirFormulasFromEndToEndOfTheirRange) {
    std::vector<float> x = {0.0F, -0.0F, 1e-20F, -1e-20F, 20.0F, -20.0F, 86.0F, -86.0F, 1e4F, -1e4F};
    for (int i = -40000; i <= 40000; ++i)
        x.push_back(static_cast<float>(i) * 0.00217F);
    const std::vector<float> factor = random_floats(x.size(), 41);
    for (const Activation activation : kActivations)
        for (const bool with_factor : {false, true}) {
            std::vector<float> y = x;
            table().activate(activation, y.data(), with_factor ? factor.data() : nullptr, static_cast<int>(y.size()));
            for (std::size_t i = 0; i < x.size(); ++i) {
                const double f = activated(activation, static_cast<double>(x[i]));
                const double want = with_factor ? f * static_cast<double>(factor[i]) : f;
                // Relative, and where the result is a small part of x, absolute.
                const double size = std::fabs(want) * 4e-6 + (activation == Activation::silu ? 1e-30 : 5e-7);
                ASSERT_NEAR(y[i], want, size) << static_cast<int>(activation) << " of " << x[i];
            }
        }
}

TEST_P(KernelTable, ActivationsGiveTheSameBitsWhereverARowIsCut) {
    const std::vector<float> factor = random_floats(80, 42), before = random_floats(80, 43, 4.0F);
    for (const Activation activation : kActivations) {
        std::vector<float> whole = before;
        table().activate(activation, whole.data(), factor.data(), 80);
        for (const int cut : {1, 16, 21, 32, 48, 64, 79}) {
            std::vector<float> parts = before;
            table().activate(activation, parts.data(), factor.data(), cut);
            table().activate(activation, parts.data() + cut, factor.data() + cut, 80 - cut);
            EXPECT_TRUE(same_bits(parts.data(), whole.data(), 80)) << "cut at " << cut;
        }
    }
}

TEST_P(KernelTable, WhatIsNoNumberStaysNoneThroughActivationsAndCaps) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const Activation activation : kActivations) {
        std::vector<float> x(20, nan);
        table().activate(activation, x.data(), nullptr, 20);
        EXPECT_TRUE(std::isnan(x[0]) && std::isnan(x[19])) << static_cast<int>(activation);
    }
    std::vector<float> x(20, nan);
    table().soft_cap(x.data(), 30.0F, 20);
    EXPECT_TRUE(std::isnan(x[0]) && std::isnan(x[19]));
}

TEST_P(KernelTable, SoftCapEqualsItsFormulaFromTinyToHuge) {
    std::vector<float> before = {0.0F, 1e-20F, -1e-20F, 1e-3F, 1e10F, -1e10F};
    for (int i = -20000; i <= 20000; ++i)
        before.push_back(static_cast<float>(i) * 0.0137F);
    for (const float cap : {1.0F, 30.0F, 50.0F}) {
        std::vector<float> x = before;
        table().soft_cap(x.data(), cap, static_cast<int>(x.size()));
        for (std::size_t i = 0; i < x.size(); ++i) {
            const double want = cap * std::tanh(static_cast<double>(before[i]) / cap);
            ASSERT_NEAR(x[i], want, std::fabs(want) * 1e-6) << before[i] << " under " << cap;
        }
    }
}

TEST_P(KernelTable, RotationsTurnPairsOfHalvesAndOfNeighbours) {
    for (const int half : {1, 8, 10, 16, 20, 32, 64}) {
        const auto n = static_cast<std::size_t>(half);
        const std::vector<float> before = random_floats(2 * n, 51);
        std::vector<float> cosines(n), sines(n), head = before, neighbours = before;
        for (std::size_t i = 0; i < n; ++i) {
            cosines[i] = std::cos(static_cast<float>(i) * 0.7F);
            sines[i] = std::sin(static_cast<float>(i) * 0.7F);
        }
        table().rotate_half(head.data(), cosines.data(), sines.data(), half);
        table().rotate_pairs(neighbours.data(), cosines.data(), sines.data(), half);
        for (std::size_t i = 0; i < n; ++i) {
            const double c = cosines[i], s = sines[i], a = before[i], b = before[n + i];
            ASSERT_NEAR(head[i], a * c - b * s, 1e-6) << half << ", " << i;
            ASSERT_NEAR(head[n + i], b * c + a * s, 1e-6) << half << ", " << i;
            const double even = before[2 * i], odd = before[2 * i + 1];
            ASSERT_NEAR(neighbours[2 * i], even * c - odd * s, 1e-6) << half << ", " << i;
            ASSERT_NEAR(neighbours[2 * i + 1], odd * c + even * s, 1e-6) << half << ", " << i;
        }
    }
}

// ---- logits ----

struct RowInDouble {
    double log_sum_exp = 0;
    double entropy = 0;
    std::int32_t arg_max = 0;
};

RowInDouble stats_in_double(const std::vector<float>& logits) {
    RowInDouble row;
    row.arg_max = static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    const double top = logits[static_cast<std::size_t>(row.arg_max)];
    double sum = 0;
    for (const float x : logits)
        sum += std::exp(static_cast<double>(x) - top);
    row.log_sum_exp = top + std::log(sum);
    for (const float x : logits) {
        const double p = std::exp(static_cast<double>(x) - row.log_sum_exp);
        if (p > 0) row.entropy -= p * std::log(p);
    }
    return row;
}

void check_logits(const Kernels& table, const std::vector<float>& logits, int first_index) {
    const RowInDouble want = stats_in_double(logits);
    const int n = static_cast<int>(logits.size());
    const LogitStats got = table.logit_stats(logits.data(), n, first_index);
    EXPECT_EQ(got.arg_max, want.arg_max + first_index);
    EXPECT_EQ(got.max, logits[static_cast<std::size_t>(want.arg_max)]);
    std::vector<float> others = logits;
    others.erase(others.begin() + want.arg_max);
    const float second = others.empty() ? -kInfinity : *std::ranges::max_element(others);
    EXPECT_EQ(got.runner_up, second);
    EXPECT_NEAR(got.log_sum_exp(), want.log_sum_exp, 1e-6 * (1 + std::fabs(want.log_sum_exp)));
    EXPECT_NEAR(got.entropy_nats(), want.entropy, 3e-6 * (1 + want.entropy));
    for (const std::size_t i : {std::size_t{0}, logits.size() / 2, static_cast<std::size_t>(want.arg_max)})
        EXPECT_NEAR(got.probability(logits[i]), std::exp(static_cast<double>(logits[i]) - want.log_sum_exp), 1e-6);
    const LogitStats quick = table.logit_max(logits.data(), n, first_index);
    EXPECT_EQ(quick.arg_max, got.arg_max);
    EXPECT_EQ(quick.max, got.max);
    EXPECT_EQ(quick.runner_up, second);
}

TEST_P(KernelTable, LogitStatsEqualDoubleSumsAtEverySize) {
    for (const std::size_t n : {1U, 3U, 15U, 16U, 17U, 31U, 33U, 100U, 1000U, 1023U, 1024U, 1025U, 4096U, 5003U})
        for (const float spread : {0.01F, 1.0F, 5.0F, 30.0F}) {
            SCOPED_TRACE(std::to_string(n) + " logits of spread " + std::to_string(spread));
            check_logits(table(), random_floats(n, static_cast<unsigned>(n), spread), 640);
        }
}

TEST_P(KernelTable, ALogitThatIsNotANumberIsSeenWhereverItIs) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const std::size_t n : {1U, 3U, 16U, 31U, 33U, 100U, 4096U, 5003U})
        for (std::size_t i = 0; i < n; i += n < 200 ? 1 : 61) {
            std::vector<float> logits(n, -1.0F);
            logits[n / 2] = 3;
            logits[i] = nan;
            EXPECT_TRUE(std::isnan(table().logit_max(logits.data(), static_cast<int>(n), 0).max)) << n << " " << i;
            EXPECT_TRUE(std::isnan(table().logit_stats(logits.data(), static_cast<int>(n), 0).max)) << n << " " << i;
            LaneStats lanes;
            lanes.clear();
            EXPECT_TRUE(std::isnan(table().finish_stats(lanes, logits.data(), static_cast<int>(n), 0).max)) << i;
        }
    const std::vector<float> good = {1, 2, 3}, bad = {1, nan, 3};
    const LogitStats one = table().logit_max(good.data(), 3, 0), other = table().logit_max(bad.data(), 3, 3);
    EXPECT_TRUE(std::isnan(merge(one, other).max));
    EXPECT_TRUE(std::isnan(merge(other, one).max));
}

TEST_P(KernelTable, LogitStatsOfAFlatRowAreThoseOfTheUniformDistribution) {
    for (const std::size_t n : {2U, 50U, 4096U}) {
        const std::vector<float> flat(n, -3.5F);
        const LogitStats stats = table().logit_stats(flat.data(), static_cast<int>(n), 0);
        EXPECT_EQ(stats.arg_max, 0);
        EXPECT_NEAR(stats.entropy_nats(), std::log(static_cast<double>(n)), 1e-6);
    }
}

TEST_P(KernelTable, OfEqualLargestLogitsTheLowestIndexWins) {
    std::mt19937 generator(61);
    for (const std::size_t n : {5U, 16U, 40U, 1024U, 3001U}) {
        for (int repeat = 0; repeat < 50; ++repeat) {
            std::vector<float> logits = random_floats(n, static_cast<unsigned>(repeat));
            std::size_t first = n;
            for (int tie = 0; tie < 4; ++tie) {
                const std::size_t at = generator() % n;
                logits[at] = 9.0F;
                first = std::min(first, at);
            }
            ASSERT_EQ(table().logit_max(logits.data(), static_cast<int>(n), 0).arg_max, static_cast<int>(first));
            const LogitStats stats = table().logit_stats(logits.data(), static_cast<int>(n), 0);
            ASSERT_EQ(stats.arg_max, static_cast<int>(first));
            const bool is_tie = std::ranges::count(logits, 9.0F) > 1;
            ASSERT_EQ(stats.runner_up == 9.0F, is_tie);
        }
    }
}

TEST_P(KernelTable, BannedTokensOfMinusInfinityCountForNothing) {
    for (const std::size_t n : {4U, 33U, 1024U, 2600U}) {
        SCOPED_TRACE(n);
        std::vector<float> logits = random_floats(n, 71, 3.0F);
        for (std::size_t i = 0; i < n; ++i)
            if (i % 3 != 1) logits[i] = -kInfinity;
        check_logits(table(), logits, 0);
        std::fill(logits.begin(), logits.end(), -kInfinity); // one token alone is left: nothing to guess
        logits[n - 1] = -50.0F;
        check_logits(table(), logits, 0);
        EXPECT_NEAR(table().logit_stats(logits.data(), static_cast<int>(n), 0).entropy_nats(), 0.0, 1e-6);
    }
}

TEST_P(KernelTable, PartsMergedInOrderEqualTheWholeRow) {
    const std::vector<float> logits = random_floats(4096, 81, 4.0F);
    const LogitStats whole = table().logit_stats(logits.data(), 4096, 0);
    for (const int part : {64, 100, 1024, 1366, 4000}) {
        LogitStats merged = table().logit_stats(logits.data(), std::min(part, 4096), 0);
        for (int begin = part; begin < 4096; begin += part)
            merged = merge(merged, table().logit_stats(logits.data() + begin, std::min(part, 4096 - begin), begin));
        EXPECT_EQ(merged.arg_max, whole.arg_max);
        EXPECT_EQ(merged.max, whole.max);
        EXPECT_EQ(merged.runner_up, whole.runner_up) << part;
        EXPECT_NEAR(merged.entropy_nats(), whole.entropy_nats(), 1e-6 * (1 + whole.entropy_nats())) << part;
        EXPECT_NEAR(merged.log_sum_exp(), whole.log_sum_exp(), 1e-6 * (1 + std::fabs(whole.log_sum_exp()))) << part;
    }
    std::vector<float> tie(128, 0.0F);
    tie[20] = tie[100] = 5.0F;
    const LogitStats tied = merge(table().logit_stats(tie.data(), 64, 0), table().logit_stats(tie.data() + 64, 64, 64));
    EXPECT_EQ(tied.arg_max, 20);
    EXPECT_EQ(tied.runner_up, 5.0F);
}

TEST_P(KernelTable, APartThatIsBannedWholeChangesNothingInAMerge) {
    const std::vector<float> logits = random_floats(64, 91), banned(64, -kInfinity);
    const LogitStats part = table().logit_stats(logits.data(), 64, 64);
    const LogitStats none = table().logit_stats(banned.data(), 64, 0);
    const LogitStats more = table().logit_stats(banned.data(), 64, 128);
    for (const LogitStats& merged : {merge(none, part), merge(part, more), merge(merge(none, none), part)}) {
        EXPECT_EQ(merged.arg_max, part.arg_max);
        EXPECT_EQ(merged.runner_up, part.runner_up);
        EXPECT_EQ(merged.sum_exp, part.sum_exp);
        EXPECT_EQ(merged.sum_shifted_exp, part.sum_shifted_exp);
    }
}

// ---- roofline ----

TEST_P(KernelTable, ReadSumReadsEveryFloat) {
    const std::vector<float> ones(4096, 1.0F);
    EXPECT_EQ(table().read_sum(ones.data(), ones.size(), false), 4096.0F);
    EXPECT_EQ(table().read_sum(ones.data(), ones.size(), true), 4096.0F);
}

} // namespace kernels_test
