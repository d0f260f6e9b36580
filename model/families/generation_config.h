// Reads the settings for a model's texts from generation_config.json, as transformers' generate() uses them. If a
// directory does not have this file, the same fields of config.json count.
//
// No other code reads that file. This one applies nothing: launch/cli/generation_defaults.h makes defaults from the
// settings.
#pragma once

#include "model/text/token_id.h"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace entrodraft::model {

struct ModelConfig;

struct GenerationConfig {
    struct Field {
        std::string name, value; // the value as in the file
    };
    struct BiasedTokens {
        std::vector<TokenId> tokens;
        float bias = 0;
    };
    struct Decay {
        int start = 0; // new tokens
        double factor = 1;
    };

    std::filesystem::path file; // the file that has the fields; empty: there is none
    // These change greedy text.
    std::optional<double> repetition_penalty, encoder_repetition_penalty;
    std::optional<int> no_repeat_ngram_size, encoder_no_repeat_ngram_size, min_length, min_new_tokens;
    std::vector<BiasedTokens> sequence_bias;
    std::vector<std::vector<TokenId>> bad_words;
    std::vector<TokenId> suppress_tokens, begin_suppress_tokens, forced_eos_tokens;
    std::optional<TokenId> forced_bos_token; // of models without an encoder; other models' texts begin with it
    std::optional<Decay> decay;
    std::vector<std::string> stop_strings;
    // These count only in a beam search.
    std::optional<double> length_penalty;
    std::optional<std::string> early_stopping; // "false", "true", "never"
    // Sampling, with transformers' values where the file has none; `temperature` 0: it does not sample.
    double temperature = 0, top_p = 1, min_p = 0;
    int top_k = 0;
    std::optional<int> max_new_tokens, max_length;

    // The fields of sampling and lengths, and the fields that ask for unsupported features.
    std::vector<Field> sampling, lengths, not_served;
};

// Reads a checkpoint's directory, with or without that file; not a GGUF file. Throws BadFile, which names the field.
GenerationConfig read_generation_config(const std::filesystem::path& directory, const ModelConfig& config);

// Takes end-of-text ids and the first tokens of a decoder's texts from generation_config.json in place of
// config.json's. Throws BadFile.
void read_text_ends(const std::filesystem::path& directory, ModelConfig& config);

} // namespace entrodraft::model
