// Drafting from rows of logits: where rows come from (a model, a table of counts, any function of a text), how a model
// chooses its next token from a row, and the loop over both.
//
// A source says nothing of what is chosen from its rows. The target's rows, sharded across ranks, come together in
// target_rows.h. Called by the drafters, and by the recorder.
#pragma once

#include "spec/draft/drafter.h"
#include "spec/verify/device_verifier.h"
#include "spec/verify/random.h"

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace entrodraft::spec {

// ---- rows of logits ----

// A text, and how many of its last tokens are asked about.
struct TextEnd {
    int slot = 0;
    std::span<const TokenId> tokens;
    std::size_t n = 1;
};

// Rows of logits, until the source is asked again.
struct SourceLogits {
    std::span<const float> logits; // [rows][stride], of which the first vocab count
    std::size_t stride = 0;
    std::size_t vocab = 0;
    std::span<const model::LogitStats> summaries;  // [rows]; empty where none was asked for
    std::span<const model::NoisyToken> noisy = {}; // [rows]; empty where noise is to be added to the logits
    std::span<const RankedRow> ranked = {};        // [rows] that a GPU has read for a tree, in place of logits

    // Empty where logits were not wanted and did not come.
    std::span<const float> row(std::size_t i) const {
        return logits.empty() ? logits : logits.subspan(i * stride, vocab);
    }
    const model::NoisyToken* noisy_token(std::size_t i) const { return noisy.empty() ? nullptr : &noisy[i]; }
    model::LogitStats summary(std::size_t i) const { return summaries.empty() ? model::LogitStats{} : summaries[i]; }

    // Logits of some tokens, in that order, become those of the vocabulary, in `memory`: the others cannot come.
    void take_tokens(std::span<const TokenId> tokens, std::vector<float>& memory);
};

// What a source is, whatever it reads.
struct SourceFacts {
    std::string name = {};
    std::size_t weight_bytes = 0;        // that a pass reads; 0 where there are none
    std::size_t context = kNoContext;    // most tokens that it can read
    std::size_t max_rows = 128;          // most rows of logits that one pass gives
    bool shares_passes = false;          // whether a pass over rows of several texts costs less than one for each
    bool needs_each_row = false;         // whether each drafted token must have had a row, also the only possible one
    bool reads_late = false;             // see Drafter
    std::vector<int> hidden_layers = {}; // layers of the target whose hidden states it wants: see Drafter
    // What its GPU can do by itself of drafting and verification; null where it is not on one. Then it makes more rows
    // than asked for where DeviceVerifier::draft says that they will be wanted.
    DeviceVerifier* device = nullptr;
};

class LogitSource {
  public:
    virtual ~LogitSource() = default;
    const SourceFacts& facts() const { return facts_; }
    // Most tokens that it can read of a draft's in this slot, text and drafted ones, in the round at hand.
    virtual std::size_t context_of(int /*slot*/) const { return facts_.context; }
    // See Drafter.
    virtual void take_hidden(int /*slot*/, int /*first_position*/, std::span<const float> /*states*/) {}
    // Nothing of the text before is kept. `request` says what an encoder is to read, and the prompt; its tokens stay
    // where they are until the next.
    virtual void begin_sequence(int /*slot*/, const Request& /*request*/) {}
    // Reads all but the last of these tokens that it has not read yet, at most `most` of them, so that the first pass
    // does not pay for them. Returns whether all are read.
    virtual bool prefill(int /*slot*/, std::span<const TokenId> /*tokens*/, std::size_t /*most*/) { return true; }
    bool prefill(int slot, std::span<const TokenId> tokens) { return prefill(slot, tokens, kNoContext); }
    // Leaves out all but the last `n` of these tokens, as if the text began there. Returns false, and does nothing,
    // where it cannot, or has read some of the text.
    virtual bool begin_within(int /*slot*/, std::span<const TokenId> /*tokens*/, std::size_t /*n*/) { return false; }
    // The number of these tokens that it would read in all; 0 where it reads nothing.
    virtual std::size_t unread(int /*slot*/, std::span<const TokenId> /*tokens*/) const { return 0; }
    // A round begins, whose draft follows so many tokens: these are not taken back.
    virtual void begin_round(int /*slot*/, std::size_t /*n_tokens*/) {}
    // What follows each of the last tokens asked about, one text after another: one pass, or none where the row is
    // there already. Slots increase; at most `context` tokens each, 1 to `max_rows` rows together.
    virtual SourceLogits rows_after(std::span<const TextEnd> texts, model::LogitNeeds needs) = 0;

  protected:
    explicit LogitSource(SourceFacts facts) : facts_(std::move(facts)) {}

    SourceFacts facts_;
};

// Those of a drafter with this source.
inline DrafterFacts facts_of(const SourceFacts& source) {
    return {source.name, source.weight_bytes, source.hidden_layers, false, source.reads_late};
}

// A model on this rank alone, texts in its slots [0, n_slots); `decoder` is the caller's and outlives the source.
// `vocab` is how many tokens count. `device`: see SourceFacts.
std::unique_ptr<LogitSource> make_model_source(model::Decoder& decoder, int vocab, int n_slots = 1,
                                               DeviceVerifier* device = nullptr);

// Each row is a function of the text before it: `fill` writes its logits to [vocab]. `weight_bytes`: what it reads.
using FillLogits = std::function<void(std::span<const TokenId> text, std::span<float> logits)>;
std::unique_ptr<LogitSource> make_function_source(std::string name, int vocab, FillLogits fill,
                                                  std::size_t weight_bytes = 0);
// Log-probabilities of the table, which outlives the source: order 1 unigrams, 2 bigrams. Throws std::invalid_argument
// for another order.
std::unique_ptr<LogitSource> make_table_source(const TokenTable& table, int order, int vocab);
// Logits that depend on position and last token alone and mean nothing, some rows sharp, some flat. For tests.
std::unique_ptr<LogitSource> make_random_source(int vocab);

// ---- the next token from a row ----

// A row of logits as the request wants it seen.
struct SeenLogits {
    std::span<const float> logits; // [vocab], penalties and banned tokens applied
    model::LogitStats stats;       // of the row with bans alone; what was asked for of it
    bool is_dead = false;          // no token can come: all are banned, or the source knows none
};

// What rules see of a token of a row but its margin: `logit` is its own, with bans alone.
DraftedToken drafted_token(const model::LogitStats& stats, float logit);
// The same by the adjusted distribution.
DraftedToken drafted_token(std::span<const float> adjusted, TokenId token);

class TokenChooser {
  public:
    void begin_sequence(const Request& request, std::span<const TokenId> eos_tokens);
    // Whether tokens are drawn from distributions, so that verification needs these.
    bool draws(Acceptance acceptance) const { return !request_->sampling.greedy() && acceptance != Acceptance::gumbel; }
    // What to ask of the pass that makes the rows: its own summary serves where nothing is done to logits.
    model::LogitNeeds needs(bool whole_distribution, Acceptance acceptance) const;

    // The one token that a constraint allows behind `prefix`, if it allows no other.
    std::optional<TokenId> only_token(std::span<const TokenId> prefix);
    // The row that follows `prefix`. `head` is the summary that the pass has made of it; valid until the next call.
    SeenLogits see(std::span<const float> logits, const model::LogitStats& head, std::span<const TokenId> prefix,
                   bool whole_distribution);
    // The noise that the pass may add to the row that follows `position` tokens, so that it finds the best itself; of
    // temperature 0 where there is none, or where it takes the logits.
    model::RowNoise noise(std::uint64_t position, Acceptance acceptance) const;
    // The same where the row stays on a GPU, so that the pass draws the token itself in the round that began at
    // `round_start`.
    model::RowNoise device_noise(std::uint64_t position, std::uint64_t round_start, const ChoiceSetting& setting) const;
    // The token emitted at `position` (the prefix's length): arg max or Gumbel-max sample; `noisy` is what the pass
    // found, if it did.
    BestToken best(const SeenLogits& row, std::uint64_t position, Acceptance acceptance,
                   const model::NoisyToken* noisy = nullptr) const;
    // The adjusted distribution of a row (where text is greedy the softmax at temperature 1, without filters), and a
    // sample of it with the draft's number at this position in the round that began at `round_start`: rejected tokens
    // have a say in how much is drafted next, so their numbers are not drawn again.
    void distribution(const SeenLogits& row, std::span<float> q) const;
    TokenId sample_of(std::span<const float> q, std::uint64_t position, std::uint64_t round_start,
                      const ChoiceSetting& setting) const;

  private:
    const Request* request_ = nullptr;
    std::optional<LogitProcessor> processor_; // none where the request asks for nothing
    std::vector<float> processed_;
};

// ---- the loop ----

// Rows of a phase.
struct ChainRows {
    bool are_looked_at = false; // all distributions, even if the rule does not look at them
    bool are_all_made = false;  // also of a token that a constraint leaves no choice about
};

// One drafting phase of one text, a row of logits at a time: whoever makes the rows asks whether another is wanted and
// hands it in, so that phases of several texts can share the passes of one model.
class ChainPhase {
  public:
    // Begins a round of the task's rule and clears its draft. `context` is the most tokens that the model reads. What
    // is handed over outlives the phase.
    void begin(const DraftTask& task, std::size_t context, const DraftLimits& limits, TokenChooser& chooser,
               const ChainRows& rows = {});
    // Whether it goes on; to be asked before each row. Where not, draft.end says why. Drafts tokens that need no row
    // first.
    bool wants_row(const PassCost& cost = {});
    // The text with what is drafted so far: what the next row follows.
    std::span<const TokenId> text() const { return text_; }
    // What the next row needs: its noise and, of a source that is asked for this row alone on a GPU, `device`, how far
    // it is to go on by itself. Valid until the next call.
    model::LogitNeeds needs(DeviceVerifier* device);
    // The row that was wanted; `logits` may be empty where the needs do not ask for them.
    void take(std::span<const float> logits, const model::LogitStats& summary, const dist::Clock& clock,
              const model::NoisyToken* noisy = nullptr);
    // Draft::q is complete.
    void finish();
    // The draft is another's, and so is the end of the text.
    void adopt();

  private:
    void take_only_tokens();
    // A drawn token's would say nothing about whether the target accepts it.
    bool knows_margins() const { return !chooser_->draws(task_.choice.acceptance); }
    BestToken choose(const SeenLogits& row, const model::NoisyToken* noisy);
    DraftedToken seen_adjusted(const SeenLogits& row, TokenId token);

    DraftTask task_;
    const DraftLimits* limits_ = nullptr;
    TokenChooser* chooser_ = nullptr;
    int max_ = 0;
    bool whole_ = false;    // whether distributions are looked at
    bool adjusted_ = false; // whether the rule looks at adjusted ones
    bool draws_ = false;
    bool skips_rows_ = false;
    std::vector<TokenId> text_;
    std::vector<float> q_;   // [drafted][vocab]
    std::vector<float> row_; // [vocab]: the adjusted distribution that the rule looks at, where none is drawn from
    model::RowNoise noise_;
};

// One pass a token over a source of logits: of all sequences at once where these share its passes.
std::unique_ptr<Drafter> make_chain_drafter(std::unique_ptr<LogitSource> source, const DraftSetting& setting);

// A middle model that drafts by verifying, in passes of its own, what `inner` drafts for it. Sequences take turns.
struct CascadeLevel {
    std::unique_ptr<LogitSource> source;
    std::unique_ptr<Drafter> inner;
    StopRuleOptions inner_rule;
    std::optional<Costs> inner_costs; // for the rule expected-gain; none: measured as the run goes
};
std::unique_ptr<Drafter> make_cascade_drafter(CascadeLevel level, const DraftSetting& setting);

} // namespace entrodraft::spec
