// The fields of one JSON object of a config. Each is checked when it is asked for. The readers of families use this.
//
// A null counts as missing. The object remembers the fields that were asked for. So a field that nobody has read can be
// refused by name, if it would change the arithmetic. Called by config and the families.
#pragma once

#include "model/families/config.h"
#include "model/files/json_file.h"

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace entrodraft::model {

constexpr std::int64_t kMaxSize = std::int64_t{1} << 30; // sizes are padded and added up as ints

class Fields {
  public:
    // The object must outlive the fields; `file` begins every message.
    Fields(const nlohmann::json& object, std::string file) : object_(object), file_(std::move(file)) {}

    // Throws BadFile.
    [[noreturn]] void refuse(const std::string& reason) const;
    const std::string& file() const { return file_; }

    bool has(const char* name) const { return object_.contains(name); } // a null counts too
    const nlohmann::json* find(const char* name) const;
    const nlohmann::json& required(const char* name) const;
    bool was_read(const std::string& name) const { return read_.contains(name); }

    int size(const char* name) const; // a whole number from 1 to kMaxSize
    int size(const char* name, int default_value) const;
    int count(const char* name, int default_value) const; // the same, or 0
    double positive(const char* name, double default_value) const;
    bool boolean(const char* name, bool default_value) const;
    std::string string(const char* name, const std::string& default_value) const;
    std::vector<std::int64_t> token_ids(const char* name) const; // from a number or a list, which must be there

  private:
    int to_size(const char* name, const nlohmann::json& value) const;

    const nlohmann::json& object_;
    std::string file_;
    mutable std::set<std::string> read_;
};

// Returns the value for a message: strings in quotes, everything else as JSON, cut off where it is long.
std::string shown(const nlohmann::json& value);

// ---- fields that several families read alike; all throw BadFile ----

// transformers' names of these functions. `default_value` is used where the field is missing.
Activation read_activation(const Fields& fields, const char* name, const std::string& default_value);
float read_epsilon(const Fields& fields, const char* name, double default_value);
// rope_parameters (new), or rope_theta and rope_scaling (old), and the share of a head that is rotated. config.head_dim
// and config.max_positions are known; the latter grows where stretching allows longer texts.
struct RopeNames {
    const char* theta = "rope_theta";
    const char* share = "partial_rotary_factor";
    double default_share = 1;
    bool takes_share = false;    // else only the whole head is accepted
    bool takes_sections = false; // sections assign pairs to an image's positions; a text's positions are all the same
};
Rope read_rope(const Fields& fields, const RopeNames& names, ModelConfig& config);
// num_attention_heads, num_key_value_heads, head_dim and the common sizes, under the names most families use.
void read_common_shapes(const Fields& fields, ModelConfig& config, bool has_mlp = true);
// Sets head_dim from hidden_size and n_heads. `hidden` and `heads` are the fields' names.
void divide_into_heads(const Fields& fields, ModelConfig& config, const char* hidden, const char* heads);
// Reads bos_token_id and eos_token_id. A missing field gives the default, a null gives none.
void read_token_ids(const Fields& fields, std::int64_t default_bos, std::int64_t default_eos, ModelConfig& config);
// The first tokens of an encoder-decoder model's decoder text, if config.json or generation_config.json has them:
// decoder_start_token_id and forced_bos_token_id.
void read_decoder_start(const Fields& fields, ModelConfig& config);
// Reads sliding windows of `window` positions (0: none) for the layers that layer_types calls sliding_attention. If
// layer_types is missing, they are the layers for which `slides` returns true.
void read_windows(const Fields& fields, const std::function<bool(int layer)>& slides, int window, ModelConfig& config);

} // namespace entrodraft::model
