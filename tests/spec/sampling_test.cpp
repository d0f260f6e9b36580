// Sampling, compared with transformers (golden file) and with a simple version in double; edge cases.
#include "spec/verify/sampling.h"

#include "spec/verify/random.h"
#include "spec/verify/row_kernels.h"

#include "tests/spec/verify_support.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <numeric>

namespace entrodraft::spec {
namespace sampling_test {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> adjusted(std::span<const float> logits, const SamplingOptions& options) {
    std::vector<float> probabilities(logits.size(), kNan);
    adjust(logits, options, probabilities);
    return probabilities;
}

// Logits that are multiples of `step`, near normal with this spread.
std::vector<float> random_logits(std::size_t n, double spread, std::uint64_t seed, double step = 1.0 / 1024) {
    const RandomStream stream(seed, 0, Purpose::gumbel_noise);
    std::vector<float> logits(n);
    for (std::size_t i = 0; i < n; ++i) {
        const double normal =
            std::sqrt(-2 * std::log1p(-stream.uniform(i))) * std::cos(6.2831853 * stream.uniform(i, 1));
        logits[i] = static_cast<float>(std::round(spread * normal / step) * step);
    }
    return logits;
}

// The definition, with everything sorted: logits over temperature in float, the rest in double.
std::vector<double> plain(std::span<const float> logits, const SamplingOptions& options) {
    const std::size_t n = logits.size();
    std::vector<float> scores(logits.begin(), logits.end());
    for (float& score : scores)
        score /= static_cast<float>(options.temperature);
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return scores[a] != scores[b] ? scores[a] < scores[b] : a > b; });
    std::vector<bool> kept(n, true);
    const auto top_k = static_cast<std::size_t>(options.top_k);
    if (top_k > 0 && top_k < n)
        for (std::size_t i = 0; i < n; ++i)
            kept[i] = scores[i] >= scores[order[n - top_k]];
    const double max = static_cast<double>(logits[order.back()]);
    const auto weight = [&](std::size_t i) {
        return kept[i] ? std::exp((static_cast<double>(logits[i]) - max) / options.temperature) : 0.0;
    };
    std::vector<double> result(n);
    for (std::size_t i = 0; i < n; ++i)
        result[i] = weight(i);
    double total = std::accumulate(result.begin(), result.end(), 0.0), sum = 0;
    if (options.top_p < 1) {
        for (std::size_t i = 0; i + 1 < n; ++i) {
            sum += weight(order[i]) / total;
            if (sum <= static_cast<double>(static_cast<float>(1 - options.top_p))) result[order[i]] = 0;
        }
        total = std::accumulate(result.begin(), result.end(), 0.0);
    }
    if (options.min_p > 0) {
        for (std::size_t i = 0; i < n; ++i)
            if (weight(i) < options.min_p) result[i] = 0; // the largest weight is 1
        total = std::accumulate(result.begin(), result.end(), 0.0);
    }
    for (double& value : result)
        value /= total;
    return result;
}

// Relative error below 1e-6. Below 2^-100 of the greatest both are right.
void expect_like(const std::vector<float>& found, const std::vector<double>& expected, const std::string& what) {
    ASSERT_EQ(found.size(), expected.size());
    double sum = 0;
    const double least = *std::ranges::max_element(expected) * 0x1p-99;
    for (std::size_t i = 0; i < found.size(); ++i) {
        const double value = static_cast<double>(found[i]);
        sum += value;
        if (expected[i] < least)
            EXPECT_LE(value, least) << what << " at " << i;
        else
            EXPECT_NEAR(value / expected[i], 1.0, 1e-6) << what << " at " << i;
    }
    EXPECT_NEAR(sum, 1.0, 1e-6) << what;
}

// Probabilities in order of their scores: transformers leaves the order of equal tokens at top-p to an unstable sort.
std::vector<std::pair<float, float>> by_score(std::span<const float> logits, std::span<const float> probabilities,
                                              const SamplingOptions& options) {
    std::vector<std::pair<float, float>> pairs;
    for (std::size_t i = 0; i < logits.size(); ++i)
        pairs.emplace_back(logits[i] / static_cast<float>(options.temperature), probabilities[i]);
    std::ranges::sort(pairs);
    return pairs;
}

