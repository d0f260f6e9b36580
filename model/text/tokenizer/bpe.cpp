// See bpe.h. Two things follow the reference: the order of merges, and the test for a queued merge that is no longer
// possible.
#include "model/text/tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <stdexcept>
#include <utility>

#include "model/files/utf8.h"
#include "model/text/tokenizer/byte_level.h"
#include "model/text/tokenizer/tokenizer_json.h"

namespace entrodraft::model {
namespace {

using Vocabulary = std::unordered_map<std::string_view, TokenId>; // views into the JSON

Vocabulary read_vocabulary(const nlohmann::json& json, std::vector<std::optional<std::string>>& tokens) {
    Vocabulary vocabulary;
    vocabulary.reserve(json.size());
    for (const auto& [token, value] : json.items()) {
        check_token_length(token, "model BPE: vocab");
        const TokenId id = token_id(value, "model BPE: vocab entry " + in_quotes(token));
        const auto index = static_cast<std::size_t>(id);
        if (tokens.size() <= index) tokens.resize(index + 1);
        if (tokens[index]) {
            throw BadFile(fmt::format("model BPE: vocab entries {} and {} have the same id {}",
                                      in_quotes(*tokens[index]), in_quotes(token), id));
        }
        tokens[index] = token;
        vocabulary.emplace(token, id);
    }
    return vocabulary;
}

// A merge is "left right" or ["left", "right"].
std::pair<std::string_view, std::string_view> merge_parts(const nlohmann::json& merge, const std::string& what) {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        return {merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()};
    }
    if (merge.is_string()) {
        const std::string_view text = merge.get_ref<const std::string&>();
        const std::size_t space = text.find(' ');
        if (space != std::string_view::npos && text.find(' ', space + 1) == std::string_view::npos) {
            return {text.substr(0, space), text.substr(space + 1)};
        }
    }
    throw BadFile(what + " is neither \"left right\" nor [\"left\", \"right\"]");
}

std::vector<Merge> read_merges(const nlohmann::json& json, const Vocabulary& vocabulary, std::size_t prefix_size) {
    std::vector<Merge> merges;
    merges.reserve(json.size());
    std::string joined;
    for (std::size_t i = 0; i < json.size(); ++i) {
        const bool is_heading = json[i].is_string() && json[i].get_ref<const std::string&>().starts_with("#version");
        if (is_heading) continue; // first line of old merges.txt files, which some converters keep
        const auto what = [&] { return fmt::format("model BPE: merge {}", i); };
        const auto [left, right] = merge_parts(json[i], what());
        if (right.size() < prefix_size) {
            throw BadFile(what() + ": " + in_quotes(right) + " lacks the continuing_subword_prefix");
        }
        joined.assign(left).append(right.substr(prefix_size));
        const auto id_of = [&](std::string_view token) {
            const auto found = vocabulary.find(token);
            if (found == vocabulary.end())
                throw BadFile(what() + " names " + in_quotes(token) + ", which is not in vocab");
            return found->second;
        };
        merges.push_back({id_of(left), id_of(right), id_of(joined)});
    }
    return merges;
}

// Returns a string that may be missing.
std::optional<std::string> optional_string(const nlohmann::json& model, const char* name) {
    if (field(model, name).is_null()) return std::nullopt;
    return string_field(model, name, "model BPE");
}

char32_t last_character(std::string_view text) {
    return code_point_at(text, previous_code_point(text, text.size())).value;
}

} // namespace

BpeModel bpe_model_from_json(const nlohmann::json& model) {
    const std::string what = "model BPE";
    const nlohmann::json& dropout = field(model, "dropout");
    if (!dropout.is_null() && dropout != 0.0) throw BadFile("model BPE: dropout is not supported: it is for training");
    BpeModel result;
    result.ignore_merges = bool_field(model, "ignore_merges", false, what);
    result.byte_fallback = bool_field(model, "byte_fallback", false, what);
    result.fuse_unk = bool_field(model, "fuse_unk", false, what);
    result.unk_token = optional_string(model, "unk_token");
    result.continuing_subword_prefix = optional_string(model, "continuing_subword_prefix").value_or("");
    result.end_of_word_suffix = optional_string(model, "end_of_word_suffix").value_or("");
    const nlohmann::json& merges = array_field(model, "merges", what);
    const Vocabulary vocabulary = read_vocabulary(object_field(model, "vocab", what), result.tokens);
    result.merges = read_merges(merges, vocabulary, result.continuing_subword_prefix.size());
    return result;
}

void add_all_merges(BpeModel& model, const std::vector<std::optional<std::uint32_t>>& ranks) {
    std::unordered_map<std::string_view, TokenId> ids;
    for (std::size_t id = 0; id < model.tokens.size(); ++id)
        if (model.tokens[id]) ids.emplace(*model.tokens[id], static_cast<TokenId>(id));
    for (std::size_t id = 0; id < model.tokens.size(); ++id) {
        if (!model.tokens[id] || !ranks[id]) continue;
        const std::string_view token = *model.tokens[id];
        for (std::size_t at = token.empty() ? 0 : code_point_at(token, 0).n_bytes; at < token.size();
             at += code_point_at(token, at).n_bytes) {
            const auto left = ids.find(token.substr(0, at)), right = ids.find(token.substr(at));
            if (left == ids.end() || right == ids.end()) continue;
            model.merges.push_back({left->second, right->second, static_cast<TokenId>(id)});
            model.ranks.push_back(*ranks[id]);
        }
    }
}

