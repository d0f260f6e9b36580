// The pre_tokenizer of a tokenizer.json: cuts normalized text into words, which the model encodes one by one. Steps
// run in order, each on the pieces of the one before. A component that is not among the steps below is refused by
// name. Called by tokenizer.
#pragma once

#include <nlohmann/json.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/regex.h"
#include "model/tokenizer/word_splitter.h"

namespace entrodraft::model {

// Text and its pieces, which are not empty and lie in order without overlap.
struct Pieces {
    std::string text;
    std::vector<Span> spans;
    bool at_begin = true; // the first piece begins where the whole text, as it was given, begins
};

enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

struct ByteLevelStep {
    bool add_prefix_space = true;
    bool use_regex = true; // cut by GPT-2's pattern
};

struct ClassPattern { // one character of these CharClasses
    unsigned classes = 0;
};
struct WordRunPattern {}; // \w+|[^\w\s]+

// Split, and what comes down to it: Digits, Punctuation, Whitespace, WhitespaceSplit, CharDelimiterSplit.
struct SplitStep {
    std::variant<Pattern, WordPattern, ClassPattern, WordRunPattern> pattern;
    SplitBehavior behavior = SplitBehavior::isolated;
    bool invert = false; // what the pattern does not match is the match
};

enum class PrependScheme { always, first, never };

struct MetaspaceStep {
    std::string replacement; // of a space; one character
    PrependScheme prepend = PrependScheme::always;
    bool split = true; // before each replacement
};

using PreTokenizerStep = std::variant<ByteLevelStep, SplitStep, MetaspaceStep>;

// Of a Metaspace, as pre_tokenizer or decoder: old files say add_prefix_space, new ones prepend_scheme; where both
// stand, they must agree. Throws BadFile. Local.
PrependScheme prepend_scheme_from_json(const nlohmann::json& json, const std::string& what);

class PreTokenizer {
  public:
    // From the file's "pre_tokenizer" (null: the text is one word). Throws BadFile naming what is not supported. Local.
    static PreTokenizer from_json(const nlohmann::json& pre_tokenizer, std::shared_ptr<const CharClasses> classes);

    // Whether the words are plain bytes, to be read in the byte-level alphabet: where ByteLevel is the last step.
    bool gives_bytes() const;
    // The words of valid UTF-8. `at_begin`: it begins where the whole text, as it was given, begins. Local.
    Pieces split(std::string_view text, bool at_begin) const;

  private:
    void add(const nlohmann::json& step, int depth);
    void apply(const ByteLevelStep& step, Pieces& pieces) const;
    void apply(const SplitStep& step, Pieces& pieces) const;
    void apply(const MetaspaceStep& step, Pieces& pieces) const;
    std::vector<Span> matches_of(const SplitStep& step, std::string_view text) const;

    std::vector<PreTokenizerStep> steps_;
    std::shared_ptr<const CharClasses> classes_;
};

} // namespace entrodraft::model
