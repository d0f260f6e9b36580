// Learns the chance that a drafted token is accepted, from the tokens that were verified.
//
// TokenChance learns the chance of a token that was drawn from a distribution. For a token that was looked up, the
// chance is the share of accepted tokens among those with the same match length. RankChances learns the chances of
// siblings in a tree. These models know no costs and no clock.
#pragma once

#include "spec/plan/learned_weights.h"
#include "spec/plan/round_values.h"

#include <array>
#include <cstddef>
#include <vector>

namespace entrodraft::spec {

// The probability that a drawn token is accepted: 1 / (1 + exp(-w . f)). The features f are (1, sqrt(entropy) - 1.5,
// log(probability) + 2, 3 log(1 + margin) - 1.5, residual of the text); a feature that is not known is 0. An online
// logistic regression learns w by Newton's steps.
class TokenChance {
  public:
    using Weights = LearnedWeights<5>::Vector;
    // The weights fit Qwen2.5-Coder 1.5B and 0.5B on code, chat and Spec-Bench's tasks, greedy and at temperature 1.
    static constexpr Weights kFirstWeights = {-0.2, -1.1, 0.15, 0.75, 1};

    explicit TokenChance(const Weights& first = kFirstWeights);
    double of(const DraftedToken& token, double residual) const; // the token's entropy must be known
    void learn(const DraftedToken& token, double residual, bool accepted);
    // The weights of the other features. The residual's part is added to the first one.
    std::array<double, 4> line(double residual) const;

  private:
    double chance(const Weights& features) const;

    LearnedWeights<5> weights_;
};

// The acceptance residual of a text. It grows while tokens are accepted more often than their chances say, and falls
// while they are accepted less often: each verified token adds 0.1 (accepted - chance). The residual is an input of
// these chances, so it settles where chances and acceptance agree.
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
    // The probability that a token is accepted, before anything is known about the token.
    double mean() const { return all_.probability(); }
    // TokenChance::line of drawn tokens.
    std::array<double, 4> line(double residual) const { return drawn_.line(residual); }

    void learn(const RoundRecord& round);
    int n_verified() const { return n_verified_; } // drafted tokens verified so far

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
    bool was_looked_up_ = false; // true once a token was; until then the bins hold their prior
    Bin all_;
    int n_verified_ = 0;
};

// The chance that a child of a tree's node is emitted, by its rank among siblings.
class RankChances {
  public:
    static constexpr std::size_t kOwn = 4; // ranks with a chance of their own; further ranks share the last one

    explicit RankChances(int max_ranks);

    double of(const DraftedToken& ranked, int rank, double residual) const;
    // The mean chance of this rank over all rows.
    double mean(int rank) const { return means_[rank]; }
    void learn(const DraftedToken& ranked, int rank, double residual, bool is_emitted);
    std::array<double, 4> line(std::size_t rank, double residual) const { return chances_[rank].line(residual); }

  private:
    std::vector<TokenChance> chances_; // [rank]
    std::vector<double> means_;        // [rank]
};

} // namespace entrodraft::spec
