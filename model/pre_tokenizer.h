// The pre_tokenizer of a tokenizer.json: cuts normalized text into words, within which BPE merges. Steps run in
// order, each on the pieces of the one before. Exactly one must be ByteLevel, since the model is byte-level BPE.
// Others are refused by name. Called by tokenizer.
#pragma once

#include <nlohmann/json.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "entrodraft/model/regex.h"
#include "entrodraft/model/word_splitter.h"

namespace entrodraft::model {

// Text and its pieces, which are not empty and lie in order without overlap.
struct Pieces {
    std::string text;
    std::vector<Span> spans;
};

enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

struct ByteLevelStep {
    bool add_prefix_space = true;
    bool use_regex = true; // cut by GPT-2's pattern
};

struct SplitStep {
    std::variant<std::string, WordPattern, Regex> pattern; // a string stands for itself
    SplitBehavior behavior = SplitBehavior::isolated;
    bool invert = false; // what the pattern does not match is the match
};

struct DigitsStep {
    bool individual = false;
};

using PreTokenizerStep = std::variant<ByteLevelStep, SplitStep, DigitsStep>;

class PreTokenizer {
  public:
    // From the file's "pre_tokenizer". Throws BadFile naming what is not supported. Local.
    static PreTokenizer from_json(const nlohmann::json& pre_tokenizer, std::shared_ptr<const CharClasses> classes);

    // The words of valid UTF-8, as plain bytes: the byte-level alphabet appears only between steps. Local.
    Pieces split(std::string_view text) const;

  private:
    void add(const nlohmann::json& step, int depth);
    void apply(const ByteLevelStep& step, Pieces& pieces) const;
    void apply(const SplitStep& step, Pieces& pieces) const;
    void apply(const DigitsStep& step, Pieces& pieces) const;

    std::vector<PreTokenizerStep> steps_;
    std::shared_ptr<const CharClasses> classes_;
};

} // namespace entrodraft::model
