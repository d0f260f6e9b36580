// Gumbel noise: its distribution and its samples. Neither slicing, processor nor draft changes the best token.
#include "spec/verify/random.h"

#include "spec/verify/row_kernels.h"
#include "spec/verify/verify.h"

#include "tests/spec/verify_support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace entrodraft::spec {
namespace gumbel_test {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_logits(std::size_t n, double spread, std::uint64_t seed, double step = 1.0 / 64) {
    const RandomStream stream(seed, 0, Purpose::draft_sample);
    std::vector<float> logits(n);
    for (std::size_t i = 0; i < n; ++i) {
        const double normal =
            std::sqrt(-2 * std::log1p(-stream.uniform(i))) * std::cos(6.2831853 * stream.uniform(i, 1));
        logits[i] = static_cast<float>(std::round(spread * normal / step) * step);
    }
    return logits;
}

// The definition: every token's noise, and the filters of adjust().
BestToken plain(const LogitSlice& row, const SamplingOptions& options, const GumbelNoise& noise) {
    std::vector<float> p(row.logits.size());
    adjust(row.logits, options, p);
    BestToken best;
    for (std::size_t i = 0; i < p.size(); ++i) {
        const auto token = static_cast<TokenId>(i);
        if (p[i] > 0)
            best =
                better(best, {static_cast<double>(row.logits[i]) / options.temperature + noise.at(row.position, token),
                              token});
    }
    return best;
}

TEST(GumbelNoise, IsMinusLogOfMinusLogOfTheBitsOfItsToken) {
    const GumbelNoise noise(3, 4);
    for (std::uint64_t position : {std::uint64_t{0}, std::uint64_t{77}, std::uint64_t{1} << 40})
        for (TokenId token = 0; token < 5000; token += 7) {
            const auto id = static_cast<std::uint32_t>(token);
            const auto low = static_cast<std::uint32_t>(position), high = static_cast<std::uint32_t>(position >> 32);
            const std::uint32_t word = philox4x32({low, high, id / 64 * 16 + id % 16, 0}, noise.key())[id / 16 % 4];
            const double more =
                word < 1 << 20 ? (philox4x32({low, high, id, 1}, noise.key())[0] + 0.5) / 4294967296.0 : 0.5;
            const double v = (word + more) / 4294967296.0;
            EXPECT_NEAR(noise.at(position, token), -std::log(-std::log1p(-v)), 1e-13 * (1 + 1 / std::abs(v - 0.63)));
        }
}

TEST(GumbelNoise, StaysFiniteAndOrderedOverAllWords) {
    const GumbelNoise noise(3, 4);
    double last = std::numeric_limits<double>::infinity();
    for (const std::uint32_t word : {1U, 5U, 1000U, (1U << 20) - 1, 1U << 20, (1U << 20) + 1, 1U << 30, (1U << 30) + 1,
                                     1U << 31, 0xF0000000U, 0xFFFFFFFEU, 0xFFFFFFFFU}) {
        const double value = noise.of_word(word, 1, 1);
        EXPECT_LT(value, last) << word;
        EXPECT_NEAR(value, -std::log(-std::log1p(-(word + 0.5) / 4294967296.0)), word < 1000 ? 0.5 : 1e-3);
        last = value;
    }
    EXPECT_GT(noise.of_word(0xFFFFFFFF, 1, 1), -3.2);
    EXPECT_LT(noise.of_word(0, 1, 1), 45.1);
    EXPECT_GT(noise.of_word(0, 1, 1), 22);
}

TEST(GumbelNoise, FollowsItsDistribution) {
    // exp(-exp(-g)) is uniform: Kolmogorov and Smirnov's distance times sqrt(n) exceeds 2 once in 1,500 tests.
    constexpr int kCount = 200000;
    for (const std::uint64_t seed : {1, 2}) {
        const GumbelNoise noise(seed, 9);
        std::vector<double> quantiles;
        for (int i = 0; i < kCount; ++i)
            quantiles.push_back(std::exp(-std::exp(-noise.at(static_cast<std::uint64_t>(i % 40), i / 40))));
        std::ranges::sort(quantiles);
        double distance = 0;
        for (int i = 0; i < kCount; ++i)
            distance = std::max(distance, std::abs(quantiles[static_cast<std::size_t>(i)] - (i + 0.5) / kCount));
        EXPECT_LT(distance * std::sqrt(kCount), 2);
    }
}

TEST(GumbelNoise, DiffersBySeedSequencePositionAndToken) {
    const double one = GumbelNoise(1, 2).at(3, 4);
    EXPECT_EQ(GumbelNoise(1, 2).at(3, 4), one);
    EXPECT_NE(GumbelNoise(2, 2).at(3, 4), one);
    EXPECT_NE(GumbelNoise(1, 3).at(3, 4), one);
    EXPECT_NE(GumbelNoise(1, 2).at(4, 4), one);
    EXPECT_NE(GumbelNoise(1, 2).at(3 + (std::uint64_t{1} << 32), 4), one);
    EXPECT_NE(GumbelNoise(1, 2).at(3, 20), one); // another word of the same block
    EXPECT_NE(GumbelNoise(1, 2).at(3, 5), one);
}

TEST(BestToken, IsThatOfEveryTokensNoise) {
    for (const std::size_t n : {1, 2, 63, 64, 65, 1000, 5003})
        for (const double spread : {0.0, 1.0, 20.0})
            for (const double temperature : {1e-6, 0.3, 1.0, 1.7, 1e6})
                for (std::uint64_t position = 0; position < 4; ++position) {
                    const auto logits = random_logits(n, spread, n);
                    const GumbelNoise noise(n, 5);
                    const BestToken found = gumbel_max({logits, 0, position}, temperature, noise);
                    BestToken expected;
                    for (std::size_t i = 0; i < n; ++i) {
                        const auto token = static_cast<TokenId>(i);
                        expected =
                            better(expected,
                                   {static_cast<double>(logits[i]) / temperature + noise.at(position, token), token});
                    }
                    EXPECT_EQ(found.token, expected.token) << n << " " << spread << " " << temperature;
                    EXPECT_EQ(found.value, expected.value);
                    EXPECT_EQ(found.runner_up, expected.runner_up);
                }
}

TEST(BestToken, IsTheSameHoweverTheVocabularyIsSliced) {
    constexpr std::size_t kVocab = 3001;
    const auto logits = random_logits(kVocab, 2, 8);
    for (std::uint64_t position = 0; position < 20; ++position) {
        const GumbelNoise noise(1, 2);
        const BestToken whole = gumbel_max({logits, 0, position}, 0.9, noise);
        for (const std::vector<std::size_t>& cuts : {std::vector<std::size_t>{0, 1500, kVocab},
                                                     {0, 751, 1502, 2252, kVocab},
                                                     {0, 1, 2, 64, 128, 130, kVocab}}) {
            BestToken best;
            for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
                const LogitSlice slice{std::span(logits).subspan(cuts[i], cuts[i + 1] - cuts[i]),
                                       static_cast<TokenId>(cuts[i]), position};
                best = better(gumbel_max(slice, 0.9, noise), best);
            }
            EXPECT_EQ(best.token, whole.token);
            EXPECT_EQ(best.value, whole.value);
            EXPECT_EQ(best.runner_up, whole.runner_up);
        }
    }
}

