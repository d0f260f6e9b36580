// See added_tokens.h. The set is a trie over bytes, walked from each byte that can begin a token.
#include "entrodraft/model/added_tokens.h"

#include <algorithm>
#include <utility>

#include "entrodraft/model/tokenizer_json.h"
#include "entrodraft/model/utf8.h"

namespace entrodraft::model {

std::vector<AddedToken> added_tokens_from_json(const nlohmann::json& added_tokens) {
    std::vector<AddedToken> tokens;
    if (added_tokens.is_null()) return tokens;
    if (!added_tokens.is_array()) throw BadFile("'added_tokens' is not a list");
    for (const auto& json : added_tokens) {
        if (!json.is_object()) throw BadFile("added_tokens: an entry is not an object");
        AddedToken token;
        token.content = string_field(json, "content", "added_tokens");
        const std::string what = "added token '" + token.content + "'";
        if (token.content.empty()) throw BadFile("added_tokens: an entry has empty content");
        token.id = token_id(field(json, "id"), what);
        token.special = bool_field(json, "special", false, what);
        token.normalized = bool_field(json, "normalized", !token.special, what);
        token.single_word = bool_field(json, "single_word", false, what);
        token.lstrip = bool_field(json, "lstrip", false, what);
        token.rstrip = bool_field(json, "rstrip", false, what);
        tokens.push_back(std::move(token));
    }
    return tokens;
}

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens, const std::vector<std::string>& needles,
                                   std::shared_ptr<const CharClasses> classes)
    : tokens_(std::move(tokens)), token_at_{-1}, classes_(std::move(classes)) {
    for (std::size_t i = 0; i < needles.size(); ++i) {
        if (!needles[i].empty()) insert(needles[i], static_cast<std::int32_t>(i));
    }
}

void AddedTokenFinder::insert(std::string_view needle, std::int32_t token) {
    begins_[static_cast<unsigned char>(needle.front())] = true;
    std::int32_t node = 0;
    for (const char byte : needle) {
        const std::uint64_t edge = (static_cast<std::uint64_t>(node) << 8) | static_cast<unsigned char>(byte);
        const auto [child, is_new] = children_.try_emplace(edge, static_cast<std::int32_t>(token_at_.size()));
        if (is_new) token_at_.push_back(-1);
        node = child->second;
    }
    std::int32_t& at = token_at_[static_cast<std::size_t>(node)];
    if (at < 0) at = token; // of two that normalize to the same text the first counts
}

AddedTokenFinder::Found AddedTokenFinder::longest_at(std::string_view text, std::size_t position) const {
    Found found;
    std::int32_t node = 0;
    for (std::size_t i = position; i < text.size(); ++i) {
        const std::uint64_t edge = (static_cast<std::uint64_t>(node) << 8) | static_cast<unsigned char>(text[i]);
        const auto child = children_.find(edge);
        if (child == children_.end()) break;
        node = child->second;
        const std::int32_t token = token_at_[static_cast<std::size_t>(node)];
        if (token >= 0) found = {&tokens_[static_cast<std::size_t>(token)], i + 1 - position};
    }
    return found;
}

bool AddedTokenFinder::stands_alone(std::string_view text, Span span) const {
    const auto is_word = [&](std::size_t position) {
        return classes_->is(code_point_at(text, position).value, CharClasses::word);
    };
    const bool word_before = span.begin > 0 && is_word(previous_code_point(text, span.begin));
    const bool word_after = span.end < text.size() && is_word(span.end);
    return !word_before && !word_after;
}

std::vector<Segment> AddedTokenFinder::split(std::string_view text) const {
    const auto is_space = [&](std::size_t position) {
        return classes_->is(code_point_at(text, position).value, CharClasses::space);
    };
    std::vector<Segment> segments;
    std::size_t taken = 0; // where the last segment ended
    std::size_t position = 0;
    while (position < text.size() && !tokens_.empty()) {
        const Found found = begins_[static_cast<unsigned char>(text[position])] ? longest_at(text, position) : Found{};
        if (found.token == nullptr) {
            ++position;
            continue;
        }
        Span span{position, position + found.n_bytes};
        position = span.end; // the search goes on here, also where rstrip takes more, as in the reference
        if (found.token->single_word && !stands_alone(text, span)) continue;
        if (found.token->lstrip) {
            while (span.begin > taken && is_space(previous_code_point(text, span.begin))) {
                span.begin = previous_code_point(text, span.begin);
            }
        }
        if (found.token->rstrip) {
            while (span.end < text.size() && is_space(span.end))
                span.end += code_point_at(text, span.end).n_bytes;
        }
        if (taken < span.begin) segments.push_back({{taken, span.begin}, -1});
        segments.push_back({span, found.token->id});
        taken = span.end;
    }
    if (taken != text.size()) segments.push_back({{taken, text.size()}, -1});
    return segments;
}

} // namespace entrodraft::model
