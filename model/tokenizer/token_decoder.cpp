// See token_decoder.h. Each step hands pieces of tokens to the next; the last one's are the text.
#include "model/tokenizer/token_decoder.h"

#include <utility>

#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/pre_tokenizer.h"
#include "model/tokenizer/tokenizer_json.h"
#include "model/utf8.h"

namespace entrodraft::model {
namespace {

constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";
constexpr std::uint64_t kMaxStripped = 1'000'000;

std::size_t count_field(const nlohmann::json& object, const char* name, const std::string& what) {
    const nlohmann::json& value = field(object, name);
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kMaxStripped) {
        throw BadFile(what + ": '" + name + "' is missing or no count");
    }
    return value.get<std::size_t>();
}

std::string replaced(const ReplaceInTokens& step, std::string_view token) {
    std::string out;
    std::size_t end = 0;
    if (!token.empty()) {
        for (const Span& match : find_all(step.pattern, token)) {
            out.append(token.substr(end, match.begin - end)).append(step.content);
            end = match.end;
        }
    }
    return out.append(token.substr(end));
}

bool needs_whole_tokens(const DecoderStep& step) {
    return std::holds_alternative<ReplaceInTokens>(step) || std::holds_alternative<ByteFallbackTokens>(step) ||
           std::holds_alternative<ByteLevelTokens>(step);
}

} // namespace

TokenDecoder TokenDecoder::from_json(const nlohmann::json& decoder) {
    TokenDecoder result;
    if (decoder.is_null()) {
        result.steps_.emplace_back(JoinTokens{});
        return result;
    }
    result.add(decoder, 0);
    const auto& steps = result.steps_;
    while (result.n_prepared_ < steps.size() && std::holds_alternative<ReplaceInTokens>(steps[result.n_prepared_]))
        ++result.n_prepared_;
    result.prepares_bytes_ =
        result.n_prepared_ < steps.size() && std::holds_alternative<ByteLevelTokens>(steps[result.n_prepared_]);
    return result;
}

void TokenDecoder::add(const nlohmann::json& step, int depth) {
    const std::string& type = component_type(step, "decoder", depth);
    const std::string what = "decoder " + type;
    check_steps(steps_.size(), "decoder");
    if (type == "ByteLevel") {
        steps_.emplace_back(ByteLevelTokens{});
    } else if (type == "Replace") {
        steps_.emplace_back(
            ReplaceInTokens{pattern_from_json(object_field(step, "pattern", what), what + ": the pattern"),
                            inserted_field(step, "content", what)});
    } else if (type == "ByteFallback") {
        steps_.emplace_back(ByteFallbackTokens{});
    } else if (type == "Fuse") {
        steps_.emplace_back(FuseTokens{});
    } else if (type == "Strip") {
        steps_.emplace_back(StripTokens{character_field(step, "content", what), count_field(step, "start", what),
                                        count_field(step, "stop", what)});
    } else if (type == "Metaspace") {
        steps_.emplace_back(MetaspaceTokens{character_field(step, "replacement", what),
                                            prepend_scheme_from_json(step, what) != PrependScheme::never});
    } else if (type == "Sequence") {
        for (const auto& part : array_field(step, "decoders", what))
            add(part, depth + 1);
    } else {
        throw_unsupported("decoder", type);
    }
}

std::string TokenDecoder::prepare(std::string_view token) const {
    std::string prepared(token);
    for (std::size_t i = 0; i < n_prepared_; ++i)
        prepared = replaced(std::get<ReplaceInTokens>(steps_[i]), prepared);
    // As the reference: in the byte-level alphabet where every character is of it, else as it is.
    return prepares_bytes_ ? from_byte_level(prepared).value_or(prepared) : prepared;
}

std::string TokenDecoder::bytes_of(std::string_view prepared) const {
    for (std::size_t i = n_prepared_; i < steps_.size() && !prepares_bytes_; ++i) {
        if (std::holds_alternative<ByteFallbackTokens>(steps_[i])) {
            if (const auto byte = byte_of_token(prepared)) return {static_cast<char>(*byte)};
        } else if (const auto* metaspace = std::get_if<MetaspaceTokens>(&steps_[i])) {
            return replaced({metaspace->replacement, " "}, prepared);
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
    std::visit([&](const auto& s) { take(s, i, piece, ends, text); }, step);
    if (ends) state.after_first = true;
}

void TokenStream::take(const JoinTokens& /*step*/, std::size_t i, std::string_view piece, bool ends,
                       std::string& text) {
    if (states_[i].after_first) feed(i + 1, " ", true, text);
    feed(i + 1, piece, ends, text);
}

void TokenStream::take(const ReplaceInTokens& step, std::size_t i, std::string_view token, bool ends,
                       std::string& text) {
    feed(i + 1, replaced(step, token), ends, text);
}

void TokenStream::take(const StripTokens& step, std::size_t i, std::string_view piece, bool ends, std::string& text) {
    State& state = states_[i];
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
    feed(i + 1, kept, ends, text);
}

void TokenStream::take(const MetaspaceTokens& step, std::size_t i, std::string_view piece, bool ends,
                       std::string& text) {
    const bool drops = step.drops_first && !states_[i].after_first;
    feed(i + 1, replaced({step.replacement, drops ? "" : " "}, piece), ends, text);
}

void TokenStream::take(const ByteFallbackTokens& /*step*/, std::size_t i, std::string_view token, bool ends,
                       std::string& text) {
    if (const auto byte = byte_of_token(token)) {
        states_[i].held.push_back(static_cast<char>(*byte));
        return;
    }
    release_bytes(i, text);
    feed(i + 1, token, ends, text);
}

// The run of bytes as one token, or where it is no UTF-8, as a token U+FFFD for each byte.
void TokenStream::release_bytes(std::size_t i, std::string& text) {
    const std::string bytes = std::exchange(states_[i].held, {});
    if (bytes.empty()) return;
    if (first_invalid_utf8(bytes) == std::string_view::npos) return feed(i + 1, bytes, true, text);
    for (std::size_t n = 0; n < bytes.size(); ++n)
        feed(i + 1, kReplacementCharacter, true, text);
}

void TokenStream::take(const FuseTokens& /*step*/, std::size_t i, std::string_view piece, bool /*ends*/,
                       std::string& text) {
    feed(i + 1, piece, false, text);
}

void TokenStream::take(const ByteLevelTokens& /*step*/, std::size_t i, std::string_view token, bool /*ends*/,
                       std::string& text) {
    State& state = states_[i];
    const bool has_bytes = decoder_->prepares_bytes_ && i == decoder_->n_prepared_;
    state.held += has_bytes ? std::string(token) : from_byte_level(token).value_or(std::string(token));
    std::string whole;
    state.held.erase(0, append_lossy(state.held, false, whole));
    feed(i + 1, whole, false, text);
}

} // namespace entrodraft::model
