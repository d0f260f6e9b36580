// Verification: emitted tokens must follow the target's distribution. Shown by integration over every drafted chain and
// every random number, and by chi-square over many seeded trials. Both tests are shown to fail where they should.
#include "spec/verify/verify.h"

#include "tests/spec/verify_support.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace entrodraft::spec {
namespace verify_test {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(VerifyGreedy, KeepsTheLeadingTokensThatAreTheTargets) {
    const auto verification = [](const Tokens& drafted, const Tokens& target) {
        const Verification result = verify_greedy(drafted, target);
        return std::pair{result.accepted, result.next_token};
    };
    EXPECT_EQ(verification({}, {7}), (std::pair{0, 7}));
    EXPECT_EQ(verification({1, 2, 3}, {1, 2, 3, 4}), (std::pair{3, 4}));
    EXPECT_EQ(verification({1, 9, 3}, {1, 2, 3, 4}), (std::pair{1, 2})); // the 3 after a mismatch does not count
    EXPECT_EQ(verification({9}, {1, 2}), (std::pair{0, 1}));
    EXPECT_THROW(verification({1}, {1}), std::invalid_argument);
}

TEST(VerifyGreedyLenient, AcceptsWhatIsNearlyAsLikelyAsTheBest) {
    const auto l = [](double p) { return static_cast<float>(std::log(p)); };
    const std::vector<float> logits = {l(0.5), l(0.3), l(0.2), l(0.2), l(0.2), l(0.6)};
    const auto verification = [&](TokenId drafted, double lenience) {
        const Verification result = verify_greedy_lenient(Tokens{drafted}, logits, lenience);
        return std::pair{result.accepted, result.next_token};
    };
    EXPECT_EQ(verification(0, 1), (std::pair{1, 2}));
    EXPECT_EQ(verification(1, 1), (std::pair{0, 0}));
    EXPECT_EQ(verification(1, 0.61), (std::pair{0, 0}));
    EXPECT_EQ(verification(1, 0.59), (std::pair{1, 2})); // 0.3 >= 0.59 * 0.5
    EXPECT_EQ(verification(2, 0.59), (std::pair{0, 0}));
    EXPECT_THROW(verification(1, 0), std::invalid_argument);
    EXPECT_THROW(verification(1, 1.1), std::invalid_argument);
    EXPECT_THROW(verification(1, std::nan("")), std::invalid_argument);
    EXPECT_THROW(verification(3, 1), std::out_of_range);
    EXPECT_THROW(verify_greedy_lenient(Tokens{1}, std::vector<float>(5), 1), std::invalid_argument);
}

TEST(VerifyGreedyLenient, WithoutLenienceTakesTheLowestIdOfTies) {
    const std::vector<float> logits = {0, 1, 1, 0, 0, 1};
    EXPECT_EQ(verify_greedy_lenient(Tokens{2}, logits, 1).accepted, 0);
    EXPECT_EQ(verify_greedy_lenient(Tokens{2}, logits, 1).next_token, 1);
    EXPECT_EQ(verify_greedy_lenient(Tokens{2}, logits, 0.999).accepted, 1);
}

// The chance that a token's number accepts it, over all tokens that may be drafted.
TEST(VerifyRejection, AcceptsAsOftenAsAcceptanceChanceSays) {
    double least = 1, most = 0;
    for (const double lenience : {1.0, 0.7, 0.3, 0.05})
        for (const std::uint64_t seed : {1, 2, 3, 4}) {
            const ToyModel target(5, seed, options_of(1)), draft(5, seed + 100, options_of(1));
            double accepted = 0;
            for_each_draft(target, draft, 1, lenience, [&](const RejectionInput& input, double chance) {
                accepted += chance * outcomes_of_rejection(input)[1].chance;
            });
            const double alpha = acceptance_chance(target.after({}), draft.after({}), lenience);
            EXPECT_NEAR(alpha, accepted, 1e-6) << "lenience " << lenience << ", seed " << seed;
            least = std::min(least, alpha);
            most = std::max(most, alpha);
        }
    EXPECT_LT(least, 0.9);
    EXPECT_GT(most, 0.99);
    EXPECT_THROW(acceptance_chance(std::vector<float>(2), std::vector<float>(2), 0), std::invalid_argument);
    EXPECT_THROW(acceptance_chance(std::vector<float>(2), std::vector<float>(3), 1), std::invalid_argument);
}

TEST(VerifyRejection, SaysExactlyWhatTheTargetWould) {
    for (const std::size_t k : {1, 2, 3})
        for (const std::uint64_t seed : {1, 2, 3}) {
            const ToyModel target(4, seed, options_of(1)), draft(4, seed + 100, options_of(1));
            EXPECT_LT(total_variation(kRejection, target, draft, k), 1e-6) << "k " << k << " seed " << seed;
        }
}

TEST(VerifyRejection, SaysExactlyWhatTheTargetWouldAfterFilters) {
    const ToyModel target(4, 5, options_of(0.6)), target_k(4, 5, options_of(1, 2)),
        target_p(4, 5, options_of(1, 0, 0.7));
    const ToyModel draft(4, 6, options_of(1.4)), draft_k(4, 6, options_of(0.8, 2)), one_hot(4, 6, options_of(1, 1));
    for (const std::size_t k : {1, 2, 3})
        for (const ToyModel* t : {&target, &target_k, &target_p})
            for (const ToyModel* d : {&draft, &draft_k, &one_hot})
                EXPECT_LT(total_variation(kRejection, *t, *d, k), 1e-6) << "k " << k;
}

TEST(VerifyRejection, SaysExactlyWhatTheTargetWouldWhereDraftAndTargetAreOne) {
    const ToyModel target(4, 5, options_of(1));
    for (const std::size_t k : {1, 3})
        EXPECT_LT(total_variation(kRejection, target, target, k), 1e-6);
}

TEST(VerifyRejection, IsLossyWithLenienceAndTheTestSeesIt) {
    const ToyModel target(4, 1, options_of(1)), draft(4, 101, options_of(1));
    for (const std::size_t k : {1, 2, 3})
        EXPECT_GT(total_variation(kRejection, target, draft, k, 0.5), 1e-2) << "k " << k;
    EXPECT_GT(total_variation(kRejection, target, draft, 1, 0.95), 1e-3);
}

TEST(VerifyRejection, AcceptsWithTheRatioOfTheProbabilities) {
    // min(1, 0.25 / 0.5) = 0.5; with lenience 0.8: 0.625
    const std::vector<float> p = {0.25, 0.75, 0.5, 0.5}, q = {0.5, 0.5};
    const auto accepted = [&](double u, double lenience) {
        return verify_rejection({Tokens{0}, p, q, 0, lenience}, std::vector{u}, std::vector{0.1, 0.9}).accepted;
    };
    EXPECT_EQ(accepted(0.4999, 1), 1);
    EXPECT_EQ(accepted(0.5, 1), 0);
    EXPECT_EQ(accepted(0.6249, 0.8), 1);
    EXPECT_EQ(accepted(0.6251, 0.8), 0);
}

// The k + 1 tokens of a trial of seeded drafting and verifying. The target adds those that the round did not emit.
Tokens trial(const ToyModel& target, const ToyModel& draft, std::size_t k, std::uint64_t key, double lenience,
             Purpose resample_purpose) {
    const RandomStream drafting(1, key, Purpose::draft_sample), acceptance(1, key, Purpose::acceptance);
    const RandomStream resample(1, key, resample_purpose), going_on(2, key, Purpose::resample);
    Tokens tokens;
    for (std::size_t i = 0; i < k; ++i)
        tokens.push_back(sample(draft.after(tokens), drafting.uniform(5 + i)));
    const Rows rows = rows_of(target, draft, {}, tokens);
    const Verification verification = verify_rejection({tokens, rows.p, rows.q, 5, lenience}, acceptance, resample);
    tokens.resize(static_cast<std::size_t>(verification.accepted));
    tokens.push_back(verification.next_token);
    while (tokens.size() < k + 1)
        tokens.push_back(sample(target.after(tokens), going_on.uniform(tokens.size())));
    return tokens;
}

double chi_square_z(const ToyModel& target, const ToyModel& draft, std::size_t k, double lenience = 1,
                    Purpose resample_purpose = Purpose::resample) {
    return chi_square_z(target, k + 1, 200000,
                        [&](std::uint64_t key) { return trial(target, draft, k, key, lenience, resample_purpose); });
}

struct Setting {
    std::size_t vocab, k;
    std::uint64_t target_seed, draft_seed;
    SamplingOptions target, draft;
};

std::vector<Setting> settings() {
    return {{5, 1, 1, 11, options_of(1), options_of(1)},
            {5, 2, 2, 12, options_of(0.7), options_of(0.7)},
            {4, 3, 3, 13, options_of(1.3), options_of(0.9)},
            {6, 2, 4, 14, options_of(1, 3), options_of(1, 3)},
            {5, 2, 5, 15, options_of(1, 0, 0.8), options_of(1, 1)}};
}

TEST(VerifyRejection, PassesChiSquareOverSeededTrials) {
    for (const Setting& setting : settings()) {
        const ToyModel target(setting.vocab, setting.target_seed, setting.target);
        const ToyModel draft(setting.vocab, setting.draft_seed, setting.draft);
        EXPECT_LT(chi_square_z(target, draft, setting.k), kUnlikely) << "target seed " << setting.target_seed;
    }
}

TEST(VerifyRejection, FailsChiSquareWithLenience) {
    const Setting setting = settings().front();
    const ToyModel target(setting.vocab, setting.target_seed, setting.target);
    const ToyModel draft(setting.vocab, setting.draft_seed, setting.draft);
    EXPECT_GT(chi_square_z(target, draft, setting.k, 0.8), 2 * kUnlikely);
}

// Draft sample and resample use one number: the mistake that separate purposes prevent.
TEST(VerifyRejection, FailsChiSquareWhereTheResampleReusesTheDraftsNumber) {
    for (const Setting& setting : {settings()[0], settings()[1], settings()[2]}) {
        const ToyModel target(setting.vocab, setting.target_seed, setting.target);
        const ToyModel draft(setting.vocab, setting.draft_seed, setting.draft);
        EXPECT_GT(chi_square_z(target, draft, setting.k, 1, Purpose::draft_sample), 2 * kUnlikely);
        EXPECT_GT(chi_square_z(target, draft, setting.k, 1, Purpose::acceptance), 2 * kUnlikely);
    }
}

TEST(VerifyRejection, TakesEachNumberAtThePositionOfItsToken) {
    const std::vector<float> p = {0.5, 0.5, 0.5, 0.5, 0.5, 0.5}, q = {0.75, 0.25, 0.75, 0.25};
    const Tokens drafted = {0, 0};
    const RandomStream acceptance(3, 4, Purpose::acceptance), resample(3, 4, Purpose::resample);
    for (std::uint64_t position = 0; position < 50; ++position) {
        const RejectionInput input{drafted, p, q, position, 1};
        const Verification found = verify_rejection(input, acceptance, resample);
        const Verification expected = verify_rejection(
            input, std::vector{acceptance.uniform(position), acceptance.uniform(position + 1)},
            std::vector{resample.uniform(position), resample.uniform(position + 1), resample.uniform(position + 2)});
        EXPECT_EQ(found.accepted, expected.accepted);
        EXPECT_EQ(found.next_token, expected.next_token);
    }
}

Verification verification_of(const Tokens& drafted, const std::vector<float>& p, const std::vector<float>& q,
                             double acceptance, double resample) {
    return verify_rejection({drafted, p, q, 0, 1}, std::vector<double>(drafted.size(), acceptance),
                            std::vector<double>(drafted.size() + 1, resample));
}

TEST(VerifyRejection, DrawsFromTheTargetWhereNothingIsDrafted) {
    EXPECT_EQ(verification_of({}, {0.25, 0.75}, {}, 0, 0.2).next_token, 0);
    EXPECT_EQ(verification_of({}, {0.25, 0.75}, {}, 0, 0.3).next_token, 1);
}

TEST(VerifyRejection, DrawsFromTheTargetWhereTheResidualIsZeroByRounding) {
    // q sums to a little more than 1, so that p is nowhere above it; 0.9999999 rejects.
    const std::vector<float> q = {0.25, 0.25, std::nextafter(0.5F, 1.0F)}, p = {0.25, 0.25, 0.5, 1, 0, 0};
    EXPECT_EQ(verification_of({2}, p, q, 1 - 0x1p-53, 0.3).accepted, 0);
    EXPECT_EQ(verification_of({2}, p, q, 1 - 0x1p-53, 0.1).next_token, 0);
    EXPECT_EQ(verification_of({2}, p, q, 1 - 0x1p-53, 0.3).next_token, 1);
    EXPECT_EQ(verification_of({2}, p, q, 1 - 0x1p-53, 0.6).next_token, 2);
}

TEST(VerifyRejection, RejectsWhatTheTargetCannotSayEvenAtZero) {
    const Verification verification = verification_of({0}, {0, 1, 0.5, 0.5}, {1, 0}, 0, 0);
    EXPECT_EQ(verification.accepted, 0);
    EXPECT_EQ(verification.next_token, 1);
}

TEST(VerifyRejection, RefusesATokenThatTheDraftCouldNotHaveDrawn) {
    EXPECT_THROW(verification_of({0}, {0.5, 0.5, 0.5, 0.5}, {0, 1}, 0, 0), std::runtime_error);
    EXPECT_THROW(verification_of({2}, {0.5, 0.5, 0.5, 0.5}, {0, 1}, 0, 0), std::out_of_range);
    EXPECT_THROW(verification_of({-1}, {0.5, 0.5, 0.5, 0.5}, {0, 1}, 0, 0), std::out_of_range);
}

TEST(VerifyRejection, ThrowsAtALoneNanThatItReads) {
    const std::vector<float> p = {0.25, 0.5, 0.25, 0.25, 0.5, 0.25}, q = {0.5, 0.25, 0.25};
    constexpr double kReject = 0.9, kAccept = 0.1;
    for (std::size_t i = 0; i < 3; ++i) {
        auto bad_p = p, bad_q = q, bad_bonus = p;
        bad_p[i] = bad_q[i] = bad_bonus[3 + i] = kNan;
        EXPECT_THROW(verification_of({0}, bad_p, q, kReject, 0.5), std::runtime_error);
        EXPECT_THROW(verification_of({0}, p, bad_q, kReject, 0.5), std::runtime_error);
        EXPECT_THROW(verification_of({0}, bad_bonus, q, kAccept, 0.5), std::runtime_error);
    }
    EXPECT_THROW(verification_of({0}, {kNan, 0.5, 0.25, 0.25, 0.5, 0.25}, q, kAccept, 0.5), std::runtime_error);
    EXPECT_NO_THROW(verification_of({0}, p, q, kReject, 0.5));
}

TEST(VerifyRejection, RefusesSizesAndLenienceThatMakeNoSense) {
    const std::vector<float> p(4, 0.5F), q(2, 0.5F);
    const std::vector<double> one = {0.5}, two = {0.5, 0.5};
    EXPECT_NO_THROW(verify_rejection({Tokens{0}, p, q, 0, 1}, one, two));
    EXPECT_THROW(verify_rejection({Tokens{0}, p, q, 0, 0}, one, two), std::invalid_argument);
    EXPECT_THROW(verify_rejection({Tokens{0}, p, q, 0, 1.5}, one, two), std::invalid_argument);
    EXPECT_THROW(verify_rejection({Tokens{0}, p, q, 0, 1}, two, two), std::invalid_argument);
    EXPECT_THROW(verify_rejection({Tokens{0}, p, q, 0, 1}, one, one), std::invalid_argument);
    EXPECT_THROW(verify_rejection({Tokens{0}, p, p, 0, 1}, one, two), std::invalid_argument);
    EXPECT_THROW(verify_rejection({Tokens{0, 0}, p, p, 0, 1}, two, two), std::invalid_argument);
    EXPECT_THROW(verify_rejection({Tokens{}, {}, {}, 0, 1}, {}, one), std::invalid_argument);
}

Verification typical(const Tokens& drafted, const std::vector<float>& p, TypicalOptions options = {}) {
    return verify_threshold({drafted, p, 0, {Acceptance::typical, 1, options}});
}

Verification bild(const Tokens& drafted, const std::vector<float>& p, double distance = 5) {
    return verify_threshold({drafted, p, 0, {Acceptance::bild, 1, {}, distance}});
}

TEST(VerifyTypical, KeepsWhatTheTargetThinksLikelyEnoughForItsEntropy) {
    // The first row has 1.288 nats, so its threshold is 0.3 exp(-H) = 0.0828.
    const std::vector<float> p = {0.5F, 0.25F, 0.125F, 0.0893F, 0.0357F, 0, 0, 0, 0, 1};
    double entropy = 0;
    for (std::size_t i = 0; i < 5; ++i)
        entropy -= static_cast<double>(p[i]) * std::log(static_cast<double>(p[i]));
    const double threshold = 0.3 * std::exp(-entropy);
    EXPECT_NEAR(threshold, 0.0828, 1e-4);
    EXPECT_EQ(typical({0}, p).accepted, 1);
    EXPECT_EQ(typical({2}, p).accepted, 1);
    EXPECT_EQ(typical({3}, p).accepted, 1);
    EXPECT_EQ(typical({4}, p).accepted, 0);
    EXPECT_EQ(typical({4}, p, {0.03, 0.3}).accepted, 1); // epsilon caps the threshold
    EXPECT_EQ(typical({3}, p, {0.5, 0.5}).accepted, 0);
    EXPECT_EQ(typical({3}, p, {0.5, 0.3}).accepted, 1);
    EXPECT_EQ(typical({4}, p, {0.5, 0.03}).accepted, 1);
    EXPECT_EQ(typical({4}, p, {0, 0}).accepted, 1);
}

TEST(VerifyTypical, SaysTheTargetsTokenAfterWhatStands) {
    const std::vector<float> p = {0.96F, 0.01F, 0.03F, 0.3F, 0.6F, 0.1F, 0.2F, 0.2F, 0.6F};
    EXPECT_EQ(typical({0, 1}, p).accepted, 2);
    EXPECT_EQ(typical({0, 1}, p).next_token, 2);
    EXPECT_EQ(typical({1, 1}, p).accepted, 0);
    EXPECT_EQ(typical({1, 1}, p).next_token, 0);
    const RandomStream resample(3, 4, Purpose::resample);
    for (std::uint64_t position = 0; position < 50; ++position) {
        const Verification verification =
            verify_threshold({Tokens{0, 1}, p, position, {Acceptance::typical}}, &resample);
        EXPECT_EQ(verification.accepted, 2);
        EXPECT_EQ(verification.next_token, sample(std::span(p).subspan(6), resample.uniform(position + 2)));
        const Verification refused = verify_threshold({Tokens{1, 1}, p, position, {Acceptance::typical}}, &resample);
        EXPECT_EQ(refused.accepted, 0);
        EXPECT_EQ(refused.next_token, sample(std::span(p).first(3), resample.uniform(position)));
    }
}

TEST(VerifyTypical, NeverRefusesTheArgMax) {
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        const ToyModel target(7, seed, options_of(1), 0.1 * static_cast<double>(seed % 60));
        std::vector<float> p = target.after({});
        p.insert(p.end(), p.begin(), p.end());
        EXPECT_EQ(typical({arg_max(target.after({}))}, p).accepted, 1) << seed;
        EXPECT_EQ(typical({arg_max(target.after({}))}, p, {1, 0.999}).accepted, 1) << seed;
    }
}

