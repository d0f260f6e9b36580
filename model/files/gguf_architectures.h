// Describes the architectures that GGUF files name, in terms of transformers: the model type of each, the config.json
// field for each key, and the names of its tensors. Called by gguf_model.
#pragma once

#include "model/files/gguf_file.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace entrodraft::model {

struct GgufArchitecture;

// A file's metadata, by keys of its architecture.
class GgufMetadata {
  public:
    // Throws BadFile where the architecture is not supported.
    explicit GgufMetadata(const GgufFile& file);

    const GgufArchitecture& architecture() const { return *architecture_; }
    const nlohmann::json* find(const std::string& key) const;
    const nlohmann::json* field(std::string_view key) const; // finds a key that follows the architecture's name
    const nlohmann::json& required(std::string_view key) const;
    const TensorView* tensor(std::string_view name) const;
    [[noreturn]] void refuse(const std::string& reason) const;
    // Throws BadFile if the field has another value than the one that changes nothing.
    void refuse_other(std::string_view key, const nlohmann::json& neutral) const;

  private:
    const GgufFile& file_;
    const GgufArchitecture* architecture_ = nullptr;
};

struct GgufArchitecture {
    using Names = std::vector<std::pair<std::string_view, std::string_view>>;

    std::string_view name;       // general.architecture
    std::string_view model_type; // of config.json
    std::string_view class_name;
    bool has_experts = false;
    int gating = 1;                // expert_gating_func, where a file has it: 1: softmax, 2: sigmoid
    bool pairs_neighbours = false; // neighbours are rotated together; in the checkpoint, numbers half a head apart
    bool norms_are_whole = false;  // norm weights are not stored less one, unlike in the checkpoint
    Names fields = {};             // keys and their config.json names, in addition to those of all
    nlohmann::json implied = {};   // fields without a key
    // Tensors of a layer and their names in the checkpoint, where these differ from Llama's, with or without their
    // endings. A * is an expert's number: the tensor has all experts' matrices, one after another.
    Names tensors = {};
    void (*complete)(const GgufMetadata& file, nlohmann::json& config) = nullptr;
};
const std::vector<GgufArchitecture>& gguf_architectures();

} // namespace entrodraft::model
