// See token_decoder.h. Each step gives pieces of tokens to the next; the last step's pieces are the text.
#include "model/text/tokenizer/token_decoder.h"

#include <utility>

#include "model/files/utf8.h"
#include "model/text/tokenizer/byte_level.h"
#include "model/text/tokenizer/pre_tokenizer.h"
#include "model/text/tokenizer/tokenizer_json.h"

namespace entrodraft::model {
namespace {

constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";
constexpr std::uint64_t kMaxStripped = 1'000'000;

std::size_t count_field(const nlohmann::json& object, const char* name, const std::string& what) {
    const nlohmann::json& value = field(object, name);
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kMaxStripped) {
        throw BadFile(what + ": '" + name + "' is missing or not a count");
    }
    return value.get<std::size_t>();
}

std::string replaced_in(std::string_view token, const Pattern& pattern, std::string_view content) {
    return token.empty() ? std::string() : replaced(token, find_all(pattern, token), content);
}

bool needs_whole_tokens(const DecoderStep& step) {
    return std::holds_alternative<ReplaceInTokens>(step) || std::holds_alternative<ByteFallbackTokens>(step) ||
           std::holds_alternative<ByteLevelTokens>(step);
}

DecoderStep decoder_step(const ComponentStep& step) {
    const auto& [fields, type, what] = step;
    if (type == "ByteLevel") return ByteLevelTokens{};
    if (type == "ByteFallback") return ByteFallbackTokens{};
    if (type == "Fuse") return FuseTokens{};
    if (type == "Replace")
        return ReplaceInTokens{pattern_from_json(object_field(fields, "pattern", what), what + ": the pattern"),
                               inserted_field(fields, "content", what)};
    if (type == "Strip")
        return StripTokens{character_field(fields, "content", what), count_field(fields, "start", what),
                           count_field(fields, "stop", what)};
    if (type == "Metaspace")
        return MetaspaceTokens{character_field(fields, "replacement", what),
                               prepend_scheme_from_json(fields, what) != PrependScheme::never};
    throw_unsupported("decoder", type);
}

template <typename... Functions> struct Overloaded : Functions... { using Functions::operator()...; };
template <typename... Functions> Overloaded(Functions...) -> Overloaded<Functions...>;

} // namespace

TokenDecoder TokenDecoder::from_json(const nlohmann::json& decoder) {
    TokenDecoder result;
    auto& steps = result.steps_;
    for (const ComponentStep& step : steps_of(decoder, "decoder", "decoders"))
        steps.push_back(decoder_step(step));
    if (decoder.is_null()) steps.emplace_back(JoinTokens{});
    while (result.n_prepared_ < steps.size() && std::holds_alternative<ReplaceInTokens>(steps[result.n_prepared_]))
        ++result.n_prepared_;
    result.prepares_bytes_ =
        result.n_prepared_ < steps.size() && std::holds_alternative<ByteLevelTokens>(steps[result.n_prepared_]);
    return result;
}

std::string TokenDecoder::prepare(std::string_view token) const {
    std::string prepared(token);
    for (std::size_t i = 0; i < n_prepared_; ++i) {
        const auto& step = std::get<ReplaceInTokens>(steps_[i]);
        prepared = replaced_in(prepared, step.pattern, step.content);
    }
    // As in the reference: in the byte-level alphabet if every character is in it, else unchanged.
    return prepares_bytes_ ? from_byte_level(prepared).value_or(prepared) : prepared;
}

std::string TokenDecoder::bytes_of(std::string_view prepared) const {
    for (std::size_t i = n_prepared_; i < steps_.size() && !prepares_bytes_; ++i) {
        if (std::holds_alternative<ByteFallbackTokens>(steps_[i])) {
            if (const auto byte = byte_of_token(prepared)) return {static_cast<char>(*byte)};
        } else if (const auto* metaspace = std::get_if<MetaspaceTokens>(&steps_[i])) {
            return replaced_in(prepared, metaspace->replacement, " ");
        }
    }
    return std::string(prepared);
}

TokenStream::TokenStream(const TokenDecoder& decoder) : decoder_(&decoder), states_(decoder.steps_.size()) {}

