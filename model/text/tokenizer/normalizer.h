// The normalizer of a tokenizer.json: it changes text before the text is cut into words. Unknown steps are refused by
// name. Called by tokenizer.
#pragma once

#include <nlohmann/json.hpp>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/text/tokenizer/regex.h"

namespace entrodraft::model {

// The text to find: a plain string, or a regular expression.
using Pattern = std::variant<std::string, Regex>;

// Reads {"String": ...} or {"Regex": ...}; refuses the empty string. Throws BadFile with `what`.
Pattern pattern_from_json(const nlohmann::json& pattern, const std::string& what);
// Returns all its matches, left to right, not overlapping.
std::vector<Span> find_all(const Pattern& pattern, std::string_view text);
// Returns the text with `content` in place of each match.
std::string replaced(std::string_view text, const std::vector<Span>& matches, std::string_view content);

struct NormalizedText {
    std::string text;
    bool keeps_begin = true; // its first character comes from the first one of the given text
    bool at_begin = true;    // of the whole text, not of text after a special token
};

using NormalizerStep = std::function<void(NormalizedText&)>;

class Normalizer {
  public:
    // Reads the file's "normalizer" (null: none). Throws BadFile naming an unsupported part.
    static Normalizer from_json(const nlohmann::json& normalizer, const std::shared_ptr<const CharClasses>& classes);
    static Normalizer of_step(NormalizerStep step);

    bool changes_nothing() const { return steps_.empty(); }
    // Takes valid UTF-8. Linear, except for the file's regular expressions, and n log n for normal forms.
    NormalizedText normalize(std::string_view text, bool at_begin = true) const;

  private:
    std::vector<NormalizerStep> steps_;
};

} // namespace entrodraft::model
