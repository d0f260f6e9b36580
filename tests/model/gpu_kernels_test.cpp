// The device's kernels against sums in float64 and against the CPU's kernels. Run twice: on a GPU where there is one
// (label gpu), and everywhere on the stand-in for CUDA (tests/cuda_stand_in).
#include "model/cpu/kernels.h"
#include "model/files/half.h"
#include "model/gpu/kernels.h"
#include "model/weights/positions.h"
#include "spec/verify/random.h"
#include "tests/model/gpu_codes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace entrodraft::model::gpu {
namespace gpu_kernels_test {

// Half a step of the type's last digit, relative.
double epsilon_of(NumberType type) {
    return type == NumberType::float32 ? 6e-8 : type == NumberType::bfloat16 ? 4e-3 : 5e-4;
}

struct GpuKernels : testing::Test {
    std::mt19937 random{7};
    Stream stream;
    void finish() const { stream.wait(kPatience); }
};

// [rows][n] of w [n][stride], x [rows][stride], the first k of which are not zero.
struct Product {
    int rows, n, k;
    int stride = 0;
    std::vector<float> w, x, bias;

    Product(NumberType type, int of_rows, int of_n, int of_k, std::mt19937& random) : rows(of_rows), n(of_n), k(of_k) {
        stride = (k + kLinearAlign - 1) / kLinearAlign * kLinearAlign;
        w = random_numbers(type, index(n) * index(stride), random);
        x = random_numbers(type, index(rows) * index(stride), random);
        bias = random_numbers(NumberType::float32, index(n), random);
        for (std::vector<float>* matrix : {&w, &x})
            for (std::size_t i = 0; i < matrix->size(); ++i)
                if (i % index(stride) >= index(k)) (*matrix)[i] = 0;
    }

