// A SentencePiece model file (tokenizer.model, source.spm, target.spm): its pieces with their scores, and the changes
// to a text before it is cut into pieces. The parts of its protobuf about training are not read. Called by
// vocabulary_files and sentencepiece_tokenizer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/text/tokenizer/normalizer.h"

namespace entrodraft::model {

struct SentencePieceFile {
    enum class PieceType { normal = 1, unknown, control, user_defined, unused, byte };
    struct Piece {
        std::string text;
        float score = 0;
        PieceType type = PieceType::normal;
    };

    enum class Kind { unigram = 1, bpe };

    std::vector<Piece> pieces;
    Kind kind = Kind::unigram;
    bool byte_fallback = false; // unknown characters become pieces <0xNN> of their bytes
    std::string bos_piece = "<s>", eos_piece = "</s>";
    std::string charsmap;             // precompiled, as bytes; empty: characters stay as they are
    bool adds_space = true;           // before a text
    bool removes_extra_spaces = true; // at its ends, and all but one in a row
};

// Reads kinds Unigram and BPE. Other kinds are refused, and so are options that language models do not have. Throws
// BadFile with the reason, without the file's name.
SentencePieceFile parse_sentencepiece(std::string_view bytes);

// SentencePiece's changes to text: from left to right it replaces the longest beginning that the map has, keeps
// user-defined pieces, and turns spaces into U+2581. `each_part`: text after a special token gets a space before it, as
// a text's beginning does. Throws BadFile.
NormalizerStep sentencepiece_normalizer(const SentencePieceFile& file, bool each_part);

// For a Unigram model: the score of each piece, NaN for pieces that text is not cut into; and the score of a character
// that no piece has.
std::vector<double> piece_scores(const SentencePieceFile& file);
double unknown_score(const SentencePieceFile& file);

} // namespace entrodraft::model