TEST(Adjust, AgreesWithTransformers) {
    std::ifstream in(ENTRODRAFT_SOURCE_DIR "/tests/spec/sampling_golden.json");
    const auto golden = nlohmann::json::parse(in);
    ASSERT_GT(golden["cases"].size(), 240u);
    for (const auto& one : golden["cases"]) {
        const std::string row = one["row"];
        std::vector<float> logits;
        for (const auto& value : golden["rows"][row])
            logits.push_back(value.is_null() ? -kInfinity : value.get<float>());
        const auto options = options_of(one["temperature"], one["top_k"], one["top_p"], one["min_p"]);
        const auto found = adjusted(logits, options);
        std::vector<float> expected(logits.size());
        for (const auto& [id, probability] : one["kept"].get<std::vector<std::pair<std::size_t, float>>>())
            expected[id] = probability;
        // transformers rounds logits over temperature to float: for 512 / 0.5 by 6e-5
        const double rounding = row == "shifted" ? 1e-4 : 1e-5;
        const auto found_sorted = by_score(logits, found, options),
                   expected_sorted = by_score(logits, expected, options);
        for (std::size_t i = 0; i < logits.size(); ++i) {
            const auto [score, probability] = expected_sorted[i];
            EXPECT_EQ(found_sorted[i].first, score);
            if (probability < 1e-30F && probability > 0) continue; // may be 0 here
            EXPECT_NEAR(found_sorted[i].second, probability, rounding * static_cast<double>(probability))
                << one.dump().substr(0, 200) << " " << row << " T " << one["temperature"] << " k " << one["top_k"]
                << " p " << one["top_p"] << " min-p " << one["min_p"] << " at " << i;
        }
    }
}

TEST(Adjust, IsExactToOnePartInAMillionAgainstDouble) {
    for (const std::size_t n : {1, 2, 15, 16, 17, 63, 64, 65, 1023, 4096, 4099})
        for (const double temperature : {0.05, 0.3, 0.7, 1.0, 1.3, 5.0, 1e6})
            for (const double spread : {0.5, 3.0, 12.0}) {
                const auto logits = random_logits(n, spread, n);
                const auto options = options_of(temperature);
                expect_like(adjusted(logits, options), plain(logits, options),
                            "n " + std::to_string(n) + " T " + std::to_string(temperature));
            }
}

TEST(Adjust, FiltersLargeRowsLikeSortingAllOfThem) {
    for (const std::size_t n : {4096, 32000, 128256})
        for (const double spread : {0.1, 3.0})
            for (const int top_k : {0, 1, 50, 1000, 30000})
                for (const double top_p : {1.0, 0.95, 0.5, 0.01}) {
                    if (n == 128256 && top_k == 1000) continue; // minutes under a sanitizer, and tests nothing new
                    // With few distinct values borders have ties.
                    const auto logits = random_logits(n, spread, n + 1, 1.0 / 64);
                    const auto options = options_of(0.8, top_k, top_p);
                    const auto found = adjusted(logits, options);
                    const auto expected = plain(logits, options);
                    const auto kept = [](auto value) { return value > 0; };
                    // A border within rounding of a sum may move by one token among equal ones.
                    EXPECT_NEAR(static_cast<double>(std::ranges::count_if(found, kept)),
                                static_cast<double>(std::ranges::count_if(expected, kept)), top_p < 1 ? 1 : 0)
                        << n << " " << spread << " " << top_k << " " << top_p;
                    double difference = 0;
                    for (std::size_t i = 0; i < n; ++i)
                        difference += std::abs(static_cast<double>(found[i]) - expected[i]);
                    EXPECT_LT(difference, top_p < 1 ? 3e-3 : 1e-6)
                        << n << " " << spread << " " << top_k << " " << top_p;
                }
}

TEST(Adjust, KeepsAllTiesAtTheTopKBorder) {
    EXPECT_EQ(adjusted(std::vector<float>{1, 0, 1, 1}, options_of(1, 2)),
              (std::vector<float>{1.0F / 3, 0, 1.0F / 3, 1.0F / 3}));
}

