// See sentencepiece_file.h. The field numbers are those of sentencepiece_model.proto.
#include "model/text/tokenizer/sentencepiece_file.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <fmt/format.h>
#include <limits>
#include <memory>
#include <optional>

#include "model/text/tokenizer/byte_trie.h"
#include "model/text/tokenizer/precompiled_map.h"
#include "model/text/tokenizer/tokenizer_json.h"

namespace entrodraft::model {
namespace {

constexpr std::string_view kSpaceMark = "\u2581";

// A field of a message: a number, or bytes.
struct WireField {
    std::uint32_t number = 0;
    std::uint64_t value = 0;
    std::string_view bytes;
};

// The fields of a message, one after another.
class WireReader {
  public:
    explicit WireReader(std::string_view bytes) : rest_(bytes) {}

    std::optional<WireField> next() {
        if (rest_.empty()) return std::nullopt;
        const std::uint64_t key = varint();
        WireField field;
        field.number = static_cast<std::uint32_t>(key >> 3);
        switch (key & 7U) {
        case 0:
            field.value = varint();
            return field;
        case 1:
            field.bytes = take(8);
            return field;
        case 2:
            field.bytes = take(varint());
            return field;
        case 5:
            field.bytes = take(4);
            for (std::size_t i = 4; i-- > 0;)
                field.value = field.value << 8 | static_cast<unsigned char>(field.bytes[i]);
            return field;
        default:
            throw BadFile("not a SentencePiece model: a field of an unknown kind");
        }
    }

  private:
    std::uint64_t varint() {
        std::uint64_t value = 0;
        for (unsigned shift = 0; shift < 64; shift += 7) {
            const auto byte = static_cast<unsigned char>(take(1)[0]);
            value |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
            if (byte < 0x80) return value;
        }
        throw BadFile("not a SentencePiece model: a number that is too long");
    }
    std::string_view take(std::uint64_t n_bytes) {
        if (n_bytes > rest_.size()) throw BadFile("not a SentencePiece model, or cut off");
        const std::string_view taken = rest_.substr(0, static_cast<std::size_t>(n_bytes));
        rest_.remove_prefix(taken.size());
        return taken;
    }

    std::string_view rest_;
};

SentencePieceFile::Piece parse_piece(std::string_view message, std::size_t number) {
    SentencePieceFile::Piece piece;
    WireReader reader(message);
    while (const auto field = reader.next()) {
        if (field->number == 1) piece.text = field->bytes;
        if (field->number == 2) piece.score = std::bit_cast<float>(static_cast<std::uint32_t>(field->value));
        if (field->number == 3) {
            if (field->value < 1 || field->value > 6)
                throw BadFile(fmt::format("piece {} has an unknown type", number));
            piece.type = static_cast<SentencePieceFile::PieceType>(field->value);
        }
    }
    const std::string what = fmt::format("piece {}", number);
    if (first_invalid_utf8(piece.text) != std::string_view::npos) throw BadFile(what + " is not UTF-8");
    check_token_length(piece.text, what);
    if (!std::isfinite(piece.score)) throw BadFile(what + ": the score is not finite");
    return piece;
}

void parse_trainer(std::string_view message, SentencePieceFile& file) {
    WireReader reader(message);
    while (const auto field = reader.next()) {
        if (field->number == 3 && field->value != 1 && field->value != 2)
            throw BadFile("a SentencePiece model of another kind than Unigram and BPE is not supported");
        if (field->number == 3) file.kind = static_cast<SentencePieceFile::Kind>(field->value);
        if (field->number == 24 && field->value != 0) throw BadFile("treat_whitespace_as_suffix is not supported");
        if (field->number == 35) file.byte_fallback = field->value != 0;
        if (field->number == 46) file.bos_piece = field->bytes;
        if (field->number == 47) file.eos_piece = field->bytes;
    }
}

void check_denormalizer(std::string_view message) {
    WireReader reader(message);
    while (const auto field = reader.next())
        if (field->number == 2 && !field->bytes.empty()) throw BadFile("a denormalizer is not supported");
}

void parse_normalizer(std::string_view message, SentencePieceFile& file) {
    WireReader reader(message);
    while (const auto field = reader.next()) {
        if (field->number == 2) file.charsmap = field->bytes;
        if (field->number == 3) file.adds_space = field->value != 0;
        if (field->number == 4) file.removes_extra_spaces = field->value != 0;
        if (field->number == 5 && field->value == 0) throw BadFile("escape_whitespaces of false is not supported");
    }
}

class SentencePieceNormalizer {
  public:
    explicit SentencePieceNormalizer(const SentencePieceFile& file)
        : adds_space_(file.adds_space), removes_extra_spaces_(file.removes_extra_spaces) {
        if (!file.charsmap.empty()) map_.emplace(file.charsmap);
        for (const SentencePieceFile::Piece& piece : file.pieces)
            if (piece.type == SentencePieceFile::PieceType::user_defined && !piece.text.empty())
                kept_.at(piece.text) = 0;
    }

