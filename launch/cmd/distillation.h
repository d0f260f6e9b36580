// A draft in training: what it begins with, its steps, its texts of its own, and its report in the directory that
// distill writes.
//
// Called by distill. Collective over the world where not said otherwise.
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
    // Opens what the draft is made of; writes nothing. Throws OrderlyFailure.
    Distillation(dist::Session& session, const DistillOptions& options);
    // Before all that follows: makes --output with its small files, and what the draft begins with. Throws
    // OrderlyFailure.
    void begin();

    const model::ModelConfig& config() const { return begun_.config; } // of the draft
    const DistillFiles& files() const { return files_; }

    // False where a signal came first: the run can be resumed.
    bool train(const DistillTexts& texts);
    // Of the trained draft beside the target, as rounds pay them: counts on the first rank.
    spec::Costs measure_costs(const DistillTexts& texts);
    // distill.json, and the same in words. On the first rank.
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
    DistillOptions options_;
    DistillFiles files_;
    OpenedModel begun_; // what the draft is made of
    Json description_of_texts_;
    std::unique_ptr<model::torch::Trainer> trainer_;
    spec::TrainingProgress progress_;
};

} // namespace entrodraft::launch
