// Distances between a target's distributions and those of a model's logits. Called by torch/trainer and its test.
#pragma once

#include "model/torch/distill_loss.h"

#include <ATen/core/Tensor.h>

namespace entrodraft::model::torch {

// Of the rows of some texts, as ScoredText has them.
struct TargetRows {
    at::Tensor top_tokens, top_log_probs; // [rows][n_top]
    at::Tensor rest_mass;                 // [rows]
    at::Tensor rest_token, rest_log_prob; // [rows]; a token of -1 is 0 here, with a mass of 0
};

// [rows], of logits [rows][vocabulary] in float32 or float64. Differentiable. All tokens but a row's top ones are one.
at::Tensor loss_of(DistillLoss loss, const at::Tensor& logits, const TargetRows& target);
// [rows]: estimates of sum min(p, q) without bias.
at::Tensor overlap_of(const at::Tensor& logits, const TargetRows& target);

} // namespace entrodraft::model::torch
