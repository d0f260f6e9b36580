// The pre_tokenizer of a tokenizer.json: it cuts normalized text into words, which the model encodes one by one. Steps
// run in order, each on the pieces of the previous one. Unknown steps are refused by name. Called by tokenizer.
#pragma once

#include <nlohmann/json.hpp>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/text/tokenizer/regex.h"

namespace entrodraft::model {

// A text and its pieces, which are not empty and lie in order without overlap.
struct Pieces {
    std::string text;
    std::vector<Span> spans;
    bool at_begin = true; // the first piece begins where the whole text, as given, begins
};

enum class PrependScheme { always, first, never };

// The scheme of a Metaspace, as pre_tokenizer or decoder. Old files have add_prefix_space, new ones prepend_scheme;
// where both are there, they must agree. Throws BadFile.
PrependScheme prepend_scheme_from_json(const nlohmann::json& json, const std::string& what);

using PreTokenizerStep = std::function<void(Pieces&)>;

class PreTokenizer {
  public:
    // Reads the file's "pre_tokenizer" (null: the text is one word). Throws BadFile naming an unsupported part.
    static PreTokenizer from_json(const nlohmann::json& pre_tokenizer,
                                  const std::shared_ptr<const CharClasses>& classes);

    static PreTokenizer of_step(PreTokenizerStep step);

    // Returns whether the words are plain bytes, to be read in the byte-level alphabet: if ByteLevel is the last step.
    bool gives_bytes() const { return gives_bytes_; }
    // Returns the words of valid UTF-8. `at_begin`: it begins where the whole text, as given, begins.
    Pieces split(std::string_view text, bool at_begin) const;

  private:
    std::vector<PreTokenizerStep> steps_;
    bool gives_bytes_ = false;
};

} // namespace entrodraft::model
