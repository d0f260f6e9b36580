// The normalizer of a tokenizer.json: what is done to text before it is cut into words. A component that is not among
// the steps below is refused by name. Called by tokenizer.
#pragma once

#include <nlohmann/json.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/tokenizer/normal_form.h"
#include "model/tokenizer/precompiled_map.h"
#include "model/tokenizer/regex.h"

namespace entrodraft::model {

// What to look for: a string as it is, or a regular expression.
using Pattern = std::variant<std::string, Regex>;

// From {"String": ...} or {"Regex": ...}; refuses the empty string. Throws BadFile with `what`. Local.
Pattern pattern_from_json(const nlohmann::json& pattern, const std::string& what);
// All its matches, left to right, not overlapping. Local.
std::vector<Span> find_all(const Pattern& pattern, std::string_view text);

struct NormalFormStep {
    NormalForm form = NormalForm::nfc;
};
struct LowercaseStep {};
struct StripStep { // white space at the ends
    bool left = true;
    bool right = true;
};
struct StripAccentsStep {}; // drops all marks
struct PrependStep {        // before any text that is not empty
    std::string text;
};
struct ReplaceStep {
    Pattern pattern;
    std::string content;
};
struct PrecompiledStep {
    std::shared_ptr<const PrecompiledMap> map;
};
struct NmtStep {};                 // drops control characters, makes odd spaces plain ones
struct ByteLevelNormalizerStep {}; // writes all bytes in the byte-level alphabet
using NormalizerStep = std::variant<NormalFormStep, LowercaseStep, StripStep, StripAccentsStep, PrependStep,
                                    ReplaceStep, PrecompiledStep, NmtStep, ByteLevelNormalizerStep>;

struct NormalizedText {
    std::string text;
    bool keeps_begin = true; // its first character comes from the first one of the text that was given
};

class Normalizer {
  public:
    // From the file's "normalizer" (null: none). Throws BadFile naming what is not supported. Local.
    static Normalizer from_json(const nlohmann::json& normalizer, std::shared_ptr<const CharClasses> classes);

    bool changes_nothing() const { return steps_.empty(); }
    // Of valid UTF-8. Linear but for the regular expressions of the file and n log n for normal forms. Local.
    NormalizedText normalize(std::string_view text) const;

  private:
    void add(const nlohmann::json& step, int depth);
    void apply(const NormalFormStep& step, NormalizedText& text) const;
    void apply(const LowercaseStep& step, NormalizedText& text) const;
    void apply(const StripStep& step, NormalizedText& text) const;
    void apply(const StripAccentsStep& step, NormalizedText& text) const;
    void apply(const PrependStep& step, NormalizedText& text) const;
    void apply(const ReplaceStep& step, NormalizedText& text) const;
    void apply(const PrecompiledStep& step, NormalizedText& text) const;
    void apply(const NmtStep& step, NormalizedText& text) const;
    void apply(const ByteLevelNormalizerStep& step, NormalizedText& text) const;

    std::vector<NormalizerStep> steps_;
    std::shared_ptr<const CharClasses> classes_;
};

} // namespace entrodraft::model