TEST(VerifyTypical, RefusesWhatMakesNoSense) {
    const std::vector<float> p(6, 0.5F);
    EXPECT_THROW(typical({3}, p), std::out_of_range);
    EXPECT_THROW(typical({-1}, p), std::out_of_range);
    EXPECT_THROW(typical({0, 0, 0, 0}, p), std::invalid_argument);
    EXPECT_THROW(typical({0}, {kNan, 0, 0, 1}), std::runtime_error);
    EXPECT_THROW(typical({0}, p, {-0.1, 0.3}), std::invalid_argument);
    EXPECT_THROW(typical({0}, p, {0.3, 1.1}), std::invalid_argument);
    const auto why = [](const TypicalOptions& options) {
        return std::string(why_invalid({Acceptance::typical, 1, options}));
    };
    EXPECT_EQ(why({std::nan(""), 0.3}).find("epsilon"), 0u);
    EXPECT_EQ(why({0.3, std::nan("")}).find("delta"), 0u);
    EXPECT_EQ(why({}), "");
    EXPECT_THROW(verify_threshold({Tokens{0}, p, 0, {Acceptance::rejection}}), std::invalid_argument);
}

TEST(VerifyBild, RollsBackToTheFirstTokenFurtherThanTheDistanceThatIsNotTheTargetsFirst) {
    const std::vector<float> p = {0.9F, 0.09F, 0.01F, 0.5F, 0.25F, 0.25F, 0.1F, 0.3F, 0.6F};
    EXPECT_EQ(bild({1, 1}, p).accepted, 2);
    EXPECT_EQ(bild({1, 1}, p).next_token, 2);
    EXPECT_EQ(bild({2, 1}, p, 4.5).accepted, 0) << "-log 0.01 = 4.605";
    EXPECT_EQ(bild({2, 1}, p, 4.5).next_token, 0);
    EXPECT_EQ(bild({2, 1}, p, 4.7).accepted, 2);
    EXPECT_EQ(bild({0, 0}, p, 0).accepted, 2) << "first choices, whatever their probability";
    EXPECT_EQ(bild({0, 1}, p, 0).accepted, 1);
    EXPECT_EQ(bild({0, 1}, p, 0).next_token, 0);
}

