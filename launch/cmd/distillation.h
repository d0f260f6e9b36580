// Training of a draft: its initial state, the training steps, the texts that the draft itself generates for training,
// and the report in the output directory of distill. Called by distill. All ranks of the world must call each function
// together, unless a comment says otherwise.
#pragma once

#include "launch/cmd/distill_files.h"
#include "launch/cmd/distill_texts.h"
#include "launch/load/rank_device.h"
#include "model/torch/trainer.h"
#include "spec/distill/training.h"
#include "spec/protocol/stats.h"

#include <memory>
#include <string>
#include <vector>

namespace entrodraft::launch {

class Distillation {
  public:
    // Opens the model that the draft is made of, then makes --output with its small files and the draft's first state.
    // The arguments outlive this object. Throws OrderlyFailure, before anything is written if the model is refused.
    Distillation(dist::Session& session, const DistillOptions& options);

    const model::ModelConfig& config() const { return begun_.config; } // the draft's config
    const DistillFiles& files() const { return files_; }

    // Returns false if a signal came first; the run can then be resumed.
    bool train(const DistillTexts& texts);
    // Measures the trained draft's costs in rounds with the target. The result counts on the first rank.
    spec::Costs measure_costs(const DistillTexts& texts);
    // Writes distill.json and logs its figures, on the first rank.
    void write_report(const DistillTexts& texts, const spec::Costs& costs) const;

  private:
    DraftShape shape() const { return {options_.layers, options_.hidden_size}; }
    bool writes() const { return session_.world_rank() == 0; }
    void say(const std::string& line) const;
    int begin_of(int phase) const;
    int phase_of(int step) const;
    std::vector<spec::ScoredText> own_texts(const DistillTexts& texts, int phase);
    void sample_own_texts(const DistillTexts& texts, int phase, std::vector<spec::ScoredText>& own);
    ModelOptions target_alone(const std::string& directory) const;
    void load_trainer(const DistillTexts& texts, const RankDevice& device, int threads);
    void restore();
    Json settings() const;
    void save(const spec::TrainingProgress& progress, bool is_best) const;
    model::WeightType stored_type() const;

    dist::Session& session_;
    const DistillOptions& options_;
    DistillFiles files_;
    OpenedModel begun_; // the model that the draft is made of
    Json description_of_texts_;
    std::unique_ptr<model::torch::Trainer> trainer_;
    spec::TrainingProgress progress_;
};

} // namespace entrodraft::launch
