// What a replica learns while it decodes, for the stop rule expected-gain: how likely a drafted token is accepted,
// given what the draft says of it, what passes cost, and how many tokens a second the run has made so far.
//
// Tokens drawn from a distribution have a chance of acceptance that TokenChance learns; tokens that were looked up are
// counted by the length of their match. Decides nothing itself. Lives on the
// coordinator, across sequences, in the order in which they are served. With fixed costs it depends on the counts
// alone, so that a run can be repeated exactly; else its seconds are those of pass_times.h.
#pragma once

#include "spec/protocol/stats.h"
#include "spec/stop/learned_weights.h"
#include "spec/stop/pass_times.h"

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace entrodraft::spec {

struct DraftedToken;

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
    // w of a text with this residual, which then counts no more: of the other features alone.
    std::array<double, 4> line(double residual) const;

  private:
    double chance(const Weights& features) const;

    LearnedWeights<5> weights_;
};

struct GainModelOptions {
    int max_rows = 16;                 // most rows of a target pass
    double draft_to_target_cost = 0.1; // of a pass, before anything is measured: the ratio of their weights' bytes
    std::optional<Costs> costs;        // fixed costs instead of measured ones
};

// What is known of a drafted token. NaN: the drafter has no distribution, and no rule fires on it. Floats, so that a
// recording holds exactly what rules go by.
struct DraftedToken {
    float entropy_nats = std::numeric_limits<float>::quiet_NaN(); // of the distribution it was drawn from, raw
    float probability = std::numeric_limits<float>::quiet_NaN();  // its own in that distribution
    int match_length = 0;                                         // tokens of the text that a look-up matched
    // By how much it is ahead of the second-best token: of greedy text in logits, under `gumbel` in logit / temperature
    // + noise. NaN: not known, or it was not chosen so.
    float margin = std::numeric_limits<float>::quiet_NaN();
};

// The other sequences of a target pass. One alone has none.
struct BatchLoad {
    int rows_beside = 0; // theirs
    int sequences = 1;   // with this one: they share what the pass costs
};

// Why rounds did without a draft. Times are in those of a token that is decoded plainly.
struct DraftWorth {
    std::int64_t declined = 0;             // rounds in which a draft seemed to cost more than it brings, ...
    std::int64_t declined_for_reading = 0; // ... of these, because the draft would have had to read the text first
    double pass = 0;                       // a draft pass
    bool is_pass_timed = false;            // else it goes by the sizes of the models
    double row = 0;                        // a further row of the target's pass
    double reading = 0;                    // a token of the text that the draft reads first
    double acceptance = 0;                 // chance that a drafted token is accepted
    // [r - 1]: a target pass of r rows, in passes of one row, as the run has learnt it; empty: it has seen too little.
    std::vector<double> row_costs = {};
};

// What the draft reads of a long text before it drafts: all of it, or its end, as if the text began there.
enum class Reading { all, end };

// One round of a sequence as it went.
struct RoundRecord {
    std::span<const DraftedToken> tokens; // the drafted ones
    double residual = 0;                  // of their text, as it was when they were verified
    int accepted = 0;
    double draft_passes = 0;
    double draft_seconds = 0; // of all of them
    double target_seconds =
        0; // of the pass over drafted + 1 rows and of the rest of its batch, and everything around it
    BatchLoad batch_load = {};
    int rows = 0;                                  // of this sequence in that pass; 0: one more than tokens
    int emitted = 0;                               // tokens; 0: one more than accepted
    double further_draft_rows = 0;                 // of draft_passes, beyond one each
    int caught_up = 0;                             // tokens that the draft read before its passes, ...
    double catch_up_seconds = 0;                   // ... which are not among draft_seconds
    std::optional<Reading> reading = std::nullopt; // none: of a text that is short

    int n_rows() const { return rows > 0 ? rows : static_cast<int>(tokens.size()) + 1; }
    int n_emitted() const { return emitted > 0 ? emitted : accepted + 1; }
};

class GainModel {
  public:
    explicit GainModel(const GainModelOptions& options);

