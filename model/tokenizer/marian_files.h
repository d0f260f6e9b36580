// Marian's tokenizer out of source.spm, target.spm and vocab.json: SentencePiece's files cut text into pieces, and
// vocab.json numbers them, its own way. Of sources one file is taken, of the decoder's texts the other. Called by
// tokenizer.
#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>

#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/unigram.h"

namespace entrodraft::model {

struct MarianFiles {
    UnigramModel model;
    NormalizerStep normalizer;
    nlohmann::json others; // "added_tokens", "post_processor" and "decoder", as a tokenizer.json would have them
};

bool has_marian_files(const std::filesystem::path& directory);
// What transformers' MarianTokenizer reads, less what changes no id: the ids of target_vocab.json count for texts where
// tokenizer_config.json says separate_vocabs. Throws BadFile. Local.
MarianFiles read_marian_files(const std::filesystem::path& directory, bool of_source);

} // namespace entrodraft::model