TEST(Adjust, KeepsTheLowestIdsAmongTiesAtTheTopPBorder) {
    EXPECT_EQ(adjusted(std::vector<float>{1, 1, 1, 1}, options_of(1, 0, 0.5)), (std::vector<float>{0.5, 0.5, 0, 0}));
    EXPECT_EQ(adjusted(std::vector<float>{1, 1, 1, 1}, options_of(1, 0, 0)), (std::vector<float>{1, 0, 0, 0}));
    std::vector<float> many(5000, 2);
    many[3] = 1;
    const auto found = adjusted(many, options_of(1, 0, 0.5));
    EXPECT_EQ(found[4999], 0.0F);
    EXPECT_NEAR(static_cast<double>(std::ranges::count_if(found, [](float p) { return p > 0; })), 2500, 1);
    EXPECT_GT(found[0], 0.0F);
}

TEST(Adjust, KeepsWithMinPWhatHasThatShareOfTheLargest) {
    for (const std::size_t n : {5, 4096, 32000})
        for (const double min_p : {1e-9, 0.001, 0.05, 0.5, 1.0})
            for (const auto& options : {options_of(0.8, 0, 1, min_p), options_of(1.3, 40, 1, min_p),
                                        options_of(1, 0, 0.9, min_p), options_of(1, 100, 0.8, min_p)}) {
                const auto logits = random_logits(n, 3, n + 2, 1.0 / 1024);
                expect_like(adjusted(logits, options), plain(logits, options), "min-p " + std::to_string(min_p));
            }
    EXPECT_EQ(adjusted(std::vector<float>{2, 1, 2, 1.5}, options_of(1, 0, 1, 1)), (std::vector<float>{0.5, 0, 0.5, 0}));
}

TEST(Adjust, GivesNothingToBannedTokens) {
    for (const auto& options : {options_of(1), options_of(1, 3), options_of(1, 0, 0.99), options_of(1, 3, 0.99)}) {
        const auto found = adjusted(std::vector<float>{-kInfinity, 1, -kInfinity, 1, -kInfinity}, options);
        EXPECT_EQ(found, (std::vector<float>{0, 0.5, 0, 0.5, 0}));
    }
}

TEST(Adjust, HasNoRoomForNumbersThatAreNone) {
    for (const std::size_t n : {3, 16, 5000})
        for (const auto& options : {options_of(1), options_of(1, 2), options_of(1, 0, 0.9)})
            for (const float bad : {kNan, kInfinity}) {
                std::vector<float> logits(n, 1), out(n);
                logits[n - 1] = bad;
                EXPECT_THROW(adjust(logits, options, out), std::runtime_error);
                std::ranges::fill(logits, -kInfinity);
                EXPECT_THROW(adjust(logits, options, out), std::runtime_error);
            }
}

TEST(Adjust, RefusesOptionsAndSizesThatMakeNoSense) {
    std::vector<float> logits(4), out(4), short_out(3);
    EXPECT_THROW(adjust(logits, options_of(0), out), std::invalid_argument);
    EXPECT_THROW(adjust(logits, options_of(-1), out), std::invalid_argument);
    EXPECT_THROW(adjust(logits, options_of(1), short_out), std::invalid_argument);
    EXPECT_THROW(adjust({}, options_of(1), {}), std::invalid_argument);
}

TEST(SamplingOptions, AreRefusedWithTheOptionsName) {
    EXPECT_STREQ(why_invalid(SamplingOptions{}), "");
    EXPECT_STREQ(why_invalid(options_of(0.7, 50, 0.95)), "");
    for (const double temperature : {-1.0, 1e-9, 1e9, std::nan(""), std::numeric_limits<double>::infinity()})
        EXPECT_EQ(std::string(why_invalid(options_of(temperature))).find("--temperature"), 0u);
    EXPECT_EQ(std::string(why_invalid(options_of(1, -1))).find("--top-k"), 0u);
    for (const double top_p : {-0.1, 1.1, std::nan("")})
        EXPECT_EQ(std::string(why_invalid(options_of(1, 0, top_p))).find("--top-p"), 0u);
    for (const double min_p : {-0.1, 1.1, std::nan("")})
        EXPECT_EQ(std::string(why_invalid(options_of(1, 0, 1, min_p))).find("--min-p"), 0u);
}