std::vector<float> two(const std::vector<float>& row) {
    std::vector<float> rows = row;
    rows.insert(rows.end(), row.begin(), row.end());
    return rows;
}

// typical:epsilon=exp(-D):delta=1 is different: there a row of more entropy than D has a lower threshold.
TEST(VerifyBild, AsksTheSameOfEveryRow) {
    std::vector<float> p(1000, 0.995F / 997);
    p[0] = 0.003F;
    p[1] = 0;
    p[2] = 0.002F; // -log is 6.2, the entropy 6.9
    EXPECT_EQ(bild({1}, two(p), 100).accepted, 0) << "never what has no chance at all";
    EXPECT_EQ(bild({2}, two(p), 6.1).accepted, 0);
    EXPECT_EQ(bild({2}, two(p), 6.3).accepted, 1);
    EXPECT_EQ(bild({0}, two(p), 5).accepted, 1);
    EXPECT_EQ(typical({2}, two(p), {std::exp(-5), 1}).accepted, 1);
}

TEST(VerifyBild, EmitsASampleBehindWhatIsAccepted) {
    const std::vector<float> p = {0.9F, 0.1F, 0.5F, 0.5F, 0.4F, 0.6F};
    const RandomStream resample(3, 4, Purpose::resample);
    for (std::uint64_t position = 0; position < 50; ++position) {
        const Verification verification = verify_threshold({Tokens{1, 1}, p, position, {Acceptance::bild}}, &resample);
        EXPECT_EQ(verification.accepted, 2);
        EXPECT_EQ(verification.next_token, sample(std::span(p).subspan(4), resample.uniform(position + 2)));
    }
}

TEST(VerifyBild, RefusesWhatMakesNoSense) {
    EXPECT_THROW(bild({0}, {kNan, 0, 0, 1}), std::runtime_error);
    EXPECT_THROW(bild({3}, {1, 0, 1, 0}), std::out_of_range);
    for (const double distance : {-1.0, std::nan("")})
        EXPECT_THROW(bild({0}, {1, 0, 1, 0}, distance), std::invalid_argument);
    EXPECT_EQ(std::string(why_invalid({Acceptance::bild, 1, {}, std::nan("")})).find("distance"), 0u);
}

} // namespace verify_test
} // namespace entrodraft::spec
