// Rows that are verified on the device: the kernels against sums in float64, and a draft's rows with a target's pass
// against those of the host.
#include "spec/gpu/device_round.h"
#include "spec/gpu/kernels.h"
#include "spec/verify/random.h"
#include "tests/model/family_golden.h"
#include "tests/model/gpu_arrays.h"
#include "tests/model/gpu_models.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace entrodraft {
namespace gpu_verify_rows_test {

using namespace spec::gpu;
using model::Row;
using spec::TokenId;
using spec::VerifiedRow;

struct GpuVerifyKernels : testing::Test {
    std::mt19937 random{7};
    Stream stream;
    void finish() const { stream.wait(kPatience); }
};

// Rows of a text of three drafted tokens, of one with nothing drafted, and padding, compared with sums in float64.
TEST_F(GpuVerifyKernels, RowsAreVerifiedByTheDrafts) {
    constexpr int kRows = 6, kDraftRows = 3;
    for (const bool is_block : {false, true}) {
        const float lenience = is_block ? 1 : 0.3F;
        for (const auto& [count, temperature] : {std::pair{5, 1.0}, {500, 0.7}, {9000, 2.0}}) {
            const std::size_t stride = index(count + 3);
            std::vector<float> p_logits = random_floats(kRows * stride, random, 3);
            std::vector<float> q_logits = random_floats(kDraftRows * stride, random, 3);
            std::copy_n(p_logits.begin(), stride, q_logits.begin()); // the first row: p and q are equal
            for (std::size_t i = 1; i < stride; i += 3)              // the second row: the target has banned tokens
                p_logits[stride + i] = -INFINITY;
            const DeviceArray<float> target = to_device(p_logits), draft = to_device(q_logits);
            const TokenId drafted[kRows] = {2, 3, count - 1, -1, -1, -1};
            std::vector<DeviceDraftedRow> plan;
            for (int r = 0; r < kRows; ++r) {
                const auto key = spec::RandomStream(3, 4, spec::Purpose::resample).key();
                plan.push_back({r < kDraftRows ? draft.data() + index(r) * stride : nullptr,
                                {{key[0], key[1]}, (7ull << 32) + index(r), r == 5 ? 0 : temperature},
                                drafted[r],
                                r == 0 || r == 4 ? 1 : 0,
                                is_block ? 1 : 0,
                                lenience});
            }
            const DeviceArray<DeviceDraftedRow> plan_on_device = to_device(plan);
            const DeviceArray<VerifyMasses> mass_parts(kRows * kStatsBlocks), masses(kRows);
            const DeviceArray<VerifyPart> parts(kRows * kStatsBlocks);
            DeviceArray<VerifiedRow> verified = to_device(std::vector<VerifiedRow>(kRows, {.p = 9}));
            verify_rows(stream.handle(), {target.data(), stride, kRows, count, plan_on_device.data(), mass_parts.data(),
                                          masses.data(), parts.data(), verified.data()});
            finish();
            const std::vector<VerifiedRow> got = to_host(verified);
            const auto softmax = [&, count = count, temperature = temperature](const std::vector<float>& logits,
                                                                               int row) {
                std::vector<double> weights;
                double sum = 0;
                const float max = *std::max_element(logits.begin() + row * static_cast<int>(stride),
                                                    logits.begin() + row * static_cast<int>(stride) + count);
                for (int i = 0; i < count; ++i) {
                    weights.push_back(
                        std::exp(static_cast<double>(logits[index(row) * stride + index(i)] - max) / temperature));
                    sum += weights.back();
                }
                for (double& weight : weights)
                    weight /= sum;
                return weights;
            };
            const spec::GumbelNoise noise(spec::RandomStream(3, 4, spec::Purpose::resample));
            double scale = 1;
            for (int r = 0; r + 1 < kRows; ++r) {
                SCOPED_TRACE("row " + std::to_string(r) + " of " + std::to_string(count) + (is_block ? ", block" : ""));
                const std::vector<double> p = softmax(p_logits, r), q = r < kDraftRows
                                                                            ? softmax(q_logits, r)
                                                                            : std::vector<double>(p.size(), 0.0);
                if (r == 4) scale = 1;
                double excess = 0, overlap = 0, best = -INFINITY, of_next = -INFINITY;
                for (std::size_t i = 0; i < p.size(); ++i) {
                    const double e = std::max(0.0, scale * p[i] - q[i]);
                    excess += e;
                    overlap += std::min(p[i] / static_cast<double>(lenience), q[i]);
                    const double value =
                        std::log(r == 0 ? p[i] : e) + noise.at(plan[index(r)].noise.position, static_cast<TokenId>(i));
                    best = std::max(best, value);
                    if (static_cast<TokenId>(i) == got[index(r)].next) of_next = value;
                }
                const VerifiedRow& row = got[index(r)];
                if (r < kDraftRows) {
                    EXPECT_NEAR(row.p, p[index(drafted[r])], 2e-6);
                    EXPECT_NEAR(row.q, q[index(drafted[r])], 2e-6);
                }
                EXPECT_NEAR(row.scale, scale, 1e-5 * (1 + scale));
                EXPECT_NEAR(row.excess, excess, 1e-5);
                EXPECT_NEAR(row.overlap, overlap, 1e-5);
                EXPECT_GE(row.next, 0);
                EXPECT_GT(of_next, best - 0.02) << "not a sample of what is left";
                if (is_block && r < kDraftRows) scale = std::min(1.0, scale * row.p / row.q);
            }
            EXPECT_EQ(got.back().p, 9) << "padding is left alone";
        }
    }
}

// A NaN logit spoils its own row only.
TEST_F(GpuVerifyKernels, RowsVerifiedSayWhereALogitIsNoNumber) {
    constexpr int kCount = 300;
    std::vector<float> logits = random_floats(3 * kCount, random, 1);
    logits[kCount + 7] = std::numeric_limits<float>::quiet_NaN();
    const DeviceArray<float> target = to_device(logits);
    const DeviceArray<DeviceDraftedRow> plan =
        to_device(std::vector<DeviceDraftedRow>(3, {nullptr, {{1, 2}, 3, 1.0}, -1, 1, 0, 1}));
    const DeviceArray<VerifyMasses> mass_parts(3 * kStatsBlocks), masses(3);
    const DeviceArray<VerifyPart> parts(3 * kStatsBlocks);
    const DeviceArray<VerifiedRow> verified(3);
    verify_rows(stream.handle(), {target.data(), kCount, 3, kCount, plan.data(), mass_parts.data(), masses.data(),
                                  parts.data(), verified.data()});
    finish();
    const std::vector<VerifiedRow> got = to_host(verified);
    EXPECT_NEAR(got[0].excess, 1, 1e-5);
    EXPECT_TRUE(std::isnan(got[1].excess));
    EXPECT_NEAR(got[2].excess, 1, 1e-5);
}

TEST_F(GpuVerifyKernels, RowsAreKeptAndPutTogether) {
    const std::vector<float> logits = random_floats(3 * 50, random, 1);
    const DeviceArray<float> on_device = to_device(logits), kept(5 * 50), wide(3 * 120);
    const DeviceArray<std::int32_t> numbers = to_device(std::vector<std::int32_t>{4, -1, 2});
    for (int r = 0; r < 3; ++r)
        keep_row(stream.handle(), {on_device.data() + 50 * r, 50, numbers.data() + r, kept.data()});
    widen_rows(stream.handle(), {on_device.data(), 50, 60, wide.data(), 120, 3});
    finish();
    const std::vector<float> got = to_host(kept), rows = to_host(wide);
    for (std::size_t i = 0; i < got.size(); ++i)
        EXPECT_EQ(got[i], i / 50 == 4 ? logits[i - 200] : i / 50 == 2 ? logits[i] : 0) << i;
    for (std::size_t i = 0; i < rows.size(); ++i)
        EXPECT_EQ(rows[i], i % 120 >= 60 && i % 120 < 110 ? logits[i / 120 * 50 + i % 120 - 60] : 0) << i;
}

std::vector<double> softmax(std::span<const float> logits, double temperature) {
    const double max = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
    std::vector<double> p;
    double sum = 0;
    for (const float logit : logits) {
        p.push_back(std::exp((static_cast<double>(logit) - max) / temperature));
        sum += p.back();
    }
    for (double& each : p)
        each /= sum;
    return p;
}

// A chain of the draft leaves its rows on the device, and the target's pass verifies by them.
TEST(GpuVerifiedRows, AreThoseOfTheTargetBesideThoseThatTheDraftHasKept) {
    const auto device = spec::gpu::make_device_round();
    constexpr std::size_t kKnown = 500; // of 512
    constexpr double kTemperature = 0.8;
    TestModel draft(golden_directory("llama-draft"), on_gpu()), alone(golden_directory("llama-draft"), on_gpu()),
        target(golden_directory("llama-target"), on_gpu());
    std::vector<TokenId> text = varied_tokens(6, 500);
    const model::RowNoise noise = {{1, 2}, 6, kTemperature};
    model::LogitNeeds of_draft(model::LogitSummary::max, false);
    of_draft.noises = std::span(&noise, 1);
    of_draft.extension = device->draft({.max_rows = 3}, 0);
    const std::vector<Row> prefix = draft.chain(text);
    const std::vector<int> last = {5};
    const model::PassResult drafted = draft.decoder.forward({.rows = prefix,
                                                             .logit_rows = last,
                                                             .hidden_layers = {},
                                                             .needs = of_draft,
                                                             .summary_vocab = static_cast<int>(kKnown)});
    ASSERT_EQ(drafted.noisy.size(), 3U);
    std::vector<spec::DraftedRow> plan(4);
    for (std::size_t i = 0; i < 4; ++i) {
        if (i < 3) {
            plan[i].drafted = drafted.noisy[i].token;
            text.push_back(plan[i].drafted);
        }
        plan[i].is_first = i == 0;
        plan[i].is_scaled = true;
        plan[i].lenience = 0.5F;
        plan[i].noise = {{3, 4}, 6 + i, kTemperature};
    }
    model::LogitNeeds of_target(model::LogitSummary::none, true);
    of_target.extension = device->verify(plan);
    const std::vector<int> rows = {5, 6, 7, 8};
    const model::PassResult result = target.decoder.forward({.rows = target.chain(text),
                                                             .logit_rows = rows,
                                                             .hidden_layers = {},
                                                             .needs = of_target,
                                                             .summary_vocab = static_cast<int>(kKnown)});
    ASSERT_EQ(device->verified().size(), 4U);
    const std::vector<float> draft_logits = alone.read(text);
    double scale = 1;
    for (std::size_t i = 0; i < 4; ++i) {
        const spec::VerifiedRow& verified = device->verified()[i];
        const std::vector<double> p = softmax(result.logits.subspan(i * result.logits_stride, kKnown), kTemperature);
        std::vector<double> q(kKnown, 0.0);
        if (i < 3) q = softmax(std::span(draft_logits).subspan((5 + i) * 512, kKnown), kTemperature);
        double excess = 0, overlap = 0;
        for (std::size_t token = 0; token < kKnown; ++token) {
            excess += std::max(0.0, scale * p[token] - q[token]);
            overlap += std::min(p[token] / 0.5, q[token]);
        }
        EXPECT_NEAR(verified.scale, scale, 1e-5) << i;
        EXPECT_NEAR(verified.excess, excess, 1e-5) << i;
        EXPECT_NEAR(verified.overlap, overlap, 1e-5) << i;
        EXPECT_GE(verified.next, 0);
        EXPECT_LT(verified.next, static_cast<TokenId>(kKnown));
        if (i == 3) break;
        const auto token = static_cast<std::size_t>(plan[i].drafted);
        EXPECT_NEAR(verified.p, p[token], 1e-6) << i;
        EXPECT_NEAR(verified.q, q[token], 1e-6) << i;
        scale = std::min(1.0, scale * verified.p / verified.q);
    }
    EXPECT_THROW(device->draft({}, spec::DeviceRound::kMaxKept), std::invalid_argument);
}

} // namespace gpu_verify_rows_test
} // namespace entrodraft
