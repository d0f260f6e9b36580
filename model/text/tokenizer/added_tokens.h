// The added_tokens of a tokenizer.json: strings that become one token wherever they are, before any other rule. Tokens
// with normalized = false are searched in the given text, the others in the normalized text. Called by tokenizer.
#pragma once

#include <nlohmann/json.hpp>

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/text/token_id.h"
#include "model/text/tokenizer/byte_trie.h"
#include "model/text/tokenizer/regex.h"

namespace entrodraft::model {

struct AddedToken {
    TokenId id = 0;
    std::string content;
    bool single_word = false; // not next to a letter, digit, mark or underscore
    bool lstrip = false;      // takes the white space before it
    bool rstrip = false;      // takes the white space after it
    bool normalized = false;
    bool special = false;
};

// Reads the file's "added_tokens" (null: none). Throws BadFile.
std::vector<AddedToken> added_tokens_from_json(const nlohmann::json& added_tokens);

// A piece of text: one added token, or text between them.
struct TextPart {
    Span span;
    TokenId id = -1; // -1: text
};

// Finds a set of added tokens in text: leftmost first; at the same place, the longest one.
class AddedTokenFinder {
  public:
    // `needles[i]` is the text to search in place of tokens[i].
    AddedTokenFinder(std::vector<AddedToken> tokens, const std::vector<std::string>& needles,
                     std::shared_ptr<const CharClasses> classes);
    // Cuts `text` into segments; text segments are not empty. Linear in the text for a given set.
    std::vector<TextPart> split(std::string_view text) const;

  private:
    struct Found {
        const AddedToken* token = nullptr;
        std::size_t n_bytes = 0;
    };
    Found longest_at(std::string_view text, std::size_t position) const;
    bool stands_alone(std::string_view text, Span span) const;

    std::vector<AddedToken> tokens_;
    ByteTrie needles_;               // to indices of tokens_
    std::array<bool, 256> begins_{}; // first bytes of needles
    std::shared_ptr<const CharClasses> classes_;
};

} // namespace entrodraft::model
