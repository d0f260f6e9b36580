// Shared by the tests of acceptance: toy models, every verification with its probability, and chi-square over seeded
// texts. It calls the verifying functions from outside only: a bisection finds the borders of their numbers.
#pragma once

#include "spec/verify/verify.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <vector>

namespace entrodraft::spec {

using Tokens = std::vector<TokenId>;

inline Tokens first_of(const Tokens& tokens, std::size_t n) {
    return {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n)};
}

inline SamplingOptions options_of(double temperature, int top_k = 0, double top_p = 1, double min_p = 0) {
    SamplingOptions options;
    options.temperature = temperature;
    options.top_k = top_k;
    options.top_p = top_p;
    options.min_p = min_p;
    return options;
}

// A model of a few tokens: the distribution after each prefix, made from a seed, or one for all prefixes.
class ToyModel {
  public:
    ToyModel(std::size_t vocab, std::uint64_t seed, const SamplingOptions& options, double spread = 2)
        : vocab_(vocab), seed_(seed), options_(options), spread_(spread) {}
    explicit ToyModel(std::vector<float> row) : vocab_(row.size()), always_(std::move(row)) {}

    const std::vector<float>& after(const Tokens& prefix) const {
        if (!always_.empty()) return always_;
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
    // The probability of these tokens, one after another.
    double probability(const Tokens& tokens) const {
        double product = 1;
        for (std::size_t i = 0; i < tokens.size(); ++i)
            product *= probability(first_of(tokens, i), tokens[i]);
        return product;
    }
    std::size_t vocab() const { return vocab_; }

  private:
    std::size_t vocab_;
    std::uint64_t seed_ = 0;
    SamplingOptions options_;
    double spread_ = 0;
    std::vector<float> always_;
    mutable std::map<Tokens, std::vector<float>> rows_;
};

// The rows that a round over `drafted` after `prefix` compares.
struct Rows {
    std::vector<float> p, q;
};

inline Rows rows_of(const ToyModel& target, const ToyModel& draft, Tokens prefix, const Tokens& drafted) {
    Rows rows;
    for (std::size_t i = 0; i <= drafted.size(); ++i) {
        rows.p.insert(rows.p.end(), target.after(prefix).begin(), target.after(prefix).end());
        if (i == drafted.size()) break;
        rows.q.insert(rows.q.end(), draft.after(prefix).begin(), draft.after(prefix).end());
        prefix.push_back(drafted[i]);
    }
    return rows;
}

// Calls `visit` for every sequence of `length` tokens.
inline void for_each_sequence(std::size_t vocab, std::size_t length, const std::function<void(const Tokens&)>& visit) {
    Tokens tokens(length);
    while (true) {
        visit(tokens);
        std::size_t i = 0;
        while (i < length && ++tokens[i] == static_cast<TokenId>(vocab))
            tokens[i++] = 0;
        if (i == length) return;
    }
}

constexpr double kLargestNumber = 1 - 0x1p-53;

// The border in [0, 1] below which a falling condition holds, to 14 digits.
inline double border_of(const std::function<bool(double)>& holds) {
    if (!holds(0)) return 0;
    if (holds(kLargestNumber)) return 1;
    double yes = 0, no = kLargestNumber;
    for (int i = 0; i < 48; ++i)
        (holds((yes + no) / 2) ? yes : no) = (yes + no) / 2;
    return no;
}

// The outcome that a certain number of drafted tokens are accepted: its chance, and acceptance numbers that lead to it.
struct RoundOutcome {
    double chance = 0;
    std::vector<double> acceptance;
};

// A way of verifying, and the function that gives the chance of each number of accepted tokens.
struct Method {
    Verification (*verify)(const RejectionInput&, const VerifyNumbers&, const VerifyNumbers&);
    std::vector<RoundOutcome> (*outcomes)(const RejectionInput&);
};

// The first rejection ends it.
inline std::vector<RoundOutcome> outcomes_of_rejection(const RejectionInput& input) {
    const std::size_t n = input.drafted.size();
    const std::vector<double> resample(n + 1, 0.5);
    std::vector<RoundOutcome> outcomes;
    double reached = 1;
    for (std::size_t i = 0; i <= n; ++i) {
        std::vector<double> numbers(n, 0.0); // 0 accepts every token that can be accepted
        double accepted = 0;
        if (i < n && reached > 0) {
            accepted = border_of([&](double u) {
                numbers[i] = u;
                return verify_rejection(input, numbers, resample).accepted > static_cast<int>(i);
            });
            numbers[i] = kLargestNumber;
        }
        outcomes.push_back({reached * (1 - accepted), numbers});
        reached *= accepted;
    }
    return outcomes;
}

// The last accepted prefix decides.
inline std::vector<RoundOutcome> outcomes_of_block(const RejectionInput& input) {
    const std::size_t n = input.drafted.size();
    const std::vector<double> resample(n + 1, 0.5);
    std::vector<RoundOutcome> outcomes(n + 1);
    double left = 1; // chance that no longer prefix is accepted
    for (std::size_t i = n + 1; i-- > 0;) {
        std::vector<double> numbers(n, kLargestNumber);
        double accepted = 1;
        if (i > 0 && left > 0) {
            accepted = border_of([&](double u) {
                numbers[i - 1] = u;
                return verify_block(input, numbers, resample).accepted >= static_cast<int>(i);
            });
            numbers[i - 1] = 0;
        }
        outcomes[i] = {left * accepted, numbers};
        left *= 1 - accepted;
    }
    return outcomes;
}

constexpr Method kRejection = {verify_rejection, outcomes_of_rejection}, kBlock = {verify_block, outcomes_of_block};

// Calls `visit` with every verification on these drafted tokens and its probability over all random numbers.
inline void for_each_verdict(const Method& method, const RejectionInput& input,
                             const std::function<void(const Verification&, double)>& visit) {
    const std::size_t n = input.drafted.size(), vocab = input.p.size() / (n + 1);
    const std::vector<RoundOutcome> outcomes = method.outcomes(input);
    for (std::size_t i = 0; i <= n; ++i) {
        if (outcomes[i].chance <= 0) continue;
        std::vector<double> resample(n + 1, 0.5);
        double below = 0;
        for (std::size_t token = 0; token < vocab; ++token) {
            const double border = border_of([&](double u) {
                resample[i] = u;
                return method.verify(input, outcomes[i].acceptance, resample).next_token <= static_cast<TokenId>(token);
            });
            if (border > below)
                visit({static_cast<int>(i), static_cast<TokenId>(token)}, outcomes[i].chance * (border - below));
            below = border;
        }
    }
}

// Calls `visit` for all possible drafts, with the compared rows and the draft's probability.
inline void for_each_draft(const ToyModel& target, const ToyModel& draft, std::size_t k, double lenience,
                           const std::function<void(const RejectionInput&, double)>& visit) {
    for_each_sequence(target.vocab(), k, [&](const Tokens& drafted) {
        const double chance = draft.probability(drafted);
        if (chance <= 0) return;
        const Rows rows = rows_of(target, draft, {}, drafted);
        visit({drafted, rows.p, rows.q, 0, lenience}, chance);
    });
}

inline double mean_accepted(const Method& method, const ToyModel& target, const ToyModel& draft, std::size_t k) {
    double mean = 0;
    for_each_draft(target, draft, k, 1, [&](const RejectionInput& input, double chance) {
        const std::vector<RoundOutcome> outcomes = method.outcomes(input);
        for (std::size_t i = 0; i < outcomes.size(); ++i)
            mean += chance * outcomes[i].chance * static_cast<double>(i);
    });
    return mean;
}

// Total variation, over all sequences of k + 1 tokens, between the target and a round that drafts k tokens and verifies
// them; the target adds the tokens that the round does not emit.
inline double total_variation(const Method& method, const ToyModel& target, const ToyModel& draft, std::size_t k,
                              double lenience = 1) {
    std::map<Tokens, double> said; // probability that a round emits exactly these tokens
    for_each_draft(target, draft, k, lenience, [&](const RejectionInput& input, double chance) {
        for_each_verdict(method, input, [&](const Verification& verification, double probability) {
            Tokens tokens(input.drafted.begin(), input.drafted.begin() + verification.accepted);
            tokens.push_back(verification.next_token);
            said[tokens] += chance * probability;
        });
    });
    double difference = 0;
    for_each_sequence(target.vocab(), k + 1, [&](const Tokens& tokens) {
        double found = 0, rest = 1; // rest: of tokens[n..] under the target
        for (std::size_t n = k + 1; n > 0; --n) {
            const auto part = said.find(first_of(tokens, n));
            if (part != said.end()) found += part->second * rest;
            rest *= target.probability(first_of(tokens, n - 1), tokens[n - 1]);
        }
        difference += std::abs(rest - found);
    });
    return difference / 2;
}

constexpr double kUnlikely = 4; // a chance of 3 in 100,000, for each seed ever chosen

// Standard normal quantile of chi-square over the texts of `length` tokens that text_of(key) makes, against the target
// (Wilson and Hilferty's cube root).
inline double chi_square_z(const ToyModel& target, std::size_t length, int trials,
                           const std::function<Tokens(std::uint64_t)>& text_of) {
    std::map<Tokens, int> counts;
    for (int i = 0; i < trials; ++i)
        ++counts[text_of(static_cast<std::uint64_t>(i))];
    double chi_square = 0, rare_expected = 0, rare_found = 0;
    int cells = 0;
    const auto add = [&](double found, double expected) {
        chi_square += (found - expected) * (found - expected) / expected;
        ++cells;
    };
    for_each_sequence(target.vocab(), length, [&](const Tokens& tokens) {
        const double expected = trials * target.probability(tokens);
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

} // namespace entrodraft::spec