TEST(SamplingKernels, GiveTheSameBitsOnEveryInstructionSet) {
    const auto all = all_row_kernels();
    for (const std::size_t n : {1, 5, 16, 100, 5003}) {
        const auto values = random_logits(n, 5, 3, 1e-6), q = random_logits(n, 5, 4, 1e-6);
        Exponential exponential;
        exponential.max = *std::ranges::max_element(values);
        exponential.scale = 1.7F;
        exponential.scale_high = 1.69921875F;
        exponential.scale_low = 0.00078125F;
        std::vector<float> first(n), weights(n);
        const double total = all[0]->exponentials(values.data(), n, exponential, first.data());
        for (const SamplingKernels* kernels : all) {
            EXPECT_EQ(kernels->exponentials(values.data(), n, exponential, weights.data()), total);
            EXPECT_EQ(std::memcmp(weights.data(), first.data(), n * sizeof(float)), 0);
            EXPECT_EQ(kernels->sum(weights.data(), n), all[0]->sum(weights.data(), n));
            EXPECT_EQ(kernels->sum_of_excess(values.data(), 0.75, q.data(), n),
                      all[0]->sum_of_excess(values.data(), 0.75, q.data(), n));
            EXPECT_EQ(kernels->entropy(weights.data(), n), all[0]->entropy(weights.data(), n));
            const ProbabilityMass mass = kernels->mass_at_least(values.data(), n, 0.5F, weights.data());
            const ProbabilityMass expected = all[0]->mass_at_least(values.data(), n, 0.5F, weights.data());
            EXPECT_EQ(mass.mass, expected.mass);
            EXPECT_EQ(mass.count, expected.count);
            EXPECT_EQ(static_cast<long>(mass.count), std::ranges::count_if(values, [](float v) { return v >= 0.5F; }));
            EXPECT_EQ(kernels->scan(values.data(), n).max, exponential.max);
            EXPECT_FALSE(kernels->scan(values.data(), n).has_nan);
            std::vector<std::size_t> ids, ids_expected;
            kernels->collect(values.data(), n, -0.5F, 0.5F, ids);
            for (std::size_t i = 0; i < n; ++i)
                if (values[i] >= -0.5F && values[i] < 0.5F) ids_expected.push_back(i);
            EXPECT_EQ(ids, ids_expected);
        }
    }
}

TEST(ArgMax, TakesTheLowestIdOfTies) {
    EXPECT_EQ(arg_max(std::vector<float>{1, 3, 3, 2}), 1);
    EXPECT_EQ(arg_max(std::vector<float>{0.0F, -0.0F}), 0);
    EXPECT_EQ(arg_max(std::vector<float>{-0.0F, 0.0F}), 0);
    EXPECT_EQ(arg_max(std::vector<float>{-kInfinity, -kInfinity}), 0);
    EXPECT_EQ(arg_max(std::vector<float>{1, kInfinity, kInfinity}), 1);
    for (const std::size_t n : {1, 16, 17, 1024, 1025, 5000}) {
        std::vector<float> values(n, -2);
        for (std::size_t best = 0; best < n; best += 1 + n / 13) {
            values[best] = values[n - 1] = 7;
            EXPECT_EQ(arg_max(values), static_cast<TokenId>(best));
            values[best] = values[n - 1] = -2;
        }
    }
}

TEST(ArgMax, RefusesNanWhereverItIs) {
    EXPECT_THROW(arg_max(std::vector<float>{kNan, 1, kNan, 2}), std::runtime_error);
    EXPECT_THROW(arg_max(std::vector<float>{kNan, -kInfinity}), std::runtime_error);
    for (std::size_t i = 0; i < 3000; i += i < 40 ? 1 : 97) {
        std::vector<float> values(3000, 0.5F);
        values[i] = kNan;
        EXPECT_THROW(arg_max(values), std::runtime_error) << i;
    }
    EXPECT_THROW(arg_max({}), std::runtime_error);
}

TEST(Sample, FollowsTheQuantiles) {
    const std::vector<float> p = {0, 0.25, 0, 0.5, 0.25, 0};
    EXPECT_EQ(sample(p, 0), 1);
    EXPECT_EQ(sample(p, 0.2499), 1);
    EXPECT_EQ(sample(p, 0.25), 3);
    EXPECT_EQ(sample(p, 0.7499), 3);
    EXPECT_EQ(sample(p, 0.75), 4);
    EXPECT_EQ(sample(p, 1 - 0x1p-53), 4);
}

