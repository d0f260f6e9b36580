// Trains a draft on scored texts. Decides which texts and which learning rate each step has, when held-out texts are
// measured, and when the training ends. The Trainer computes a step. The caller writes files and lines of progress.
//
// Called by the command distill on all ranks, which share the texts of each step.
#pragma once

#include "dist/comm/communicator.h"
#include "model/torch/trainer.h"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace entrodraft::spec {

using model::torch::ScoredText;

struct TrainingPlan {
    int steps = 1000;
    int warmup_steps = 50;
    int texts_a_step = 16; // of all ranks together
    int texts_a_pass = 16;
    double learning_rate = 3e-4;
    int evaluate_every = 50; // steps
    int patience = 5;        // number of evaluations without a better one that ends the training
    std::uint64_t seed = 0;
    double timeout_seconds = dist::kDefaultTimeoutSeconds;
};

// Rises linearly to learning_rate, then falls along half a cosine to a tenth of it. `step` counts from 0. Pure.
double learning_rate_at(const TrainingPlan& plan, int step);
// The texts of a step: each epoch has all of them once, in its own order. Pure.
std::vector<std::size_t> texts_of_step(const TrainingPlan& plan, std::size_t n_texts, int step);

// A measurement on the held-out texts; means over places.
struct Evaluation {
    int step = 0;             // steps done
    double training_loss = 0; // of the steps since the evaluation before
    double loss = 0;
    double overlap = 0;    // sum min(p, q), of sampled texts, or of all texts if none is sampled
    double agreement = 0;  // of the most likely tokens, of greedy texts, or of all texts if none is greedy
    double acceptance = 0; // of drafted tokens: overlap for sampled texts, agreement for greedy ones
};

// The state from which a training goes on, without the trainer's own.
struct TrainingProgress {
    int step = 0; // steps done
    std::vector<Evaluation> evaluations;

    // The evaluation with the greatest acceptance, the first of equal ones; null if there is none.
    const Evaluation* best() const;
    int since_best() const; // evaluations
};

struct TrainingCallbacks {
    std::function<void(const TrainingProgress&)> on_step;
    // Called after each evaluation; `is_best`: no earlier one was as good. It may call collectives.
    std::function<void(const TrainingProgress&, bool is_best)> on_evaluation;
};

enum class TrainingEnd { finished, converged, interrupted };

// The texts to learn from and to measure on, the same on all ranks, and the step of the plan at which the phase ends.
struct TrainingPhase {
    std::span<const ScoredText> learned, held_out;
    int end = 0;
};

// Trains from `progress` on, which it updates, to the end of the phase, where it evaluates. Also ends when
// `stop_signal` is set on any rank. Collective over the ranks.
TrainingEnd train(model::torch::Trainer& trainer, const TrainingPlan& plan, const TrainingPhase& phase,
                  dist::Communicator& ranks, TrainingProgress& progress, const TrainingCallbacks& callbacks,
                  const volatile int& stop_signal);

} // namespace entrodraft::spec