    std::vector<float> on_device(const Stream& stream, NumberType type, NumberType y_type, bool with_bias,
                                 int of_rows) const {
        const Numbers weights(type, w), inputs(type, x);
        const DeviceArray<float> biases = to_device(bias);
        const Numbers y(y_type, index(of_rows) * index(n));
        linear(stream.handle(), {type, weights.data(), inputs.data(), k, stride, n, of_rows,
                                 with_bias ? biases.data() : nullptr, y.data(), n, y_type});
        stream.wait(kPatience);
        return y.read();
    }
};

TEST_F(GpuKernels, ProductsAreSumsInFloat64UpToRounding) {
    for (const NumberType type : kTypes)
        for (const auto& [rows, n, k] :
             {std::tuple{1, 16, 32}, {3, 40, 96}, {8, 33, 64}, {9, 16, 300}, {17, 7, 33}, {1, 5, 1100}})
            for (const bool with_bias : {false, true}) {
                const Product product(type, rows, n, k, random);
                const std::vector<float> y = product.on_device(stream, type, NumberType::float32, with_bias, rows);
                for (int r = 0; r < rows; ++r)
                    for (int o = 0; o < n; ++o) {
                        double sum = with_bias ? product.bias[index(o)] : 0, size = std::abs(sum);
                        for (int i = 0; i < k; ++i) {
                            const double term = static_cast<double>(product.w[index(o * product.stride + i)]) *
                                                product.x[index(r * product.stride + i)];
                            sum += term;
                            size += std::abs(term);
                        }
                        ASSERT_NEAR(y[index(r * n + o)], sum, 1e-6 * size + 1e-6)
                            << "row " << r << ", output " << o << " of " << rows << " x " << n << " x " << k;
                    }
            }
}

TEST_F(GpuKernels, ProductsOfCodesAreSumsInFloat64UpToRounding) {
    for (const CodeForm& form : kCodeForms)
        for (const NumberType type : {NumberType::bfloat16, NumberType::float16})
            for (const auto& [n, k] : {std::pair{16, 64}, {50, 100}, {8200, 65}, {33, 700}, {40, 1100}}) {
                const int n_rows = n > 100 ? 17 : 40;
                const CodedMatrix matrix(form, n, k, type, random);
                const CodedMatrix::OnDevice there = matrix.on_device();
                const std::vector<float> bias = random_floats(index(n), random);
                const DeviceArray<float> biases = to_device(bias);
                Linear call = matrix.call(type, there);
                const std::vector<float> x = random_rows(type, n_rows, k, call.stride, random);
                const Numbers inputs(type, x);
                call.x = inputs.data();
                call.bias = biases.data();
                call.y_stride = n;
                std::vector<float> all;
                for (const int rows : {n_rows, 1, 9}) {
                    const Numbers y(NumberType::float32, index(rows) * index(n));
                    call.y = y.data();
                    call.rows = rows;
                    linear(stream.handle(), call);
                    finish();
                    const std::vector<float> got = y.read();
                    if (all.empty()) all = got;
                    EXPECT_EQ(got, std::vector<float>(all.begin(), all.begin() + rows * n)) << rows << " rows";
                }
                std::size_t wrong = 0;
                for (int r = 0; r < n_rows; ++r)
                    for (int o = 0; o < n; ++o) {
                        double sum = static_cast<double>(bias[index(o)]), size = std::abs(sum);
                        for (int i = 0; i < k; ++i) {
                            const double term =
                                matrix.values[index(o * k + i)] * static_cast<double>(x[index(r * call.stride + i)]);
                            sum += term;
                            size += std::abs(term);
                        }
                        wrong += std::abs(static_cast<double>(all[index(r * n + o)]) - sum) > 1e-6 * (size + 1) ? 1 : 0;
                    }
                EXPECT_EQ(wrong, 0U) << "form " << &form - kCodeForms << ", " << n << " x " << k;
            }
}

TEST_F(GpuKernels, CodesThatNoKernelKnowsAreRefused) {
    Linear call;
    call.type = NumberType::bfloat16;
    call.form = {Code::int4, 16, true};
    EXPECT_THROW(linear(stream.handle(), call), std::invalid_argument);
    call.form = {Code::int8};
    call.type = NumberType::float32;
    EXPECT_THROW(linear(stream.handle(), call), std::invalid_argument);
}

TEST_F(GpuKernels, ARowOfAProductDoesNotDependOnTheRowsBesideIt) {
    for (const NumberType type : kTypes) {
        const Product product(type, 70, 48, 320, random);
        const std::vector<float> all = product.on_device(stream, type, NumberType::float32, true, 70);
        for (const int rows : {1, 2, 7, 8, 9, 16, 17, 32, 33, 65}) {
            const std::vector<float> some = product.on_device(stream, type, NumberType::float32, true, rows);
            EXPECT_EQ(some, std::vector<float>(all.begin(), all.begin() + rows * 48)) << rows << " rows";
        }
    }
    const Product wide(NumberType::bfloat16, 40, 8200, 100, random); // blocks of 32 outputs
    const std::vector<float> all = wide.on_device(stream, NumberType::bfloat16, NumberType::float32, true, 40);
    for (const int rows : {1, 9, 17, 32}) {
        const std::vector<float> some = wide.on_device(stream, NumberType::bfloat16, NumberType::float32, true, rows);
        EXPECT_EQ(some, std::vector<float>(all.begin(), all.begin() + rows * 8200)) << rows << " rows of many outputs";
    }
}

TEST_F(GpuKernels, ProductsRoundToTheTypeThatIsAskedFor) {
    const Product product(NumberType::bfloat16, 4, 32, 64, random);
    const auto y = [&](NumberType type) { return product.on_device(stream, NumberType::bfloat16, type, true, 4); };
    const std::vector<float> exact = y(NumberType::float32);
    for (const NumberType type : {NumberType::bfloat16, NumberType::float16}) {
        const std::vector<float> coarse = y(type);
        for (std::size_t i = 0; i < exact.size(); ++i)
            EXPECT_EQ(coarse[i], rounded(type, exact[i]));
    }
}

TEST_F(GpuKernels, AGraphReadsItsInputsAnewEachTime) {
    const Product product(NumberType::bfloat16, 2, 16, 64, random);
    const Numbers weights(NumberType::bfloat16, product.w), inputs(NumberType::bfloat16, product.x);
    const Numbers y(NumberType::float32, 32);
    const auto multiply = [&] {
        linear(stream.handle(),
               {NumberType::bfloat16, weights.data(), inputs.data(), 64, 64, 16, 2, nullptr, y.data(), 16});
    };
    const Graph graph(stream, multiply);
    EXPECT_EQ(y.read(), std::vector<float>(32)) << "recording runs nothing";
    multiply();
    finish();
    const std::vector<float> first = y.read();
    const Numbers others(NumberType::bfloat16, random_numbers(NumberType::bfloat16, 128, random));
    copy(stream, inputs.data(), others.data(), 256);
    graph.launch(stream);
    finish();
    const std::vector<float> second = y.read();
    EXPECT_NE(first, second);
    multiply();
    finish();
    EXPECT_EQ(y.read(), second);
}

TEST_F(GpuKernels, NormsAreThoseOfTheCpu) {
    const kernels::Kernels& cpu = *kernels::kernels_named("portable");
    for (const Norm norm : {Norm::rms, Norm::layer})
        for (const auto& [width, n_parts] : {std::pair{8, 1}, {100, 1}, {700, 3}}) {
            constexpr int kRows = 3;
            const std::vector<float> x = random_numbers(NumberType::float32, index(kRows * width), random, 3),
                                     parts =
                                         random_numbers(NumberType::float32, index(n_parts * kRows * width), random),
                                     weight = random_numbers(NumberType::float32, index(width), random),
                                     bias = random_numbers(NumberType::float32, index(width), random);
            DeviceArray<float> stream_x = to_device(x);
            const DeviceArray<float> weights = to_device(weight), biases = to_device(bias);
            const Numbers deltas(NumberType::float32, parts), out(NumberType::float32, x.size());
            NormCall call;
            call.x = stream_x.data();
            call.delta = static_cast<const float*>(deltas.data());
            call.n_parts = n_parts;
            call.width = call.out_stride = width;
            call.norm = norm;
            call.weight = weights.data();
            call.bias = norm == Norm::layer ? biases.data() : nullptr;
            call.epsilon = 1e-5f;
            call.out = out.data();
            call.rows = kRows;
            add_and_norm(stream.handle(), call);
            finish();
            std::vector<float> sum = x, expected(x.size());
            for (std::size_t i = 0; i < x.size(); ++i) {
                float delta = parts[i];
                for (int part = 1; part < n_parts; ++part)
                    delta += parts[index(part) * x.size() + i];
                sum[i] += delta;
            }
            EXPECT_EQ(to_host(stream_x), sum);
            for (int r = 0; r < kRows; ++r) {
                const float* row = sum.data() + r * width;
                if (norm == Norm::rms)
                    cpu.rms_norm(row, weight.data(), width, 1e-5f, expected.data() + r * width);
                else
                    cpu.layer_norm(row, weight.data(), bias.data(), width, 1e-5f, expected.data() + r * width);
            }
            const std::vector<float> got = out.read();
            for (std::size_t i = 0; i < got.size(); ++i)
                ASSERT_NEAR(got[i], expected[i], 2e-6 * (1 + std::abs(expected[i])));
        }
}

// Rows that fit into registers, 2 and 4 times four numbers a thread, those that do not, and those not aligned to four;
// into another array, into x itself, and rounded without a norm.
TEST_F(GpuKernels, NormsAreThoseOfFloat64AtAnyWidth) {
    constexpr int kRows = 2;
    for (const int width : {1, 7, 64, 2048, 4096, 6020, 8192, 8196, 9001})
        for (const auto& [norm, n_parts, out_type, in_place, with_weight] :
             {std::tuple{Norm::rms, 1, NumberType::bfloat16, false, true},
              {Norm::layer, 3, NumberType::float32, true, true},
              {Norm::layer, 8, NumberType::float16, false, true},
              {Norm::rms, 1, NumberType::bfloat16, false, false}}) {
            const std::vector<float> x = random_numbers(NumberType::float32, index(kRows * width), random, 3),
                                     parts =
                                         random_numbers(NumberType::float32, index(n_parts * kRows * width), random),
                                     weight = random_numbers(NumberType::float32, index(width), random),
                                     bias = random_numbers(NumberType::float32, index(width), random);
            const Numbers stream_x(NumberType::float32, x), out(out_type, x.size());
            const DeviceArray<float> deltas = to_device(parts);
            const DeviceArray<float> weights = to_device(weight), biases = to_device(bias);
            NormCall call;
            call.x = static_cast<float*>(stream_x.data());
            call.delta = deltas.data();
            call.n_parts = n_parts;
            call.width = call.out_stride = width;
            call.norm = norm;
            call.weight = with_weight ? weights.data() : nullptr;
            call.bias = with_weight && norm == Norm::layer ? biases.data() : nullptr;
            call.epsilon = 1e-5f;
            call.out = in_place ? stream_x.data() : out.data();
            call.out_type = out_type;
            call.rows = kRows;
            add_and_norm(stream.handle(), call);
            finish();
            const std::vector<float> got = (in_place ? stream_x : out).read();
            for (int r = 0; r < kRows; ++r) {
                std::vector<double> row;
                double mean = 0, squares = 0;
                for (int i = 0; i < width; ++i) {
                    row.push_back(x[index(r * width + i)]);
                    for (int part = 0; part < n_parts; ++part)
                        row.back() += parts[index((part * kRows + r) * width + i)];
                }
                for (const double number : row)
                    mean += norm == Norm::layer ? number / width : 0;
                for (const double number : row)
                    squares += (number - mean) * (number - mean) / width;
                for (int i = 0; i < width; ++i) {
                    double expected = row[index(i)];
                    if (with_weight) expected = (expected - mean) / std::sqrt(squares + 1e-5) * weight[index(i)];
                    if (call.bias != nullptr) expected += bias[index(i)];
                    ASSERT_NEAR(got[index(r * width + i)], expected,
                                (epsilon_of(out_type) + 3e-6) * (1 + std::abs(expected)))
                        << "row " << r << ", number " << i << " of " << width;
                }
            }
        }
}

TEST_F(GpuKernels, ActivationsAreThoseOfTheCpu) {
    const kernels::Kernels& cpu = *kernels::kernels_named("portable");
    constexpr int kWidth = 300, kRows = 2;
    for (const Activation activation : {Activation::silu, Activation::gelu, Activation::gelu_tanh, Activation::relu})
        for (const bool gated : {false, true})
            for (const NumberType type : kTypes) {
                const int stride = (gated ? 2 : 1) * kWidth + 8;
                const std::vector<float> wide = random_numbers(type, index(kRows * stride), random, 4);
                const Numbers from(type, wide), to(type, kRows * kWidth);
                activate(stream.handle(),
                         {activation, type, from.data(), stride, gated, to.data(), kWidth, kWidth, kRows});
                finish();
                const std::vector<float> got = to.read();
                for (int r = 0; r < kRows; ++r) {
                    std::vector<float> expected, ups;
                    for (int i = 0; i < kWidth; ++i) {
                        const int at = r * stride + (gated ? i / kGateGroup * 2 * kGateGroup + i % kGateGroup : i);
                        expected.push_back(wide[index(at)]);
                        if (gated) ups.push_back(wide[index(at + kGateGroup)]);
                    }
                    cpu.activate(activation, expected.data(), gated ? ups.data() : nullptr, kWidth);
                    for (int i = 0; i < kWidth; ++i)
                        ASSERT_NEAR(got[index(r * kWidth + i)], expected[index(i)],
                                    (2 * epsilon_of(type) + 2e-6) * (1 + std::abs(expected[index(i)])));
                }
            }
}

// The activation of a product is that of the float32 sums, and its gates and ups lie by turns.
TEST_F(GpuKernels, ProductsAreActivatedAndGatedBeforeTheyAreRounded) {
    const kernels::Kernels& cpu = *kernels::kernels_named("portable");
    const auto expect = [&](NumberType type, Epilogue epilogue, Activation activation, int rows, int n, int k,
                            float limit = 0) {
        constexpr float kSlope = 1.7f;
        const Product product(type, rows, n, k, random);
        const std::vector<float> sums = product.on_device(stream, type, NumberType::float32, true, rows);
        const int width = epilogue == Epilogue::gate ? n / 2 : n;
        const Numbers weights(type, product.w), inputs(type, product.x), y(type, index(rows * width));
        const DeviceArray<float> biases = to_device(product.bias);
        Linear call = {type, weights.data(), inputs.data(), k, product.stride, n, rows, biases.data(), y.data(), width};
        call.y_type = type;
        call.epilogue = epilogue;
        call.activation = activation;
        call.gate_limit = limit;
        call.gate_slope = kSlope;
        linear(stream.handle(), call);
        finish();
        const std::vector<float> got = y.read();
        for (int r = 0; r < rows; ++r) {
            std::vector<float> expected, ups;
            for (int i = 0; i < width; ++i) {
                const int at =
                    r * n + (epilogue == Epilogue::gate ? i / kGateGroup * 2 * kGateGroup + i % kGateGroup : i);
                expected.push_back(sums[index(at)]);
                if (epilogue == Epilogue::gate) ups.push_back(sums[index(at + kGateGroup)]);
                if (limit == 0) continue; // else slope g sigmoid(slope g) times (u + 1) / slope
                expected.back() = kSlope * std::min(expected.back(), limit);
                ups.back() = (std::clamp(ups.back(), -limit, limit) + 1) / kSlope;
            }
            cpu.activate(activation, expected.data(), ups.empty() ? nullptr : ups.data(), width);
            for (int i = 0; i < width; ++i)
                ASSERT_NEAR(got[index(r * width + i)], expected[index(i)],
                            (epsilon_of(type) + 2e-6) * (1 + std::abs(expected[index(i)])))
                    << "row " << r << ", number " << i << " of " << rows << " x " << n;
        }
    };
    for (const NumberType type : kTypes)
        for (const Epilogue epilogue : {Epilogue::activation, Epilogue::gate})
            for (const Activation activation : {Activation::silu, Activation::gelu_tanh, Activation::relu})
                for (const auto& [rows, n] : {std::pair{1, 48}, {9, 16}, {40, 32}})
                    expect(type, epilogue, activation, rows, n, 70);
    expect(NumberType::bfloat16, Epilogue::gate, Activation::silu, 3, 8208, 64); // blocks of 32 outputs, and half a one
    for (const NumberType type : kTypes)
        expect(type, Epilogue::gate, Activation::silu, 9, 48, 70, 0.9f);
}

TEST_F(GpuKernels, LooksUpItsOwnTokensAndAddsPositions) {
    constexpr int kWidth = 10, kStride = 32;
    const std::vector<float> table = random_numbers(NumberType::float16, 4 * kStride, random),
                             positions = random_numbers(NumberType::float32, 6 * kWidth, random);
    const Numbers tokens_table(NumberType::float16, table);
    const DeviceArray<float> position_table = to_device(positions);
    const auto tokens = to_device<std::int32_t>({5, 9, 6, 2}), slots = to_device<std::int32_t>({0, 0, -1, 1}),
               places = to_device<std::int32_t>({3, 0, 1, 2});
    RowTable rows;
    rows.tokens = tokens.data();
    rows.slots = slots.data();
    rows.positions = places.data();
    rows.rows = 4;
    DeviceArray<float> x(4 * kWidth);
    embed(stream.handle(), rows,
          {NumberType::float16, tokens_table.data(), kStride, 5, 4, 2.0f, position_table.data(), 2, x.data(), kWidth});
    finish();
    const std::vector<float> got = to_host(x);
    for (int i = 0; i < kWidth; ++i) {
        EXPECT_EQ(got[index(i)], 2 * table[index(i)] + positions[index(5 * kWidth + i)]) << "token 5 at 3";
        EXPECT_EQ(got[index(kWidth + i)], positions[index(2 * kWidth + i)]) << "token 9 is another rank's";
        EXPECT_EQ(got[index(2 * kWidth + i)], 0) << "padding";
        EXPECT_EQ(got[index(3 * kWidth + i)], positions[index(4 * kWidth + i)]) << "token 2 is another rank's";
    }
}

// A cache with numbers in it, rows over it, and attention in float64.
struct AttentionCase {
    NumberType type = NumberType::float32;
    int n_query_heads = 4, n_kv_heads = 2, head_dim = 16, n_slots = 3, n_layers = 2, capacity = 600, layer = 1;
    int window = 0;
    bool is_prompt = false;
    float scale = 0.25f, soft_cap = 0;
    std::vector<float> slopes;
    bool scaled_alibi = true;
    std::vector<float> relative_biases; // [n_query_heads][2 max_distance + 1]
    int max_distance = 0;
    std::vector<float> sinks; // [n_query_heads]
    int latent_values = 0;    // of latent attention: the first numbers of keys that are its values
    using Mask = std::array<std::uint64_t, kMaskWords>;
    struct Query {
        int slot, n_keys, prefix_slot = 0, prefix_length = 0, mask_begin = -1;
        Mask mask = {};
        int later_keys = 0; // behind the row, which it sees as well

