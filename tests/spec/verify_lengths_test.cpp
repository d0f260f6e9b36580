// Verification of drafts of varying length: by a rule that looks at the draft, by coins, and in a cascade's two levels.
// All by enumeration, so only rounding may make a difference to the target.
#include "spec/verify/verify.h"

#include "tests/spec/verify_support.h"

#include <gtest/gtest.h>

namespace entrodraft::spec {
namespace verify_lengths_test {

// The probability that drafting stops after these tokens (for none: that nothing is drafted; at most k are): 0 or 1 for
// a rule, values between for coins.
using StopChance = std::function<double(const Tokens& drafted)>;

// A chain as a drafter returns it; each token with the distribution that it was drawn from.
struct Chain {
    Tokens tokens;
    std::vector<float> q;
    double chance = 1;
};

// Every chain of up to k tokens that may stop there.
void for_each_chain(const ToyModel& draft, std::size_t k, const StopChance& stops, const Chain& so_far,
                    const std::function<void(const Chain&)>& visit) {
    const double stop = so_far.tokens.size() == k ? 1 : stops(so_far.tokens);
    if (stop > 0) {
        Chain stopped = so_far;
        stopped.chance *= stop;
        visit(stopped);
    }
    if (stop == 1) return;
    const std::vector<float>& row = draft.after(so_far.tokens);
    for (std::size_t token = 0; token < row.size(); ++token) {
        if (row[token] <= 0) continue;
        Chain longer = so_far;
        longer.tokens.push_back(static_cast<TokenId>(token));
        longer.q.insert(longer.q.end(), row.begin(), row.end());
        longer.chance *= (1 - stop) * static_cast<double>(row[token]);
        for_each_chain(draft, k, stops, longer, visit);
    }
}

// The texts that one round emits, with their probabilities, and the mean number of accepted drafted tokens.
struct Said {
    std::map<Tokens, double> texts;
    double accepted = 0;
    double total = 0;
};

void add_verdicts(const Method& method, const ToyModel& target, const Chain& chain, Said& said) {
    Rows rows = rows_of(target, target, {}, chain.tokens);
    for_each_verdict(method, {chain.tokens, rows.p, chain.q, 0, 1},
                     [&](const Verification& verification, double probability) {
                         Tokens tokens = first_of(chain.tokens, static_cast<std::size_t>(verification.accepted));
                         tokens.push_back(verification.next_token);
                         said.texts[tokens] += chain.chance * probability;
                         said.accepted += chain.chance * probability * verification.accepted;
                         said.total += chain.chance * probability;
                     });
}

// Total variation over texts of `length` tokens. The target gives the tokens that the round did not emit.
double total_variation(const Said& said, const ToyModel& target, std::size_t length) {
    double difference = 0;
    for_each_sequence(target.vocab(), length, [&](const Tokens& tokens) {
        double found = 0, rest = 1;
        for (std::size_t n = length; n > 0; --n) {
            const auto part = said.texts.find(first_of(tokens, n));
            if (part != said.texts.end()) found += part->second * rest;
            rest *= target.probability(first_of(tokens, n - 1), tokens[n - 1]);
        }
        difference += std::abs(rest - found);
    });
    return difference / 2;
}

Said say(const Method& method, const ToyModel& target, const ToyModel& draft, std::size_t k, const StopChance& stops) {
    Said said;
    for_each_chain(draft, k, stops, {}, [&](const Chain& chain) { add_verdicts(method, target, chain, said); });
    EXPECT_NEAR(said.total, 1, 1e-6);
    return said;
}

// ---- rules that stop ----

// The draft is unsure of the last token, by the distribution it was drawn from, as entropy rules look at it.
StopChance unsure(const ToyModel& draft, double nats) {
    return [&draft, nats](const Tokens& drafted) {
        if (drafted.empty()) return 0.0;
        return entropy_nats(draft.after(first_of(drafted, drafted.size() - 1))) >= nats ? 1.0 : 0.0;
    };
}

// The last token was unlikely: `confidence` looks at the token itself, and keeps it.
StopChance unlikely(const ToyModel& draft, double probability) {
    return [&draft, probability](const Tokens& drafted) {
        if (drafted.empty()) return 0.0;
        return draft.probability(first_of(drafted, drafted.size() - 1), drafted.back()) < probability ? 1.0 : 0.0;
    };
}

// The draft is unsure of the next token, before it is drawn: as expected-gain stops, also before the first.
StopChance unsure_of_next(const ToyModel& draft, double nats) {
    return [&draft, nats](const Tokens& drafted) { return entropy_nats(draft.after(drafted)) >= nats ? 1.0 : 0.0; };
}

StopChance coins(double chance) {
    return [chance](const Tokens&) { return chance; };
}

// Coins whose chance depends on the tokens before.
StopChance coins_by_prefix(std::uint64_t seed) {
    return [seed](const Tokens& drafted) {
        return RandomStream(seed, hash_bytes(drafted.data(), drafted.size() * sizeof(TokenId)), Purpose::acceptance)
            .uniform(1);
    };
}

TEST(VariableLengths, LeaveRejectionAndBlockExactAndBlockNeverBehind) {
    double gain = 0, differ = 0;
    int cases = 0;
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
        const std::size_t vocab = 2 + seed % 2, k = vocab == 2 ? 4 : 3;
        const ToyModel target(vocab, seed, options_of(1)), draft(vocab, seed + 100, options_of(0.8));
        const double middle = vocab == 2 ? 0.55 : 0.9;
        for (const StopChance& stops : {unsure(draft, middle), unlikely(draft, 0.4), unsure_of_next(draft, middle),
                                        coins(0.3), coins_by_prefix(seed)}) {
            const Said rejection = say(kRejection, target, draft, k, stops),
                       block = say(kBlock, target, draft, k, stops);
            EXPECT_LT(total_variation(rejection, target, k + 1), 1e-6) << "seed " << seed << " case " << cases;
            EXPECT_LT(total_variation(block, target, k + 1), 1e-6) << "seed " << seed << " case " << cases;
            EXPECT_GE(block.accepted, rejection.accepted - 1e-6) << "seed " << seed << " case " << cases;
            gain += block.accepted - rejection.accepted;
            const Said fixed = say(kRejection, target, draft, k, coins(0));
            differ += std::abs(fixed.accepted - rejection.accepted);
            ++cases;
        }
    }
    EXPECT_GT(gain / cases, 0.005);
    EXPECT_GT(differ / cases, 0.01) << "did lengths vary at all?";
}

// A length that depends on a token that is then dropped is not a stopping time. The enumeration must show this.
TEST(VariableLengths, BiasRejectionWhereATokenIsDroppedForWhatItIs) {
    const ToyModel target(3, 5, options_of(1)), draft(3, 105, options_of(1));
    const StopChance unlikely_token = unlikely(draft, 0.3);
    Said said;
    for_each_chain(draft, 2, unlikely_token, {}, [&](const Chain& chain) {
        Chain dropped = chain;
        if (unlikely_token(chain.tokens) == 1) {
            dropped.tokens.pop_back();
            dropped.q.resize(dropped.q.size() - 3);
        }
        add_verdicts(kRejection, target, dropped, said);
    });
    EXPECT_NEAR(said.total, 1, 1e-6);
    EXPECT_GT(total_variation(said, target, 3), 1e-3);
}

// ---- any p and q ----

// Random rows with zeros, ties, one-hot ones and nearly equal ones; `like`: the row to be near to.
std::vector<float> any_row(const RandomStream& chance, std::uint64_t index, std::size_t vocab,
                           const std::vector<float>* like) {
    const auto number = [&](std::uint32_t i) { return chance.uniform(index, i); };
    std::vector<float> row(vocab);
    const int kind = static_cast<int>(number(1000) * (like ? 6 : 4));
    for (std::size_t i = 0; i < vocab; ++i) {
        const double u = number(static_cast<std::uint32_t>(i));
        if (kind == 0) row[i] = static_cast<float>(u);
        if (kind == 1) row[i] = static_cast<float>(std::floor(3 * u)); // zeros and ties
        if (kind == 2) row[i] = static_cast<float>(std::exp(12 * u));  // nearly one-hot
        if (kind == 4) row[i] = (*like)[i];
        if (kind == 5) row[i] = (*like)[i] * static_cast<float>(1 + 1e-5 * (u - 0.5));
    }
    if (kind == 3) row[static_cast<std::size_t>(number(2000) * static_cast<double>(vocab))] = 1; // one-hot
    double sum = 0;
    for (const float x : row)
        sum += static_cast<double>(x);
    if (sum <= 0) row[0] = 1, sum = 1;
    for (float& x : row)
        x = static_cast<float>(static_cast<double>(x) / sum);
    return row;
}

// Rows that depend on the place in the text alone.
struct AnyPair {
    std::vector<std::vector<float>> p, q;
};

TEST(AnyRows, AreVerifiedExactlyAndBlockIsNeverBehind) {
    for (std::uint64_t seed = 0; seed < 150; ++seed) {
        const RandomStream chance(seed, 5, Purpose::draft_sample);
        const std::size_t vocab = 2 + static_cast<std::size_t>(3 * chance.uniform(900));
        const std::size_t k = 1 + static_cast<std::size_t>((vocab == 2 ? 4 : 2) * chance.uniform(901));
        AnyPair rows;
        for (std::size_t i = 0; i <= k; ++i) {
            rows.p.push_back(any_row(chance, 2 * i, vocab, nullptr));
            rows.q.push_back(any_row(chance, 2 * i + 1, vocab, &rows.p.back()));
        }
        double accepted[2] = {0, 0};
        for (const Method* method : {&kRejection, &kBlock}) {
            std::map<Tokens, double> said;
            for_each_sequence(vocab, k, [&](const Tokens& drafted) {
                double drawn = 1;
                std::vector<float> p, q;
                for (std::size_t i = 0; i <= k; ++i) {
                    p.insert(p.end(), rows.p[i].begin(), rows.p[i].end());
                    if (i == k) break;
                    q.insert(q.end(), rows.q[i].begin(), rows.q[i].end());
                    drawn *= static_cast<double>(rows.q[i][static_cast<std::size_t>(drafted[i])]);
                }
                if (drawn <= 0) return;
                for_each_verdict(*method, {drafted, p, q, 0, 1},
                                 [&](const Verification& verification, double probability) {
                                     Tokens tokens = first_of(drafted, static_cast<std::size_t>(verification.accepted));
                                     tokens.push_back(verification.next_token);
                                     said[tokens] += drawn * probability;
                                     accepted[method == &kBlock] += drawn * probability * verification.accepted;
                                 });
            });
            double difference = 0;
            for_each_sequence(vocab, k + 1, [&](const Tokens& tokens) {
                double found = 0, rest = 1;
                for (std::size_t n = k + 1; n > 0; --n) {
                    const auto part = said.find(first_of(tokens, n));
                    if (part != said.end()) found += part->second * rest;
                    rest *= static_cast<double>(rows.p[n - 1][static_cast<std::size_t>(tokens[n - 1])]);
                }
                difference += std::abs(rest - found);
            });
            EXPECT_LT(difference / 2, 1e-6) << (method == &kBlock ? "block" : "rejection") << " seed " << seed;
        }
        EXPECT_GE(accepted[1], accepted[0] - 1e-6) << "seed " << seed;
    }
}

// ---- a cascade ----

// Every chain that a middle model hands up. It verifies by rejection the chains of inner_k tokens that a small model
// drafts for it: rounds until there are `k` tokens; tokens of the last round that do not fit are left out.
void for_each_cascade_chain(const Method& inner, const ToyModel& middle, const ToyModel& small, std::size_t inner_k,
                            std::size_t k, const Chain& so_far, const std::function<void(const Chain&)>& visit) {
    if (so_far.tokens.size() == k) return visit(so_far);
    const std::size_t room = std::min(inner_k, k - so_far.tokens.size() - 1);
    for_each_sequence(small.vocab(), room, [&](const Tokens& drafted) {
        double drawn = 1;
        Tokens prefix = so_far.tokens;
        for (const TokenId token : drafted) {
            drawn *= small.probability(prefix, token);
            prefix.push_back(token);
        }
        if (drawn <= 0) return;
        const Rows rows = rows_of(middle, small, so_far.tokens, drafted);
        for_each_verdict(
            inner, {drafted, rows.p, rows.q, 0, 1}, [&](const Verification& verification, double probability) {
                Chain longer = so_far;
                longer.chance *= drawn * probability;
                for (int i = 0; i <= verification.accepted; ++i) {
                    const std::vector<float>& row = middle.after(longer.tokens);
                    longer.q.insert(longer.q.end(), row.begin(), row.end());
                    longer.tokens.push_back(i < verification.accepted ? drafted[static_cast<std::size_t>(i)]
                                                                      : verification.next_token);
                }
                for_each_cascade_chain(inner, middle, small, inner_k, k, longer, visit);
            });
    });
}

TEST(Cascade, IsExactWithRejectionOrBlockOnEitherLevel) {
    for (const std::uint64_t seed : {1, 2}) {
        const ToyModel target(2, seed, options_of(1)), middle(2, seed + 50, options_of(1)),
            small(2, seed + 100, options_of(0.7));
        constexpr std::size_t kLength = 3;
        for (const Method* inner : {&kRejection, &kBlock})
            for (const Method* outer : {&kRejection, &kBlock}) {
                Said said;
                std::map<Tokens, double> handed_up;
                for_each_cascade_chain(*inner, middle, small, 2, kLength, {}, [&](const Chain& chain) {
                    handed_up[chain.tokens] += chain.chance;
                    add_verdicts(*outer, target, chain, said);
                });
                for (const auto& [tokens, chance] : handed_up)
                    EXPECT_NEAR(chance, middle.probability(tokens), 1e-6) << "not what the middle model would say";
                EXPECT_NEAR(said.total, 1, 1e-6);
                EXPECT_LT(total_variation(said, target, kLength + 1), 1e-6) << "seed " << seed;
                // As a draft it is as good as the middle model itself.
                EXPECT_NEAR(said.accepted, mean_accepted(*outer, target, middle, kLength), 1e-6);
            }
    }
}

} // namespace verify_lengths_test
} // namespace entrodraft::spec
