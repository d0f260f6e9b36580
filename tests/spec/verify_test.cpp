// Verification: the said tokens must follow the target's distribution, shown by integrating over every drafted chain
// and every random number, and by chi-square over many seeded trials. Both tests are shown to fail where they should.
#include "entrodraft/spec/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>

namespace entrodraft::spec {
namespace {

using Tokens = std::vector<TokenId>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(VerifyGreedy, KeepsTheLeadingTokensThatAreTheTargets) {
    const auto verdict = [](const Tokens& drafted, const Tokens& target) {
        const Verdict result = verify_greedy(drafted, target);
        return std::pair{result.accepted, result.next_token};
    };
    EXPECT_EQ(verdict({}, {7}), (std::pair{0, 7}));
    EXPECT_EQ(verdict({1, 2, 3}, {1, 2, 3, 4}), (std::pair{3, 4}));
    EXPECT_EQ(verdict({1, 9, 3}, {1, 2, 3, 4}), (std::pair{1, 2})); // the 3 behind a mismatch counts for nothing
    EXPECT_EQ(verdict({9}, {1, 2}), (std::pair{0, 1}));
    EXPECT_THROW(verdict({1}, {1}), std::invalid_argument);
}

TEST(VerifyGreedyLenient, AcceptsWhatIsNearlyAsLikelyAsTheBest) {
    const auto l = [](double p) { return static_cast<float>(std::log(p)); };
    const std::vector<float> logits = {l(0.5), l(0.3), l(0.2), l(0.2), l(0.2), l(0.6)};
    const auto verdict = [&](TokenId drafted, double lenience) {
        const Verdict result = verify_greedy_lenient(Tokens{drafted}, logits, lenience);
        return std::pair{result.accepted, result.next_token};
    };
    EXPECT_EQ(verdict(0, 1), (std::pair{1, 2}));
    EXPECT_EQ(verdict(1, 1), (std::pair{0, 0}));
    EXPECT_EQ(verdict(1, 0.61), (std::pair{0, 0}));
    EXPECT_EQ(verdict(1, 0.59), (std::pair{1, 2})); // 0.3 >= 0.59 * 0.5
    EXPECT_EQ(verdict(2, 0.59), (std::pair{0, 0}));
    EXPECT_THROW(verdict(1, 0), std::invalid_argument);
    EXPECT_THROW(verdict(1, 1.1), std::invalid_argument);
    EXPECT_THROW(verdict(1, std::nan("")), std::invalid_argument);
    EXPECT_THROW(verdict(3, 1), std::out_of_range);
    EXPECT_THROW(verify_greedy_lenient(Tokens{1}, std::vector<float>(5), 1), std::invalid_argument);
}

TEST(VerifyGreedyLenient, WithoutLenienceTakesTheLowestIdOfTies) {
    const std::vector<float> logits = {0, 1, 1, 0, 0, 1};
    EXPECT_EQ(verify_greedy_lenient(Tokens{2}, logits, 1).accepted, 0);
    EXPECT_EQ(verify_greedy_lenient(Tokens{2}, logits, 1).next_token, 1);
    EXPECT_EQ(verify_greedy_lenient(Tokens{2}, logits, 0.999).accepted, 1);
}

// A model of a few tokens: the distribution after each prefix, made up from a seed.
class ToyModel {
  public:
    ToyModel(std::size_t vocab, std::uint64_t seed, const SamplingOptions& options, double spread = 2)
        : vocab_(vocab), seed_(seed), options_(options), spread_(spread) {}

    const std::vector<float>& after(const Tokens& prefix) const {
        std::vector<float>& row = rows_[prefix];
        if (!row.empty()) return row;
        const RandomStream noise(seed_, hash_bytes(prefix.data(), prefix.size() * sizeof(TokenId)),
                                 Purpose::gumbel_noise);
        std::vector<float> logits(vocab_);
        for (std::size_t i = 0; i < vocab_; ++i)
            logits[i] = static_cast<float>(spread_ * (2 * noise.uniform(0, static_cast<std::uint32_t>(i)) - 1));
        row.resize(vocab_);
        adjust(logits, options_, row);
        return row;
    }
    double probability(const Tokens& prefix, TokenId token) const {
        return static_cast<double>(after(prefix)[static_cast<std::size_t>(token)]);
    }
    std::size_t vocab() const { return vocab_; }