Bpe::Bpe(BpeModel model, bool takes_bytes)
    : takes_bytes_(takes_bytes), ignore_merges_(model.ignore_merges), byte_fallback_(model.byte_fallback),
      fuse_unk_(model.fuse_unk), prefix_(std::move(model.continuing_subword_prefix)),
      suffix_(std::move(model.end_of_word_suffix)), unk_token_(std::move(model.unk_token)),
      rules_(std::bit_ceil(2 * model.merges.size() + 2)), joints_(rules_.size()),
      direct_(takes_bytes ? 256 : kDirectCharacters, -1), uncut_(std::move(model.uncut)) {
    // The token "" cannot be part of a merge's joint: it merges to itself.
    for (std::size_t rank = 0; rank < model.merges.size(); ++rank) {
        const Merge& merge = model.merges[rank];
        add_rule(rules_, {pair_key(static_cast<std::uint32_t>(merge.left), static_cast<std::uint32_t>(merge.right)),
                          model.ranks.empty() ? static_cast<std::uint32_t>(rank) : model.ranks[rank],
                          merge.result}); // of two, the last counts
        const std::string& left = *model.tokens[merge.left];
        const std::string& right = *model.tokens[merge.right];
        if (left.empty() || right.empty()) continue;
        add_rule(joints_, {pair_key(last_character(left), code_point_at(right, 0).value), 0, 0});
    }
    for (std::size_t i = 0; i < model.tokens.size(); ++i) {
        if (!model.tokens[i]) continue;
        std::string& token = *model.tokens[i];
        const auto id = static_cast<TokenId>(i);
        const bool is_character = !token.empty() && code_point_at(token, 0).n_bytes == token.size();
        const char32_t character = is_character ? code_point_at(token, 0).value : 0;
        if (is_character && takes_bytes) {
            if (const auto byte = byte_level_byte(character)) direct_[*byte] = id;
        } else if (is_character && character < kDirectCharacters) {
            direct_[character] = id;
        }
        ids_.emplace(std::move(token), id);
    }
    if (unk_token_) unk_id_ = id_of(*unk_token_);
    for (unsigned byte = 0; byte < 256; ++byte)
        byte_tokens_[byte] = id_of(byte_token(static_cast<unsigned char>(byte)));
}

std::uint64_t Bpe::pair_key(std::uint32_t left, std::uint32_t right) {
    return (static_cast<std::uint64_t>(left) << 32) | right;
}

// Returns the slot of the pair, or the free slot where it would be.
std::size_t Bpe::slot_of(const std::vector<Rule>& rules, std::uint64_t pair) {
    std::uint64_t hash = pair * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 32;
    const std::size_t mask = rules.size() - 1;
    std::size_t slot = static_cast<std::size_t>(hash) & mask;
    while (rules[slot].pair != pair && rules[slot].pair != kNoPair)
        slot = (slot + 1) & mask;
    return slot;
}

void Bpe::add_rule(std::vector<Rule>& rules, const Rule& rule) {
    rules[slot_of(rules, rule.pair)] = rule;
}

const Bpe::Rule* Bpe::rule(TokenId left, TokenId right) const {
    const std::uint64_t pair = pair_key(static_cast<std::uint32_t>(left), static_cast<std::uint32_t>(right));
    const Rule& rule = rules_[slot_of(rules_, pair)];
    return rule.pair == kNoPair ? nullptr : &rule;
}

bool Bpe::may_join(char32_t left, char32_t right) const {
    return joints_[slot_of(joints_, pair_key(left, right))].pair != kNoPair;
}

TokenId Bpe::id_of(const std::string& token) const {
    const auto found = ids_.find(token);
    return found == ids_.end() ? -1 : found->second;
}

TokenId Bpe::id_of_character(char32_t character) const {
    if (character < direct_.size()) return direct_[character];
    std::string token;
    append_utf8(character, token);
    return id_of(token);
}

void BpeEncoder::encode(std::string_view word, std::vector<TokenId>& ids) {
    if (word.empty() || words_.append(word, ids)) return;
    const std::size_t first = ids.size();
    if (bpe_->ignore_merges_ || !bpe_->uncut_.empty()) {
        const TokenId whole = bpe_->id_of(bpe_->takes_bytes_ ? to_byte_level(word) : std::string(word));
        if (whole >= 0 && (bpe_->ignore_merges_ || bpe_->uncut_.contains(whole))) {
            ids.push_back(whole);
            words_.remember(word, ids, first);
            return;
        }
    }
    const bool is_one = bpe_->takes_bytes_ || bpe_->ignore_merges_ || bpe_->has_affixes() || word.size() < kLongWord;
    if (is_one) return encode_part(word, ids);
    // If merges never join two known neighbouring characters, the word is cut between them: the parts recur as words.
    std::size_t begin = 0;
    CodePoint left = code_point_at(word, 0);
    bool left_known = bpe_->id_of_character(left.value) >= 0;
    for (std::size_t at = left.n_bytes; at < word.size();) {
        const CodePoint right = code_point_at(word, at);
        const bool right_known = bpe_->id_of_character(right.value) >= 0;
        if (left_known && right_known && !bpe_->may_join(left.value, right.value)) {
            encode_part(word.substr(begin, at - begin), ids);
            begin = at;
        }
        at += right.n_bytes;
        left = right;
        left_known = right_known;
    }
    encode_part(word.substr(begin), ids);
}

