// Drafts from rows of logits. This file has the sources of rows (a model, a table of counts, any function of a text),
// the choice of a model's next token from a row, and the draft loop.
//
// A source does not know which tokens are chosen from its rows. (The target's rows are sharded across ranks;
// target_rows.h joins them.) The drafters and the recorder call this file.
#pragma once

#include "spec/draft/drafter.h"
#include "spec/gpu/device_round.h"
#include "spec/verify/random.h"

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace entrodraft::spec {

// ---- rows of logits ----

// The end of a text: the source is asked what follows each of its last `n` tokens.
struct TextEnd {
    int slot = 0;
    std::span<const TokenId> tokens;
    std::size_t n = 1;
};

// Rows of logits. They are valid until the source is asked again.
struct SourceLogits {
    std::span<const float> logits; // [rows][stride]; the first `vocab` of a row count
    std::size_t stride = 0;
    std::size_t vocab = 0;
    std::span<const model::LogitStats> summaries;  // [rows]; empty if not asked for
    std::span<const model::NoisyToken> noisy = {}; // [rows]; empty if noise must be added to the logits
    std::span<const RankedRow> ranked = {};        // [rows] that a GPU has read for a tree, instead of logits

    // The logits of a row; empty if they were not asked for and did not come.
    std::span<const float> row(std::size_t i) const {
        return logits.empty() ? logits : logits.subspan(i * stride, vocab);
    }
    const model::NoisyToken* noisy_token(std::size_t i) const { return noisy.empty() ? nullptr : &noisy[i]; }
    model::LogitStats summary(std::size_t i) const { return summaries.empty() ? model::LogitStats{} : summaries[i]; }

    // Turns logits of these tokens, in order, into logits of the vocabulary, in `memory`. Others become -infinity.
    void take_tokens(std::span<const TokenId> tokens, std::vector<float>& memory);
};

// The properties of a source, whatever it reads.
struct SourceFacts {
    std::string name = {};
    std::size_t weight_bytes = 0;        // that a pass reads; 0 without weights
    std::size_t context = kNoContext;    // most tokens that it can read
    std::size_t max_rows = 128;          // most rows of logits that one pass gives
    bool shares_passes = false;          // true if a pass over rows of several texts costs less than one for each
    bool needs_each_row = false;         // true if each drafted token must have had a row, even if no other is possible
    bool reads_late = false;             // see Drafter
    std::vector<int> hidden_layers = {}; // layers of the target whose states it wants: see Drafter
    // The drafting and verification that its GPU can do by itself; null if it is on no GPU. A source with it makes
    // further rows, before they are asked for, if DeviceRound::draft says that they will be wanted.
    DeviceRound* device = nullptr;
};

class LogitSource {
  public:
    virtual ~LogitSource() = default;
    const SourceFacts& facts() const { return facts_; }
    // The most tokens, of text and draft together, that it can read in this slot in the current round.
    virtual std::size_t context_of(int /*slot*/) const { return facts_.context; }
    // See Drafter.
    virtual void take_hidden(int /*slot*/, int /*first_position*/, std::span<const float> /*states*/) {}
    // Keeps nothing of the text before. `request` has the prompt, and the tokens that an encoder reads. Its tokens stay
    // in place until the next call.
    virtual void begin_sequence(int /*slot*/, const Request& /*request*/) {}
    // Reads the tokens that it has not read yet, but for the last one and at most `most`, so that the first pass does
    // not pay for them. Returns whether all are read.
    virtual bool prefill(int /*slot*/, std::span<const TokenId> /*tokens*/, std::size_t /*most*/) { return true; }
    bool prefill(int slot, std::span<const TokenId> tokens) { return prefill(slot, tokens, kNoContext); }
    // Leaves out all but the last `n` of these tokens, as if the text began there. Does nothing and returns false if it
    // cannot do so, or has read some of the text.
    virtual bool begin_within(int /*slot*/, std::span<const TokenId> /*tokens*/, std::size_t /*n*/) { return false; }
    // The number of these tokens that it still has to read; 0 by default.
    virtual std::size_t unread(int /*slot*/, std::span<const TokenId> /*tokens*/) const { return 0; }
    // A round begins with a text of `n_tokens` tokens, which are not taken back.
    virtual void begin_round(int /*slot*/, std::size_t /*n_tokens*/) {}
    // The rows that follow each of the last `n` tokens of each text, one text after another. It makes one pass, or none
    // if the row is there already. Slots increase; a text has at most `context` tokens; all texts ask for 1 to
    // `max_rows` rows.
    virtual SourceLogits rows_after(std::span<const TextEnd> texts, model::LogitNeeds needs) = 0;

  protected:
    explicit LogitSource(SourceFacts facts) : facts_(std::move(facts)) {}

    SourceFacts facts_;
};

// The facts of a drafter with this source.
inline DrafterFacts facts_of(const SourceFacts& source) {
    return {source.name, source.weight_bytes, source.hidden_layers, false, source.reads_late};
}

// A model on this rank alone, with texts in its slots [0, n_slots). `decoder` must outlive the source. The first
// `vocab` tokens count. `device`: see SourceFacts.
std::unique_ptr<LogitSource> make_model_source(model::Decoder& decoder, int vocab, int n_slots = 1,
                                               DeviceRound* device = nullptr);

// Each row is a function of the text before it: `fill` writes its logits to [vocab]. `weight_bytes`: read by each pass.
using FillLogits = std::function<void(std::span<const TokenId> text, std::span<float> logits)>;
std::unique_ptr<LogitSource> make_function_source(std::string name, int vocab, FillLogits fill,
                                                  std::size_t weight_bytes = 0);
// Log-probabilities of the table, which must outlive the source. Order 1: unigrams; 2: bigrams. Throws
// std::invalid_argument for another order.
std::unique_ptr<LogitSource> make_table_source(const TokenTable& table, int order, int vocab);
// Meaningless logits that depend only on position and last token, some rows sharp, some flat. For tests.
std::unique_ptr<LogitSource> make_random_source(int vocab);

// ---- the next token from a row ----

// A row of logits as the request wants it seen.
struct SeenLogits {
    std::span<const float> logits; // [vocab], after penalties and banned tokens
    model::LogitStats stats;       // of the row after bans alone; the values that were asked for
    bool is_dead = false;          // true if every token is banned, or the source knows none
};

// The values that rules see of a token, without its margin. `logit`: the token's own, after bans alone.
DraftedToken drafted_token(const model::LogitStats& stats, float logit);
// The same values from the adjusted distribution.
DraftedToken drafted_token(std::span<const float> adjusted, TokenId token);

class TokenChooser {
  public:
    void begin_sequence(const Request& request, std::span<const TokenId> eos_tokens);
    // Returns whether tokens are drawn from distributions, so that verification needs these.
    bool draws(Acceptance acceptance) const { return !request_->sampling.greedy() && acceptance != Acceptance::gumbel; }
    // The needs of the pass that makes the rows. The pass's own summary is enough if nothing changes the logits.
    model::LogitNeeds needs(bool whole_distribution, Acceptance acceptance) const;

    // The only token that a constraint allows after `prefix`; none if it allows several.
    std::optional<TokenId> only_token(std::span<const TokenId> prefix);
    // The row that follows `prefix`. `head`: the pass's own summary of it. Valid until the next call.
    SeenLogits see(std::span<const float> logits, const model::LogitStats& head, std::span<const TokenId> prefix,
                   bool whole_distribution);
    // The noise that the pass may add to the row after `position` tokens, to find the best token itself. Its
    // temperature is 0 if there is no noise, or if the logits are needed for it.
    model::RowNoise noise(std::uint64_t position, Acceptance acceptance) const;
    // The noise for a row that stays on a GPU, where the pass draws the token. The round began at `round_start`.
    model::RowNoise device_noise(std::uint64_t position, std::uint64_t round_start, const ChoiceSetting& setting) const;
    // The token emitted at `position` (the prefix's length): arg max or Gumbel-max sample. `noisy`: the token that the
    // pass found, if it did.
    BestToken best(const SeenLogits& row, std::uint64_t position, Acceptance acceptance,
                   const model::NoisyToken* noisy = nullptr) const;
    // The adjusted distribution of a row (greedy text: the softmax at temperature 1 without filters), and a sample of
    // it. The random number depends on this position and on `round_start`, where the round began: rejected tokens
    // influence how much is drafted next, so their numbers are not used again.
    void distribution(const SeenLogits& row, std::span<float> q) const;
    TokenId sample_of(std::span<const float> q, std::uint64_t position, std::uint64_t round_start,
                      const ChoiceSetting& setting) const;

  private:
    const Request* request_ = nullptr;
    std::optional<LogitProcessor> processor_; // none if the request changes no logits
    std::vector<float> processed_;
};

// ---- the loop ----

// Settings for the rows of a phase.
struct ChainRows {
    bool are_looked_at = false; // true: distributions are looked at, even if the rule does not need them
    bool are_all_made = false;  // true: even for a token that is the only one a constraint allows
};

// One drafting phase of one text, a row of logits at a time. The caller makes the rows: it asks if another row is
// wanted and hands it in. Phases of several texts can therefore share the passes of one model.
class ChainPhase {
  public:
    // Begins a round of the task's rule and clears its draft. `context`: the most tokens that the model reads. All
    // arguments must outlive the phase.
    void begin(const DraftTask& task, std::size_t context, const DraftLimits& limits, TokenChooser& chooser,
               const ChainRows& rows = {});
    // Returns whether another row is wanted; to be asked before each row. If not, draft.end has the reason. First
    // drafts the tokens that need no row.
    bool wants_row(const PassCost& cost = {});
    // The text with the tokens drafted so far, which the next row follows.
    std::span<const TokenId> text() const { return text_; }
    // The needs of the next row: its noise and, with `device`, how far the GPU goes on by itself. Pass `device` only if
    // the source is on it and is asked for this row alone. Valid until the next call.
    model::LogitNeeds needs(DeviceRound* device);
    // The noise that the pass may add to the row after `further` more tokens than the next row follows.
    model::RowNoise noise(std::size_t further) const {
        return chooser_->noise(text_.size() + further, task_.choice.acceptance);
    }
    // Takes the wanted row. `logits` may be empty if the needs do not ask for them. `is_further`: the pass has given a
    // row before.
    void take(std::span<const float> logits, const model::LogitStats& summary, const dist::Clock& clock,
              const model::NoisyToken* noisy = nullptr, bool is_further = false);
    bool is_constrained() const { return task_.request->processing.constraint.is_on(); }
    // The number of tokens that may still be drafted.
    int left() const { return max_ - static_cast<int>(task_.draft->tokens.size()); }
    // Completes Draft::q.
    void finish();
    // Follows a draft that another drafter has made: its end is the end of the text.
    void adopt();

  private:
    void take_only_tokens();
    // Returns whether margins are known. The margin of a drawn token would say nothing about its acceptance.
    bool knows_margins() const { return !chooser_->draws(task_.choice.acceptance); }
    BestToken choose(const SeenLogits& row, const model::NoisyToken* noisy);
    DraftedToken seen_adjusted(const SeenLogits& row, TokenId token);

    DraftTask task_;
    const DraftLimits* limits_ = nullptr;
    TokenChooser* chooser_ = nullptr;
    int max_ = 0;
    bool whole_ = false;    // true if distributions are looked at
    bool adjusted_ = false; // true if the rule looks at adjusted ones
    bool draws_ = false;
    bool skips_rows_ = false;
    std::vector<TokenId> text_;
    std::vector<float> q_;   // [drafted][vocab]
    std::vector<float> row_; // [vocab]: the adjusted distribution for the rule, if none is drawn from
    model::RowNoise noise_;
};

// Drafts with one pass for each token; sequences share passes if the source lets them. `guesses`: passes with few rows
// also read tokens that are likely to be drafted next (token_guesses.h).
std::unique_ptr<Drafter> make_chain_drafter(std::unique_ptr<LogitSource> source, const DraftSetting& setting,
                                            bool guesses = false);

// A middle model. It verifies, in its own passes, the drafts that `inner` makes for it. Sequences take turns.
struct CascadeLevel {
    std::unique_ptr<LogitSource> source;
    std::unique_ptr<Drafter> inner;
    StopRuleOptions inner_rule;
    std::optional<Costs> inner_costs; // for the rule expected-gain; none: measured during the run
};
std::unique_ptr<Drafter> make_cascade_drafter(CascadeLevel level, const DraftSetting& setting);

} // namespace entrodraft::spec