  private:
    std::size_t vocab_;
    std::uint64_t seed_;
    SamplingOptions options_;
    double spread_;
    mutable std::map<Tokens, std::vector<float>> rows_;
};

SamplingOptions options_of(double temperature, int top_k = 0, double top_p = 1) {
    SamplingOptions options;
    options.temperature = temperature;
    options.top_k = top_k;
    options.top_p = top_p;
    return options;
}

// The rows that a round over `drafted` compares.
struct Rows {
    std::vector<float> p, q;
};

Rows rows_of(const ToyModel& target, const ToyModel& draft, const Tokens& drafted) {
    Rows rows;
    for (std::size_t i = 0; i <= drafted.size(); ++i) {
        const Tokens prefix(drafted.begin(), drafted.begin() + static_cast<std::ptrdiff_t>(i));
        rows.p.insert(rows.p.end(), target.after(prefix).begin(), target.after(prefix).end());
        if (i < drafted.size()) rows.q.insert(rows.q.end(), draft.after(prefix).begin(), draft.after(prefix).end());
    }
    return rows;
}

// Calls `visit` for every sequence of `length` tokens.
void for_each_sequence(std::size_t vocab, std::size_t length, const std::function<void(const Tokens&)>& visit) {
    Tokens tokens(length);
    while (true) {
        visit(tokens);
        std::size_t i = 0;
        while (i < length && ++tokens[i] == static_cast<TokenId>(vocab))
            tokens[i++] = 0;
        if (i == length) return;
    }
}

// The border in [0, 1] below which a falling condition holds, to the last bits.
double border_of(const std::function<bool(double)>& holds) {
    constexpr double kLargest = 1 - 0x1p-53;
    if (!holds(0)) return 0;
    if (holds(kLargest)) return 1;
    double yes = 0, no = kLargest;
    for (int i = 0; i < 60; ++i)
        (holds((yes + no) / 2) ? yes : no) = (yes + no) / 2;
    return no;
}

// Calls `visit` with every verdict on these drafted tokens and its probability over all random numbers. It sees
// verify_rejection from outside only: borders of its numbers are found by bisection.
void for_each_verdict(const RejectionInput& input, const std::function<void(const Verdict&, double)>& visit) {
    const std::size_t n = input.drafted.size(), vocab = input.p.size() / (n + 1);
    double reached = 1; // probability that the first `i` are accepted
    for (std::size_t i = 0; i <= n; ++i) {
        std::vector<double> acceptance(n, 0.0), resample(n + 1, 0.5); // 0 accepts whatever can be accepted
        double accepted = 0;
        if (i < n) {
            accepted = border_of([&](double u) {
                acceptance[i] = u;
                return verify_rejection(input, acceptance, resample).accepted > static_cast<int>(i);
            });
            acceptance[i] = 1 - 0x1p-53;
        }
        const double here = reached * (1 - accepted);
        reached *= accepted;
        if (here <= 0) continue;
        double below = 0;
        for (std::size_t token = 0; token < vocab; ++token) {
            const double border = border_of([&](double u) {
                resample[i] = u;
                return verify_rejection(input, acceptance, resample).next_token <= static_cast<TokenId>(token);
            });
            if (border > below) visit({static_cast<int>(i), static_cast<TokenId>(token)}, here * (border - below));
            below = border;
        }
        if (reached <= 0) return;
    }
}

// The largest difference, over all sequences of k + 1 tokens, between their probability under the target and under
// drafting k tokens, verifying, and going on with the target where fewer were said.
double largest_error(const ToyModel& target, const ToyModel& draft, std::size_t k, double lenience = 1) {
    std::map<Tokens, double> said; // probability that a round says exactly these
    for_each_sequence(target.vocab(), k, [&](const Tokens& drafted) {
        double chance = 1;
        for (std::size_t i = 0; i < k; ++i)
            chance *=
                draft.probability({drafted.begin(), drafted.begin() + static_cast<std::ptrdiff_t>(i)}, drafted[i]);
        if (chance <= 0) return;
        const Rows rows = rows_of(target, draft, drafted);
        for_each_verdict({drafted, rows.p, rows.q, 0, lenience}, [&](const Verdict& verdict, double probability) {
            Tokens tokens(drafted.begin(), drafted.begin() + verdict.accepted);
            tokens.push_back(verdict.next_token);
            said[tokens] += chance * probability;
        });
    });
    double error = 0;
    for_each_sequence(target.vocab(), k + 1, [&](const Tokens& tokens) {
        double expected = 1, found = 0;
        std::vector<double> rest(k + 2, 1.0); // rest[i]: of tokens[i..] under the target
        for (std::size_t i = k + 1; i-- > 0;)
            rest[i] = rest[i + 1] *
                      target.probability({tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(i)}, tokens[i]);
        expected = rest[0];
        for (std::size_t n = 1; n <= k + 1; ++n) {
            const auto part = said.find({tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n)});
            if (part != said.end()) found += part->second * rest[n];
        }
        error = std::max(error, std::abs(expected - found));
    });
    return error;
}

TEST(VerifyRejection, SaysExactlyWhatTheTargetWould) {
    for (const std::size_t k : {1, 2, 3})
        for (const std::uint64_t seed : {1, 2, 3}) {
            const ToyModel target(4, seed, options_of(1)), draft(4, seed + 100, options_of(1));
            EXPECT_LT(largest_error(target, draft, k), 1e-6) << "k " << k << " seed " << seed;
        }
}

TEST(VerifyRejection, SaysExactlyWhatTheTargetWouldAfterFilters) {
    const ToyModel target(4, 5, options_of(0.6)), target_k(4, 5, options_of(1, 2)),
        target_p(4, 5, options_of(1, 0, 0.7));
    const ToyModel draft(4, 6, options_of(1.4)), draft_k(4, 6, options_of(0.8, 2)), one_hot(4, 6, options_of(1, 1));
    for (const std::size_t k : {1, 2, 3})
        for (const ToyModel* t : {&target, &target_k, &target_p})
            for (const ToyModel* d : {&draft, &draft_k, &one_hot})
                EXPECT_LT(largest_error(*t, *d, k), 1e-6) << "k " << k;
}

TEST(VerifyRejection, SaysExactlyWhatTheTargetWouldWhereDraftAndTargetAreOne) {
    const ToyModel target(4, 5, options_of(1));
    for (const std::size_t k : {1, 3})
        EXPECT_LT(largest_error(target, target, k), 1e-6);
}

TEST(VerifyRejection, IsLossyWithLenienceAndTheTestSeesIt) {
    const ToyModel target(4, 1, options_of(1)), draft(4, 101, options_of(1));
    for (const std::size_t k : {1, 2, 3})
        EXPECT_GT(largest_error(target, draft, k, 0.5), 1e-2) << "k " << k;
    EXPECT_GT(largest_error(target, draft, 1, 0.95), 1e-3);
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

// What a trial of seeded drafting and verifying says: k + 1 tokens, the target going on where the round said fewer.
Tokens trial(const ToyModel& target, const ToyModel& draft, std::size_t k, std::uint64_t key, double lenience,
             Purpose resample_purpose) {
    const RandomStream drafting(1, key, Purpose::draft_sample), acceptance(1, key, Purpose::acceptance);
    const RandomStream resample(1, key, resample_purpose), going_on(2, key, Purpose::resample);
    Tokens tokens;
    for (std::size_t i = 0; i < k; ++i)
        tokens.push_back(sample(draft.after(tokens), drafting.uniform(5 + i)));
    const Rows rows = rows_of(target, draft, tokens);
    const Verdict verdict = verify_rejection({tokens, rows.p, rows.q, 5, lenience}, acceptance, resample);
    tokens.resize(static_cast<std::size_t>(verdict.accepted));
    tokens.push_back(verdict.next_token);
    while (tokens.size() < k + 1)
        tokens.push_back(sample(target.after(tokens), going_on.uniform(tokens.size())));
    return tokens;
}

// Standard normal quantile of chi-square over the sequences of k + 1 tokens (Wilson and Hilferty's cube root).
double chi_square_z(const ToyModel& target, const ToyModel& draft, std::size_t k, double lenience = 1,
                    Purpose resample_purpose = Purpose::resample) {
    constexpr int kTrials = 200000;
    std::map<Tokens, int> counts;
    for (int i = 0; i < kTrials; ++i)
        ++counts[trial(target, draft, k, static_cast<std::uint64_t>(i), lenience, resample_purpose)];
    double chi_square = 0, rare_expected = 0, rare_found = 0;
    int cells = 0;
    const auto add = [&](double found, double expected) {
        chi_square += (found - expected) * (found - expected) / expected;
        ++cells;
    };
    for_each_sequence(target.vocab(), k + 1, [&](const Tokens& tokens) {
        double expected = kTrials;
        for (std::size_t i = 0; i <= k; ++i)
            expected *=
                target.probability({tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(i)}, tokens[i]);
        const double found = counts.contains(tokens) ? counts[tokens] : 0;
        if (expected >= 10) {
            add(found, expected);
        } else {
            rare_expected += expected;
            rare_found += found;
        }
    });
    if (rare_expected > 5) add(rare_found, rare_expected);
    if (rare_expected <= 0 && rare_found > 0) return std::numeric_limits<double>::infinity();
    const double df = cells - 1;
    return (std::cbrt(chi_square / df) - (1 - 2 / (9 * df))) / std::sqrt(2 / (9 * df));
}

constexpr double kUnlikely = 4; // 3 in 100,000 for each seed that was ever chosen

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

// One number for the draft sample and the resample: the mistake that separate purposes exist to prevent.
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
        const Verdict found = verify_rejection(input, acceptance, resample);
        const Verdict expected = verify_rejection(
            input, std::vector{acceptance.uniform(position), acceptance.uniform(position + 1)},
            std::vector{resample.uniform(position), resample.uniform(position + 1), resample.uniform(position + 2)});
        EXPECT_EQ(found.accepted, expected.accepted);
        EXPECT_EQ(found.next_token, expected.next_token);
    }
}

