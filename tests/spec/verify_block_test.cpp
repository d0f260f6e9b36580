// Block verification: exact by enumeration, and never worse than rejection. Over many rounds it is exact only if its
// random numbers depend on the round start. The property test here is for rejection too.
#include "spec/verify/verify.h"

#include "tests/spec/verify_support.h"

#include <gtest/gtest.h>

namespace entrodraft::spec {
namespace verify_block_test {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(VerifyBlock, AcceptsWhatThePaperCalculates) {
    // Sun et al. 2024, their first example: 10/9 tokens by rejection, 11/9 by block verification.
    const ToyModel target({1.0F / 3, 2.0F / 3}), draft({2.0F / 3, 1.0F / 3});
    EXPECT_NEAR(mean_accepted(kRejection, target, draft, 2), 10.0 / 9, 1e-6);
    EXPECT_NEAR(mean_accepted(kBlock, target, draft, 2), 11.0 / 9, 1e-6);
    EXPECT_LT(total_variation(kBlock, target, draft, 2), 1e-6);
}

TEST(VerifyBlock, SaysExactlyWhatTheTargetWould) {
    for (const std::size_t k : {1, 2, 3, 4})
        for (const std::uint64_t seed : {1, 2}) {
            const ToyModel target(3, seed, options_of(1)), draft(3, seed + 100, options_of(1));
            EXPECT_LT(total_variation(kBlock, target, draft, k), 1e-6) << "k " << k << " seed " << seed;
        }
}

TEST(VerifyBlock, IsRejectionForASingleToken) {
    const ToyModel target(5, 3, options_of(1)), draft(5, 103, options_of(1));
    EXPECT_NEAR(mean_accepted(kBlock, target, draft, 1), mean_accepted(kRejection, target, draft, 1), 1e-9);
}

TEST(VerifyBlock, AcceptsEverythingWhereDraftAndTargetAreOne) {
    const ToyModel target(3, 5, options_of(1));
    EXPECT_NEAR(mean_accepted(kBlock, target, target, 3), 3, 1e-6);
    EXPECT_LT(total_variation(kBlock, target, target, 3), 1e-6);
}

// Any vocabulary, length, temperature and filters, with one-hot drafts and targets among them.
TEST(VerifyBlockAndRejection, AreExactForRandomModelsAndBlockNeverAcceptsFewer) {
    double gain = 0;
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
        const RandomStream chance(seed, 77, Purpose::draft_sample);
        const auto below = [&](std::uint64_t index, int n) { return static_cast<int>(chance.uniform(index) * n); };
        const auto vocab = static_cast<std::size_t>(2 + below(0, 3));
        const auto k = static_cast<std::size_t>(1 + below(1, vocab == 2 ? 5 : 3));
        const auto options = [&](std::uint64_t index) {
            const double temperature = std::exp(3 * chance.uniform(index) - 1.5);
            const int top_k = below(index + 1, 3) == 0 ? 1 + below(index + 2, static_cast<int>(vocab)) : 0;
            return options_of(temperature, top_k, below(index + 3, 3) == 0 ? chance.uniform(index + 4) : 1.0);
        };
        const ToyModel target(vocab, 2 * seed, options(10)), draft(vocab, 2 * seed + 1, options(20));
        EXPECT_LT(total_variation(kRejection, target, draft, k), 1e-6) << "seed " << seed;
        EXPECT_LT(total_variation(kBlock, target, draft, k), 1e-6) << "seed " << seed;
        const double more = mean_accepted(kBlock, target, draft, k) - mean_accepted(kRejection, target, draft, k);
        EXPECT_GE(more, -1e-6) << "seed " << seed << " vocab " << vocab << " k " << k;
        gain += more;
    }
    EXPECT_GT(gain / 40, 0.005);
}

// A text of `length` tokens in rounds of k drafted ones; numbers depend on the round start, or not.
Tokens text_in_rounds(const ToyModel& target, const ToyModel& draft, std::size_t k, std::size_t length,
                      std::uint64_t key, bool reuses_numbers) {
    const RandomStream drafting(1, key, Purpose::draft_sample), acceptance(1, key, Purpose::acceptance);
    const RandomStream resample(1, key, Purpose::resample);
    Tokens text;
    while (text.size() < length) {
        const auto round_start = reuses_numbers ? 0 : static_cast<std::uint32_t>(text.size());
        Tokens prefix = text, drafted;
        std::vector<double> acceptance_numbers, resample_numbers;
        for (std::size_t position = text.size(); position <= text.size() + k; ++position) {
            resample_numbers.push_back(resample.uniform(position, 0, round_start));
            if (drafted.size() == k) break;
            drafted.push_back(sample(draft.after(prefix), drafting.uniform(position, 0, round_start)));
            prefix.push_back(drafted.back());
            acceptance_numbers.push_back(acceptance.uniform(position, 0, round_start));
        }
        const Rows rows = rows_of(target, draft, text, drafted);
        const RejectionInput input{drafted, rows.p, rows.q, text.size()};
        const Verification verification = reuses_numbers ? verify_block(input, acceptance_numbers, resample_numbers)
                                                         : verify_block(input, acceptance, resample);
        text.insert(text.end(), drafted.begin(), drafted.begin() + verification.accepted);
        text.push_back(verification.next_token);
    }
    text.resize(length);
    return text;
}

double chi_square_z(const ToyModel& target, const ToyModel& draft, std::size_t k, std::size_t length,
                    bool reuses_numbers) {
    return chi_square_z(target, length, 60000, [&](std::uint64_t key) {
        return text_in_rounds(target, draft, k, length, key, reuses_numbers);
    });
}

TEST(VerifyBlock, PassesChiSquareOverManyRounds) {
    for (const std::uint64_t seed : {1, 2, 3}) {
        const ToyModel target(3, seed, options_of(1)), draft(3, seed + 50, options_of(0.8));
        EXPECT_LT(chi_square_z(target, draft, 1 + seed, 5, false), kUnlikely) << "seed " << seed;
    }
}

TEST(VerifyBlock, FailsChiSquareWhereNumbersOfARoundAreUsedInTheNext) {
    const ToyModel target({1.0F / 3, 2.0F / 3}), draft({2.0F / 3, 1.0F / 3});
    EXPECT_LT(chi_square_z(target, draft, 3, 5, false), kUnlikely);
    EXPECT_GT(chi_square_z(target, draft, 3, 5, true), 2 * kUnlikely);
}

TEST(VerifyBlock, TakesEachNumberAtItsPositionAndRoundStart) {
    const std::vector<float> p = {0.4F, 0.6F, 0.5F, 0.5F, 0.5F, 0.5F}, q = {0.75F, 0.25F, 0.75F, 0.25F};
    const Tokens drafted = {0, 0};
    const RandomStream acceptance(3, 4, Purpose::acceptance), resample(3, 4, Purpose::resample);
    for (std::uint32_t position = 0; position < 50; ++position) {
        const RejectionInput input{drafted, p, q, position, 1};
        const auto number = [&](const RandomStream& stream, std::uint64_t i) {
            return stream.uniform(position + i, 0, position);
        };
        const Verification found = verify_block(input, acceptance, resample);
        const Verification expected =
            verify_block(input, std::vector{number(acceptance, 0), number(acceptance, 1)},
                         std::vector{number(resample, 0), number(resample, 1), number(resample, 2)});
        EXPECT_EQ(found.accepted, expected.accepted);
        EXPECT_EQ(found.next_token, expected.next_token);
    }
}

Verification verification_of(const Tokens& drafted, const std::vector<float>& p, const std::vector<float>& q,
                             double acceptance, double resample) {
    return verify_block({drafted, p, q, 0, 1}, std::vector<double>(drafted.size(), acceptance),
                        std::vector<double>(drafted.size() + 1, resample));
}

TEST(VerifyBlock, RejectsWhatTheTargetCannotSayEvenAtZero) {
    const std::vector<float> p = {0, 1, 0.5F, 0.5F, 0.5F, 0.5F}, q = {1, 0, 0.5F, 0.5F};
    EXPECT_EQ(verification_of({0, 1}, p, q, 0, 0).accepted, 0);
    EXPECT_EQ(verification_of({0, 1}, p, q, 0, 0).next_token, 1);
}

TEST(VerifyBlock, DrawsFromTheTargetWhereNothingIsDrafted) {
    EXPECT_EQ(verification_of({}, {0.25, 0.75}, {}, 0, 0.2).next_token, 0);
    EXPECT_EQ(verification_of({}, {0.25, 0.75}, {}, 0, 0.3).next_token, 1);
}

TEST(VerifyBlock, RefusesLenienceAndWhatMakesNoSense) {
    const std::vector<float> p = {0.25, 0.75, 0.5, 0.5, 0.5, 0.5}, q = {0.5, 0.5, 0.5, 0.5};
    const std::vector<double> two = {0.5, 0.5}, three = {0.5, 0.5, 0.5};
    EXPECT_NO_THROW(verify_block({Tokens{0, 0}, p, q, 0, 1}, two, three));
    EXPECT_THROW(verify_block({Tokens{0, 0}, p, q, 0, 0.9}, two, three), std::invalid_argument);
    EXPECT_THROW(verify_block({Tokens{0, 0}, p, q, 0, 1}, three, three), std::invalid_argument);
    EXPECT_THROW(verify_block({Tokens{0, 0}, p, p, 0, 1}, two, three), std::invalid_argument);
    EXPECT_THROW(verify_block({Tokens{0, 2}, p, q, 0, 1}, two, three), std::out_of_range);
    EXPECT_THROW(verification_of({0, 0}, p, {0, 1, 0.5, 0.5}, 0, 0), std::runtime_error);
    EXPECT_THROW(verification_of({0, 0}, {kNan, 0.75, 0.5, 0.5, 0.5, 0.5}, q, 0.9, 0.5), std::runtime_error);
    EXPECT_THROW(verification_of({0, 0}, {0.25, 0.75, 0.5, kNan, 0.5, 0.5}, q, 0.9, 0.5), std::runtime_error);
    EXPECT_THROW(verification_of({0, 0}, {0.25, 0.75, 0.5, 0.5, kNan, 0.5}, q, 0.1, 0.5), std::runtime_error);
}

} // namespace verify_block_test
} // namespace entrodraft::spec