TEST(Sample, NeverGivesATokenOfProbabilityZeroThoughTheSumIsOff) {
    for (const float scale : {0.5F, 0.9999F, 1.0001F, 3.0F}) {
        std::vector<float> p(5000, 0.0F);
        p[1000] = p[1023] = p[1024] = p[4000] = scale * 0.25F;
        for (const auto& [u, token] :
             {std::pair{0.0, 1000}, {0.3, 1023}, {0.6, 1024}, {0.8, 4000}, {1 - 0x1p-53, 4000}})
            EXPECT_EQ(sample(p, u), token);
    }
}

TEST(Sample, RefusesWhatIsNoDistributionAndNoQuantile) {
    EXPECT_THROW(sample(std::vector<float>{0, 0}, 0.5), std::runtime_error);
    EXPECT_THROW(sample({}, 0.5), std::runtime_error);
    EXPECT_THROW(sample(std::vector<float>{0.5, kNan, 0.5}, 0.5), std::runtime_error);
    EXPECT_THROW(sample(std::vector<float>{1}, 1.0), std::invalid_argument);
    EXPECT_THROW(sample(std::vector<float>{1}, -0.1), std::invalid_argument);
    EXPECT_THROW(sample(std::vector<float>{1}, std::nan("")), std::invalid_argument);
}

TEST(SampleExcess, FollowsWhatPHasOverQ) {
    const std::vector<float> p = {0.5, 0.25, 0.25, 0}, q = {0.25, 0.5, 0.125, 0.125};
    EXPECT_EQ(sample_excess(p, q, 0), 0); // 0.25, 0, 0.125, 0
    EXPECT_EQ(sample_excess(p, q, 0.666), 0);
    EXPECT_EQ(sample_excess(p, q, 0.667), 2);
    EXPECT_EQ(sample_excess(p, q, 0.999), 2);
    EXPECT_EQ(sample_excess(p, p, 0.5), -1);
    EXPECT_THROW(sample_excess(p, std::vector<float>{1}, 0.5), std::invalid_argument);
    EXPECT_THROW(sample_excess(std::vector<float>{kNan, 1}, std::vector<float>{1, 0}, 0.5), std::runtime_error);
    EXPECT_THROW(sample_excess(std::vector<float>{1, 0}, std::vector<float>{0.5, kNan}, 0.5), std::runtime_error);
}

TEST(SampleExcess, ScalesPBeforeQIsTaken) {
    const std::vector<float> p = {0.5, 0.25, 0.25, 0}, q = {0.125, 0.5, 0.0625, 0.3125};
    EXPECT_EQ(sum_of_excess(p, q, 0.5), 0.1875); // 0.125, 0, 0.0625, 0
    EXPECT_EQ(sum_of_excess(p, q), 0.5625);
    EXPECT_EQ(sample_excess(p, q, 0.666, 0.5), 0);
    EXPECT_EQ(sample_excess(p, q, 0.667, 0.5), 2);
    EXPECT_EQ(sample_excess(p, q, 0.5, 0.125), -1);
    EXPECT_THROW(sum_of_excess(p, std::vector<float>{1}), std::invalid_argument);
}

TEST(Entropy, IsThatOfTheDistributionInNats) {
    EXPECT_EQ(entropy_nats(std::vector<float>{0, 1, 0}), 0);
    EXPECT_NEAR(entropy_nats(std::vector<float>(5, 0.2F)), std::log(5.0), 1e-6);
    EXPECT_TRUE(std::isnan(entropy_nats(std::vector<float>{0.5, kNan, 0.5})));
    for (const std::size_t n : {3, 100, 32000})
        for (const double temperature : {0.2, 1.0, 4.0}) {
            const auto p = adjusted(random_logits(n, 5, n), options_of(temperature));
            double expected = 0;
            for (const float value : p)
                if (value > 0) expected -= static_cast<double>(value) * std::log(static_cast<double>(value));
            EXPECT_NEAR(entropy_nats(p), expected, 1e-6) << n << " " << temperature;
        }
}

} // namespace sampling_test
} // namespace entrodraft::spec
