// Logits of a small decoder on this rank, its cache cut back to what of the text still stands.
#include "entrodraft/spec/logit_source.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace entrodraft::spec {

namespace {

class ModelSource final : public LogitSource {
  public:
    ModelSource(model::Decoder& decoder, int vocab) : decoder_(decoder), vocab_(vocab) {}

    std::string name() const override { return "model"; }
    std::size_t weight_bytes() const override { return decoder_.weight_bytes(); }
    std::size_t context() const override { return static_cast<std::size_t>(decoder_.config().max_positions); }
    std::size_t most_rows() const override { return static_cast<std::size_t>(decoder_.most_rows()); }

    void begin_sequence() override {
        decoder_.cache().truncate(kSlot, 0);
        cached_.clear();
    }
    void prefill(std::span<const TokenId> prompt) override {
        if (!prompt.empty()) read(prompt.first(std::min(prompt.size() - 1, context())));
    }
    SourceRows rows_after(std::span<const TokenId> tokens, std::size_t n, model::LogitSummary summary) override;

  private:
    static constexpr int kSlot = 0;

    void forget(std::span<const TokenId> tokens, std::size_t n);
    void read(std::span<const TokenId> tokens);
    void add_rows(std::span<const TokenId> tokens, std::size_t end);

    model::Decoder& decoder_;
    int vocab_;
    std::vector<TokenId> cached_; // tokens whose keys and values the cache holds
    std::vector<model::Row> rows_;
    std::vector<int> logit_rows_;
};

// Cuts the cache back to where it agrees with the text, leaving at least the last n tokens to be read.
void ModelSource::forget(std::span<const TokenId> tokens, std::size_t n) {
    cached_.resize(std::min(cached_.size(), tokens.size() - n));
    if (!std::equal(cached_.begin(), cached_.end(), tokens.begin())) // compares as bytes: quick where nothing fell
        cached_.erase(std::mismatch(cached_.begin(), cached_.end(), tokens.begin()).first, cached_.end());
    decoder_.cache().truncate(kSlot, static_cast<int>(cached_.size()));
}

// Rows of the pass: tokens from the end of the cache to `end`.
void ModelSource::add_rows(std::span<const TokenId> tokens, std::size_t end) {
    rows_.clear();
    for (std::size_t i = cached_.size(); i < end; ++i)
        rows_.push_back({tokens[i], kSlot, static_cast<int>(i), static_cast<int>(rows_.size()) - 1});
    cached_.insert(cached_.end(), tokens.begin() + static_cast<std::ptrdiff_t>(cached_.size()),
                   tokens.begin() + static_cast<std::ptrdiff_t>(end));
}

// Brings the cache up to `tokens` in chunks, asking for no logits.
void ModelSource::read(std::span<const TokenId> tokens) {
    while (cached_.size() < tokens.size()) {
        add_rows(tokens, std::min(tokens.size(), cached_.size() + most_rows()));
        decoder_.forward({.rows = rows_, .logit_rows = {}, .hidden_layers = {}, .mask = model::Mask::causal});
    }
}

SourceRows ModelSource::rows_after(std::span<const TokenId> tokens, std::size_t n, model::LogitSummary summary) {
    forget(tokens, n);
    if (tokens.size() - cached_.size() > most_rows()) read(tokens.first(tokens.size() - most_rows()));
    add_rows(tokens, tokens.size());
    logit_rows_.resize(n);
    std::iota(logit_rows_.begin(), logit_rows_.end(), static_cast<int>(rows_.size() - n));
    const model::PassResult result = decoder_.forward({.rows = rows_,
                                                       .logit_rows = logit_rows_,
                                                       .hidden_layers = {},
                                                       .mask = model::Mask::causal,
                                                       .summary = summary,
                                                       .summary_vocab = vocab_});
    return {result.logits, result.logits_stride, static_cast<std::size_t>(vocab_), result.summaries};
}

} // namespace

std::unique_ptr<LogitSource> make_model_source(model::Decoder& decoder, int vocab) {
    return std::make_unique<ModelSource>(decoder, vocab);
}

} // namespace entrodraft::spec