void TokenStream::push(std::string_view prepared, std::string& text) {
    feed(decoder_->n_prepared_, prepared, true, text);
}

void TokenStream::finish(std::string& text) {
    for (std::size_t i = decoder_->n_prepared_; i < states_.size(); ++i) {
        const DecoderStep& step = decoder_->steps_[i];
        if (std::holds_alternative<ByteFallbackTokens>(step)) {
            release_bytes(i, text);
        } else if (std::holds_alternative<FuseTokens>(step)) {
            feed(i + 1, "", true, text);
        } else if (std::holds_alternative<ByteLevelTokens>(step)) {
            std::string rest;
            append_lossy(states_[i].held, true, rest);
            feed(i + 1, rest, true, text);
        }
        states_[i] = State{};
    }
}

void TokenStream::feed(std::size_t i, std::string_view piece, bool ends, std::string& text) {
    if (i == states_.size()) {
        text += piece;
        return;
    }
    const DecoderStep& step = decoder_->steps_[i];
    State& state = states_[i];
    std::string whole;
    if (needs_whole_tokens(step)) {
        if (!ends || !state.token.empty()) state.token += piece;
        if (!ends) return;
        whole.swap(state.token);
        if (!whole.empty()) piece = whole;
    }
    const auto pass_on = [&](std::string_view out, bool out_ends) { feed(i + 1, out, out_ends, text); };
    const Overloaded take = {
        [&](const JoinTokens&) {
            if (state.after_first) pass_on(" ", true);
            pass_on(piece, ends);
        },
        [&](const ReplaceInTokens& in) { pass_on(replaced_in(piece, in.pattern, in.content), ends); },
        [&](const StripTokens& characters) { pass_on(stripped(characters, piece, ends, state), ends); },
        [&](const MetaspaceTokens& metaspace) {
            const bool drops = metaspace.drops_first && !state.after_first;
            pass_on(replaced_in(piece, metaspace.replacement, drops ? "" : " "), ends);
        },
        [&](const ByteFallbackTokens&) {
            if (const auto byte = byte_of_token(piece)) return state.held.push_back(static_cast<char>(*byte));
            release_bytes(i, text);
            pass_on(piece, ends);
        },
        [&](const FuseTokens&) { pass_on(piece, false); },
        [&](const ByteLevelTokens&) {
            const bool has_bytes = decoder_->prepares_bytes_ && i == decoder_->n_prepared_;
            state.held += has_bytes ? std::string(piece) : from_byte_level(piece).value_or(std::string(piece));
            std::string certain;
            state.held.erase(0, append_lossy(state.held, false, certain));
            pass_on(certain, false);
        },
    };
    std::visit(take, step);
    if (ends) state.after_first = true;
}

// Returns the rest of a piece, and of the characters held from the previous token.
std::string TokenStream::stripped(const StripTokens& step, std::string_view piece, bool ends, State& state) {
    std::string kept;
    for (std::size_t at = 0; at < piece.size();) {
        const std::string_view character = piece.substr(at, code_point_at(piece, at).n_bytes);
        at += character.size();
        const bool is_meant = character == step.character;
        if (is_meant && !state.past_begin && state.n_cut < step.begin) {
            ++state.n_cut;
            continue;
        }
        state.past_begin = true;
        if (is_meant && step.end > 0) {
            state.held += character;
            if (state.held.size() <= step.end * character.size()) continue;
            state.held.resize(step.end * character.size());
        } else {
            kept += state.held;
            state.held.clear();
        }
        kept += character;
    }
    if (ends) {
        state.held.clear();
        state.n_cut = 0;
        state.past_begin = false;
    }
    return kept;
}

// Releases the run of bytes as one token, or, if it is not UTF-8, as a token U+FFFD for each byte.
void TokenStream::release_bytes(std::size_t i, std::string& text) {
    const std::string bytes = std::exchange(states_[i].held, {});
    if (bytes.empty()) return;
    if (first_invalid_utf8(bytes) == std::string_view::npos) return feed(i + 1, bytes, true, text);
    for (std::size_t n = 0; n < bytes.size(); ++n)
        feed(i + 1, kReplacementCharacter, true, text);
}

} // namespace entrodraft::model