Verdict verdict_of(const Tokens& drafted, const std::vector<float>& p, const std::vector<float>& q, double acceptance,
                   double resample) {
    return verify_rejection({drafted, p, q, 0, 1}, std::vector<double>(drafted.size(), acceptance),
                            std::vector<double>(drafted.size() + 1, resample));
}

TEST(VerifyRejection, DrawsFromTheTargetWhereNothingIsDrafted) {
    EXPECT_EQ(verdict_of({}, {0.25, 0.75}, {}, 0, 0.2).next_token, 0);
    EXPECT_EQ(verdict_of({}, {0.25, 0.75}, {}, 0, 0.3).next_token, 1);
}

TEST(VerifyRejection, DrawsFromTheTargetWhereTheResidualIsZeroByRounding) {
    // q sums to a little more than 1, so that p exceeds it nowhere; 0.9999999 rejects.
    const std::vector<float> q = {0.25, 0.25, std::nextafter(0.5F, 1.0F)}, p = {0.25, 0.25, 0.5, 1, 0, 0};
    EXPECT_EQ(verdict_of({2}, p, q, 1 - 0x1p-53, 0.3).accepted, 0);
    EXPECT_EQ(verdict_of({2}, p, q, 1 - 0x1p-53, 0.1).next_token, 0);
    EXPECT_EQ(verdict_of({2}, p, q, 1 - 0x1p-53, 0.3).next_token, 1);
    EXPECT_EQ(verdict_of({2}, p, q, 1 - 0x1p-53, 0.6).next_token, 2);
}