        // Of a tree behind mask_begin positions.
        static Query in_tree(int slot, int mask_begin, Mask mask) {
            return {slot, mask_begin + std::popcount(mask[0]) + std::popcount(mask[1]), 0, 0, mask_begin, mask, 0};
        }
        int position() const { return n_keys - 1 - later_keys; }
        int place_of(int key) const {
            if (mask_begin < 0 || key < mask_begin) return key;
            int bit = -1;
            for (int seen = key - mask_begin; seen >= 0;
                 seen -= static_cast<int>(mask[index(bit / 64)] >> bit % 64 & 1))
                ++bit;
            return mask_begin + bit;
        }
    };
    std::vector<Query> queries;

    std::size_t at(int of_layer, int slot, int head, int place) const {
        return (((index(of_layer) * index(n_slots) + index(slot)) * index(n_kv_heads) + index(head)) * index(capacity) +
                index(place)) *
               index(head_stride());
    }
    int head_stride() const { return (head_dim + 7) / 8 * 8; }
    int value_dim() const { return latent_values > 0 ? latent_values : head_dim; }
    bool sees(const Query& q, int key) const { return key < q.n_keys && (window == 0 || key >= q.n_keys - window); }
    std::vector<double> expected(const std::vector<float>& keys, const std::vector<float>& values, const float* query,
                                 const Query& q, int head) const {
        const int kv_head = head * n_kv_heads / n_query_heads;
        const auto begin_of = [&](int key) { // of its numbers
            const int place = q.place_of(key);
            return at(layer, place < q.prefix_length ? q.prefix_slot : q.slot, kv_head, place);
        };
        std::vector<double> scores, out(index(value_dim()));
        double largest = -1e30, sum = 0;
        for (int key = 0; key < q.n_keys; ++key) {
            double score = 0;
            for (int d = 0; d < head_dim; ++d)
                score += static_cast<double>(query[d]) * keys[begin_of(key) + index(d)];
            score *= scale;
            if (soft_cap > 0) score = soft_cap * std::tanh(score / soft_cap);
            if (!slopes.empty())
                score += scaled_alibi
                             ? rounded(NumberType::bfloat16, slopes[index(head)] * static_cast<float>(key)) * scale
                             : slopes[index(head)] * static_cast<float>(key);
            if (!relative_biases.empty())
                score += relative_biases[index(head * (2 * max_distance + 1) + max_distance +
                                               std::clamp(q.position() - key, -max_distance, max_distance))];
            if (!sees(q, key)) score = -1e30;
            largest = std::max(largest, score);
            scores.push_back(score);
        }
        if (!sinks.empty()) sum += std::exp(sinks[index(head)] - largest);
        for (int key = 0; key < q.n_keys; ++key) {
            if (!sees(q, key)) continue;
            const double weight = std::exp(scores[index(key)] - largest);
            sum += weight;
            for (int d = 0; d < value_dim(); ++d)
                out[index(d)] += weight * values[begin_of(key) + index(d)];
        }
        for (double& value : out)
            value /= sum;
        return out;
    }

    // [rows][n_query_heads][value_dim()]
    std::vector<float> on_device(const Stream& stream, const std::vector<float>& keys, const std::vector<float>& values,
                                 const std::vector<float>& qkv, int stride) const {
        const Numbers device_keys(type, keys), device_values(type, values), device_qkv(type, qkv);
        std::vector<std::int32_t> slots, positions, n_keys, prefix_slots, prefix_lengths, begins, heads;
        std::vector<std::uint64_t> masks;
        for (const Query& q : queries) {
            slots.push_back(q.slot);
            positions.push_back(q.position());
            n_keys.push_back(q.n_keys);
            prefix_slots.push_back(q.prefix_slot);
            prefix_lengths.push_back(q.prefix_length);
            begins.push_back(q.mask_begin);
            masks.insert(masks.end(), q.mask.begin(), q.mask.end());
        }
        for (int head = 0; head < n_query_heads; ++head)
            heads.push_back(head * n_kv_heads / n_query_heads);
        const auto d_slots = to_device(slots), d_positions = to_device(positions), d_keys = to_device(n_keys),
                   d_prefix_slots = to_device(prefix_slots), d_prefix_lengths = to_device(prefix_lengths),
                   d_begins = to_device(begins), d_heads = to_device(heads);
        const auto d_masks = to_device(masks);
        const auto d_slopes = to_device(slopes), d_relative = to_device(relative_biases), d_sinks = to_device(sinks);
        RowTable table;
        table.slots = d_slots.data();
        table.positions = d_positions.data();
        table.n_keys = d_keys.data();
        table.prefix_slots = d_prefix_slots.data();
        table.prefix_lengths = d_prefix_lengths.data();
        table.mask_begins = d_begins.data();
        table.masks = d_masks.data();
        table.mask_words = kMaskWords;
        table.rows = static_cast<int>(queries.size());
        AttendCall call;
        call.cache = {type,     device_keys.data(), latent_values > 0 ? device_keys.data() : device_values.data(),
                      n_slots,  n_kv_heads,         capacity,
                      head_dim, head_stride(),      value_dim()};
        call.layer = layer;
        call.qkv = device_qkv.data();
        call.stride = stride;
        call.n_query_heads = n_query_heads;
        call.kv_head_of = d_heads.data();
        call.scale = scale;
        call.soft_cap = soft_cap;
        call.slopes = slopes.empty() ? nullptr : d_slopes.data();
        call.scaled_alibi = scaled_alibi;
        call.relative_biases = relative_biases.empty() ? nullptr : d_relative.data();
        call.max_distance = max_distance;
        call.sinks = sinks.empty() ? nullptr : d_sinks.data();
        call.window = window;
        const DeviceArray<float> parts(attend_workspace_floats(n_query_heads, value_dim(), capacity));
        const DeviceArray<int> arrived(attend_workspace_counters(n_query_heads, value_dim(), capacity));
        call.parts = parts.data();
        call.arrived = arrived.data();
        call.out_stride = n_query_heads * value_dim();
        const Numbers out(type, queries.size() * index(call.out_stride));
        call.attended = out.data();
        (is_prompt ? attend_prompt : attend)(stream.handle(), table, call);
        stream.wait(kPatience);
        EXPECT_EQ(to_host(arrived), std::vector<int>(arrived.size())) << "the next launch counts from zero";
        return out.read();
    }

