// See bpe.h. The order of merges, and which queued merge still stands, follow the reference implementation.
#include "entrodraft/model/bpe.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "entrodraft/model/byte_level.h"
#include "entrodraft/model/tokenizer_json.h"
#include "entrodraft/model/utf8.h"

namespace entrodraft::model {
namespace {

using Vocabulary = std::unordered_map<std::string_view, TokenId>; // views into the JSON

// Refuses what would change the result; unk_token cannot: every byte has a token of its own.
void check_options(const nlohmann::json& model) {
    for (const char* name : {"byte_fallback", "fuse_unk"}) {
        if (bool_field(model, name, false, "model BPE")) {
            throw BadFile(std::string("model BPE: ") + name + " = true is not supported yet");
        }
    }
    for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
        const nlohmann::json& value = field(model, name);
        if (!value.is_null() && value != "") throw BadFile(std::string("model BPE: ") + name + " is not supported yet");
    }
    const nlohmann::json& dropout = field(model, "dropout");
    if (!dropout.is_null() && dropout != 0.0) throw BadFile("model BPE: dropout is not supported: it is for training");
}

Vocabulary read_vocabulary(const nlohmann::json& json, std::vector<std::optional<std::string>>& tokens) {
    Vocabulary vocabulary;
    vocabulary.reserve(json.size());
    for (const auto& [token, value] : json.items()) {
        const TokenId id = token_id(value, "model BPE: vocab entry '" + token + "'");
        const auto index = static_cast<std::size_t>(id);
        if (tokens.size() <= index) tokens.resize(index + 1);
        if (tokens[index]) {
            throw BadFile("model BPE: vocab entries '" + *tokens[index] + "' and '" + token + "' have the same id " +
                          std::to_string(id));
        }
        tokens[index] = token;
    }
    for (std::size_t id = 0; id < tokens.size(); ++id) {
        if (tokens[id]) vocabulary.emplace(json.find(*tokens[id]).key(), static_cast<TokenId>(id));
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

std::vector<Merge> read_merges(const nlohmann::json& json, const Vocabulary& vocabulary) {
    std::vector<Merge> merges;
    merges.reserve(json.size());
    std::string joined;
    for (std::size_t i = 0; i < json.size(); ++i) {
        const std::string what = "model BPE: merge " + std::to_string(i);
        const bool is_heading = json[i].is_string() && json[i].get_ref<const std::string&>().starts_with("#version");
        if (is_heading) continue; // of old merges.txt files, kept by some converters
        const auto [left, right] = merge_parts(json[i], what);
        joined.assign(left).append(right);
        const auto id_of = [&](std::string_view token) {
            const auto found = vocabulary.find(token);
            if (found == vocabulary.end())
                throw BadFile(what + " names '" + std::string(token) + "', which is not in vocab");
            return found->second;
        };
        merges.push_back({id_of(left), id_of(right), id_of(joined)});
    }
    return merges;
}

} // namespace

BpeModel bpe_model_from_json(const nlohmann::json& model) {
    if (!model.is_object()) throw BadFile("'model' is missing or not an object");
    const nlohmann::json& type = field(model, "type"); // old files lack it
    if (!type.is_null() && type != "BPE") throw_unsupported("model", string_field(model, "type", "model"));
    check_options(model);
    BpeModel result;
    const nlohmann::json& merges = array_field(model, "merges", "model BPE");
    const Vocabulary vocabulary = read_vocabulary(object_field(model, "vocab", "model BPE"), result.tokens);
    result.merges = read_merges(merges, vocabulary);
    result.ignore_merges = bool_field(model, "ignore_merges", false, "model BPE");
    return result;
}

Bpe::Bpe(const BpeModel& model) : rules_(std::bit_ceil(2 * model.merges.size() + 2)) {
    byte_tokens_.fill(-1);
    for (std::size_t id = 0; id < model.tokens.size(); ++id) {
        const auto bytes = model.tokens[id] ? from_byte_level(*model.tokens[id]) : std::nullopt;
        if (!bytes) continue; // no word can become it
        if (bytes->size() == 1) byte_tokens_[static_cast<unsigned char>(bytes->front())] = static_cast<TokenId>(id);
        if (model.ignore_merges) whole_words_.emplace(*bytes, static_cast<TokenId>(id));
    }
    for (unsigned byte = 0; byte < 256; ++byte) {
        const bool in_utf8 = byte != 0xC0 && byte != 0xC1 && byte < 0xF5;
        if (in_utf8 && byte_tokens_[byte] < 0) {
            std::string character;
            append_utf8(byte_level_character(static_cast<unsigned char>(byte)), character);
            throw BadFile("model BPE: vocab has no '" + character + "', the token of byte " + std::to_string(byte) +
                          ": not a byte-level vocabulary");
        }
    }
    for (std::size_t rank = 0; rank < model.merges.size(); ++rank) {
        const Merge& merge = model.merges[rank];
        const std::uint64_t pair = pair_key(merge.left, merge.right);
        rules_[slot_of(pair)] = {pair, static_cast<std::uint32_t>(rank), merge.result}; // of two, the last counts
    }
}

std::uint64_t Bpe::pair_key(TokenId left, TokenId right) {
    return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) | static_cast<std::uint32_t>(right);
}

std::size_t Bpe::slot_of(std::uint64_t pair) const {
    std::uint64_t hash = pair * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 32;
    const std::size_t mask = rules_.size() - 1;
    std::size_t slot = static_cast<std::size_t>(hash) & mask;
    while (rules_[slot].pair != pair && rules_[slot].pair != kNoPair)
        slot = (slot + 1) & mask;
    return slot;
}

const Bpe::Rule* Bpe::rule(TokenId left, TokenId right) const {
    const Rule& rule = rules_[slot_of(pair_key(left, right))];
    return rule.pair == kNoPair ? nullptr : &rule;
}

void WordEncoder::encode(std::string_view word, std::vector<TokenId>& ids) {
    if (word.empty()) return;
    if (const auto known = words_.find(word); known != words_.end()) {
        const auto begin = remembered_ids_.begin() + known->second.begin;
        ids.insert(ids.end(), begin, begin + known->second.size);
        return;
    }
    const std::size_t first = ids.size();
    const auto whole =
        bpe_->whole_words_.empty() ? bpe_->whole_words_.end() : bpe_->whole_words_.find(std::string(word));
    if (whole != bpe_->whole_words_.end()) {
        ids.push_back(whole->second);
    } else {
        merge(word, ids);
    }
    if (word.size() <= kMaxWordBytes && words_.size() < kMaxWords) {
        const Remembered place{static_cast<std::uint32_t>(remembered_ids_.size()),
                               static_cast<std::uint32_t>(ids.size() - first)};
        words_.emplace(word, place);
        remembered_ids_.insert(remembered_ids_.end(), ids.begin() + static_cast<std::ptrdiff_t>(first), ids.end());
    }
}

void WordEncoder::merge(std::string_view word, std::vector<TokenId>& ids) {
    const auto size = static_cast<std::int64_t>(word.size());
    symbols_.resize(word.size());
    for (std::int64_t i = 0; i < size; ++i) {
        const auto byte = static_cast<unsigned char>(word[static_cast<std::size_t>(i)]);
        symbols_[static_cast<std::size_t>(i)] = {bpe_->byte_tokens_[byte], i - 1, i + 1 < size ? i + 1 : -1};
    }
    heap_.clear();
    for (std::int64_t i = 0; i + 1 < size; ++i)
        propose(i);
    while (!heap_.empty()) {
        std::pop_heap(heap_.begin(), heap_.end());
        const Candidate candidate = heap_.back();
        heap_.pop_back();
        join(candidate);
    }
    for (std::int64_t i = 0; i >= 0; i = symbols_[static_cast<std::size_t>(i)].next) {
        ids.push_back(symbols_[static_cast<std::size_t>(i)].id);
    }
}

// Queues the merge of the symbol at `left` with its right neighbour, if there is a rule for it.
void WordEncoder::propose(std::int64_t left) {
    const Symbol& symbol = symbols_[static_cast<std::size_t>(left)];
    if (symbol.next < 0) return;
    const Bpe::Rule* rule = bpe_->rule(symbol.id, symbols_[static_cast<std::size_t>(symbol.next)].id);
    if (rule == nullptr) return;
    heap_.push_back({rule->rank, rule->result, left});
    std::push_heap(heap_.begin(), heap_.end());
}

// Merges, unless one of the two symbols has changed so that they no longer make the queued result.
void WordEncoder::join(const Candidate& candidate) {
    Symbol& left = symbols_[static_cast<std::size_t>(candidate.position)];
    if (left.id < 0 || left.next < 0) return;
    Symbol& right = symbols_[static_cast<std::size_t>(left.next)];
    const Bpe::Rule* rule = bpe_->rule(left.id, right.id);
    if (rule == nullptr || rule->result != candidate.result) return;
    left.id = candidate.result;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols_[static_cast<std::size_t>(left.next)].previous = candidate.position;
    if (left.previous >= 0) propose(left.previous);
    propose(candidate.position);
}

} // namespace entrodraft::model
