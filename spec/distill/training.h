// The training of a draft on scored texts: which texts each step learns from, how fast, when held-out texts are
// measured, and when it ends. What a step computes is the Trainer's; files and lines of progress are the caller's.
//
// Called by the command distill on all ranks, which share the texts of each step.
#pragma once

#include "dist/comm/communicator.h"
#include "model/torch/trainer.h"

#include <cstdint>
#include <functional>
#include <optional>
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
    int patience = 5;        // evaluations without a better one than before; then it ends
    std::uint64_t seed = 0;
    double timeout_seconds = dist::kDefaultTimeoutSeconds;
};

// Linear up to learning_rate, then along half a cosine to a tenth of it. `step` counts from 0. Pure.
double learning_rate_at(const TrainingPlan& plan, int step);
// The texts of a step: each epoch has all of them once, in an order of its own. Pure.
std::vector<std::size_t> texts_of_step(const TrainingPlan& plan, std::size_t n_texts, int step);

// On the held-out texts, after so many steps; means over places.
struct Evaluation {
    int step = 0;
    double training_loss = 0; // of the steps since the one before
    double loss = 0;
    double overlap = 0;   // sum min(p, q)
    double agreement = 0; // greedy
};

// What a training goes on from, beside the trainer's own state.
struct TrainingProgress {
    int step = 0; // done
    std::vector<Evaluation> evaluations;

    // The evaluation with the greatest overlap, the first of equal ones; none before the first.
    const Evaluation* best() const;
    int since_best() const; // evaluations
};

struct TrainingCallbacks {
    std::function<void(const TrainingProgress&)> on_step;
    // After each evaluation; `is_best`: no earlier one was as good. Collective where what it does is.
    std::function<void(const TrainingProgress&, bool is_best)> on_evaluation;
};

enum class TrainingEnd { finished, converged, interrupted };

// What texts there are to learn and to measure on, the same on all ranks, and up to which step of the plan.
struct TrainingPhase {
    std::span<const ScoredText> learned, held_out;
    int end = 0;
};

// From `progress` on, which it keeps up to date, to the end of the phase, where it evaluates. Ends where `stop_signal`
// is set on any rank. Collective over the ranks.
TrainingEnd train(model::torch::Trainer& trainer, const TrainingPlan& plan, const TrainingPhase& phase,
                  dist::Communicator& ranks, TrainingProgress& progress, const TrainingCallbacks& callbacks,
                  const volatile int& stop_signal);

} // namespace entrodraft::spec
