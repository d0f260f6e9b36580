// The word patterns of GPT-2, LLaMA-3 and Qwen2, written by hand: one pass over the text, without backtracking. The
// words equal those of the regex engine for the same patterns (this is tested), and are found much faster. Called by
// pre_tokenizer.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "model/text/tokenizer/regex.h"

namespace entrodraft::model {

enum class WordPattern { gpt2, llama3, qwen2 };

// Returns the pattern as a regular expression, as it is in the files.
std::string_view expression_of(WordPattern pattern);

// Returns the known pattern with exactly this text, if any.
std::optional<WordPattern> known_pattern(std::string_view expression);

// Appends the words of text[span], which they cover without a gap. Takes valid UTF-8. Linear in its length.
void split_words(WordPattern pattern, const CharClasses& classes, std::string_view text, Span span,
                 std::vector<Span>& words);

} // namespace entrodraft::model
