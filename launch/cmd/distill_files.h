// The directory that distill writes: the draft, as a checkpoint, its report, and in training/ what a run goes on from.
//
// Called by distill, on the first rank.
#pragma once

#include "launch/load/opened_model.h"
#include "model/torch/trainer.h"
#include "spec/distill/scored_texts.h"

#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace entrodraft::launch {

// As --layers and --hidden say; 0: as in the source.
struct DraftShape {
    int layers = 0, hidden_size = 0;
};

class DistillFiles {
  public:
    explicit DistillFiles(std::filesystem::path directory) : directory_(std::move(directory)) {}

    // Makes the directory. Throws BadOption where it holds anything, unless that is to be resumed.
    void prepare(bool resume) const;

    std::filesystem::path texts() const { return directory_ / "training/texts.safetensors"; }
    std::filesystem::path continued() const {
        return directory_ / "training/continued.jsonl";
    } // until they are texts()
    std::filesystem::path own_texts() const { return directory_ / "training/own_texts.safetensors"; }
    std::filesystem::path current_draft() const { return directory_ / "training/draft"; }
    std::filesystem::path state() const { return directory_ / "training/state.safetensors"; }
    std::string report() const { return directory_ / "distill.json"; }

    // The small files of the checkpoint that the draft is made of, its config for a draft of that shape.
    void write_model_files(const OpenedModel& source, const DraftShape& shape) const;
    // Of a draft that was written so. Throws BadFile, BadOption where its config does not say that shape.
    model::ModelConfig draft_config(const DraftShape& shape) const;
    void write_weights(std::span<const model::TensorBytes> tensors) const;
    // A checkpoint of its own, of a draft in training.
    void write_current_draft(std::span<const model::TensorBytes> tensors) const;

  private:
    std::filesystem::path directory_;
};

// Whole, or not at all. Throws std::runtime_error.
void write_tensors(const std::filesystem::path& file, std::span<const model::TensorBytes> tensors);

// The tensors of the first layers.
model::Checkpoint first_layers(const OpenedModel& opened, int layers);

} // namespace entrodraft::launch
