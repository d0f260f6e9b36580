// What a checkpoint's config.json says, in this project's words: shapes and closed choices, no names.
//
// Every family is one of these descriptions; families/*.cpp translate. Old and new spellings are read (torch_dtype or
// dtype; rope_theta and rope_scaling or rope_parameters). A field that would change the arithmetic and is not
// understood is refused by name, never ignored; fields that transformers' class of the family does not read change
// nothing there, and nothing here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace entrodraft::model {

enum class Activation { silu, gelu, gelu_tanh, relu };
enum class Norm { rms, layer };
enum class Positions { rotary, learned, alibi };
enum class WeightType { float32, bfloat16, float16, int8, float8 }; // float8: e4m3, on GPUs only

// How attention and MLP of a layer join the residual stream x.
enum class Block {
    pre_norm,  // x += attention(norm x); x += mlp(norm x)
    post_norm, // x = norm(x + attention(x)); x = norm(x + mlp(x))
    sandwich,  // x += norm(attention(norm x)); x += norm(mlp(norm x))
    parallel,  // x += attention(norm x) + mlp(norm x), with one all-reduce; two norms or one
};

std::string to_string(WeightType type); // "float32", "bfloat16", "float16", "int8", "float8"
std::size_t bytes_of(WeightType type);  // of a weight in memory; int8's scales not counted

enum class RopeScaling { none, linear, dynamic, llama3, yarn };

// Rotary positions, with the ways to stretch them (transformers' modeling_rope_utils).
struct Rope {
    double theta = 10000.0;
    int dims = 0; // the first of a head, which are turned; even
    RopeScaling scaling = RopeScaling::none;
    double factor = 1;
    double original_positions = 0;        // llama3, yarn; dynamic: those that need no stretching
    double low_frequency_factor = 1;      // llama3
    double high_frequency_factor = 4;     // llama3
    double beta_fast = 32, beta_slow = 1; // yarn
    bool truncate = true;                 // yarn
    double attention_factor = 1;          // of cosines and sines
    friend bool operator==(const Rope&, const Rope&) = default;
};

struct ModelConfig {
    std::string family = "llama"; // config.json's "model_type"
    int vocab_size = 0;           // rows of the embedding and of the head
    int hidden_size = 0;
    int embedding_size = 0; // width of embedding and head: hidden_size, or less with projections between
    int intermediate_size = 0;
    int n_layers = 0;
    int n_heads = 0;
    int n_kv_heads = 0;
    int head_dim = 0;
    int max_positions = 0;

    Block block = Block::pre_norm;
    bool shared_norm = false; // parallel: the MLP reads the attention's norm
    bool final_norm = true;
    Norm norm = Norm::rms;
    float norm_epsilon = 1e-5f;
    float norm_offset = 0; // added to the stored weights of every norm
    Activation activation = Activation::silu;
    bool gated_mlp = true;
    bool qkv_bias = false, output_bias = false, mlp_bias = false, head_bias = false;
    bool query_key_norm = false; // RMSNorm over each head's queries and keys

    Positions positions = Positions::rotary;
    Rope rope;
    int position_offset = 0; // learned: row of the table that position 0 has
    float embedding_scale = 1;
    float attention_scale = 0;    // of query times key
    float attention_soft_cap = 0; // 0: none
    float logit_soft_cap = 0;     // 0: none
    std::vector<int>
        windows; // by layer: how many positions a row sees, itself included; 0: all. Empty: all, everywhere

    bool tied_embeddings = false;
    WeightType stored_type = WeightType::float32; // what the config says the file holds
    std::int64_t bos_token_id = -1;               // -1: none
    std::vector<std::int64_t> eos_token_ids;

    int window(int layer) const { return windows.empty() ? 0 : windows[static_cast<std::size_t>(layer)]; }
};

// Reads directory/config.json (and generation_config.json for the end-of-text ids, where present).
// Throws BadFile naming the file, the field and the remedy. Local.
ModelConfig read_config(const std::filesystem::path& directory);

} // namespace entrodraft::model
