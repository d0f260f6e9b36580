// See unigram.h. Two things follow the reference: the order in which cuts are compared, and the rule that a later cut
// must be better to win. The scores' sums equal the reference's to the last bit.
#include "model/text/tokenizer/unigram.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <stdexcept>

#include "model/files/utf8.h"
#include "model/text/tokenizer/byte_level.h"
#include "model/text/tokenizer/tokenizer_json.h"

namespace entrodraft::model {
namespace {

constexpr double kUnknownPenalty = 10.0;
constexpr int kLargestPower = 308;

double power_of_ten(int exponent) {
    const std::string text = fmt::format("1e{}", exponent);
    double value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
}

} // namespace

double score_of(double exact) {
    if (!std::isfinite(exact) || exact == 0) return exact;
    // The shortest digits that name this number, as in files: d.ddd...e[+-]xx
    std::array<char, 40> buffer{};
    const auto written =
        std::to_chars(buffer.data(), buffer.data() + buffer.size(), std::abs(exact), std::chars_format::scientific);
    const std::string_view text(buffer.data(), static_cast<std::size_t>(written.ptr - buffer.data()));
    const std::size_t e = text.find('e');
    std::uint64_t digits = 0;
    int exponent = 0;
    for (const char c : text.substr(0, e)) {
        if (c != '.') digits = 10 * digits + static_cast<std::uint64_t>(c - '0');
    }
    const std::size_t exponent_at = e + (text[e + 1] == '+' ? 2 : 1);
    std::from_chars(text.data() + exponent_at, text.data() + text.size(), exponent);
    exponent -= static_cast<int>(e > 1 ? e - 2 : 0); // digits after the point
    auto value = static_cast<double>(digits);
    if (exponent >= 0) {
        value *= power_of_ten(exponent);
    } else {
        if (exponent < -kLargestPower) value /= power_of_ten(kLargestPower);
        if (exponent < -kLargestPower) exponent += kLargestPower;
        value /= power_of_ten(-exponent);
    }
    return exact < 0 ? -value : value;
}

UnigramModel unigram_model_from_json(const nlohmann::json& model) {
    const std::string what = "model Unigram";
    UnigramModel result;
    result.byte_fallback = bool_field(model, "byte_fallback", false, what);
    const nlohmann::json& vocab = array_field(model, "vocab", what);
    if (vocab.size() > static_cast<std::size_t>(kMaxTokenId)) throw BadFile(what + ": the vocabulary is too large");
    for (const auto& entry : vocab) {
        const auto place = [&] { return fmt::format("{}: vocab entry {}", what, result.tokens.size()); };
        if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number()) {
            throw BadFile(place() + " is not [\"piece\", score]");
        }
        const auto& piece = entry[0].get_ref<const std::string&>();
        check_token_length(piece, place());
        const auto score = entry[1].get<double>();
        if (!std::isfinite(score)) throw BadFile(place() + ": the score is not finite");
        result.tokens.emplace_back(piece);
        result.scores.push_back(score_of(score));
    }
    const nlohmann::json& unk_id = field(model, "unk_id");
    if (!unk_id.is_null()) {
        result.unk_id = token_id(unk_id, what + ": unk_id");
        if (static_cast<std::size_t>(result.unk_id) >= result.tokens.size()) {
            throw BadFile(fmt::format("{}: unk_id {} is not in the vocabulary", what, result.unk_id));
        }
    }
    return result;
}

Unigram::Unigram(const UnigramModel& model)
    : scores_(model.scores), unk_id_(model.unk_id), n_ids_(static_cast<TokenId>(model.tokens.size())),
      has_float_sums_(model.has_float_sums), byte_fallback_(model.byte_fallback) {
    double lowest = std::numeric_limits<double>::infinity();
    const auto add = [&](const std::string& piece, std::size_t id) {
        if (!piece.empty()) pieces_.at(piece) = static_cast<TokenId>(id); // of two that are equal, the last counts
        if (scores_[id] < lowest) lowest = scores_[id];                   // never true for NaN
    };
    for (std::size_t id = 0; id < model.tokens.size(); ++id)
        if (model.tokens[id]) add(*model.tokens[id], id);
    for (const UnigramModel::Piece& piece : model.without_id) {
        scores_.push_back(piece.score);
        add(piece.text, scores_.size() - 1);
    }
    unk_score_ = model.unk_score.value_or(lowest - kUnknownPenalty);
    for (unsigned byte = 0; byte < 256; ++byte)
        byte_tokens_[byte] = pieces_.find(byte_token(static_cast<unsigned char>(byte)));
}

