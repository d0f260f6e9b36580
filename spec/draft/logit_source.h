// Where a drafter's logits come from: a model, a table of counts, or any function of a text.
//
// Says nothing of what is chosen from them. A source follows a text in each slot, forwards and back.
#pragma once

#include "model/decoder.h"
#include "spec/packet.h"

#include <functional>
#include <memory>
#include <span>
#include <string>

namespace entrodraft::spec {

class DeviceVerifier;
class TokenTable;

inline constexpr std::size_t kNoContext = std::size_t{1} << 40; // of what reads any number of tokens

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
    std::span<const model::kernels::LogitStats> summaries; // [rows]; empty where none was asked for
    std::span<const model::NoisyToken> noisy = {};         // [rows]; empty where noise is to be added to the logits

    // Empty where logits were not wanted and did not come.
    std::span<const float> row(std::size_t i) const {
        return logits.empty() ? logits : logits.subspan(i * stride, vocab);
    }
    const model::NoisyToken* noisy_token(std::size_t i) const { return noisy.empty() ? nullptr : &noisy[i]; }
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
    virtual std::size_t context() const { return kNoContext; }
    // Most rows of logits that one pass gives.
    virtual std::size_t max_rows() const { return 128; }
    // Whether a pass over rows of several texts costs less than a pass for each.
    virtual bool shares_passes() const { return false; }
    // What its GPU can do by itself of drafting and verification; null where it is not on one. Then it makes more rows
    // than asked for where DeviceVerifier::draft says that they will be wanted.
    virtual DeviceVerifier* device() const { return nullptr; }
    // Nothing of the text before is kept.
    virtual void begin_sequence(int /*slot*/) {}
    // Reads all but the last of these tokens that it has not read yet, so that the first pass does not pay for them.
    virtual void prefill(int /*slot*/, std::span<const TokenId> /*prompt*/) {}
    // What follows each of the last tokens asked about, one text after another: one pass, or none where the row is
    // there already. Slots increase; at most context() tokens each, 1 to max_rows() rows together.
    virtual SourceLogits rows_after(std::span<const TextEnd> texts, model::LogitNeeds needs) = 0;
};

// A model on this rank alone, texts in its slots [0, n_slots); `decoder` is the caller's and outlives the source.
// `vocab` is how many tokens count. `device`: see LogitSource::device.
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

} // namespace entrodraft::spec