    void check(const Stream& stream, std::mt19937& random) const {
        const std::size_t numbers = at(n_layers, 0, 0, 0);
        const std::vector<float> keys = random_numbers(type, numbers, random),
                                 values = latent_values > 0 ? keys : random_numbers(type, numbers, random);
        const int stride = (n_query_heads + 2 * n_kv_heads) * head_dim;
        const std::vector<float> qkv = random_numbers(type, queries.size() * index(stride), random, 2);
        const std::vector<float> got = on_device(stream, keys, values, qkv, stride);
        for (std::size_t r = 0; r < queries.size(); ++r)
            for (int head = 0; head < n_query_heads && queries[r].slot >= 0; ++head) {
                const float* query = &qkv[r * index(stride) + index(head * head_dim)];
                const std::vector<double> out = expected(keys, values, query, queries[r], head);
                // No more than the sums and one rounding of the result; of prompts also one of each weight.
                const double of_sums = type == NumberType::float32 ? 2e-5 : is_prompt ? epsilon_of(type) : 3e-4;
                for (int d = 0; d < value_dim(); ++d)
                    ASSERT_NEAR(got[(r * index(n_query_heads) + index(head)) * index(value_dim()) + index(d)],
                                out[index(d)], epsilon_of(type) * std::abs(out[index(d)]) + of_sums)
                        << "row " << r << ", head " << head << ", dimension " << d;
            }
        for (const int n : {1, 2, 7, 16, 64})
            if (n < static_cast<int>(queries.size())) expect_same_bits(stream, keys, values, qkv, stride, got, n);
    }