    std::string operator()(std::string_view text, bool may_add_space) const {
        std::string out;
        bool is_behind_space = removes_extra_spaces_, has_begun = false;
        while (!text.empty()) {
            const auto [replacement, n_bytes] = longest(text);
            text.remove_prefix(n_bytes);
            if (!has_begun && removes_extra_spaces_ && replacement == " ") continue;
            if (!has_begun && adds_space_ && may_add_space) out += kSpaceMark;
            has_begun = true;
            std::string_view added = replacement;
            while (is_behind_space && added.starts_with(' '))
                added.remove_prefix(1);
            for (const char byte : added)
                byte == ' ' ? out += kSpaceMark : out += byte;
            if (!added.empty()) is_behind_space = added.ends_with(' ');
            if (!removes_extra_spaces_) is_behind_space = false;
        }
        while (removes_extra_spaces_ && out.ends_with(kSpaceMark))
            out.resize(out.size() - kSpaceMark.size());
        return out;
    }

  private:
    // Returns the replacement for the text's beginning, and the length of that beginning.
    PrecompiledMap::Replacement longest(std::string_view text) const {
        std::size_t kept = 0;
        std::int32_t node = ByteTrie::kRoot;
        for (std::size_t i = 0; i < text.size() && node != ByteTrie::kNone; ++i) {
            node = kept_.next(node, text[i]);
            if (node != ByteTrie::kNone && kept_.value(node) >= 0) kept = i + 1;
        }
        if (kept > 0) return {text.substr(0, kept), kept};
        if (map_)
            if (const auto found = map_->longest(text)) return *found;
        const std::size_t n_bytes = code_point_at(text, 0).n_bytes;
        return {text.substr(0, n_bytes), n_bytes};
    }

    std::optional<PrecompiledMap> map_;
    ByteTrie kept_; // user-defined pieces
    bool adds_space_, removes_extra_spaces_;
};

} // namespace

SentencePieceFile parse_sentencepiece(std::string_view bytes) {
    SentencePieceFile file;
    bool has_trainer = false; // it gives the file's kind, and follows the pieces
    WireReader reader(bytes);
    while (const auto field = reader.next()) {
        if (field->number == 1) file.pieces.push_back(parse_piece(field->bytes, file.pieces.size()));
        if (field->number == 2) parse_trainer(field->bytes, file);
        has_trainer = has_trainer || field->number == 2;
        if (field->number == 5) check_denormalizer(field->bytes);
        if (field->number == 3) parse_normalizer(field->bytes, file);
        if (file.pieces.size() > static_cast<std::size_t>(kMaxTokenId)) throw BadFile("the vocabulary is too large");
    }
    if (file.pieces.empty()) throw BadFile("not a SentencePiece model: it has no pieces");
    if (!has_trainer) throw BadFile("not a SentencePiece model, or cut off");
    return file;
}

NormalizerStep sentencepiece_normalizer(const SentencePieceFile& file, bool each_part) {
    return [normalize = std::make_shared<const SentencePieceNormalizer>(file), each_part](NormalizedText& text) {
        text.text = (*normalize)(text.text, each_part || text.at_begin);
    };
}

namespace {

struct ScoreRange {
    float lowest = FLT_MAX, highest = FLT_MIN; // SentencePiece's initial values
};

ScoreRange range_of(const SentencePieceFile& file) {
    ScoreRange range;
    for (const SentencePieceFile::Piece& piece : file.pieces) {
        if (piece.type != SentencePieceFile::PieceType::normal) continue;
        range.lowest = std::min(range.lowest, piece.score);
        range.highest = std::max(range.highest, piece.score);
    }
    return range;
}

} // namespace

std::vector<double> piece_scores(const SentencePieceFile& file) {
    using Type = SentencePieceFile::PieceType;
    const float highest = range_of(file).highest;
    std::vector<double> scores;
    for (const SentencePieceFile::Piece& piece : file.pieces) {
        double score = std::numeric_limits<double>::quiet_NaN();
        if (piece.type == Type::normal) score = piece.score;
        if (piece.type == Type::user_defined) score = static_cast<float>(piece.text.size()) * highest - 0.1;
        scores.push_back(piece.text.empty() ? std::numeric_limits<double>::quiet_NaN() : score);
    }
    return scores;
}

double unknown_score(const SentencePieceFile& file) {
    constexpr float kPenalty = 10;
    return range_of(file).lowest - kPenalty;
}

} // namespace entrodraft::model