void BpeEncoder::encode_part(std::string_view part, std::vector<TokenId>& ids) {
    if (words_.append(part, ids)) return;
    const std::size_t first = ids.size();
    begin(part);
    merge(ids);
    words_.remember(part, ids, first);
}

// Makes the symbols of the word's characters. As in the reference, byte tokens do not end a run of unknown characters.
// The run's token then comes after the byte tokens.
void BpeEncoder::begin(std::string_view word) {
    symbols_.clear();
    symbols_.reserve(word.size());
    bool unknown = false; // a run of unknown characters has no token yet
    std::string spelled;
    for (std::size_t at = 0; at < word.size();) {
        const auto byte = static_cast<unsigned char>(word[at]);
        const CodePoint point = bpe_->takes_bytes_ ? CodePoint{byte_level_character(byte), 1} : code_point_at(word, at);
        const bool is_first = at == 0, is_last = at + point.n_bytes == word.size();
        at += point.n_bytes;
        const bool plain = !bpe_->has_affixes();
        TokenId id = plain ? bpe_->id_of_character(bpe_->takes_bytes_ ? byte : point.value) : -1;
        if (id < 0) {
            spelled.clear();
            if (!is_first) spelled += bpe_->prefix_;
            append_utf8(point.value, spelled);
            if (is_last) spelled += bpe_->suffix_;
            if (!plain) id = bpe_->id_of(spelled);
        }
        if (id >= 0) {
            if (unknown) add(bpe_->unk_id_);
            unknown = false;
            add(id);
        } else if (!(bpe_->byte_fallback_ && add_bytes_of(spelled)) && bpe_->unk_token_) {
            if (bpe_->unk_id_ < 0) {
                throw std::runtime_error("the tokenizer has no token for " + in_quotes(spelled) +
                                         ", and its unk_token " + in_quotes(*bpe_->unk_token_) +
                                         " is not in its vocabulary");
            }
            if (unknown && !bpe_->fuse_unk_) add(bpe_->unk_id_);
            unknown = true;
        }
    }
    if (unknown) add(bpe_->unk_id_);
}

// Adds the tokens of the bytes, if each byte has one.
bool BpeEncoder::add_bytes_of(std::string_view character) {
    const auto token_of = [&](char byte) { return bpe_->byte_tokens_[static_cast<unsigned char>(byte)]; };
    if (std::any_of(character.begin(), character.end(), [&](char byte) { return token_of(byte) < 0; })) return false;
    for (const char byte : character)
        add(token_of(byte));
    return true;
}

void BpeEncoder::add(TokenId id) {
    const auto at = static_cast<std::int32_t>(symbols_.size());
    if (at > 0) symbols_.back().next = at;
    symbols_.push_back({id, at - 1, -1});
}

void BpeEncoder::merge(std::vector<TokenId>& ids) {
    heap_.clear();
    for (std::size_t i = 0; i < symbols_.size(); ++i)
        propose(static_cast<std::int32_t>(i));
    while (!heap_.empty()) {
        std::pop_heap(heap_.begin(), heap_.end());
        const Candidate candidate = heap_.back();
        heap_.pop_back();
        join(candidate);
    }
    for (std::int32_t i = symbols_.empty() ? -1 : 0; i >= 0; i = symbols_[i].next)
        ids.push_back(symbols_[i].id);
}

// Queues the merge of the symbol at `left` with its right neighbour, if there is a rule for it.
void BpeEncoder::propose(std::int32_t left) {
    const Symbol& symbol = symbols_[left];
    if (symbol.next < 0) return;
    const Bpe::Rule* rule = bpe_->rule(symbol.id, symbols_[symbol.next].id);
    if (rule == nullptr) return;
    heap_.push_back({rule->rank, rule->result, left});
    std::push_heap(heap_.begin(), heap_.end());
}

// Merges two symbols, unless one of them has changed so that they no longer make the queued result.
void BpeEncoder::join(const Candidate& candidate) {
    Symbol& left = symbols_[candidate.position];
    if (left.id < 0 || left.next < 0) return;
    Symbol& right = symbols_[left.next];
    const Bpe::Rule* rule = bpe_->rule(left.id, right.id);
    if (rule == nullptr || rule->result != candidate.result) return;
    left.id = candidate.result;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols_[left.next].previous = candidate.position;
    if (left.previous >= 0) propose(left.previous);
    propose(candidate.position);
}

} // namespace entrodraft::model