TEST(BestToken, TakesTheLowerTokenOfEqualValues) {
    EXPECT_EQ(better({1.0, 7}, {1.0, 3}).token, 3);
    EXPECT_EQ(better({1.0, 3}, {1.0, 7}).token, 3);
    EXPECT_EQ(better({1.0, 3}, {1.0, 7}).runner_up, 1.0);
    EXPECT_EQ(better({}, {-5.0, 7}).token, 7);
    EXPECT_EQ(better({2.0, 1, 1.5}, {1.0, 7, 0.5}).runner_up, 1.5);
}

TEST(BestToken, HasNoRoomForNumbersThatAreNone) {
    const GumbelNoise noise(1, 2);
    for (const std::size_t n : {1, 64, 200}) {
        std::vector<float> logits(n, 1);
        logits[n / 2] = kInfinity;
        EXPECT_THROW(gumbel_max({logits}, 1, noise), std::runtime_error);
        logits[n / 2] = kNan;
        EXPECT_THROW(gumbel_max({logits}, 1, noise), std::runtime_error);
        std::ranges::fill(logits, -kInfinity);
        EXPECT_EQ(gumbel_max({logits}, 1, noise).token, -1);
        logits[n - 1] = -3;
        EXPECT_EQ(gumbel_max({logits}, 1, noise).token, static_cast<TokenId>(n - 1));
    }
    EXPECT_EQ(gumbel_max({}, 1, noise).token, -1);
    const std::vector<float> logits(3, 1);
    for (const double temperature : {0.0, -1.0, 1e-9, std::nan("")})
        EXPECT_THROW(gumbel_max({logits}, temperature, noise), std::invalid_argument);
    EXPECT_THROW(gumbel_max({logits, -1}, 1, noise), std::invalid_argument);
}

