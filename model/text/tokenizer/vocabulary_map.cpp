// See vocabulary_map.h.
#include "model/text/tokenizer/vocabulary_map.h"

#include "model/files/utf8.h"
#include "model/text/tokenizer/byte_level.h"

#include <algorithm>
#include <stdexcept>
#include <unordered_map>
#include <utility>

namespace entrodraft::model {

namespace {

constexpr std::string_view kContext = "a"; // a word before the encoded one
constexpr std::size_t kMaxWordTokens = 32; // for scripts without spaces

bool is_space(char byte) {
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

bool continues_character(char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U;
}

// Returns a key for each text: the key of a special token's text is never another token's.
std::string text_of(const Tokenizer& tokenizer, TokenId id) {
    return tokenizer.is_special(id) ? "\xFF" + tokenizer.token(id) : tokenizer.token_bytes(id);
}

// Returns, for each text, the token that encoding gives. If both bytes and the same character have a token, it is the
// character's.
std::unordered_map<std::string, TokenId> ids_by_text(const Tokenizer& tokenizer, int n_known) {
    std::unordered_map<std::string, TokenId> ids;
    for (TokenId id = 0; id < n_known; ++id) {
        if (!tokenizer.has_token(id)) continue;
        std::string text = text_of(tokenizer, id);
        if (text.empty()) continue;
        const auto [found, is_new] = ids.try_emplace(std::move(text), id);
        if (!is_new && byte_of_token(tokenizer.token(found->second)) && !byte_of_token(tokenizer.token(id)))
            found->second = id;
    }
    return ids;
}

// Returns an empty list if the vocabulary has no tokens for the text.
std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view text, bool add_special_tokens) {
    try {
        return tokenizer.encode(text, add_special_tokens);
    } catch (const std::runtime_error&) { // Tokenizer::encode() throws it
        return {};
    }
}

// Returns the tokens that the template of special tokens puts before a text.
std::vector<TokenId> begin_of(const Tokenizer& tokenizer) {
    const std::vector<TokenId> whole = encode(tokenizer, kContext, true), bare = encode(tokenizer, kContext, false);
    const auto found = std::search(whole.begin(), whole.end(), bare.begin(), bare.end());
    return {whole.begin(), found == whole.end() ? whole.begin() : found};
}

} // namespace

VocabularyMap::VocabularyMap(ModelVocabulary target, ModelVocabulary draft)
    : target_(std::move(target)), draft_(std::move(draft)) {
    match_texts();
    match_ends();
    for (std::size_t id = 0; id < facts_.size(); ++id)
        if (const TokenId other = facts_[id].draft; other >= 0 && target_token(other) == static_cast<TokenId>(id))
            shared_.push_back({static_cast<TokenId>(id), other});
}

VocabularyMap::Side::Side(ModelVocabulary of)
    : vocabulary(std::move(of)), begin(begin_of(vocabulary.tokenizer)),
      context(model::encode(vocabulary.tokenizer, kContext, false)) {
    std::erase_if(begin, [&](TokenId id) { return id >= n_known(); });
    byte_tokens.fill(-1);
    for (const auto& [text, id] : ids_by_text(vocabulary.tokenizer, n_known()))
        if (text.size() == 1) byte_tokens[static_cast<unsigned char>(text.front())] = id;
}

void VocabularyMap::match_texts() {
    const auto target_ids = ids_by_text(this->target(), target_.n_known());
    const auto draft_ids = ids_by_text(draft(), draft_.n_known());
    const Tokenizer& target = this->target();
    facts_.resize(static_cast<std::size_t>(target.size()));
    target_ids_.assign(static_cast<std::size_t>(draft_.n_known()), -1);
    n_draft_tokens_ = 0;
    for (TokenId id = 0; id < draft_.n_known(); ++id)
        n_draft_tokens_ += draft().has_token(id) ? 1 : 0;
    for (TokenId id = 0; id < target.size(); ++id) {
        if (!target.has_token(id)) continue;
        Facts& facts = facts_[id];
        const std::string text = text_of(target, id);
        facts.is_known = true;
        facts.is_special = target.is_special(id);
        if (!text.empty() && !facts.is_special) {
            facts.begins_with_space = is_space(text.front());
            facts.ends_with_space = is_space(text.back());
            facts.continues_character = continues_character(text.front());
        }
        if (id >= target_.n_known()) continue;
        ++n_target_tokens_;
        const auto found = draft_ids.find(text);
        if (found == draft_ids.end()) continue;
        facts.draft = found->second;
        if (target_ids.at(text) == id) target_ids_[found->second] = id;
    }
}

// Ends of text whose texts differ are matched too, in their order.
void VocabularyMap::match_ends() {
    for (const std::int64_t of_target : target_.vocabulary.eos_tokens) {
        if (of_target < 0 || of_target >= target_.n_known()) continue;
        Facts& facts = facts_[of_target];
        if (facts.draft >= 0) continue;
        for (const std::int64_t of_draft : draft_.vocabulary.eos_tokens) {
            const auto id = static_cast<TokenId>(of_draft);
            if (of_draft < 0 || of_draft >= draft_.n_known() || target_token(id) >= 0) continue;
            facts.draft = id;
            target_ids_[id] = static_cast<TokenId>(of_target);
            break;
        }
    }
}

TokenId VocabularyMap::draft_token(TokenId target) const {
    return facts_of(target).draft;
}

TokenId VocabularyMap::target_token(TokenId draft) const {
    return target_ids_.at(draft);
}

// Bytes that do not make a character become tokens of their own, if the vocabulary has these.
void VocabularyMap::Side::encode(std::string_view bytes, std::vector<TokenId>& ids) const {
    while (!bytes.empty()) {
        const std::size_t n_valid = std::min(first_invalid_utf8(bytes), bytes.size());
        if (n_valid > 0) encode_valid(bytes.substr(0, n_valid), ids);
        bytes.remove_prefix(n_valid);
        if (bytes.empty()) return;
        const TokenId id = byte_tokens[static_cast<unsigned char>(bytes.front())];
        if (id >= 0) ids.push_back(id);
        bytes.remove_prefix(1);
    }
}

// A tokenizer may treat the beginning of a text in a special way. So a word is put before the text, if its tokens can
// be separated from the following ones.
void VocabularyMap::Side::encode_valid(std::string_view text, std::vector<TokenId>& ids) const {
    std::vector<TokenId> encoded =
        model::encode(vocabulary.tokenizer, std::string(kContext) + std::string(text), false);
    if (!context.empty() && std::ranges::mismatch(encoded, context).in2 == context.end())
        encoded.erase(encoded.begin(), encoded.begin() + static_cast<std::ptrdiff_t>(context.size()));
    else
        encoded = model::encode(vocabulary.tokenizer, text, false);
    for (const TokenId id : encoded)
        if (id < n_known()) ids.push_back(id);
}

// ---- a text ----

void TranslatedText::clear() {
    target_.clear();
    draft_.clear();
    words_.clear();
}

void TranslatedText::follow(std::span<const TokenId> target) {
    const auto n_same = static_cast<std::size_t>(std::ranges::mismatch(target_, target).in1 - target_.begin());
    if (n_same < target_.size()) { // the last remaining word has not ended
        while (!words_.empty() && words_.back().target >= n_same)
            words_.pop_back();
        const Word last = words_.empty() ? Word{} : words_.back();
        target_.resize(last.target);
        draft_.resize(last.draft);
        if (!words_.empty()) words_.pop_back();
    }
    if (target_.empty()) draft_ = map_->draft_.begin;
    for (const TokenId token : target.subspan(target_.size())) {
        if (begins_word(token)) {
            end_word();
            words_.push_back({target_.size(), draft_.size()});
        }
        append(token);
    }
}

std::span<const TokenId> TranslatedText::settled() const {
    return std::span(draft_).first(words_.empty() ? 0 : words_.back().draft);
}

bool TranslatedText::begins_word(TokenId token) const {
    if (words_.empty()) return true;
    const auto& next = map_->facts_of(token);
    const auto& last = map_->facts_of(target_.back());
    if (next.is_special || last.is_special) return true;
    if (next.continues_character) return false;
    return (next.begins_with_space && !last.ends_with_space) || target_.size() - words_.back().target >= kMaxWordTokens;
}

// Ends the last word: it is complete, so the draft's tokenizer can write it.
void TranslatedText::end_word() {
    if (words_.empty() || map_->facts_of(target_.back()).is_special) return;
    const Word word = words_.back();
    draft_.resize(word.draft);
    map_->draft_.encode(bytes_from(word.target), draft_);
}

void TranslatedText::append(TokenId token) {
    const std::size_t at = target_.size();
    target_.push_back(token);
    const auto& begin = map_->target_.begin;
    const bool is_of_begin =
        at < begin.size() && std::equal(target_.begin(), target_.end(), begin.begin(), begin.begin() + at + 1);
    const TokenId same = map_->draft_token(token);
    if (is_of_begin && (same < 0 || !map_->draft_.begin.empty())) return;
    if (same >= 0) {
        draft_.push_back(same);
    } else if (map_->facts_of(token).is_special) {
        map_->draft_.encode(map_->target().token(token), draft_);
    } else {
        draft_.resize(words_.back().draft);
        map_->draft_.encode(bytes_from(words_.back().target), draft_);
    }
}

std::vector<TokenId> TranslatedText::target_tokens_behind(std::string_view bytes) const {
    const bool in_word = !words_.empty() && !map_->facts_of(target_.back()).is_special;
    const std::size_t first = in_word ? words_.back().target : target_.size();
    const std::span<const TokenId> word = std::span(target_).subspan(first);
    std::vector<TokenId> tokens;
    map_->target_.encode(bytes_from(first) + std::string(bytes), tokens);
    if (std::ranges::mismatch(word, tokens).in1 == word.end())
        return {tokens.begin() + static_cast<std::ptrdiff_t>(word.size()), tokens.end()};
    tokens.clear();
    map_->target_.encode(bytes, tokens);
    return tokens;
}

std::string TranslatedText::bytes_from(std::size_t first) const {
    std::string bytes;
    for (const TokenId token : std::span(target_).subspan(first))
        if (map_->facts_of(token).is_known) bytes += map_->target().token_bytes(token);
    return bytes;
}

} // namespace entrodraft::model
