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

class DistillFiles {
  public:
    explicit DistillFiles(std::filesystem::path directory) : directory_(std::move(directory)) {}

    // Makes the directory. Throws BadOption where it holds anything, unless that is to be resumed.
    void prepare(bool resume) const;

    std::filesystem::path texts() const { return directory_ / "training/texts.safetensors"; }
    std::filesystem::path own_texts() const { return directory_ / "training/own_texts.safetensors"; }
    std::filesystem::path current_draft() const { return directory_ / "training/draft"; }
    std::filesystem::path state() const { return directory_ / "training/state.safetensors"; }
    std::string report() const { return directory_ / "distill.json"; }

    // The small files of the checkpoint that the draft began with, which has so many layers, 0: all. Throws
    // std::runtime_error where the config of such a draft is not read again as that of `begun`.
    void write_model_files(const OpenedModel& begun, int layers) const;
    void write_weights(std::span<const model::TensorBytes> tensors) const;
    // A checkpoint of its own, of a draft in training.
    void write_current_draft(const OpenedModel& begun, int layers, std::span<const model::TensorBytes> tensors) const;

  private:
    static void write_small_files(const OpenedModel& begun, int layers, const std::filesystem::path& to);

    std::filesystem::path directory_;
};

// Whole, or not at all. Throws std::runtime_error. Local.
void write_tensors(const std::filesystem::path& file, std::span<const model::TensorBytes> tensors);

// Makes of a model its first layers. Throws BadOption where it has fewer. Local.
void keep_first_layers(OpenedModel& opened, int layers);

} // namespace entrodraft::launch