TEST(SamplingKernels, MakeTheSameNoiseOnEveryInstructionSet) {
    const auto values = random_logits(20 * kGumbelGroup, 3, 2, 1e-6);
    const auto all = all_row_kernels();
    for (const float least : {-40.0F, -12.0F, -6.0F, 100.0F}) {
        GumbelScan scan;
        scan.max = *std::ranges::max_element(values);
        scan.scale = 1.25F;
        scan.least = least;
        scan.first_block = 160;
        scan.position[0] = 7;
        scan.position[1] = 1;
        scan.key[0] = 0x12345678;
        scan.key[1] = 0x9ABCDEF0;
        std::vector<std::uint32_t> expected(kGumbelGroup), words(kGumbelGroup);
        std::vector<float> expected_bounds(kGumbelGroup), bounds(kGumbelGroup);
        const std::size_t place =
            all[0]->gumbel_candidates(values.data(), values.size(), scan, expected.data(), expected_bounds.data());
        for (const SamplingKernels* kernels : all) {
            EXPECT_EQ(kernels->gumbel_candidates(values.data(), values.size(), scan, words.data(), bounds.data()),
                      place);
            EXPECT_EQ(words, expected);
            EXPECT_EQ(std::memcmp(bounds.data(), expected_bounds.data(), kGumbelGroup * sizeof(float)), 0);
        }
        EXPECT_EQ(place == values.size(), least > 50);
        for (std::size_t i = 0; i < kGumbelGroup && place < values.size(); ++i) {
            const auto block = static_cast<std::uint32_t>(160 + place / 4 + i % 16);
            EXPECT_EQ(words[i], philox4x32({7, 1, block, 0}, {0x12345678, 0x9ABCDEF0})[i / 16]);
        }
    }
}

// Standard normal quantile of chi-square of seeded draws against adjust() (Wilson and Hilferty's cube root).
double chi_square_z(std::span<const float> logits, const SamplingOptions& options, const GumbelNoise& noise) {
    constexpr int kSamples = 40000;
    std::vector<float> p(logits.size());
    adjust(logits, options, p);
    std::vector<double> counts(logits.size());
    for (int i = 0; i < kSamples; ++i)
        ++counts[static_cast<std::size_t>(
            gumbel_max_adjusted({logits, 0, static_cast<std::uint64_t>(i)}, options, noise).token)];
    double chi_square = 0, rare_expected = 0, rare_found = 0;
    int cells = 0;
    for (std::size_t i = 0; i < p.size(); ++i) {
        const double expected = kSamples * static_cast<double>(p[i]);
        if (expected <= 0 && counts[i] > 0) return std::numeric_limits<double>::infinity();
        if (expected >= 10) {
            chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
            ++cells;
        } else {
            rare_expected += expected;
            rare_found += counts[i];
        }
    }
    if (rare_expected > 5) {
        chi_square += (rare_found - rare_expected) * (rare_found - rare_expected) / rare_expected;
        ++cells;
    }
    const double df = cells - 1;
    return (std::cbrt(chi_square / df) - (1 - 2 / (9 * df))) / std::sqrt(2 / (9 * df));
}

TEST(BestToken, SamplesTheAdjustedDistribution) {
    const auto logits = random_logits(300, 2, 6);
    std::uint64_t seed = 1;
    for (const auto& options : {options_of(1), options_of(0.5), options_of(1.4, 20), options_of(1, 0, 0.9),
                                options_of(0.9, 0, 1, 0.05), options_of(1.2, 30, 0.8, 0.1)})
        EXPECT_LT(chi_square_z(logits, options, GumbelNoise(seed++, 3)), 4);
}

