// Whether one checkpoint can draft for another: the same reasons where a pair is run and where it is only looked at.
//
// Called by opened_model and inspect.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace entrodraft::launch {

// What a pair must have in common.
struct Vocabulary {
    std::string name;                         // as messages call the model: "--target DIR"
    std::optional<std::uint64_t> fingerprint; // of the tokenizer; none: the model has no tokenizer
    int n_tokens = 0;                         // of the tokenizer
    int n_rows = 0;                           // of the model's logits
};

// Why it cannot, in one line; nothing where it can. Logits may be wider than the tokenizer, each model's own way.
// Local.
std::optional<std::string> why_no_pair(const Vocabulary& target, const Vocabulary& draft);

// What why_no_pair() could not look at, in one line: the tokens themselves, where a tokenizer is missing; empty where
// it looked at everything. Local.
std::string not_compared(const Vocabulary& target, const Vocabulary& draft);

} // namespace entrodraft::launch