void UnigramEncoder::encode(std::string_view word, std::vector<TokenId>& ids) {
    if (word.empty() || words_.append(word, ids)) return;
    const std::size_t first = ids.size();
    find_best(word);
    ends_.clear();
    for (std::size_t end = word.size(); end > 0; end = static_cast<std::size_t>(best_[end].begin))
        ends_.push_back(end);
    std::size_t unknown = std::string_view::npos; // beginning of a run of unknown text
    for (std::size_t i = ends_.size(); i-- > 0;) {
        const Node& node = best_[ends_[i]];
        const auto begin = static_cast<std::size_t>(node.begin);
        if (node.id == unigram_->unk_id_) {
            if (unknown == std::string_view::npos) unknown = begin;
            continue;
        }
        if (unknown != std::string_view::npos) append_token(word.substr(unknown, begin - unknown), ids);
        unknown = std::string_view::npos;
        ids.push_back(node.id < unigram_->n_ids_ ? node.id : unigram_->unk_id_);
    }
    if (unknown != std::string_view::npos) append_token(word.substr(unknown), ids);
    words_.remember(word, ids, first);
}

// Fills best_ from left to right.
void UnigramEncoder::find_best(std::string_view word) {
    best_.assign(word.size() + 1, Node{});
    for (std::size_t begin = 0; begin < word.size();) {
        const double score = best_[begin].score;
        const std::size_t character_end = begin + code_point_at(word, begin).n_bytes;
        bool has_character = false;
        std::int32_t node = ByteTrie::kRoot;
        for (std::size_t end = begin; end < word.size();) {
            node = unigram_->pieces_.next(node, word[end]);
            if (node == ByteTrie::kNone) break;
            ++end;
            const TokenId id = unigram_->pieces_.value(node);
            if (id < 0 || std::isnan(unigram_->scores_[id])) continue;
            offer(begin, end, unigram_->scores_[id] + score, id);
            has_character = has_character || end == character_end;
        }
        if (!has_character) offer(begin, character_end, unigram_->unk_score_ + score, unigram_->unk_id_);
        if (best_[character_end].id < 0) {
            throw std::runtime_error("the tokenizer has no piece for " +
                                     in_quotes(word.substr(begin, character_end - begin)) + " and no unk_id");
        }
        begin = character_end;
    }
}

void UnigramEncoder::offer(std::size_t begin, std::size_t end, double score, TokenId id) {
    Node& node = best_[end];
    if (unigram_->has_float_sums_) score = static_cast<double>(static_cast<float>(score));
    if (node.begin < 0 || score > node.score) node = {score, id, static_cast<std::int32_t>(begin)};
}

// A run of unknown text may be a token after all; else it becomes its bytes' tokens, or the unknown token.
void UnigramEncoder::append_token(std::string_view text, std::vector<TokenId>& ids) const {
    const TokenId known = unigram_->pieces_.find(text);
    if (known >= 0 && known < unigram_->n_ids_) return ids.push_back(known);
    const auto token_of = [&](char byte) { return unigram_->byte_tokens_[static_cast<unsigned char>(byte)]; };
    const bool has_bytes = unigram_->byte_fallback_ &&
                           std::none_of(text.begin(), text.end(), [&](char byte) { return token_of(byte) < 0; });
    if (!has_bytes) return ids.push_back(unigram_->unk_id_);
    for (const char byte : text)
        ids.push_back(token_of(byte));
}

} // namespace entrodraft::model
