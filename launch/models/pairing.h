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
    std::string name;              // as messages call the model: "--target DIR"
    std::uint64_t fingerprint = 0; // of the tokenizer
    int n_tokens = 0;              // of the tokenizer
    int n_rows = 0;                // of the model's logits
};

// Why it cannot, in one line; nothing where it can. Logits may be wider than the tokenizer, each model's own way.
// Local.
std::optional<std::string> why_no_pair(const Vocabulary& target, const Vocabulary& draft);

} // namespace entrodraft::launch