    // Rows n at a time, each as `got` has it from all of them together.
    void expect_same_bits(const Stream& stream, const std::vector<float>& keys, const std::vector<float>& values,
                          const std::vector<float>& qkv, int stride, const std::vector<float>& got, int n) const {
        const auto rows_of = [](const std::vector<float>& from, std::size_t first, std::size_t end, int width) {
            return std::vector<float>(from.begin() + static_cast<std::ptrdiff_t>(first * index(width)),
                                      from.begin() + static_cast<std::ptrdiff_t>(end * index(width)));
        };
        const int width = n_query_heads * value_dim();
        for (std::size_t first = 0; first < queries.size(); first += index(n)) {
            const std::size_t end = std::min(first + index(n), queries.size());
            AttentionCase few = *this;
            few.queries.assign(queries.begin() + static_cast<std::ptrdiff_t>(first),
                               queries.begin() + static_cast<std::ptrdiff_t>(end));
            const std::vector<float> of_few =
                few.on_device(stream, keys, values, rows_of(qkv, first, end, stride), stride);
            for (std::size_t r = first; r < end; ++r) {
                if (queries[r].slot < 0) continue;
                EXPECT_EQ(rows_of(of_few, r - first, r - first + 1, width), rows_of(got, r, r + 1, width))
                    << "row " << r << " in passes of " << n << " rows";
            }
        }
    }
};

TEST_F(GpuKernels, AttentionIsThatOfFloat64) {
    for (const NumberType type : kTypes) {
        AttentionCase of;
        of.type = type;
        of.queries = {{0, 1}, {1, 300}, {1, 301}, {1, 302}, {-1, 0}, {2, 512}, {2, 513}, {0, 600}};
        of.check(stream, random);
    }
}

TEST_F(GpuKernels, AttentionKeepsToWindowsTreesAndSharedBeginnings) {
    AttentionCase of;
    of.window = 40;
    of.queries = {{0, 30}, {1, 300}, {1, 301}, {2, 599}};
    of.check(stream, random);
    of.window = 0;
    of.queries = {{1, 310, 0, 256}, {2, 310, 0, 256}, {1, 100, 2, 48}};
    of.check(stream, random);
    using Query = AttentionCase::Query;
    of.queries = {Query::in_tree(0, 256, {0b10101, 0}), Query::in_tree(0, 330, {~std::uint64_t{0} << 3, 1})};
    of.check(stream, random);
    of.window = 130;
    of.check(stream, random);
}

TEST_F(GpuKernels, AttentionHasCapsBiasesAndHeadsOfManySizes) {
    for (const int dim : {6, 8, 40, 80, 128, 256}) {
        AttentionCase of;
        of.head_dim = dim;
        of.capacity = 280;
        of.scale = 1.0f / std::sqrt(static_cast<float>(dim));
        of.soft_cap = dim == 40 ? 3.0f : 0.0f;
        if (dim == 80) of.slopes = alibi_slopes(of.n_query_heads);
        of.queries = {{0, 3}, {2, 270}};
        of.check(stream, random);
    }
}

// Parts are merged in groups of kMergedBlocks: of two groups, and of windows that begin in the first of them.
TEST_F(GpuKernels, AttentionOfLongTextsIsThatOfFloat64) {
    constexpr int kGroup = kMergedBlocks * kKeyBlock;
    for (const NumberType type : kTypes)
        for (const int window : {0, 1000}) {
            AttentionCase of;
            of.type = type;
            of.n_slots = of.n_layers = of.n_kv_heads = 1;
            of.n_query_heads = 2;
            of.layer = 0;
            of.capacity = 2 * kGroup;
            of.window = window;
            of.queries = {{0, kGroup - 1}, {0, kGroup}, {0, kGroup + 1}, {0, kGroup + 600}, {0, 2 * kGroup}};
            of.check(stream, random);
        }
}

// By how far keys are behind a row, or before it where rows see what follows, up to a distance from which all are
// alike.
TEST_F(GpuKernels, AttentionHasBiasesByDistance) {
    using Query = AttentionCase::Query;
    for (const NumberType type : kTypes)
        for (const bool is_prompt : {false, true}) {
            AttentionCase of;
            of.type = type;
            of.is_prompt = is_prompt;
            of.scale = 1;
            of.max_distance = 40;
            of.relative_biases = random_floats(index(of.n_query_heads * 81), random, 2);
            for (int r = 0; r < 20; ++r) // of an encoder
                of.queries.push_back({1, 280, 0, 0, -1, {}, 250 - r});
            of.check(stream, random);
            of.queries.clear();
            for (int r = 0; r < 5; ++r)
                of.queries.push_back({1, 290 + r});
            of.queries.push_back({-1, 0});
            of.check(stream, random);
            if (is_prompt) continue;
            of.queries = {
                {1, 1}, Query::in_tree(0, 256, {0b10101, 0}), Query::in_tree(0, 330, {~std::uint64_t{0} << 3, 1})};
            of.check(stream, random);
        }
}

// Of one part of keys, of several, and of a prompt; among sinks those that have next to all and to none of the weight.
TEST_F(GpuKernels, ASinkHasItsShareOfTheWeights) {
    for (const NumberType type : kTypes)
        for (const bool is_prompt : {false, true})
            for (const float scale : {0.25f, 0.0f}) {
                AttentionCase of;
                of.type = type;
                of.is_prompt = is_prompt;
                of.scale = scale; // a prompt's kernel has another form of scores for one that is not above 0
                of.sinks = {9, -200, 1, 300};
                for (int r = 0; r < 3; ++r)
                    of.queries.push_back({1, 255 + r});
                of.check(stream, random);
                of.window = 17;
                of.check(stream, random);
                if (is_prompt) continue;
                of.queries = {{0, 3}, AttentionCase::Query::in_tree(1, 256, {0b10101, 0})};
                of.check(stream, random);
            }
}

// Of small vectors and of DeepSeek's, fewer heads than a tile has queries and more; windows, trees, beginnings in other
// slots, parts that are merged, and, as on no model yet, sinks and caps.
TEST_F(GpuKernels, LatentAttentionIsThatOfFloat64) {
    using Query = AttentionCase::Query;
    struct Shape {
        int n_query_heads, head_dim, values;
    };
    for (const NumberType type : kTypes)
        for (const Shape& shape : {Shape{5, 24, 16}, {18, 136, 128}, {3, 576, 512}}) {
            SCOPED_TRACE(shape.head_dim);
            AttentionCase of;
            of.type = type;
            of.n_query_heads = shape.n_query_heads;
            of.n_kv_heads = 1;
            of.head_dim = shape.head_dim;
            of.latent_values = shape.values;
            of.scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
            of.queries = {{0, 1}, {-1, 0}, {1, 290}, {1, 291}, {1, 292}, {1, 293}, {1, 294}, {1, 295}};
            of.check(stream, random);
            of.queries = {{1, 310, 0, 256}, {2, 310, 0, 256}, Query::in_tree(1, 252, {0b11010101, 0})};
            of.sinks = random_floats(index(shape.n_query_heads), random, 2);
            of.check(stream, random);
            of.is_prompt = true;
            of.soft_cap = 2;
            of.window = 40;
            of.queries.clear();
            for (int r = 0; r < 9; ++r)
                of.queries.push_back({2, 285 + r});
            of.check(stream, random);
        }
}

// In a tile, also one of several, some rows see a key that is spoilt: they have no numbers, and the others theirs.
TEST_F(GpuKernels, ARowOfLatentAttentionDoesNotDependOnKeysThatItDoesNotSee) {
    for (const NumberType type : kTypes)
        for (const float spoilt : {NAN, INFINITY})
            for (const int dimension : {3, 70, 130}) { // of values, and of what is rotated
                AttentionCase of;
                of.type = type;
                of.n_query_heads = 4;
                of.n_layers = of.n_kv_heads = 1;
                of.layer = 0;
                of.head_dim = 136;
                of.latent_values = 128;
                constexpr int kRows = 10, kFirst = 296, kSpoilt = 300;
                for (int r = 0; r < kRows; ++r)
                    of.queries.push_back({1, kFirst + r});
                std::vector<float> keys = random_numbers(type, of.at(1, 0, 0, 0), random);
                const int width = of.n_query_heads * of.value_dim(), stride = of.n_query_heads * of.head_dim;
                std::vector<float> qkv = random_numbers(type, kRows * index(stride), random, 2);
                for (float& number : qkv)
                    number = number == 0 ? 1 : number;
                const std::vector<float> sound = of.on_device(stream, keys, {}, qkv, stride);
                keys[of.at(0, 1, 0, kSpoilt) + index(dimension)] = spoilt;
                const std::vector<float> got = of.on_device(stream, keys, {}, qkv, stride);
                for (int i = 0; i < kRows * width; ++i) {
                    const bool is_seen = kFirst + i / width > kSpoilt;
                    ASSERT_TRUE(is_seen || got[index(i)] == sound[index(i)]) << "row " << i / width;
                    const bool has_none = is_seen && (type != NumberType::float32 || std::isnan(spoilt));
                    ASSERT_TRUE(!has_none || std::isnan(got[index(i)])) << "row " << i / width;
                }
            }
}

TEST_F(GpuKernels, AttentionHasAnyNumberOfQueryHeadsForAKeyHead) {
    for (const auto& [n_query_heads, n_kv_heads, head_dim] :
         {std::tuple{71, 1, 64}, {12, 12, 32}, {5, 2, 96}, {40, 8, 16}, {6, 3, 256}, {16, 1, 128}})
        for (const NumberType type : {NumberType::bfloat16, NumberType::float16}) {
            AttentionCase of;
            of.type = type;
            of.n_query_heads = n_query_heads;
            of.n_kv_heads = n_kv_heads;
            of.head_dim = head_dim;
            of.n_slots = 2;
            of.capacity = 300;
            of.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
            of.queries = {{0, 270}, {0, 271}, {1, 20}, {-1, 0}};
            of.check(stream, random);
        }
}

TEST_F(GpuKernels, AttentionOf16BitsKeepsToWindowsTreesAndSharedBeginnings) {
    using Query = AttentionCase::Query;
    for (const NumberType type : {NumberType::bfloat16, NumberType::float16}) {
        AttentionCase of;
        of.type = type;
        of.window = 40;
        of.soft_cap = 5;
        of.queries = {{0, 30}, {1, 300}, {1, 301}, {2, 599}};
        of.check(stream, random);
        of.window = 0;
        of.slopes = alibi_slopes(of.n_query_heads);
        of.queries = {{1, 310, 0, 256}, {1, 311, 0, 256}, {2, 310, 0, 256}, {1, 100, 2, 48}};
        of.check(stream, random);
        of.scaled_alibi = false;
        of.check(stream, random);
        of.slopes.clear();
        of.queries.clear();
        for (int r = 0; r < 9; ++r) // a tree of 100 keys from 250 on, over the end of a block
            of.queries.push_back(Query::in_tree(0, 250, {std::uint64_t{random()} << 32 | random() | 1, random()}));
        of.queries.push_back(Query::in_tree(0, 256, {0b10101, 0}));
        of.queries.push_back(Query::in_tree(0, 330, {~std::uint64_t{0} << 3, 1}));
        of.check(stream, random);
        of.window = 130;
        of.check(stream, random);
    }
}

// Rows of a random tree in one slot, each against its text alone in another.
TEST_F(GpuKernels, ARowOfATreeHasTheBitsOfItsBranchAlone) {
    constexpr int kNodes = 20, kCached[] = {3, 240, 255, 256, 257, 500};
    int turn = 0;
    struct Shape {
        int n_query_heads, n_kv_heads, head_dim, window;
    };
    for (const NumberType type : kTypes)
        for (const Shape& shape : {Shape{4, 2, 16, 0}, {2, 1, 80, 130}, {17, 1, 128, 0}, {2, 2, 256, 128}})
            for (int i = 0; i < 2; ++i) {
                const int cached = kCached[turn++ % 6];
                AttentionCase of;
                of.type = type;
                of.n_query_heads = shape.n_query_heads;
                of.n_kv_heads = shape.n_kv_heads;
                of.head_dim = shape.head_dim;
                of.window = shape.window;
                of.scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
                of.n_layers = 1;
                of.layer = 0;
                std::vector<AttentionCase::Mask> masks;
                for (int node = 0; node < kNodes; ++node) {
                    const int parent =
                        static_cast<int>(random() % 4 == 0 ? random() % index(node + 1) : index(node)) - 1;
                    AttentionCase::Mask mask = parent < 0 ? AttentionCase::Mask{} : masks[index(parent)];
                    const int bit = node + 50; // behind 50 of other branches, into the second word
                    mask[index(bit / 64)] |= std::uint64_t{1} << bit % 64;
                    masks.push_back(mask);
                    of.queries.push_back(AttentionCase::Query::in_tree(0, cached, mask));
                }
                const std::size_t numbers = of.at(1, 0, 0, 0);
                std::vector<float> keys = random_numbers(type, numbers, random),
                                   values = random_numbers(type, numbers, random);
                const int width = of.n_query_heads * of.head_dim, stride = width + 2 * of.n_kv_heads * of.head_dim;
                const std::vector<float> qkv = random_numbers(type, kNodes * index(stride), random, 2);
                const std::vector<float> together = of.on_device(stream, keys, values, qkv, stride);
                for (int node = kNodes - 1; node >= 0; node -= 9) {
                    const AttentionCase::Query in_tree = of.queries[index(node)];
                    AttentionCase alone = of;
                    alone.queries = {{1, in_tree.n_keys}};
                    for (std::vector<float>* all : {&keys, &values})
                        for (int head = 0; head < of.n_kv_heads; ++head)
                            for (int key = 0; key < in_tree.n_keys; ++key)
                                std::copy_n(&(*all)[of.at(0, 0, head, in_tree.place_of(key))], of.head_stride(),
                                            &(*all)[of.at(0, 1, head, key)]);
                    const auto part = [](const std::vector<float>& from, int row, int row_width) {
                        return std::vector<float>(from.begin() + row * row_width, from.begin() + (row + 1) * row_width);
                    };
                    EXPECT_EQ(alone.on_device(stream, keys, values, part(qkv, node, stride), stride),
                              part(together, node, width))
                        << "heads of " << of.head_dim << ", " << cached << " cached, node " << node;
                }
            }
}

// Several runs of rows, and tiles that are not full.
TEST_F(GpuKernels, ARowOfAttentionDoesNotDependOnTheRowsBesideIt) {
    AttentionCase of;
    of.type = NumberType::bfloat16;
    of.n_query_heads = 6;
    of.n_kv_heads = 2;
    of.capacity = 2100;
    of.n_slots = 2;
    of.n_layers = 1;
    of.layer = 0;
    for (int r = 0; r < 128; ++r)
        of.queries.push_back(r < 90 ? AttentionCase::Query{0, 200 + r} : AttentionCase::Query{1, 300 + r});
    of.check(stream, random);
}

TEST_F(GpuKernels, AttentionOfMoreRowsThanTheWorkspaceHoldsIsThatOfFewer) {
    AttentionCase of;
    of.type = NumberType::bfloat16;
    of.n_query_heads = 64;
    of.n_kv_heads = of.n_slots = of.n_layers = 1;
    of.layer = 0;
    of.head_dim = 8;
    of.capacity = 350000;
    ASSERT_EQ(attend_rows(of.n_query_heads, of.head_dim, of.capacity), 16);
    for (int r = 0; r < 20; ++r)
        of.queries.push_back({0, 250 + r});
    const std::size_t numbers = of.at(1, 0, 0, 0);
    const int stride = 66 * of.head_dim;
    const std::vector<float> keys = random_numbers(of.type, numbers, random),
                             values = random_numbers(of.type, numbers, random),
                             qkv = random_numbers(of.type, 20 * index(stride), random, 2);
    of.expect_same_bits(stream, keys, values, qkv, stride, of.on_device(stream, keys, values, qkv, stride), 10);
}

// Tiles that are not full, padding, sizes of heads and groups, windows, caps, biases, a beginning in another slot.
TEST_F(GpuKernels, AttentionOfAPromptIsThatOfFloat64HoweverItIsCut) {
    const auto check = [&](int n_query_heads, int n_kv_heads, int head_dim, const auto& change) {
        for (const NumberType type : kTypes) {
            SCOPED_TRACE(head_dim);
            AttentionCase of;
            of.is_prompt = true;
            of.type = type;
            of.n_query_heads = n_query_heads;
            of.n_kv_heads = n_kv_heads;
            of.head_dim = head_dim;
            of.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
            of.n_layers = 1;
            of.layer = 0;
            of.capacity = 300;
            for (int r = 0; r < 30; ++r)
                of.queries.push_back({1, 230 + r});
            change(of);
            of.queries.push_back({-1, 0});
            of.check(stream, random);
        }
    };
    const auto nothing = [](AttentionCase&) {};
    check(6, 2, 128, nothing);
    check(5, 2, 40, nothing);
    check(71, 1, 64, [](AttentionCase& of) { of.queries.resize(3); });
    check(2, 2, 256, [](AttentionCase& of) { of.soft_cap = 3; });
    check(2, 1, 6, [](AttentionCase& of) { of.window = 40; });
    check(4, 4, 16, [](AttentionCase& of) { of.slopes = alibi_slopes(of.n_query_heads); });
    check(4, 2, 80, [](AttentionCase& of) {
        for (AttentionCase::Query& query : of.queries) {
            query.prefix_slot = 2;
            query.prefix_length = 48;
        }
    });
    check(4, 2, 32, [](AttentionCase& of) { // from the first token on
        for (AttentionCase::Query& query : of.queries)
            query.n_keys -= 229;
    });
}

// Of two rows in a tile, and in a tree, one that does not see a key that is spoilt, and one that does.
TEST_F(GpuKernels, ARowOfAttentionDoesNotDependOnKeysThatItDoesNotSee) {
    struct Kind {
        bool in_tree, is_prompt;
    };
    for (const NumberType type : kTypes)
        for (const float spoilt : {NAN, INFINITY})
            for (const auto& [in_tree, is_prompt] : {Kind{false, false}, {true, false}, {false, true}})
                for (const bool is_value : {false, true}) {
                    AttentionCase of;
                    of.type = type;
                    of.is_prompt = is_prompt;
                    of.head_dim = 80;
                    of.capacity = 600;
                    constexpr int kSpoilt = 300, kDimension = 70;
                    if (in_tree)
                        of.queries = {AttentionCase::Query::in_tree(1, 295, {0b1011111, 0}),
                                      AttentionCase::Query::in_tree(1, 295, {0b111111, 0})};
                    else
                        of.queries = {{1, kSpoilt}, {1, kSpoilt + 1}};
                    const std::size_t numbers = of.at(of.n_layers, 0, 0, 0);
                    std::vector<float> keys = random_numbers(type, numbers, random),
                                       values = random_numbers(type, numbers, random);
                    const int width = of.n_query_heads * of.head_dim, stride = width + 2 * of.n_kv_heads * of.head_dim;
                    const std::vector<float> qkv = random_numbers(type, 2 * index(stride), random, 2);
                    for (int head = 0; head < of.n_kv_heads; ++head)
                        (is_value ? values : keys)[of.at(of.layer, 1, head, kSpoilt) + kDimension] = spoilt;
                    const std::vector<float> both = of.on_device(stream, keys, values, qkv, stride);
                    of.queries.pop_back();
                    const std::vector<float> alone = of.on_device(stream, keys, values, qkv, stride);
                    EXPECT_EQ(std::vector<float>(both.begin(), both.begin() + width), alone);
                    for (int i = 0; i < width; ++i)
                        ASSERT_TRUE(std::isfinite(both[index(i)])) << i;
                    // An infinite key has all the weight or none: its score is infinite.
                    for (int i = kDimension; i < width && (is_value || std::isnan(spoilt)); i += of.head_dim)
                        ASSERT_FALSE(std::isfinite(both[index(width + i)])) << i;
                }
}

// Also where a block of threads has several tiles of queries, and takes such values out for the first of them.
TEST_F(GpuKernels, ManyRowsOfAttentionDoNotDependOnKeysThatTheyDoNotSee) {
    for (const NumberType type : {NumberType::bfloat16, NumberType::float16})
        for (const int head_dim : {64, 128, 256}) {
            AttentionCase of;
            of.type = type;
            of.head_dim = head_dim;
            of.n_layers = of.n_kv_heads = 1;
            of.layer = 0;
            constexpr int kRows = 30, kFirst = 290, kSpoilt = 300, kDimension = 60;
            for (int r = 0; r < kRows; ++r)
                of.queries.push_back({1, kFirst + r});
            const std::size_t numbers = of.at(1, 0, 0, 0);
            const std::vector<float> keys = random_numbers(type, numbers, random);
            std::vector<float> values = random_numbers(type, numbers, random);
            const int width = of.n_query_heads * head_dim, stride = width + 2 * head_dim;
            const std::vector<float> qkv = random_numbers(type, kRows * index(stride), random, 2);
            const std::vector<float> sound = of.on_device(stream, keys, values, qkv, stride);
            values[of.at(0, 1, 0, kSpoilt) + kDimension] = INFINITY;
            const std::vector<float> got = of.on_device(stream, keys, values, qkv, stride);
            for (int i = 0; i < kRows * width; ++i) {
                const int row = i / width, d = i % head_dim;
                if (kFirst + row > kSpoilt && d / 8 == kDimension / 8)
                    ASSERT_TRUE(d != kDimension || !std::isfinite(got[index(i)])) << "row " << row;
                else
                    ASSERT_EQ(got[index(i)], sound[index(i)]) << "row " << row << ", dimension " << d;
            }
        }
}

TEST_F(GpuKernels, HeadsThatDoNotFitAreRefused) {
    AttendCall call;
    for (const auto& [head_dim, value_dim] : {std::pair{264, 264}, {584, 512}, {576, 528}}) {
        call.cache.head_dim = head_dim;
        call.cache.value_dim = value_dim;
        EXPECT_THROW(attend(stream.handle(), {}, call), std::invalid_argument) << head_dim << ", " << value_dim;
    }
}

void expect_placed(bool by_row, bool interleaved) {
    std::mt19937 random(7);
    const Stream stream;
    const kernels::Kernels& cpu = *kernels::kernels_named("portable");
    constexpr int kQueryHeads = 3, kKvHeads = 2, kDim = 24, kRotary = 16, kCapacity = 50, kSlots = 2, kRows = 3;
    constexpr int kHeads = kQueryHeads + 2 * kKvHeads, kStride = kHeads * kDim + 8;
    const std::vector<float> qkv = random_numbers(NumberType::float32, kRows * kStride, random),
                             query_norm = random_numbers(NumberType::float32, kQueryHeads * kDim, random),
                             key_norm = random_numbers(NumberType::float32, kKvHeads * kDim, random),
                             cosines = random_numbers(NumberType::float32, 40 * kRotary / 2, random),
                             sines = random_numbers(NumberType::float32, 40 * kRotary / 2, random);
    const std::vector<std::int32_t> slots = {1, -1, 0}, positions = {7, 8, 39}, places = {9, 10, 3};
    const Numbers device_qkv(NumberType::float32, qkv);
    const Numbers keys(NumberType::float32, 2 * kSlots * kKvHeads * kCapacity * kDim),
        values(NumberType::float32, keys.read().size());
    const auto d_slots = to_device(slots), d_positions = to_device(positions), d_places = to_device(places);
    const auto d_query_norm = to_device(query_norm), d_key_norm = to_device(key_norm), d_cosines = to_device(cosines),
               d_sines = to_device(sines);
    RowTable table;
    table.slots = d_slots.data();
    table.positions = d_positions.data();
    table.places = d_places.data();
    table.rows = kRows;
    PlaceCall call;
    call.cache = {NumberType::float32, keys.data(), values.data(), kSlots, kKvHeads, kCapacity, kDim, kDim, kDim};
    call.layer = 1;
    call.qkv = device_qkv.data();
    call.stride = kStride;
    call.n_query_heads = kQueryHeads;
    call.query_norm = d_query_norm.data();
    call.key_norm = d_key_norm.data();
    call.norm_epsilon = 1e-6f;
    call.cosines = d_cosines.data();
    call.sines = d_sines.data();
    call.rotary_dims = kRotary;
    call.interleaved = interleaved;
    // As of two ranks: of the second key head another rank counts.
    const std::vector<float> others = {3, 5, 7, 11, 13, 17};
    const auto squares = to_device(std::vector<float>(4 * kRows));
    const auto counts = to_device<std::int32_t>({1, 0});
    if (by_row) {
        SquaresCall sums{call};
        sums.counts_head = counts.data();
        sums.squares = squares.data();
        sums.rows = kRows;
        sum_squares(stream.handle(), sums);
        copy(stream, squares.data() + 2 * kRows, others.data(), others.size() * sizeof(float));
        call.row_squares = squares.data();
        call.n_square_parts = 2;
        call.query_count = 2 * kQueryHeads * kDim;
        call.key_count = 2 * kKvHeads * kDim;
    }
    place_keys(stream.handle(), table, call);
    stream.wait(kPatience);

    // Of a row's queries or keys.
    const auto norm_row = [&](int row, bool is_query, std::vector<float>& head, const float* norm) {
        double squares_of_row = others[index(2 * row + (is_query ? 0 : 1))];
        for (int i = 0; i < (is_query ? kQueryHeads : 1) * kDim; ++i)
            squares_of_row += std::pow(qkv[index(row * kStride + (is_query ? 0 : kQueryHeads * kDim) + i)], 2);
        const double scale = 1 / std::sqrt(squares_of_row / (is_query ? call.query_count : call.key_count) + 1e-6);
        for (int d = 0; d < kDim; ++d)
            head[index(d)] = static_cast<float>(head[index(d)] * scale * norm[d]);
    };
    const std::vector<float> got_qkv = device_qkv.read(), got_keys = keys.read(), got_values = values.read();
    std::size_t written = 0;
    for (int r = 0; r < kRows; ++r)
        for (int head = 0; head < kHeads; ++head) {
            const bool is_query = head < kQueryHeads, is_value = head >= kQueryHeads + kKvHeads;
            std::vector<float> expected(qkv.begin() + r * kStride + head * kDim,
                                        qkv.begin() + r * kStride + (head + 1) * kDim);
            const auto angles = index(positions[index(r)] * kRotary / 2);
            if (!is_value) {
                const int number = is_query ? head : head - kQueryHeads;
                const float* norm = (is_query ? query_norm : key_norm).data() + (by_row ? number * kDim : 0);
                if (by_row)
                    norm_row(r, is_query, expected, norm);
                else
                    cpu.rms_norm(expected.data(), norm, kDim, 1e-6f, expected.data());
                (interleaved ? cpu.rotate_pairs : cpu.rotate_half)(expected.data(), &cosines[angles], &sines[angles],
                                                                   kRotary / 2);
            }
            const int kv_head = (head - kQueryHeads) % kKvHeads, slot = slots[index(r)];
            if (slot < 0) continue;
            const std::size_t at =
                is_query
                    ? index(r * kStride + head * kDim)
                    : ((index(kSlots + slot) * kKvHeads + index(kv_head)) * kCapacity + index(places[index(r)])) * kDim;
            const float* got = (is_query ? got_qkv : is_value ? got_values : got_keys).data() + at;
            for (int d = 0; d < kDim; ++d)
                ASSERT_NEAR(got[d], expected[index(d)], 3e-6 * (1 + std::abs(expected[index(d)])))
                    << r << ' ' << head << ' ' << d;
            written += is_query ? 0 : kDim;
        }
    const auto not_zero = [](const std::vector<float>& of) {
        return of.size() - static_cast<std::size_t>(std::count(of.begin(), of.end(), 0.0f));
    };
    EXPECT_EQ(not_zero(got_keys) + not_zero(got_values), written) << "nothing else was written";
    EXPECT_TRUE(std::equal(qkv.begin() + kStride, qkv.begin() + 2 * kStride, got_qkv.begin() + kStride))
        << "padding stays";
}

TEST_F(GpuKernels, KeysAndValuesGoToTheirPlacesNormedAndTurned) {
    for (const bool by_row : {false, true})
        for (const bool interleaved : {false, true})
            expect_placed(by_row, interleaved);
}

TEST_F(GpuKernels, PositionsAreCopiedInEveryLayerAndHead) {
    constexpr int kLayers = 2, kSlots = 3, kHeads = 2, kCapacity = 48, kDim = 72;
    const auto place = [&](int layer, int slot, int head, int position) {
        return index((((layer * kSlots + slot) * kHeads + head) * kCapacity + position) * kDim);
    };
    for (const NumberType type : {NumberType::float32, NumberType::float16})
        for (const auto& [from_slot, from, to_slot, to, count] :
             {std::tuple{0, 5, 2, 17, 31}, {1, 40, 1, 3, 8}, {2, 0, 0, 0, kCapacity}, {1, 7, 1, 6, 1}}) {
            std::vector<float> expected[2] = {random_numbers(type, place(kLayers, 0, 0, 0), random),
                                              random_numbers(type, place(kLayers, 0, 0, 0), random)};
            const Numbers keys(type, expected[0]), values(type, expected[1]);
            const CacheView cache = {type, keys.data(), values.data(), kSlots, kHeads, kCapacity, kDim, kDim, kDim};
            copy_positions(stream.handle(), {cache, kLayers, from_slot, from, to_slot, to, count});
            finish();
            for (std::vector<float>& numbers : expected)
                for (int layer = 0; layer < kLayers; ++layer)
                    for (int head = 0; head < kHeads; ++head)
                        std::copy_n(&numbers[place(layer, from_slot, head, from)], count * kDim,
                                    &numbers[place(layer, to_slot, head, to)]);
            EXPECT_EQ(keys.read(), expected[0]);
            EXPECT_EQ(values.read(), expected[1]);
        }
}

TEST_F(GpuKernels, PositionsAreMovedInEveryLayerAndHead) {
    constexpr int kLayers = 2, kSlots = 2, kHeads = 2, kCapacity = 150, kDim = 72;
    const auto place = [&](int layer, int slot, int head, int position) {
        return index((((layer * kSlots + slot) * kHeads + head) * kCapacity + position) * kDim);
    };
    std::vector<int> every_other;
    for (int i = 0; i < 70; ++i)
        every_other.push_back(8 + 2 * i);
    for (const NumberType type : {NumberType::float32, NumberType::float16})
        for (const std::vector<int>& from :
             {std::vector<int>{9}, {8, 9, 12, 20, 21, 22, 30, 31, 32, 149}, every_other}) {
            std::vector<float> expected[2] = {random_numbers(type, place(kLayers, 0, 0, 0), random),
                                              random_numbers(type, place(kLayers, 0, 0, 0), random)};
            const Numbers keys(type, expected[0]), values(type, expected[1]);
            MoveCall call = {{type, keys.data(), values.data(), kSlots, kHeads, kCapacity, kDim, kDim},
                             kLayers,
                             1,
                             7,
                             static_cast<int>(from.size())};
            std::ranges::copy(from, call.from);
            move_positions(stream.handle(), call);
            finish();
            for (std::vector<float>& numbers : expected)
                for (int layer = 0; layer < kLayers; ++layer)
                    for (int head = 0; head < kHeads; ++head)
                        for (int i = 0; i < call.count; ++i)
                            std::copy_n(&numbers[place(layer, 1, head, from[index(i)])], kDim,
                                        &numbers[place(layer, 1, head, 7 + i)]);
            EXPECT_EQ(keys.read(), expected[0]);
            EXPECT_EQ(values.read(), expected[1]);
        }
}

TEST_F(GpuKernels, LogitsAreSummedUpAsOnTheCpu) {
    const kernels::Kernels& cpu = *kernels::kernels_named("portable");
    for (const int count : {1, 31, 1000, 5000}) {
        constexpr int kRows = 3;
        const std::size_t stride = index(count + 5);
        std::vector<float> logits = random_numbers(NumberType::float32, kRows * stride, random, 5);
        if (count == 1000) { // a tie, banned tokens, and a row of nothing else
            logits[700] = logits[40] = 30;
            for (int i = 0; i < count; ++i)
                logits[stride + index(i)] = i % 3 == 0 ? -INFINITY : logits[stride + index(i)];
        }
        const DeviceArray<float> on_device = to_device(logits);
        const DeviceArray<DeviceLogitStats> partial(kRows * kStatsBlocks), stats(kRows);
        summarize_logits(stream.handle(), {on_device.data(), stride, kRows, count, 100, partial.data(), stats.data()});
        finish();
        const std::vector<DeviceLogitStats> got = to_host(stats);
        for (int r = 0; r < kRows; ++r) {
            const LogitStats expected = cpu.logit_stats(logits.data() + index(r) * stride, count, 100);
            const DeviceLogitStats& s = got[index(r)];
            EXPECT_EQ(s.max, expected.max);
            EXPECT_EQ(s.arg_max, expected.arg_max);
            EXPECT_EQ(s.runner_up, expected.runner_up);
            EXPECT_NEAR(s.sum_exp, expected.sum_exp, 1e-5 * expected.sum_exp);
            double sum = 0, shifted = 0; // in float64
            for (int i = 0; i < count; ++i) {
                const double fall = static_cast<double>(logits[index(r) * stride + index(i)]) - s.max;
                sum += std::exp(fall);
                shifted += fall > -87 ? fall * std::exp(fall) : 0;
            }
            EXPECT_NEAR(s.sum_exp, sum, 1e-6 * sum);
            EXPECT_NEAR(s.sum_shifted_exp, shifted, 1e-6 * (1 - shifted));
            const LogitStats ours = {s.max, s.arg_max, s.sum_exp, s.sum_shifted_exp};
            EXPECT_NEAR(ours.entropy_nats(), expected.entropy_nats(), 1e-5);
        }
    }
}

// Bit for bit: `gumbel` says the same whatever the device, if the logits are the same.
TEST_F(GpuKernels, TheBestTokenWithNoiseIsTheCpus) {
    const spec::GumbelNoise of_texts[] = {{1, 2}, {77, 0}};
    int refined = 0;
    for (const int count : {1, 63, 500, 20000}) {
        for (const double temperature : {0.05, 1.0, 4.0}) {
            constexpr int kRows = 4, kFirst = 37;
            const std::size_t stride = index(count + 3);
            std::vector<float> logits = random_numbers(NumberType::float32, kRows * stride, random, 3);
            for (std::size_t i = 0; i < stride; i += 3) // banned
                logits[stride + i] = -INFINITY;
            std::fill_n(logits.begin() + static_cast<std::ptrdiff_t>(2 * stride), stride, 0.25f); // noise alone decides
            std::vector<DeviceNoise> noises;
            for (std::uint64_t r = 0; r < kRows; ++r) {
                const auto key = of_texts[r % 2].key();
                noises.push_back({{key[0], key[1]}, (1ull << 33) + 5 * r, r == 3 ? 0 : temperature});
            }
            const DeviceArray<float> on_device = to_device(logits);
            const DeviceArray<DeviceNoise> noises_on_device = to_device(noises);
            const DeviceArray<DeviceLogitStats> partial(kRows * kStatsBlocks), stats(kRows);
            const DeviceArray<DeviceNoisy> noisy_partial(kRows * kStatsBlocks), noisy(kRows);
            summarize_logits(stream.handle(),
                             {on_device.data(), stride, kRows, count, kFirst, partial.data(), stats.data(),
                              noises_on_device.data(), noisy_partial.data(), noisy.data()});
            finish();
            const std::vector<DeviceNoisy> got = to_host(noisy);
            for (std::size_t r = 0; r + 1 < kRows; ++r) {
                const std::span<const float> row = std::span(logits).subspan(r * stride, index(count));
                const spec::BestToken best =
                    spec::gumbel_max({row, kFirst, noises[r].position}, temperature, of_texts[r % 2]);
                EXPECT_EQ(got[r].token, best.token) << count << ' ' << temperature << ' ' << r;
                if (best.token < 0) continue; // all are banned
                EXPECT_EQ(got[r].value, best.value);
                EXPECT_EQ(got[r].runner_up, best.runner_up);
                EXPECT_EQ(got[r].logit, row[index(best.token - kFirst)]);
                refined += best.value - static_cast<double>(got[r].logit) / temperature > 8.4 ? 1 : 0;
            }
            EXPECT_EQ(got[kRows - 1].token, -1) << "no noise, no noisy token";
        }
    }
    EXPECT_GT(refined, 0) << "no token had noise of 64 bits";
}

TEST_F(GpuKernels, ALogitThatIsNotANumberIsSeenWhereverItIs) {
    constexpr int kCount = 700;
    const auto key = spec::GumbelNoise(1, 2).key();
    const DeviceArray<DeviceNoise> noise = to_device(std::vector<DeviceNoise>{{{key[0], key[1]}, 9, 1.5}});
    const DeviceArray<DeviceLogitStats> partial(kStatsBlocks), stats(1);
    const DeviceArray<DeviceNoisy> noisy_partial(kStatsBlocks), noisy(1);
    for (const std::size_t place : {0, 1, 350, 699}) {
        std::vector<float> logits(kCount, -1.0f);
        logits[2] = 30;
        logits[place] = std::numeric_limits<float>::quiet_NaN();
        const DeviceArray<float> there = to_device(logits);
        summarize_logits(stream.handle(), {there.data(), logits.size(), 1, kCount, 0, partial.data(), stats.data(),
                                           noise.data(), noisy_partial.data(), noisy.data()});
        finish();
        EXPECT_TRUE(std::isnan(to_host(stats)[0].max)) << place;
        EXPECT_TRUE(std::isnan(to_host(noisy)[0].value)) << place;
    }
}

// What a head that knows few tokens says is what one says that has all the others banned.
TEST_F(GpuKernels, LogitsOfFewTokensAreOfThese) {
    constexpr int kCount = 700, kStep = 3, kWide = kCount * kStep;
    const std::vector<float> known = random_numbers(NumberType::float32, kCount, random, 3);
    std::vector<float> all(kWide, -INFINITY);
    std::vector<std::int32_t> tokens;
    for (int i = 0; i < kCount; ++i) {
        tokens.push_back(kStep * i + 1);
        all[index(tokens.back())] = known[index(i)];
    }
    const auto key = spec::GumbelNoise(1, 2).key();
    const DeviceArray<std::int32_t> tokens_there = to_device(tokens);
    const DeviceArray<DeviceNoise> noise = to_device(std::vector<DeviceNoise>{{{key[0], key[1]}, 9, 1.5}});
    const DeviceArray<DeviceLogitStats> partial(kStatsBlocks), stats(1);
    const DeviceArray<DeviceNoisy> noisy_partial(kStatsBlocks), noisy(1);
    const auto summary_of = [&](const std::vector<float>& logits, const std::int32_t* of) {
        const DeviceArray<float> there = to_device(logits);
        const int count = static_cast<int>(logits.size());
        summarize_logits(stream.handle(), {there.data(), logits.size(), 1, count, 0, partial.data(), stats.data(),
                                           noise.data(), noisy_partial.data(), noisy.data(), of});
        finish();
        return std::pair(to_host(stats)[0], to_host(noisy)[0]);
    };
    const auto [got, got_noisy] = summary_of(known, tokens_there.data());
    const auto [want, want_noisy] = summary_of(all, nullptr);
    EXPECT_EQ(got.arg_max, want.arg_max);
    EXPECT_NEAR(got.sum_exp, want.sum_exp, 1e-5 * want.sum_exp);
    EXPECT_EQ(got_noisy.token, want_noisy.token);
    EXPECT_NE(got_noisy.token, got.arg_max);
    EXPECT_EQ(got_noisy.value, want_noisy.value);
    EXPECT_EQ(got_noisy.logit, want_noisy.logit);
}

TEST_F(GpuKernels, LogitsAreCapped) {
    const std::vector<float> x = random_numbers(NumberType::float32, 1000, random, 20);
    DeviceArray<float> capped = to_device(x);
    soft_cap(stream.handle(), capped.data(), x.size(), 15);
    finish();
    const std::vector<float> got = to_host(capped);
    for (std::size_t i = 0; i < x.size(); ++i)
        EXPECT_NEAR(got[i], 15 * std::tanh(x[i] / 15), 1e-5);
}

} // namespace gpu_kernels_test
} // namespace entrodraft::model::gpu
