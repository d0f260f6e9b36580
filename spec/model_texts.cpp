// What a draft model has read: see model_texts.h.
#include "entrodraft/spec/model_texts.h"

#include <algorithm>

namespace entrodraft::spec {

ModelTexts::ModelTexts(DraftModel& model, int n_slots, int vocab)
    : model_(model), vocab_(vocab), cached_(static_cast<std::size_t>(n_slots)) {}

void ModelTexts::begin_sequence(int slot) {
    model_.truncate(slot, 0);
    cached(slot).clear();
}

void ModelTexts::prefill(int slot, std::span<const TokenId> prompt) {
    if (!prompt.empty()) read(slot, prompt.first(std::min(prompt.size() - 1, context())));
}

void ModelTexts::share(int from, int to, std::size_t length) {
    model_.share(from, to, static_cast<int>(length));
    const std::vector<TokenId>& source = cached(from);
    cached(to).assign(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(length));
}

void ModelTexts::move(int from, int to) {
    model_.fork(from, to);
    cached(to) = cached(from);
    begin_sequence(from);
}

// Cuts the cache back to where it agrees with the text, leaving at least the last n tokens to be read.
void ModelTexts::forget(const TextEnd& text) {
    std::vector<TokenId>& held = cached(text.slot);
    const std::size_t before = held.size();
    held.resize(std::min(held.size(), text.tokens.size() - text.n));
    if (!std::equal(held.begin(), held.end(), text.tokens.begin())) // compares as bytes: quick where nothing fell
        held.erase(std::mismatch(held.begin(), held.end(), text.tokens.begin()).first, held.end());
    if (held.size() < before) model_.truncate(text.slot, static_cast<int>(held.size()));
}

// Rows of the pass: tokens from the end of the slot's cache to the last.
void ModelTexts::add_rows(int slot, std::span<const TokenId> tokens) {
    std::vector<TokenId>& held = cached(slot);
    for (std::size_t i = held.size(), first = i; i < tokens.size(); ++i)
        rows_.push_back({tokens[i], slot, static_cast<int>(i), i == first ? -1 : static_cast<int>(rows_.size()) - 1});
    held.insert(held.end(), tokens.begin() + static_cast<std::ptrdiff_t>(held.size()), tokens.end());
}

// Brings the slot's cache up to `tokens` in chunks, asking for no logits.
void ModelTexts::read(int slot, std::span<const TokenId> tokens) {
    const auto most = static_cast<std::size_t>(model_.most_rows());
    while (cached(slot).size() < tokens.size()) {
        rows_.clear();
        add_rows(slot, tokens.first(std::min(tokens.size(), cached(slot).size() + most)));
        model_.forward({.rows = rows_, .logit_rows = {}, .hidden_layers = {}, .mask = model::Mask::causal});
    }
}

// Texts that have more to be read than fits into one pass are read ahead.
void ModelTexts::make_room(std::span<const TextEnd> texts) {
    std::size_t rows = 0;
    for (const TextEnd& text : texts)
        rows += text.tokens.size() - cached(text.slot).size();
    for (const TextEnd& text : texts) {
        if (rows <= static_cast<std::size_t>(model_.most_rows())) return;
        rows -= text.tokens.size() - cached(text.slot).size() - text.n;
        read(text.slot, text.tokens.first(text.tokens.size() - text.n));
    }
}

SourceRows ModelTexts::rows_after(std::span<const TextEnd> texts, model::LogitSummary summary) {
    for (const TextEnd& text : texts)
        forget(text);
    make_room(texts);
    rows_.clear();
    logit_rows_.clear();
    for (const TextEnd& text : texts) {
        add_rows(text.slot, text.tokens);
        for (std::size_t i = text.n; i > 0; --i)
            logit_rows_.push_back(static_cast<int>(rows_.size() - i));
    }
    const model::PassResult result = model_.forward({.rows = rows_,
                                                     .logit_rows = logit_rows_,
                                                     .hidden_layers = {},
                                                     .mask = model::Mask::causal,
                                                     .summary = summary,
                                                     .summary_vocab = vocab_});
    return {result.logits, result.logits_stride, static_cast<std::size_t>(vocab_), result.summaries};
}

} // namespace entrodraft::spec
