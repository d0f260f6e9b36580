// Distances between a target's distributions and those of a model's logits. Called by torch/trainer and its test.
#pragma once

#include "model/torch/distill_loss.h"

#include <ATen/core/Tensor.h>

namespace entrodraft::model::torch {

// The target's data for the rows of some texts, as in ScoredText.
struct TargetRows {
    at::Tensor top_tokens, top_log_probs; // [rows][n_top]
    at::Tensor rest_mass;                 // [rows]
    at::Tensor rest_token, rest_log_prob; // [rows]; a token of -1 becomes 0 here, with mass 0
};

// [rows], from logits [rows][vocabulary] in float32 or float64. Differentiable. Counts all but a row's top tokens as
// one.
at::Tensor loss_of(DistillLoss loss, const at::Tensor& logits, const TargetRows& target);
// [rows]: unbiased estimates of sum min(p, q).
at::Tensor overlap_of(const at::Tensor& logits, const TargetRows& target);

} // namespace entrodraft::model::torch
