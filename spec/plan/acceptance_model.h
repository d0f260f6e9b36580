// How likely a drafted token is accepted, learnt from the tokens that were verified.
//
// A token that was drawn from a distribution has a chance that TokenChance learns. A token that was looked up has the
// share of accepted tokens among those with its match length. RankChances says the same of siblings in a tree. These
// models know no costs and no clock.
#pragma once

#include "spec/plan/learned_weights.h"
#include "spec/plan/round_values.h"

#include <array>
#include <cstddef>
#include <vector>

namespace entrodraft::spec {

// The probability that a drawn token is accepted: 1 / (1 + exp(-w . f)), f being (1, sqrt(entropy) - 1.5,
// log(probability) + 2, 3 log(1 + margin) - 1.5, residual of the text), 0 for what is not known; w is learnt by
// Newton's steps of an online logistic regression.
class TokenChance {
  public:
    using Weights = LearnedWeights<5>::Vector;
    // Fitted to Qwen2.5-Coder 1.5B and 0.5B on code, chat and Spec-Bench's tasks, greedy and at temperature 1.
    static constexpr Weights kFirstWeights = {-0.2, -1.1, 0.15, 0.75, 1};

    explicit TokenChance(const Weights& first = kFirstWeights);
    double of(const DraftedToken& token, double residual) const; // the token's entropy is known
    void learn(const DraftedToken& token, double residual, bool accepted);
    // w for the other features alone: the residual's part is in the first weight.
    std::array<double, 4> line(double residual) const;

  private:
    double chance(const Weights& features) const;

    LearnedWeights<5> weights_;
};

// By how much a text's tokens are accepted more often than their chances say: 0.1 times the sum of (accepted - chance)
// over its verified tokens. The residual is part of those chances, so it settles where the two agree.
class TextResidual {
  public:
    double value() const { return value_; }
    void learn(double chance, bool accepted) {
        constexpr double kStep = 0.1;
        value_ += kStep * ((accepted ? 1 : 0) - chance);
    }

  private:
    double value_ = 0;
};

class AcceptanceModel {
  public:
    AcceptanceModel();

    // The probability that a token is accepted in a text with this residual.
    double of(const DraftedToken& token, double residual) const;
    // The probability that a token is accepted of which nothing is known yet.
    double mean() const { return all_.probability(); }
    // TokenChance::line of drawn tokens.
    std::array<double, 4> line(double residual) const { return drawn_.line(residual); }

    void learn(const RoundRecord& round);
    int n_verified() const { return n_verified_; } // drafted tokens, ever

  private:
    static constexpr int kBins = 16;

    struct Bin {
        double accepted = 0;
        double seen = 0;
        double probability() const { return accepted / seen; }
        void count(bool is_accepted);
        void decay(double prior_mean);
    };

    static std::size_t match_bin(int length);
    void learn_token(const DraftedToken& token, double residual, bool accepted);

    TokenChance drawn_;
    std::vector<Bin> by_match_;  // [match_bin]
    bool was_looked_up_ = false; // a token was, so that the bins are more than their prior
    Bin all_;
    int n_verified_ = 0;
};

// The chance that a child of a tree's node is emitted, by its rank among siblings.
class RankChances {
  public:
    static constexpr std::size_t kOwn = 4; // ranks that have a chance of their own; further ones share the last

    explicit RankChances(int max_ranks);

    double of(const DraftedToken& ranked, int rank, double residual) const;
    // The mean over all rows.
    double mean(int rank) const { return means_[rank]; }
    void learn(const DraftedToken& ranked, int rank, double residual, bool is_emitted);
    std::array<double, 4> line(std::size_t rank, double residual) const { return chances_[rank].line(residual); }

  private:
    std::vector<TokenChance> chances_; // [rank]
    std::vector<double> means_;        // [rank]
};

} // namespace entrodraft::spec
