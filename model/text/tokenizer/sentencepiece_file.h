// A SentencePiece model file (tokenizer.model, source.spm, target.spm): its pieces with their scores, and what is done
// to text before it is cut into them. Of the protobuf that holds them nothing about training is read. Called by
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
    bool byte_fallback = false; // unknown characters are pieces <0xNN> of their bytes
    std::string bos_piece = "<s>", eos_piece = "</s>";
    std::string charsmap;             // precompiled, as bytes; empty: characters stay as they are
    bool adds_space = true;           // in front of a text
    bool removes_extra_spaces = true; // at its ends, and all but one in a row
};

// Of kinds Unigram and BPE; others are refused, as are options that no language model has. Throws BadFile with the
// reason, without the file's name.
SentencePieceFile parse_sentencepiece(std::string_view bytes);

// What SentencePiece does to text: from left to right the longest beginning that the map has is replaced, user-defined
// pieces stay, and spaces become U+2581. `each_part`: what follows a special token gets a space in front as a text's
// beginning does. Throws BadFile.
NormalizerStep sentencepiece_normalizer(const SentencePieceFile& file, bool each_part);

// Of a Unigram model: the score of each piece, NaN of those that text is not cut into, and that of a character that no
// piece has.
std::vector<double> piece_scores(const SentencePieceFile& file);
double unknown_score(const SentencePieceFile& file);

} // namespace entrodraft::model
