// Experts on a device: who goes through which, against model/pass/routing.h; products, bit for bit, against those of
// each expert's matrix by itself; and their sums. Run as gpu_kernels_test.cpp is.
#include "model/pass/routing.h"
#include "tests/model/gpu_codes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace entrodraft::model::gpu {
namespace gpu_experts_test {

struct GpuExperts : testing::Test {
    std::mt19937 random{11};
    Stream stream;
    void finish() const { stream.wait(kPatience); }

    // Pairs of rows with experts, as many rows each as `counts` says.
    struct Pairs {
        std::vector<std::int32_t> begin, rows, live;
    };
    Pairs pairs_of(const std::vector<int>& counts, int n_rows) {
        Pairs pairs{{0}, {}, {}};
        for (const int count : counts) {
            std::vector<std::int32_t> rows(index(n_rows));
            std::iota(rows.begin(), rows.end(), 0);
            std::ranges::shuffle(rows, random);
            pairs.rows.insert(pairs.rows.end(), rows.begin(), rows.begin() + count);
            if (count > 0) pairs.live.push_back(static_cast<std::int32_t>(pairs.begin.size() - 1));
            pairs.begin.push_back(static_cast<std::int32_t>(pairs.rows.size()));
        }
        pairs.live.resize(counts.size(), -1);
        return pairs;
    }
};

TEST_F(GpuExperts, ProductsHaveTheBitsOfEachExpertsMatrixByItself) {
    constexpr int kN = 48, kK = 70, kStride = 128, kRows = 80;
    // The last two share out their rows as passes of few and of many rows do.
    const std::vector<std::vector<int>> all_counts = {{1, 0, 3}, {0, 9, 17}, {5, 0, 0, 2}, {33, 40, 1}, {80, 80, 70}};
    for (const NumberType type : kTypes)
        for (const std::vector<int>& counts : all_counts)
            for (const bool gathers : {true, false}) {
                const int n_experts = static_cast<int>(counts.size());
                const Pairs pairs = pairs_of(counts, kRows);
                const int n_pairs = pairs.begin.back();
                std::vector<float> w = random_numbers(type, index(n_experts * kN * kStride), random),
                                   x = random_numbers(type, index(std::max(kRows, n_pairs) * kStride), random);
                for (std::vector<float>* matrix : {&w, &x})
                    for (std::size_t i = 0; i < matrix->size(); ++i)
                        if (i % kStride >= kK) (*matrix)[i] = 0;
                const std::vector<float> bias = random_numbers(NumberType::float32, index(n_experts * kN), random);
                const Numbers weights(type, w), inputs(type, x), y(NumberType::float32, index(n_pairs * kN / 2));
                const auto begin = to_device(pairs.begin), rows = to_device(pairs.rows), live = to_device(pairs.live);
                const auto biases = to_device(bias);
                Linear alone = {type, weights.data(), inputs.data(), kK,       kStride,
                                kN,   n_pairs,        biases.data(), y.data(), kN / 2};
                alone.epilogue = Epilogue::gate;
                ExpertLinear call{alone};
                call.n_experts = n_experts;
                call.begin = begin.data();
                call.live = live.data();
                call.from_rows = gathers ? rows.data() : nullptr;
                expert_linear(stream.handle(), call);
                finish();
                const std::vector<float> got = y.read();
                for (int e = 0; e < n_experts; ++e) {
                    const int first = pairs.begin[index(e)], count = counts[index(e)];
                    std::vector<float> from;
                    for (int pair = first; pair < first + count; ++pair) {
                        const auto row = x.begin() + (gathers ? pairs.rows[index(pair)] : pair) * kStride;
                        from.insert(from.end(), row, row + kStride);
                    }
                    if (count == 0) continue;
                    const auto of_w = w.begin() + e * kN * kStride;
                    const auto of_bias = bias.begin() + e * kN;
                    const Numbers own(type, std::vector<float>(of_w, of_w + kN * kStride)), own_x(type, from),
                        expected(NumberType::float32, index(count * kN / 2));
                    const auto own_bias = to_device(std::vector<float>(of_bias, of_bias + kN));
                    alone.w = own.data();
                    alone.x = own_x.data();
                    alone.bias = own_bias.data();
                    alone.y = expected.data();
                    alone.rows = count;
                    linear(stream.handle(), alone);
                    finish();
                    const auto mine = got.begin() + first * (kN / 2);
                    ASSERT_EQ(std::vector<float>(mine, mine + count * (kN / 2)), expected.read()) << "expert " << e;
                }
            }
}

TEST_F(GpuExperts, ProductsOfCodesHaveTheBitsOfEachExpertsMatrixByItself) {
    constexpr int kN = 48, kK = 200, kRows = 20, kExperts = 3;
    for (const CodeForm& form : kCodeForms)
        for (const NumberType type : {NumberType::bfloat16, NumberType::float16}) {
            const CodedMatrix matrix(form, kExperts * kN, kK, type, random);
            const CodedMatrix::OnDevice there = matrix.on_device();
            const Pairs pairs = pairs_of({1, 0, 17}, kRows);
            const int n_pairs = pairs.begin.back();
            ExpertLinear call{matrix.call(type, there)};
            const std::vector<float> x = random_rows(type, kRows, kK, call.stride, random);
            const Numbers inputs(type, x), y(NumberType::float32, index(n_pairs * kN)),
                all(NumberType::float32, index(kRows * kExperts * kN));
            const auto begin = to_device(pairs.begin), rows = to_device(pairs.rows), live = to_device(pairs.live);
            call.x = inputs.data();
            call.y = all.data();
            call.y_stride = call.n;
            call.rows = kRows;
            linear(stream.handle(), call); // every row by every expert
            call.n = call.y_stride = kN;
            call.y = y.data();
            call.rows = n_pairs;
            call.n_experts = kExperts;
            call.begin = begin.data();
            call.live = live.data();
            call.from_rows = rows.data();
            expert_linear(stream.handle(), call);
            finish();
            const std::vector<float> got = y.read(), expected = all.read();
            std::size_t wrong = 0;
            for (int e = 0; e < kExperts; ++e)
                for (int pair = pairs.begin[index(e)]; pair < pairs.begin[index(e + 1)]; ++pair)
                    for (int n = 0; n < kN; ++n)
                        wrong += got[index(pair * kN + n)] ==
                                         expected[index((pairs.rows[index(pair)] * kExperts + e) * kN + n)]
                                     ? 0
                                     : 1;
            EXPECT_EQ(wrong, 0U) << "form " << &form - kCodeForms;
        }
}

TEST_F(GpuExperts, AreChosenAndListedAsOnTheCpu) {
    std::vector<ExpertsConfig> configs(4);
    configs[0].n_experts = 8;
    configs[0].n_chosen = 2;
    configs[1].n_experts = 64; // as OLMoE
    configs[1].n_chosen = 8;
    configs[1].normalizes = true;
    configs[2] = configs[1]; // as DeepSeek-V3
    configs[2].score = RouterScore::sigmoid;
    configs[2].n_groups = 8;
    configs[2].n_chosen_groups = 3;
    configs[2].n_group_best = 2;
    configs[2].scale = 2.5f;
    configs[3].n_experts = 60; // not whole warps, and a shared one's scale behind them
    configs[3].n_chosen = 4;
    for (const ExpertsConfig& config : configs)
        for (const int n_rows : {1, 5, 40}) {
            const int stride = config.n_experts + 1, n_choices = n_rows * config.n_chosen;
            std::vector<float> logits = random_floats(index(n_rows * stride), random, 2), correction;
            logits[1] = logits[2]; // of equals the first
            if (config.score == RouterScore::sigmoid) correction = random_floats(index(config.n_experts), random, 0.1f);
            std::vector<std::int32_t> slots(index(n_rows), 0);
            if (n_rows > 1) slots[1] = -1; // padding
            const auto d_logits = to_device(logits), d_correction = to_device(correction);
            const auto d_slots = to_device(slots);
            const DeviceArray<std::int32_t> chosen(index(n_choices)), pairs(index(n_choices)),
                begin(index(config.n_experts + 1)), live(index(config.n_experts)), pair_rows(index(n_choices));
            const DeviceArray<float> weights(index(n_choices));
            RowTable table;
            table.slots = d_slots.data();
            table.rows = n_rows;
            ChooseExperts call;
            call.logits = d_logits.data();
            call.stride = stride;
            call.correction = d_correction.data();
            call.n_experts = config.n_experts;
            call.n_chosen = config.n_chosen;
            call.score = config.score;
            call.n_groups = config.n_groups;
            call.n_chosen_groups = config.n_chosen_groups;
            call.n_group_best = config.n_group_best;
            call.normalizes = config.normalizes;
            call.scale = config.scale;
            call.chosen = chosen.data();
            call.weights = weights.data();
            call.pairs = pairs.data();
            call.begin = begin.data();
            call.live = live.data();
            call.pair_rows = pair_rows.data();
            choose_experts(stream.handle(), table, call);
            finish();

            std::vector<ChosenExpert> expected;
            std::vector<std::int32_t> rows_there;
            for (int r = 0; r < n_rows; ++r) {
                if (slots[index(r)] < 0) continue;
                rows_there.push_back(r);
                std::vector<ChosenExpert> own(index(config.n_chosen));
                model::choose_experts(config, std::span(logits).subspan(index(r * stride), index(config.n_experts)),
                                      correction, own);
                expected.insert(expected.end(), own.begin(), own.end());
            }
            ExpertRows by_expert;
            by_expert.set(config, expected);
            EXPECT_EQ(to_host(begin), std::vector<std::int32_t>(by_expert.begin.begin(), by_expert.begin.end()));
            std::vector<std::int32_t> expected_live;
            for (int e = 0; e < config.n_experts; ++e)
                if (by_expert.begin[index(e)] < by_expert.begin[index(e) + 1]) expected_live.push_back(e);
            EXPECT_LE(expected_live.size(), index(n_choices)) << "a grid of the pairs' number has them all";
            expected_live.resize(index(config.n_experts), -1);
            EXPECT_EQ(to_host(live), expected_live);
            const std::vector<std::int32_t> got_rows = to_host(pair_rows), got_pairs = to_host(pairs);
            const std::vector<float> got_weights = to_host(weights);
            for (std::size_t i = 0; i < by_expert.rows.size(); ++i)
                ASSERT_EQ(got_rows[i], rows_there[index(by_expert.rows[i])]) << "pair " << i;
            for (int i = 0; i < n_choices; ++i) {
                const int row = i / config.n_chosen, number = i % config.n_chosen;
                const int pair = got_pairs[index(i)];
                if (slots[index(row)] < 0) {
                    EXPECT_EQ(pair, -1);
                    continue;
                }
                ASSERT_EQ(got_rows[index(pair)], row);
                const auto place = std::ranges::find(rows_there, row) - rows_there.begin();
                const ChosenExpert& one = expected[index(static_cast<int>(place) * config.n_chosen + number)];
                EXPECT_TRUE(pair >= by_expert.begin[index(one.expert)] &&
                            pair < by_expert.begin[index(one.expert) + 1]);
                EXPECT_NEAR(got_weights[index(i)], one.weight, 2e-6 * (1 + one.weight));
            }
        }
}

TEST_F(GpuExperts, MoreThanTheKernelsKnowAreRefused) {
    ChooseExperts call;
    call.n_experts = kMaxExperts + 1;
    EXPECT_THROW(choose_experts(stream.handle(), {}, call), std::invalid_argument);
    call.n_experts = kMaxExperts;
    call.n_chosen = kMaxChosen + 1;
    EXPECT_THROW(choose_experts(stream.handle(), {}, call), std::invalid_argument);
}

TEST_F(GpuExperts, ARowAddsUpItsOwnAndTheSharedOne) {
    constexpr int kRows = 3, kChosen = 2, kWidth = 300;
    const std::vector<float> outputs = random_floats(4 * kWidth, random),
                             weights = random_floats(kRows * kChosen, random), gates = random_floats(2 * kRows, random),
                             before = random_floats(kRows * kWidth, random);
    const std::vector<std::int32_t> pairs = {0, 3, -1, -1, 2, 1}; // the middle row is padding
    const auto d_outputs = to_device(outputs), d_weights = to_device(weights), d_gates = to_device(gates);
    const auto d_pairs = to_device(pairs);
    for (const bool has_part : {true, false})
        for (const bool keeps : {true, false})
            for (const bool is_gated : {true, false}) {
                const auto y = to_device(before);
                AddExperts call;
                call.outputs = has_part ? d_outputs.data() : nullptr;
                call.weights = d_weights.data();
                call.pairs = d_pairs.data();
                call.n_chosen = kChosen;
                call.gates = is_gated ? d_gates.data() : nullptr;
                call.gate_stride = 2;
                call.keeps = keeps;
                call.y = y.data();
                call.width = kWidth;
                call.rows = kRows;
                add_experts(stream.handle(), call);
                finish();
                const std::vector<float> got = to_host(y);
                for (int r = 0; r < kRows; ++r)
                    for (int i = 0; i < kWidth; ++i) {
                        double sum = keeps ? before[index(r * kWidth + i)] : 0;
                        if (is_gated) sum /= 1 + std::exp(-static_cast<double>(gates[index(2 * r)]));
                        for (int c = r * kChosen; c < (r + 1) * kChosen && has_part; ++c)
                            if (const int pair = pairs[index(c)]; pair >= 0)
                                sum += static_cast<double>(weights[index(c)]) * outputs[index(pair * kWidth + i)];
                        ASSERT_NEAR(got[index(r * kWidth + i)], sum, 2e-6 * (1 + std::abs(sum))) << r << ' ' << i;
                    }
            }
}

} // namespace gpu_experts_test
} // namespace entrodraft::model::gpu
