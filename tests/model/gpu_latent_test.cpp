// What latent attention has beside attention itself, on a device: norms, rotation, the cache, and products of heads.
// Run as gpu_kernels_test.cpp is, which has attention over latent caches.
#include "model/cpu/kernels.h"
#include "tests/model/gpu_arrays.h"

#include <gtest/gtest.h>

#include <cmath>

namespace entrodraft::model::gpu {
namespace gpu_latent_test {

double epsilon_of(NumberType type) { // of one rounding
    return type == NumberType::float32 ? 6e-8 : type == NumberType::bfloat16 ? 4e-3 : 5e-4;
}

struct GpuLatent : testing::Test {
    std::mt19937 random{13};
    Stream stream;
    void finish() const { stream.wait(kPatience); }
};

TEST_F(GpuLatent, VectorsAreNormedAsOnTheCpu) {
    const kernels::Kernels& cpu = *kernels::kernels_named("portable");
    constexpr int kRows = 3, kWidth = 300, kFrom = 320, kTo = 384;
    for (const NumberType type : kTypes) {
        const std::vector<float> x = random_numbers(type, kRows * kFrom, random),
                                 weight = random_floats(kWidth, random);
        const Numbers from(type, x), to(type, kRows * kTo);
        const auto d_weight = to_device(weight);
        norm_vectors(stream.handle(),
                     {type, from.data(), kFrom, d_weight.data(), kWidth, 1e-6f, to.data(), kTo, kRows});
        finish();
        const std::vector<float> got = to.read();
        for (int r = 0; r < kRows; ++r) {
            std::vector<float> expected(kTo);
            cpu.rms_norm(&x[index(r * kFrom)], weight.data(), kWidth, 1e-6f, expected.data());
            for (int i = 0; i < kTo; ++i)
                ASSERT_NEAR(got[index(r * kTo + i)], expected[index(i)],
                            (epsilon_of(type) + 2e-6) * (1 + std::abs(expected[index(i)])))
                    << "row " << r << ", number " << i;
        }
    }
}

TEST_F(GpuLatent, KeysGoToTheirPlacesAndQueriesAreRotatedLikeThem) {
    const kernels::Kernels& cpu = *kernels::kernels_named("portable");
    constexpr int kHeads = 5, kRank = 32, kRotated = 12, kQuery = 20 + kRotated, kCapacity = 40, kSlots = 2, kRows = 3;
    constexpr int kDim = kRank + kRotated, kStride = (kDim + 7) / 8 * 8;
    constexpr int kOfVectors = 64, kOfQueries = 192, kOfAbsorbed = 256, kPositions = 40;
    const std::vector<std::int32_t> slots = {1, -1, 0}, positions = {7, 8, 39}, places = {9, 10, 3};
    const auto d_slots = to_device(slots), d_positions = to_device(positions), d_places = to_device(places);
    for (const NumberType type : kTypes)
        for (const bool interleaved : {true, false}) {
            const std::vector<float> x = random_numbers(type, kRows * kOfVectors, random),
                                     q = random_numbers(type, kRows * kOfQueries, random),
                                     norm = random_floats(kRank, random),
                                     cosines = random_floats(kPositions * kRotated / 2, random),
                                     sines = random_floats(kPositions * kRotated / 2, random);
            const Numbers vectors(type, x), queries(type, q), absorbed(type, kRows * kOfAbsorbed),
                cache(type, 2 * kSlots * kCapacity * kStride);
            const auto d_norm = to_device(norm), d_cosines = to_device(cosines), d_sines = to_device(sines);
            RowTable table;
            table.slots = d_slots.data();
            table.positions = d_positions.data();
            table.places = d_places.data();
            table.rows = kRows;
            PlaceLatentsCall call;
            call.cache = {type, cache.data(), cache.data(), kSlots, 1, kCapacity, kDim, kStride, kRank};
            call.layer = 1;
            call.vectors = vectors.data();
            call.vector_stride = kOfVectors;
            call.norm = d_norm.data();
            call.norm_epsilon = 1e-6f;
            call.queries = queries.data();
            call.query_stride = kOfQueries;
            call.query_dim = kQuery;
            call.absorbed = absorbed.data();
            call.absorbed_stride = kOfAbsorbed;
            call.n_query_heads = kHeads;
            call.cosines = d_cosines.data();
            call.sines = d_sines.data();
            call.interleaved = interleaved;
            place_latents(stream.handle(), table, call);
            finish();

            std::vector<float> of_cache(cache.read().size()), of_queries(kRows * kOfAbsorbed);
            for (int r = 0; r < kRows; ++r) {
                if (slots[index(r)] < 0) continue;
                const auto angles = index(positions[index(r)] * kRotated / 2);
                const auto rotated = [&](const float* from, float* to) {
                    std::copy_n(from, kRotated, to);
                    (interleaved ? cpu.rotate_pairs : cpu.rotate_half)(to, &cosines[angles], &sines[angles],
                                                                       kRotated / 2);
                };
                float* key = &of_cache[index(((kSlots + slots[index(r)]) * kCapacity + places[index(r)]) * kStride)];
                cpu.rms_norm(&x[index(r * kOfVectors)], norm.data(), kRank, 1e-6f, key);
                rotated(&x[index(r * kOfVectors + kRank)], key + kRank);
                for (int head = 0; head < kHeads; ++head)
                    rotated(&q[index(r * kOfQueries + (head + 1) * kQuery - kRotated)],
                            &of_queries[index(r * kOfAbsorbed + head * kStride + kRank)]);
            }
            const auto expect_near = [&](const std::vector<float>& got, const std::vector<float>& want) {
                for (std::size_t i = 0; i < want.size(); ++i)
                    ASSERT_NEAR(got[i], want[i], (epsilon_of(type) + 2e-6) * (1 + std::abs(want[i]))) << i;
            };
            expect_near(cache.read(), of_cache);
            expect_near(absorbed.read(), of_queries);
        }
}

TEST_F(GpuLatent, EachHeadHasAProductOfItsOwn) {
    struct Shape {
        int rows, n_heads, n, k, x_step; // steps that are no multiples of 16 bytes too
    };
    for (const NumberType type : kTypes)
        for (const Shape& shape :
             {Shape{1, 5, 16, 12, 20}, {7, 2, 40, 128, 192}, {9, 3, 16, 160, 160}, {45, 2, 32, 70, 70}}) {
            SCOPED_TRACE(shape.rows);
            const int stride = (shape.k + kLinearAlign - 1) / kLinearAlign * kLinearAlign, y_step = shape.n + 8;
            const int x_stride = (shape.n_heads * shape.x_step + kLinearAlign - 1) / kLinearAlign * kLinearAlign;
            const int y_stride = shape.n_heads * y_step;
            std::vector<float> w = random_numbers(type, index(shape.n_heads * shape.n * stride), random, 0.2f);
            for (std::size_t i = 0; i < w.size(); ++i)
                if (static_cast<int>(i) % stride >= shape.k) w[i] = 0;
            const std::vector<float> x = random_numbers(type, index(shape.rows * x_stride), random);
            const Numbers weights(type, w), inputs(type, x), outputs(type, index(shape.rows * y_stride));
            HeadLinear call;
            call.type = type;
            call.w = weights.data();
            call.k = shape.k;
            call.stride = stride;
            call.n = shape.n;
            call.n_heads = shape.n_heads;
            call.x = inputs.data();
            call.x_stride = x_stride;
            call.x_step = shape.x_step;
            call.y = outputs.data();
            call.y_stride = y_stride;
            call.y_step = y_step;
            call.rows = shape.rows;
            head_linear(stream.handle(), call);
            finish();
            const std::vector<float> got = outputs.read();
            for (int r = 0; r < shape.rows; ++r)
                for (int i = 0; i < y_stride; ++i) {
                    const int head = i / y_step, n = i % y_step;
                    double sum = 0;
                    for (int k = 0; k < shape.k && n < shape.n; ++k)
                        sum += static_cast<double>(w[index((head * shape.n + n) * stride + k)]) *
                               x[index(r * x_stride + head * shape.x_step + k)];
                    ASSERT_NEAR(got[index(r * y_stride + i)], sum, epsilon_of(type) * std::abs(sum) + 1e-5)
                        << "row " << r << ", head " << head << ", output " << n;
                }
            // A row's bits are those that it has alone.
            call.x = static_cast<std::byte*>(call.x) + index((shape.rows - 1) * x_stride) * bytes_of(type);
            call.rows = 1;
            head_linear(stream.handle(), call);
            finish();
            const std::vector<float> alone = outputs.read();
            const auto last = got.end() - y_stride;
            EXPECT_EQ(std::vector<float>(alone.begin(), alone.begin() + y_stride), std::vector<float>(last, got.end()));
        }
}

} // namespace gpu_latent_test
} // namespace entrodraft::model::gpu