TEST(BestToken, FailsChiSquareAtAnotherTemperature) {
    const auto logits = random_logits(300, 2, 6);
    std::vector<float> hotter(logits);
    for (float& logit : hotter)
        logit *= 0.97F;
    std::vector<float> p(logits.size());
    double found = 0;
    const GumbelNoise noise(1, 3);
    adjust(logits, options_of(1), p);
    const auto best = static_cast<std::size_t>(std::ranges::max_element(p) - p.begin());
    for (std::uint64_t i = 0; i < 100000; ++i)
        found += gumbel_max({hotter, 0, i}, 1, noise).token == static_cast<TokenId>(best);
    const double expected = 1e5 * static_cast<double>(p[best]);
    EXPECT_GT(std::abs(found - expected) / std::sqrt(expected), 4);
}

// Gathers the shortlists of slices and asks for the best.
BestToken by_shortlists(std::span<const float> logits, std::span<const std::size_t> cuts, std::uint64_t position,
                        const SamplingOptions& options, const GumbelNoise& noise) {
    const std::size_t bytes = shortlist_bytes(options);
    std::vector<std::byte> gathered((cuts.size() - 1) * bytes);
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i)
        make_shortlist({logits.subspan(cuts[i], cuts[i + 1] - cuts[i]), static_cast<TokenId>(cuts[i]), position},
                       options, noise, std::span(gathered).subspan(i * bytes, bytes));
    return best_of_shortlists(gathered, options);
}

TEST(Shortlist, FindsTheBestOfTheWholeRow) {
    const GumbelNoise noise(1, 2);
    constexpr std::size_t kVocab = 700;
    for (const double step : {1e-6, 0.5}) // with half steps, borders have ties
        for (const auto& options :
             {options_of(1, 1), options_of(0.7, 3), options_of(1, 40), options_of(2, 700), options_of(1, 1000),
              options_of(1, 20, 0.9), options_of(1, 50, 0.5, 0.1), options_of(1.5, 300, 0.95),
              options_of(1, 10, 1, 0.2), options_of(1, 0, 1, 0.05), options_of(3, 0, 1, 1e-4), options_of(1, 0, 1, 1)})
            for (std::uint64_t position = 0; position < 60; ++position) {
                auto logits = random_logits(kVocab, 2, position, step);
                for (std::size_t i = 0; i < position; ++i)
                    logits[i * 11] = -kInfinity;
                const BestToken expected = plain({logits, 0, position}, options, noise);
                EXPECT_EQ(gumbel_max_adjusted({logits, 0, position}, options, noise).token, expected.token);
                for (const std::vector<std::size_t>& cuts :
                     {std::vector<std::size_t>{0, kVocab}, {0, 350, kVocab}, {0, 100, 101, 101, 600, kVocab}}) {
                    const BestToken found = by_shortlists(logits, cuts, position, options, noise);
                    EXPECT_EQ(found.token, expected.token)
                        << "T " << options.temperature << " k " << options.top_k << " p " << options.top_p << " min-p "
                        << options.min_p << " position " << position << " slices " << cuts.size() - 1;
                    EXPECT_EQ(found.value, expected.value);
                }
            }
}

TEST(Shortlist, LivesWithBannedSlicesAndRefusesBannedRows) {
    const GumbelNoise noise(1, 2);
    std::vector<float> logits(100, -kInfinity);
    const std::vector<std::size_t> cuts = {0, 50, 100};
    for (const auto& options : {options_of(1, 5), options_of(1, 5, 0.9), options_of(1, 0, 1, 0.1)}) {
        logits[70] = -1;
        EXPECT_EQ(by_shortlists(logits, cuts, 0, options, noise).token, 70);
        logits[70] = -kInfinity;
        EXPECT_THROW(by_shortlists(logits, cuts, 0, options, noise), std::runtime_error);
        logits[70] = kNan;
        EXPECT_THROW(by_shortlists(logits, cuts, 0, options, noise), std::runtime_error);
    }
}

