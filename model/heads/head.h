// Draft heads: small models that draft from the hidden states of the target that they were trained for. Which formats
// there are, and how each reads: as decoders (ModelConfig::fusion) over tensors of the head and of its target.
//
// A head reads, for the row of position p, the target's states at p and the token at p + 1, and says what follows that
// token. A format is one file, which CMake finds: heads/NAME.cpp, without a header, defines NAME_head(). No arithmetic.
// Called by launch; what drafts with a head is spec/draft/head_texts.h.
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

// What a drafted token's row gets in place of the target's states, which are not known yet.
enum class HeadState {
    before_norm, // the head's own state of the token before, before its final norm
    after_norm,  // the same, behind it
    projected,   // its own state, of a head without norm, where the features are that its module projects
    with_cell,   // the same, with its LSTM's cell behind it
    grown,       // the features of the token before, with that token's embedding behind them
    features,    // the target's states of the last row that has any: all modules read these
    masked,      // one pass drafts several tokens: nothing but positions tells rows of drafted tokens apart
};

struct HeadModule {
    ModelConfig config;
    Checkpoint weights;
};

struct DraftHead {
    std::string format;              // "eagle3"
    std::string trained_for;         // the target's name, as the config has it; empty: it has none
    int trained_vocab_size = 0;      // the target's, as the config has it; 0: it has none
    std::vector<HeadModule> modules; // by the depth that they draft at; the last one drafts at every depth behind
    std::vector<int> target_layers;  // Pass::hidden_layers of the target, which make up a row's features
    HeadState state = HeadState::before_norm;
    int max_tokens = 0; // that it can draft; 0: any number
    int block = 1;      // tokens that a pass drafts behind as many, whose rows see one another
    // The first module makes the features of the others: its states after its layers, of the target's features alone.
    bool has_prefix = false;
    // Of masked rows: their token, and what they have in place of the target's states.
    TokenId mask_token = 0;
    std::vector<float> mask_features;

    const ModelConfig& config() const { return modules.front().config; }
};

// What a format reads.
struct HeadFiles {
    std::filesystem::path directory;
    nlohmann::json json; // config.json
    Checkpoint weights;
    std::string file() const { return (directory / "config.json").string(); }
    std::string text(const char* field) const; // empty where there is none
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
// In the order of the files' names.
std::vector<HeadFormat> heads_of_files();

// The head in a directory, for this target. Throws BadFile: of no known format, tensors missing or of other shapes than
// the target's.
DraftHead read_head(const std::filesystem::path& directory, const ModelConfig& target, const Checkpoint& weights);

// ---- what several formats share ----

// Tensors of head and target under the names that a decoder looks for.
class HeadTensors {
  public:
    HeadTensors(const HeadFiles& files, const HeadTarget& target) : files_(files), target_(target) {}

    bool has(const std::string& stored) const { return files_.weights.has(stored); }
    // Throws BadFile where the head has no such tensor.
    void add(const std::string& name, const std::string& stored);
    void add_of_target(const std::string& name, const std::string& stored);
    // Weight and, where there is one, bias.
    void add_both(const std::string& name, const std::string& stored);
    // Under "model.layers.NUMBER." every tensor of the layer `stored`, or of its parts that begin so.
    void add_layer(int number, const std::string& stored, const std::string& part = "");
    // Embedding and output head: the head's own where it has some, else the target's.
    void add_embedding(const std::string& stored = "embed_tokens.weight");
    void add_output(const std::string& stored = "lm_head.weight");
    // The target's final norm, as that of features. Adapts the config.
    void norm_features_as_target(ModelConfig& config);
    // `count` norms of `size` numbers each, "STORED" or, of several, "STORED.I". Adapts the config.
    void norm_features(ModelConfig& config, int count, int size, const std::string& stored);
    Checkpoint composed() const { return Checkpoint::composed(files_.directory, parts_); }

  private:
    const HeadFiles& files_;
    const HeadTarget& target_;
    std::vector<Checkpoint::Part> parts_;
};

// The config of a head's layers, which `json` describes as that of a decoder: vocabulary and context are the target's,
// and nothing is scaled as the target's family does. Throws BadFile.
ModelConfig head_layers_config(nlohmann::json json, const HeadFiles& files, const HeadTarget& target);
// That of a head without layers, of the target's width.
ModelConfig head_without_layers(const HeadTarget& target);
// A module without layers over the target's last state, behind the target's final norm: `add` says what it does with
// it.
HeadModule module_of_last_state(const HeadFiles& files, const HeadTarget& target,
                                const std::function<void(ModelConfig& config, HeadTensors& tensors)>& add);
// The tensor `name`: the head's tokens, or how far each lies from its place among them. Throws BadFile. Empty where
// there is none.
std::vector<TokenId> read_tokens(const HeadFiles& files, const HeadTarget& target, const char* name, bool are_offsets);
// Layers of the target that a field lists, in its order, as Pass::hidden_layers; `offset` is how much they are more
// than what is listed. Throws BadFile.
std::vector<int> layer_ids(const Fields& fields, const char* name, int offset, const HeadTarget& target);
// 'mask_token_id', one of the config's tokens. Throws BadFile.
TokenId mask_token(const Fields& fields, const ModelConfig& config);
// Throws BadFile where the field says that the head was trained for a target of another width.
void require_target_size(const Fields& fields, const char* name, const HeadTarget& target);

} // namespace entrodraft::model
