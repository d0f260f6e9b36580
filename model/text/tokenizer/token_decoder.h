// The decoder of a tokenizer.json: it turns the tokens' strings back into text. It works token by token and returns
// only whole characters. So decoding a whole sequence and decoding a growing one give the same text. Components that
// are not among the steps below (BPEDecoder, WordPiece, CTC) are refused by name. Called by tokenizer.
#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/text/tokenizer/normalizer.h"

namespace entrodraft::model {

struct JoinTokens {}; // if the file has no decoder: a space between tokens
struct ReplaceInTokens {
    Pattern pattern;
    std::string content;
};
struct StripTokens { // up to a number of `character`s at a token's ends
    std::string character;
    std::size_t begin = 0;
    std::size_t end = 0;
};
struct MetaspaceTokens { // a replacement becomes a space, or nothing in the first token
    std::string replacement;
    bool drops_first = true;
};
struct ByteFallbackTokens {}; // a run of <0xNN> is a character, or one U+FFFD for each
struct FuseTokens {};         // all tokens become one
struct ByteLevelTokens {};    // the same, from the byte-level alphabet; invalid UTF-8 becomes U+FFFD
using DecoderStep = std::variant<JoinTokens, ReplaceInTokens, StripTokens, MetaspaceTokens, ByteFallbackTokens,
                                 FuseTokens, ByteLevelTokens>;

class TokenDecoder {
  public:
    // Reads the file's "decoder" (null: JoinTokens). Throws BadFile naming an unsupported part.
    static TokenDecoder from_json(const nlohmann::json& decoder);

    // Returns a token's string before the first step that looks beyond the token. TokenStream takes it in this form.
    std::string prepare(std::string_view token) const;
    // Returns the bytes that a prepared token means in the middle of a text.
    std::string bytes_of(std::string_view prepared) const;

  private:
    friend class TokenStream;

    std::vector<DecoderStep> steps_;
    std::size_t n_prepared_ = 0;  // steps that prepare() has done
    bool prepares_bytes_ = false; // the next step is ByteLevel, and gets bytes
};

// One sequence on its way through a decoder, which outlives it.
class TokenStream {
  public:
    explicit TokenStream(const TokenDecoder& decoder);

    // Appends to `text` the part that is certain after one more prepared token.
    void push(std::string_view prepared, std::string& text);
    // Appends the rest; then the stream is as new.
    void finish(std::string& text);

  private:
    struct State {
        std::string token;        // for a step that needs whole tokens: the part of one so far
        std::string held;         // bytes or characters that wait for the next ones
        std::size_t n_cut = 0;    // StripTokens: characters cut at the token's beginning
        bool past_begin = false;  // StripTokens: a character that stays has passed
        bool after_first = false; // a token has passed
    };

    // Passes a piece of a token to step `i`; `ends`: this piece completes the token.
    void feed(std::size_t i, std::string_view piece, bool ends, std::string& text);
    static std::string stripped(const StripTokens& step, std::string_view piece, bool ends, State& state);
    void release_bytes(std::size_t i, std::string& text);

    const TokenDecoder* decoder_;
    std::vector<State> states_; // of each step
};

} // namespace entrodraft::model