TEST(Shortlist, IsForFiltersThatItCanServe) {
    EXPECT_EQ(gumbel_gather(options_of(1)), GumbelGather::best);
    EXPECT_EQ(gumbel_gather(options_of(1, 50)), GumbelGather::shortlist);
    EXPECT_EQ(gumbel_gather(options_of(1, 50, 0.9, 0.1)), GumbelGather::shortlist);
    EXPECT_EQ(gumbel_gather(options_of(1, 0, 1, 0.1)), GumbelGather::shortlist);
    EXPECT_EQ(gumbel_gather(options_of(1, 0, 0.9)), GumbelGather::rows);
    EXPECT_EQ(gumbel_gather(options_of(1, kMaxShortlisted + 1)), GumbelGather::rows);
    EXPECT_LT(shortlist_bytes(options_of(1, 50)), 2000u);
    const GumbelNoise noise(1, 2);
    const std::vector<float> logits(10, 1);
    std::vector<std::byte> bytes(shortlist_bytes(options_of(1, 5)));
    EXPECT_NO_THROW(make_shortlist({logits}, options_of(1, 5), noise, bytes));
    EXPECT_THROW(make_shortlist({logits}, options_of(1, 6), noise, bytes), std::invalid_argument);
    EXPECT_THROW(make_shortlist({logits}, options_of(1), noise, bytes), std::invalid_argument);
    EXPECT_THROW(best_of_shortlists(bytes, options_of(1, 6)), std::invalid_argument);
    EXPECT_THROW(best_of_shortlists({}, options_of(1, 5)), std::invalid_argument);
    std::ranges::fill(bytes, std::byte{0xFF});
    EXPECT_THROW(best_of_shortlists(bytes, options_of(1, 5)), std::runtime_error);
}

// A model of a few tokens: logits after each prefix, made from a seed.
std::vector<float> toy_logits(std::uint64_t seed, std::span<const TokenId> prefix) {
    return random_logits(12, 2, seed + hash_bytes(prefix.data(), prefix.size_bytes()) % 1000000, 1e-6);
}

TEST(VerifyGumbel, GivesTheTextOfPlainSamplingWhateverIsDrafted) {
    constexpr std::size_t kLength = 200;
    const GumbelNoise noise(5, 6);
    const auto next = [&](std::uint64_t model, const std::vector<TokenId>& text, std::size_t) {
        return gumbel_max({toy_logits(model, text), 0, text.size()}, 0.9, noise).token;
    };
    std::vector<TokenId> plain_text;
    while (plain_text.size() < kLength)
        plain_text.push_back(next(1, plain_text, 0));
    for (const std::uint64_t draft_model : {1, 2})
        for (const std::size_t k : {1, 3, 7}) {
            std::vector<TokenId> text;
            std::size_t rounds = 0;
            for (; text.size() < kLength; ++rounds) {
                std::vector<TokenId> prefix = text, drafted, target_tokens;
                for (std::size_t i = 0; i < k; ++i) {
                    drafted.push_back(next(draft_model, prefix, i));
                    target_tokens.push_back(next(1, prefix, i));
                    prefix.push_back(drafted.back());
                }
                target_tokens.push_back(next(1, prefix, k));
                const Verification verification = verify_greedy(drafted, target_tokens);
                text.insert(text.end(), drafted.begin(), drafted.begin() + verification.accepted);
                text.push_back(verification.next_token);
            }
            text.resize(kLength);
            EXPECT_EQ(text, plain_text) << "draft " << draft_model << " k " << k;
            if (draft_model == 1) {
                EXPECT_EQ(rounds, (kLength + k) / (k + 1));
            }
        }
}

TEST(GumbelNoise, FillsARowNearlyAsTokenByToken) {
    const GumbelNoise noise(5, 77);
    for (const std::size_t n : {1, 63, 64, 200, 200000}) { // of the longest about 50 are refined
        std::vector<float> row(n);
        noise.fill(1234, row);
        for (std::size_t token = 0; token < n; ++token)
            ASSERT_NEAR(row[token], noise.at(1234, static_cast<TokenId>(token)), 1e-5) << n << " " << token;
    }
}

TEST(GumbelNoise, OfAGroupIsTheSameWithEveryInstructionSet) {
    GumbelScan scan;
    scan.key[0] = 99;
    for (std::uint32_t block = 0; block < 16000; block += 16) {
        scan.first_block = block;
        std::uint32_t words[kGumbelGroup], expected_words[kGumbelGroup];
        float noise[kGumbelGroup], expected[kGumbelGroup];
        all_row_kernels()[0]->gumbel_noise(scan, expected_words, expected);
        for (const SamplingKernels* kernels : all_row_kernels()) {
            kernels->gumbel_noise(scan, words, noise);
            ASSERT_EQ(std::memcmp(words, expected_words, sizeof words), 0);
            ASSERT_EQ(std::memcmp(noise, expected, sizeof noise), 0);
        }
    }
}

} // namespace gumbel_test
} // namespace entrodraft::spec
