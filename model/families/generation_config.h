// The wishes of generation_config.json for a model's texts, as transformers' generate() takes it. Where a directory has
// no such file, these fields of config.json count.
//
// The one reader of that file. It applies nothing: launch/cli/generation_defaults.h makes defaults of requests of it.
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
        std::string name, value; // the value as the file has it
    };
    struct BiasedTokens {
        std::vector<TokenId> tokens;
        float bias = 0;
    };
    struct Decay {
        int start = 0; // new tokens
        double factor = 1;
    };

    std::filesystem::path file; // that the fields are in; empty: there is none
    // These change greedy text.
    std::optional<double> repetition_penalty, encoder_repetition_penalty;
    std::optional<int> no_repeat_ngram_size, encoder_no_repeat_ngram_size, min_length, min_new_tokens;
    std::vector<BiasedTokens> sequence_bias;
    std::vector<std::vector<TokenId>> bad_words;
    std::vector<TokenId> suppress_tokens, begin_suppress_tokens, forced_eos_tokens;
    std::optional<TokenId> forced_bos_token; // of models without an encoder; others' texts begin with it
    std::optional<Decay> decay;
    std::vector<std::string> stop_strings;
    // These count in a beam search alone.
    std::optional<double> length_penalty;
    std::optional<std::string> early_stopping; // "false", "true", "never"
    // Sampling, with transformers' values for what the file does not say; `temperature` 0: it does not sample.
    double temperature = 0, top_p = 1, min_p = 0;
    int top_k = 0;
    std::optional<int> max_new_tokens, max_length;

    // The fields that sampling and lengths come from, and those that ask for what this program does not do.
    std::vector<Field> sampling, lengths, not_served;
};

// Reads a checkpoint's directory, which may have none; not of a GGUF file. Throws BadFile naming file, field and value.
GenerationConfig read_generation_config(const std::filesystem::path& directory, const ModelConfig& config);

// Puts the end-of-text ids of generation_config.json, and what a decoder's texts begin with, in place of config.json's.
// Throws BadFile.
void read_text_ends(const std::filesystem::path& directory, ModelConfig& config);

} // namespace entrodraft::model
