// What a checkpoint's config.json says, in this project's words: shapes and closed choices, no names.
//
// Old and new spellings are read (torch_dtype or dtype; rope_theta and rope_scaling or rope_parameters).
// A field that would change the arithmetic and is not understood is refused by name, never ignored.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace entrodraft::model {

enum class Family { llama };
enum class Activation { silu, gelu, gelu_tanh, relu };
enum class WeightType { float32, bfloat16, float16 };

std::string to_string(WeightType type); // "float32", "bfloat16", "float16"
std::size_t bytes_of(WeightType type);

struct ModelConfig {
    Family family = Family::llama;
    int vocab_size = 0; // rows of the embedding and of the head
    int hidden_size = 0;
    int intermediate_size = 0;
    int n_layers = 0;
    int n_heads = 0;
    int n_kv_heads = 0;
    int head_dim = 0;
    int max_positions = 0;
    float norm_epsilon = 1e-5f;
    double rope_theta = 10000.0;
    Activation activation = Activation::silu;
    bool tied_embeddings = false;
    WeightType stored_type = WeightType::float32; // what the config says the file holds
    std::int64_t bos_token_id = -1;               // -1: none
    std::vector<std::int64_t> eos_token_ids;
};

// Reads directory/config.json (and generation_config.json for the end-of-text ids, where present).
// Throws BadFile naming the file, the field and the remedy. Local.
ModelConfig read_config(const std::filesystem::path& directory);

// Parameters of a model of these shapes, tied embeddings counted once. Local.
std::int64_t parameter_count(const ModelConfig& config);

} // namespace entrodraft::model
