// The directory that distill writes. It has the draft as a checkpoint, the report, and in training/ the state from
// which a run can be resumed. distill calls this on the first rank.
#pragma once

#include "launch/load/opened_model.h"

#include <filesystem>
#include <span>
#include <string>

namespace entrodraft::launch {

// The shape that --layers and --hidden give; 0 keeps the source's value.
struct DraftShape {
    int layers = 0, hidden_size = 0;
};

class DistillFiles {
  public:
    explicit DistillFiles(std::filesystem::path directory) : directory_(std::move(directory)) {}

    // Makes the directory. Throws BadOption if it is not empty, unless the run is to be resumed.
    void prepare(bool resume) const;

    std::filesystem::path texts() const { return directory_ / "training/texts.safetensors"; }
    std::filesystem::path continued() const {
        return directory_ / "training/continued.jsonl";
    } // until they are texts()
    std::filesystem::path own_texts() const { return directory_ / "training/own_texts.safetensors"; }
    std::filesystem::path current_draft() const { return directory_ / "training/draft"; }
    std::filesystem::path state() const { return directory_ / "training/state.safetensors"; }
    std::string report() const { return directory_ / "distill.json"; }

    // Writes the small files of the checkpoint that the draft is made of, with its config changed to that shape.
    void write_model_files(const OpenedModel& source, const DraftShape& shape) const;
    // Reads the config that write_model_files() wrote. Throws BadFile, or BadOption if it does not have that shape.
    model::ModelConfig draft_config(const DraftShape& shape) const;
    void write_weights(std::span<const model::TensorBytes> tensors) const;
    // Writes a draft in training as a separate checkpoint.
    void write_current_draft(std::span<const model::TensorBytes> tensors) const;

  private:
    std::filesystem::path directory_;
};

// Writes the whole file or nothing. Throws std::runtime_error.
void write_tensors(const std::filesystem::path& file, std::span<const model::TensorBytes> tensors);

// Returns a checkpoint with the tensors of the first layers.
model::Checkpoint first_layers(const OpenedModel& opened, int layers);

} // namespace entrodraft::launch
