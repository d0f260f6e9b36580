// Reads the tokenizer of a model directory that has no tokenizer.json, and returns the parts from which a tokenizer is
// built. It knows these files: Marian's source.spm, target.spm and vocab.json; SentencePiece's tokenizer.model;
// tiktoken's files of ranks; Mistral's tekken.json; GGUF files. Called by tokenizer.
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
    NormalizerStep normalizer;      // empty: the one of `others`
    PreTokenizerStep pre_tokenizer; // the same
    nlohmann::json others;          // "added_tokens", "post_processor", "decoder" and so on, as in a tokenizer.json
};

bool has_marian_files(const std::filesystem::path& directory);
// Reads the files of transformers' MarianTokenizer, except parts that change no id. The ids of target_vocab.json count
// for texts if tokenizer_config.json says separate_vocabs. Throws BadFile. In vocabulary_files.cpp.
TokenizerFiles read_marian_files(const std::filesystem::path& directory, bool of_source);

// The file of a directory with none of the above nor vocab.json: tekken.json, tokenizer.model or qwen.tiktoken.
std::optional<std::filesystem::path> other_tokenizer_file(const std::filesystem::path& directory);
// Reads it. Ids and text equal those of mistral-common, sentencepiece and tiktoken. They do not look for special tokens
// in the text; for these, ids equal transformers'. Throws BadFile without the file's name. In rank_files.cpp.
TokenizerFiles read_other_tokenizer(const std::filesystem::path& file);
// Reads SentencePiece's, of kind BPE or Unigram, for tokenizers of classes Llama and Gemma, or without a class. In
// sentencepiece_tokenizer.cpp.
TokenizerFiles read_sentencepiece(const std::string& bytes, const std::filesystem::path& directory);
// The same from such a file's contents. `is_legacy`: text after a special token gets a space before it.
struct SpecialTokens;
TokenizerFiles sentencepiece_tokenizer(const SentencePieceFile& file, SpecialTokens tokens, bool is_legacy);
// Reads the metadata of a GGUF file. Throws BadFile without the file's name. In gguf_tokenizer.cpp.
TokenizerFiles read_gguf_tokenizer(const nlohmann::json& metadata);

// Llama 3's and Qwen's pattern that cuts text into words, with `digits` to match numbers; and the parts of a
// tokenizer.json of BPE over bytes with such a pattern. In rank_files.cpp.
std::string words_pattern(const char* digits);
nlohmann::json byte_level_parts(const std::string& pattern);

} // namespace entrodraft::model
