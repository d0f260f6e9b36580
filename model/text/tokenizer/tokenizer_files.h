// Tokenizers of directories without tokenizer.json, as the parts that one is made of, out of: Marian's source.spm,
// target.spm and vocab.json; SentencePiece's tokenizer.model; tiktoken's files of ranks; Mistral's tekken.json. Called
// by tokenizer.
#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <variant>

#include "model/text/tokenizer/bpe.h"
#include "model/text/tokenizer/normalizer.h"
#include "model/text/tokenizer/pre_tokenizer.h"
#include "model/text/tokenizer/sentencepiece_file.h"
#include "model/text/tokenizer/unigram.h"

namespace entrodraft::model {

struct TokenizerFiles {
    std::variant<BpeModel, UnigramModel> model;
    NormalizerStep normalizer;      // none: that of `others`
    PreTokenizerStep pre_tokenizer; // likewise
    nlohmann::json others;          // "added_tokens", "post_processor", "decoder" and so on, as in a tokenizer.json
};

bool has_marian_files(const std::filesystem::path& directory);
// What transformers' MarianTokenizer reads, less what changes no id: the ids of target_vocab.json count for texts where
// tokenizer_config.json says separate_vocabs. Throws BadFile. In vocabulary_files.cpp.
TokenizerFiles read_marian_files(const std::filesystem::path& directory, bool of_source);

// The file of a directory that has none of those before, nor vocab.json: tekken.json, tokenizer.model or qwen.tiktoken.
std::optional<std::filesystem::path> other_tokenizer_file(const std::filesystem::path& directory);
// Reads it: ids and text are those of mistral-common, sentencepiece and tiktoken; special tokens of the text, which
// these do not look for, those of transformers. Throws BadFile without the file's name. In rank_files.cpp.
TokenizerFiles read_other_tokenizer(const std::filesystem::path& file);
// SentencePiece's, of kind BPE or Unigram: tokenizers of classes Llama and Gemma, or of no class. In
// sentencepiece_tokenizer.cpp.
TokenizerFiles read_sentencepiece(const std::string& bytes, const std::filesystem::path& directory);
// The same of what such a file holds. `is_legacy`: what follows a special token gets a space in front.
struct SpecialTokens;
TokenizerFiles sentencepiece_tokenizer(const SentencePieceFile& file, SpecialTokens tokens, bool is_legacy);
// What metadata of a GGUF file says. Throws BadFile without the file's name. In gguf_tokenizer.cpp.
TokenizerFiles read_gguf_tokenizer(const nlohmann::json& metadata);

// Llama 3's and Qwen's way to cut text into words, of which `digits` match numbers; and the parts of a tokenizer.json
// of BPE over bytes that is cut so. In rank_files.cpp.
std::string words_pattern(const char* digits);
nlohmann::json byte_level_parts(const std::string& pattern);

} // namespace entrodraft::model