    // Probability that a token is accepted in a text with this acceptance residual: 0.1 times the sum of (accepted -
    // probability that it is accepted) over the text's verified tokens. The residual is part of that probability, so it
    // settles where the two agree.
    double acceptance(const DraftedToken& token, double residual) const;
    // TokenChance::line of drawn tokens.
    std::array<double, 4> line(double residual) const { return drawn_.line(residual); }
    // The same of a token of which nothing is known yet.
    double mean_acceptance() const;
    // Seconds of `passes` draft passes of a round, which have so many rows beyond one each; of a cascade also parts of
    // passes.
    double draft_seconds(double passes, double further_rows = 0) const;
    // Seconds of a target pass over `rows` rows; never less than over fewer.
    double target_seconds(int rows) const;
    int max_rows() const { return options_.max_rows; } // of a target pass
    // Tokens a second, in the run's own costs; 0 until kFirstRounds rounds are known.
    double tokens_per_second() const;

    // Seconds in which the draft reads so many tokens before its first pass; none where costs are fixed.
    double catch_up_seconds(int tokens) const;
    // Where so many tokens are to be read, their end is so much less that it may do.
    static constexpr int kEnd = 256; // tokens
    static bool is_long(int unread) { return unread > 2 * kEnd; }
    // Seconds a token of long texts of which so much was read; 0 until kFirstRounds rounds are known.
    double seconds_per_token(Reading reading) const;
    // How many of the `left` tokens that a text may still have it is likely to have, by those that have ended.
    double expected_left(int left) const { return left * length_share_; }
    void learn_length(int new_tokens, int max_new_tokens);
    // Whether so many seconds may be spent on drafts that may bring nothing: then what all drafts have cost beyond what
    // they brought is at most half a hundredth of the run. Always where costs are fixed.
    bool affords(double seconds) const;
    // While next to nothing is known of acceptance, one sequence of a batch drafts at a time: whether it is this one.
    bool may_begin(const BatchLoad& load);

    // Whether draft passes have been timed, not too long ago, or their cost is fixed. Until then none counts in
    // affords().
    bool knows_draft_cost() const;

    void learn(const RoundRecord& round);

    // Rounds without drafting after which a text is probed: more after each probe, few again once drafting pays.
    int probe_gap() const { return probe_gap_; }
    // A round of a batch of so many sequences has no draft, for what it would cost.
    void decline(int sequences, bool for_reading);
    // As far as is known now.
    DraftWorth worth() const;
    // A round had a draft, because that paid or as a probe.
    void drafted(bool as_probe);

    // k of a persistent `heuristic` as the replica's last round left it; none before the first.
    std::optional<int> kept_draft_tokens;

    static constexpr int kFirstRounds = 20;

  private:
    static constexpr int kBins = 16;
    static constexpr double kDecay = 0.998; // of a round
    static constexpr int kFirstGap = 8, kLastGap = 2048;

    struct Bin {
        double accepted = 0;
        double seen = 0;
        double probability() const { return accepted / seen; }
        void decay(double prior_accepted, double prior_seen);
    };
    // Of rounds, decayed sums.
    struct Pace {
        double tokens = 0;
        double seconds = 0;
        int rounds = 0;
    };

    static std::size_t match_bin(int length);
    void learn_token(const DraftedToken& token, double residual, bool accepted);
    void learn_times(const RoundRecord& round);
    void learn_balance(const RoundRecord& round);
    void learn_reading(const RoundRecord& round);
    void fix_target_seconds(const Costs& costs);

    GainModelOptions options_;
    TokenChance drawn_;
    std::vector<Bin> by_match_;
    bool was_looked_up_ = false; // a token, so that the bins are more than their prior
    Bin all_;
    PassTimes times_;                    // unless costs are fixed, ...
    std::vector<double> target_seconds_; // ... when these hold: [rows - 1]
    double tokens_ = 0;                  // decayed sums over rounds
    double seconds_ = 0;
    int rounds_ = 0;
    int rounds_since_timed_ = 0; // those behind the last with a draft
    int probe_gap_ = kFirstGap;
    std::array<double, 2> catch_up_units_{}; // seconds a token, of a few tokens and of many; 0: not timed yet
    std::array<Pace, 2> paces_;              // by Reading
    double length_share_ = 1;                // of max_new_tokens that texts come to
    double spent_seconds_ = 0;               // of the run, in the model's own times
    double balance_ = 0;                     // of these, what drafts have saved: less than 0 where they cost more
    int verified_ = 0;                       // drafted tokens, ever
    std::int64_t declined_ = 0, declined_for_reading_ = 0; // rounds
    int sequences_ = 1;                                    // of the last of them
    int last_rows_ = 0, row_changes_ = 0; // of the target's passes; how often they differed from the last one's
    bool one_begins_ = false;             // a sequence of this round, by may_begin()
};

} // namespace entrodraft::spec
