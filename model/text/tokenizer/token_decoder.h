// The decoder of a tokenizer.json: how the tokens' strings become text again. Works token by token and hands out
// whole characters only, so that decoding at once and decoding a growing sequence are one and the same. Components
// that are not among the steps below (BPEDecoder, WordPiece, CTC) are refused by name. Called by tokenizer.
#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/text/tokenizer/normalizer.h"

namespace entrodraft::model {

struct JoinTokens {}; // where the file has no decoder: a space between tokens
struct ReplaceInTokens {
    Pattern pattern;
    std::string content;
};
struct StripTokens { // up to so many `character`s at a token's ends
    std::string character;
    std::size_t begin = 0;
    std::size_t end = 0;
};
struct MetaspaceTokens { // a replacement is a space, or nothing in the first token
    std::string replacement;
    bool drops_first = true;
};
struct ByteFallbackTokens {}; // a run of <0xNN> is a character, or one U+FFFD for each
struct FuseTokens {};         // all tokens become one
struct ByteLevelTokens {};    // the same, out of the byte-level alphabet; invalid UTF-8 becomes U+FFFD
using DecoderStep = std::variant<JoinTokens, ReplaceInTokens, StripTokens, MetaspaceTokens, ByteFallbackTokens,
                                 FuseTokens, ByteLevelTokens>;

class TokenDecoder {
  public:
    // From the file's "decoder" (null: JoinTokens). Throws BadFile naming what is not supported.
    static TokenDecoder from_json(const nlohmann::json& decoder);

    // What a token's string is before the first step that looks beyond it: the form in which TokenStream takes it.
    std::string prepare(std::string_view token) const;
    // The bytes that a prepared token stands for in the midst of a text.
    std::string bytes_of(std::string_view prepared) const;

  private:
    friend class TokenStream;

    std::vector<DecoderStep> steps_;
    std::size_t n_prepared_ = 0;  // steps that prepare() has done
    bool prepares_bytes_ = false; // and that ByteLevel, which is next, finds bytes
};

// One sequence on its way through a decoder, which outlives it.
class TokenStream {
  public:
    explicit TokenStream(const TokenDecoder& decoder);

    // Appends to `text` what becomes certain with one more prepared token.
    void push(std::string_view prepared, std::string& text);
    // Appends the rest and is as new.
    void finish(std::string& text);

  private:
    struct State {
        std::string token;        // a step that needs whole tokens: what there is of one
        std::string held;         // bytes or characters that wait for what follows
        std::size_t n_cut = 0;    // StripTokens: characters cut at the token's beginning
        bool past_begin = false;  // StripTokens: something that stays has passed
        bool after_first = false; // a token has passed
    };

    // A piece of a token comes to step `i`; `ends`: the token is complete with it.
    void feed(std::size_t i, std::string_view piece, bool ends, std::string& text);
    static std::string stripped(const StripTokens& step, std::string_view piece, bool ends, State& state);
    void release_bytes(std::size_t i, std::string& text);

    const TokenDecoder* decoder_;
    std::vector<State> states_; // of each step
};

} // namespace entrodraft::model
