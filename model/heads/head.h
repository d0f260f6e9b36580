// Draft heads: small models that draft from the hidden states of the target for which they were trained. This file has
// the known formats. Each is read as decoders (ModelConfig::fusion) over tensors of the head and of its target.
//
// For the row of position p, a head reads the target's states at p and the token at p + 1, and predicts the token after
// it. A format is one file without a header, heads/NAME.cpp. It defines NAME_head(), and CMake finds it. There is no
// arithmetic here. Called by launch; spec/draft/head_texts.h drafts with a head.
#pragma once

#include "model/families/config.h"
#include "model/families/fields.h"
#include "model/families/names.h"
#include "model/files/checkpoint.h"
#include "model/text/token_id.h"

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace entrodraft::model {

// The features of a drafted token's row, in place of the target's states, which are not known yet.
enum class HeadState {
    before_norm, // the head's own state of the previous token, before its final norm
    after_norm,  // the same, after its final norm
    projected,   // its own state, for a head without norm whose module projects its features
    with_cell,   // the same, followed by its LSTM's cell
    grown,       // the features of the previous token, followed by that token's embedding
    features,    // the target's states of the last row that has any: all modules read these
    masked,      // one pass drafts several tokens: rows of drafted tokens differ only by position
};

struct HeadModule {
    ModelConfig config;
    Checkpoint weights;
};

struct DraftHead {
    std::string format;              // "eagle3"
    std::string trained_for;         // the target's name, as in the config; empty: it has none
    int trained_vocab_size = 0;      // the target's, as in the config; 0: it has none
    std::vector<HeadModule> modules; // by the depth that they draft at; the last one also drafts at every greater depth
    std::vector<int> target_layers;  // Pass::hidden_layers of the target that make up a row's features
    HeadState state = HeadState::before_norm;
    int max_tokens = 0; // the most tokens that it can draft; 0: any number
    int block = 1;      // tokens that a pass drafts after the same number of tokens, in rows that see one another
    // The first module makes the features of the others: its states after its layers, from only the target's features.
    bool has_prefix = false;
    // For masked rows: their token, and their features in place of the target's states.
    TokenId mask_token = 0;
    std::vector<float> mask_features;

    const ModelConfig& config() const { return modules.front().config; }
};

// The files that a format reads.
struct HeadFiles {
    std::filesystem::path directory;
    nlohmann::json json; // config.json
    Checkpoint weights;
    std::string file() const { return (directory / "config.json").string(); }
    std::string text(const char* field) const; // empty where the field is missing
};
struct HeadTarget {
    const ModelConfig& config;
    const Checkpoint& weights;
    ModelNames names;
};

struct HeadFormat {
    std::string name;
    bool (*is_of)(const HeadFiles& files) = nullptr;
    DraftHead (*read)(const HeadFiles& files, const HeadTarget& target) = nullptr; // throws BadFile
};
// Returns the formats in the order of the files' names.
std::vector<HeadFormat> heads_of_files();

// Reads the head in a directory, for this target. Throws BadFile if its format is not known, or if tensors are missing
// or do not have the target's shapes.
DraftHead read_head(const std::filesystem::path& directory, const ModelConfig& target, const Checkpoint& weights);

// ---- parts that several formats share ----

// Tensors of head and target, under the names that a decoder looks for.
class HeadTensors {
  public:
    HeadTensors(const HeadFiles& files, const HeadTarget& target) : files_(files), target_(target) {}

    bool has(const std::string& stored) const { return files_.weights.has(stored); }
    // Throws BadFile where the head has no such tensor.
    void add(const std::string& name, const std::string& stored);
    void add_of_target(const std::string& name, const std::string& stored);
    // Adds the weight and, if there is one, the bias.
    void add_both(const std::string& name, const std::string& stored);
    // Adds, as "model.layers.NUMBER.", every tensor of the layer `stored`, or of its parts that begin with `part`.
    void add_layer(int number, const std::string& stored, const std::string& part = "");
    // Both add the head's own tensor where it has one, else the target's.
    void add_embedding(const std::string& stored = "embed_tokens.weight");
    void add_output(const std::string& stored = "lm_head.weight");
    // Norms features with the target's final norm. Adapts the config.
    void norm_features_as_target(ModelConfig& config);
    // Adds `count` norms of `size` numbers each: "STORED", or "STORED.I" if there are several. Adapts the config.
    void norm_features(ModelConfig& config, int count, int size, const std::string& stored);
    Checkpoint composed() const { return Checkpoint::composed(files_.directory, parts_); }

  private:
    const HeadFiles& files_;
    const HeadTarget& target_;
    std::vector<Checkpoint::Part> parts_;
};

// Returns the config of a head's layers, which `json` describes as a decoder. Vocabulary and context are the target's;
// the scales of the target's family are not applied. Throws BadFile.
ModelConfig head_layers_config(nlohmann::json json, const HeadFiles& files, const HeadTarget& target);
// Returns the config of a head without layers, with the target's width.
ModelConfig head_without_layers(const HeadTarget& target);
// Makes a module without layers over the target's last state, after the target's final norm. `add` defines its
// operations on that state.
HeadModule module_of_last_state(const HeadFiles& files, const HeadTarget& target,
                                const std::function<void(ModelConfig& config, HeadTensors& tensors)>& add);
// Reads the tensor `name`: the head's tokens, or the offset of each from its place among them. Throws BadFile. Empty
// where there is no such tensor.
std::vector<TokenId> read_tokens(const HeadFiles& files, const HeadTarget& target, const char* name, bool are_offsets);
// Returns the target's layers that a field lists, in its order, as Pass::hidden_layers. `offset` is added to each
// listed number. Throws BadFile.
std::vector<int> layer_ids(const Fields& fields, const char* name, int offset, const HeadTarget& target);
// Returns 'mask_token_id', one of the config's tokens. Throws BadFile.
TokenId mask_token(const Fields& fields, const ModelConfig& config);
// Throws BadFile where the field says that the head was trained for a target of another width.
void require_target_size(const Fields& fields, const char* name, const HeadTarget& target);

} // namespace entrodraft::model
