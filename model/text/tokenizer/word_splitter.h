// The word patterns of GPT-2, LLaMA-3 and Qwen2, written out by hand: one pass over the text, no backtracking.
// Equal to what the regex engine finds for the same patterns (tested), and much faster. Called by pre_tokenizer.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "model/text/tokenizer/regex.h"

namespace entrodraft::model {

enum class WordPattern { gpt2, llama3, qwen2 };

// The pattern as a regular expression, as it is in the files.
std::string_view expression_of(WordPattern pattern);

// The known pattern that reads exactly so, if any.
std::optional<WordPattern> known_pattern(std::string_view expression);

// Appends the words of text[span], which they cover without a gap. Valid UTF-8. Linear in its length.
void split_words(WordPattern pattern, const CharClasses& classes, std::string_view text, Span span,
                 std::vector<Span>& words);

} // namespace entrodraft::model
