// Where a drafter's logits come from: a model, a table of counts, or, for tests, random numbers.
//
// Says nothing of what is chosen from them. A source follows one text at a time, forwards and back.
#pragma once

#include "model/decoder.h"
#include "spec/packet.h"

#include <memory>
#include <span>
#include <string>

namespace entrodraft::spec {

class TokenTable;

// Rows of logits, until the source is asked again.
struct SourceRows {
    std::span<const float> logits; // [rows][stride], of which the first vocab count
    std::size_t stride = 0;
    std::size_t vocab = 0;
    std::span<const model::kernels::LogitStats> summaries; // [rows]; empty where none was asked for
    std::span<const model::NoisyToken> noisy = {};         // [rows]; empty where noise is to be added to the logits
    std::span<const float* const> kept = {};               // [rows]; empty where none stays: PassResult::kept

    // Empty where logits were not wanted and did not come.
    std::span<const float> row(std::size_t i) const {
        return logits.empty() ? logits : logits.subspan(i * stride, vocab);
    }
    const model::NoisyToken* noisy_token(std::size_t i) const { return noisy.empty() ? nullptr : &noisy[i]; }
    const float* kept_row(std::size_t i) const { return kept.empty() ? nullptr : kept[i]; }
    model::kernels::LogitStats summary(std::size_t i) const {
        return summaries.empty() ? model::kernels::LogitStats{} : summaries[i];
    }
};

class LogitSource {
  public:
    virtual ~LogitSource() = default;
    virtual std::string name() const = 0;
    // Bytes of weights that a pass reads; 0 where there are none.
    virtual std::size_t weight_bytes() const { return 0; }
    // Most tokens it can read.
    virtual std::size_t context() const = 0;
    // Most rows of logits that one pass gives.
    virtual std::size_t max_rows() const = 0;
    // Nothing of the text before is kept.
    virtual void begin_sequence() = 0;
    // Reads all but the last of these tokens that it has not read yet, so that the first pass does not pay for them.
    virtual void prefill(std::span<const TokenId> prompt) = 0;
    // Whether it makes more rows than asked for where LogitNeeds::chain says that they will be wanted.
    virtual bool has_device_draft_loop() const { return false; }
    // Whether rows can stay on a GPU: LogitNeeds::keep_from.
    virtual bool keeps_logits_on_device() const { return false; }
    // What follows each of the last `n` tokens: one pass, or none where the row is there already. At most context()
    // tokens, 1 to max_rows() rows.
    virtual SourceRows rows_after(std::span<const TokenId> tokens, std::size_t n, model::LogitNeeds needs) = 0;
};

// A model on this rank alone, its text in `slot`; `decoder` is the caller's and outlives the source. `vocab` is how
// many tokens count.
std::unique_ptr<LogitSource> make_model_source(model::Decoder& decoder, int vocab, int slot = 0);
// Log-probabilities of the table, which outlives the source: order 1 unigrams, 2 bigrams.
std::unique_ptr<LogitSource> make_table_source(const TokenTable& table, int order, int vocab);
// Logits that depend on position and last token alone and mean nothing, some rows sharp, some flat. For tests.
std::unique_ptr<LogitSource> make_random_source(int vocab);

} // namespace entrodraft::spec