TEST(VerifyRejection, RejectsWhatTheTargetCannotSayEvenAtZero) {
    const Verdict verdict = verdict_of({0}, {0, 1, 0.5, 0.5}, {1, 0}, 0, 0);
    EXPECT_EQ(verdict.accepted, 0);
    EXPECT_EQ(verdict.next_token, 1);
}

TEST(VerifyRejection, RefusesATokenThatTheDraftCouldNotHaveDrawn) {
    EXPECT_THROW(verdict_of({0}, {0.5, 0.5, 0.5, 0.5}, {0, 1}, 0, 0), std::runtime_error);
    EXPECT_THROW(verdict_of({2}, {0.5, 0.5, 0.5, 0.5}, {0, 1}, 0, 0), std::out_of_range);
    EXPECT_THROW(verdict_of({-1}, {0.5, 0.5, 0.5, 0.5}, {0, 1}, 0, 0), std::out_of_range);
}

TEST(VerifyRejection, ThrowsAtALoneNanThatItReads) {
    const std::vector<float> p = {0.25, 0.5, 0.25, 0.25, 0.5, 0.25}, q = {0.5, 0.25, 0.25};
    constexpr double kReject = 0.9, kAccept = 0.1;
    for (std::size_t i = 0; i < 3; ++i) {
        auto bad_p = p, bad_q = q, bad_bonus = p;
        bad_p[i] = bad_q[i] = bad_bonus[3 + i] = kNan;
        EXPECT_THROW(verdict_of({0}, bad_p, q, kReject, 0.5), std::runtime_error);
        EXPECT_THROW(verdict_of({0}, p, bad_q, kReject, 0.5), std::runtime_error);
        EXPECT_THROW(verdict_of({0}, bad_bonus, q, kAccept, 0.5), std::runtime_error);
    }
    EXPECT_THROW(verdict_of({0}, {kNan, 0.5, 0.25, 0.25, 0.5, 0.25}, q, kAccept, 0.5), std::runtime_error);
    EXPECT_NO_THROW(verdict_of({0}, p, q, kReject, 0.5));
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

} // namespace
} // namespace entrodraft::spec
