// A SentencePiece model file (source.spm, target.spm): its pieces with their scores, and what is done to text before it
// is cut into them. Of the protobuf that holds them nothing about training is read. Called by vocabulary_files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer/normalizer.h"

namespace entrodraft::model {

struct SentencePieceFile {
    enum class PieceType { normal = 1, unknown, control, user_defined, unused, byte };
    struct Piece {
        std::string text;
        float score = 0;
        PieceType type = PieceType::normal;
    };

    std::vector<Piece> pieces;
    std::string charsmap;             // precompiled, as bytes; empty: characters stay as they are
    bool adds_space = true;           // in front of a text
    bool removes_extra_spaces = true; // at its ends, and all but one in a row
};

// Of a Unigram model; others are refused, as are options that no model of translation has. Throws BadFile with the
// reason, without the file's name. Local.
SentencePieceFile parse_sentencepiece(std::string_view bytes);

// What SentencePiece does to text: from left to right the longest beginning that the map has is replaced, user-defined
// pieces stay, and spaces become U+2581. Throws BadFile. Local.
NormalizerStep sentencepiece_normalizer(const SentencePieceFile& file);

} // namespace entrodraft::model
