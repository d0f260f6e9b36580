// See added_tokens.h. The set is a trie over bytes, walked from each byte that can begin a token.
#include "model/text/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "model/files/utf8.h"
#include "model/text/tokenizer/tokenizer_json.h"

namespace entrodraft::model {

std::vector<AddedToken> added_tokens_from_json(const nlohmann::json& added_tokens) {
    std::vector<AddedToken> tokens;
    if (added_tokens.is_null()) return tokens;
    if (!added_tokens.is_array()) throw BadFile("'added_tokens' is not a list");
    for (const auto& json : added_tokens) {
        if (!json.is_object()) throw BadFile("added_tokens: an entry is not an object");
        AddedToken token;
        token.content = string_field(json, "content", "added_tokens");
        const std::string what = "added token " + in_quotes(token.content);
        if (token.content.empty()) throw BadFile("added_tokens: an entry has empty content");
        check_token_length(token.content, "added_tokens");
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
    : tokens_(std::move(tokens)), classes_(std::move(classes)) {
    for (std::size_t i = 0; i < needles.size(); ++i) {
        if (needles[i].empty()) continue;
        begins_[static_cast<unsigned char>(needles[i].front())] = true;
        std::int32_t& token = needles_.at(needles[i]);
        if (token < 0) token = static_cast<std::int32_t>(i); // of two that normalize to the same text, the first counts
    }
}

AddedTokenFinder::Found AddedTokenFinder::longest_at(std::string_view text, std::size_t position) const {
    Found found;
    std::int32_t node = ByteTrie::kRoot;
    for (std::size_t i = position; i < text.size(); ++i) {
        node = needles_.next(node, text[i]);
        if (node == ByteTrie::kNone) break;
        const std::int32_t token = needles_.value(node);
        if (token >= 0) found = {&tokens_[token], i + 1 - position};
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

std::vector<TextPart> AddedTokenFinder::split(std::string_view text) const {
    const auto is_space = [&](std::size_t position) {
        return classes_->is(code_point_at(text, position).value, CharClasses::space);
    };
    std::vector<TextPart> segments;
    std::size_t taken = 0; // where the last segment ended
    std::size_t position = 0;
    Span stripped; // the last run of white space that rstrip took: tokens in it take its rest
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
            const std::size_t from = span.end;
            if (stripped.begin <= from && from < stripped.end) span.end = stripped.end;
            while (span.end < text.size() && is_space(span.end))
                span.end += code_point_at(text, span.end).n_bytes;
            stripped = {from, span.end};
        }
        if (taken < span.begin) segments.push_back({{taken, span.begin}, -1});
        segments.push_back({span, found.token->id});
        taken = span.end;
    }
    if (taken != text.size()) segments.push_back({{taken, text.size()}, -1});
    return segments;
}

} // namespace entrodraft::model
