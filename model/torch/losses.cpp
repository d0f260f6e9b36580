#include "model/torch/losses.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/scatter.h>
#include <cmath>
#include <stdexcept>

namespace entrodraft::model::torch {

using at::Tensor;

namespace {

// Logarithms are at least this, so that a probability of 0 has a finite cost.
constexpr double kLeastLog = -30;

// Log-probabilities of a row's top tokens, then of all others together: [rows][n_top + 1].
Tensor log_target(const TargetRows& target) {
    return at::cat({target.top_log_probs, target.rest_mass.log().unsqueeze(1)}, 1).clamp_min(kLeastLog);
}
Tensor log_model(const Tensor& logits, const TargetRows& target) {
    constexpr double kNone = -1e30; // minus infinity has no gradient if no token is left
    const Tensor top = at::log_softmax(logits, 1).gather(1, target.top_tokens);
    const Tensor others = at::logsumexp(at::scatter(logits, 1, target.top_tokens, kNone), 1, true);
    return at::cat({top, others - at::logsumexp(logits, 1, true)}, 1).clamp_min(kLeastLog);
}

} // namespace

Tensor loss_of(DistillLoss loss, const Tensor& logits, const TargetRows& target) {
    const Tensor log_p = log_target(target).to(logits.scalar_type()), log_q = log_model(logits, target);
    const Tensor p = log_p.exp(), q = log_q.exp();
    switch (loss) {
    case DistillLoss::forward_kl:
        return (p * (log_p - log_q)).sum(1);
    case DistillLoss::reverse_kl:
        return (q * (log_q - log_p)).sum(1);
    case DistillLoss::jsd: {
        const Tensor log_mean = at::logaddexp(log_p, log_q) - std::log(2.0);
        return (p * (log_p - log_mean) + q * (log_q - log_mean)).sum(1) / 2;
    }
    case DistillLoss::tvd:
        return (p - q).abs().sum(1) / 2;
    case DistillLoss::log_alpha:
        return -at::minimum(p, q).sum(1).log();
    }
    throw std::invalid_argument("a loss that the torch backend does not know");
}

Tensor overlap_of(const Tensor& logits, const TargetRows& target) {
    const Tensor log_q = at::log_softmax(logits, 1);
    const Tensor top = at::minimum(target.top_log_probs, log_q.gather(1, target.top_tokens)).exp().sum(1);
    const Tensor drawn = log_q.gather(1, target.rest_token.unsqueeze(1)).squeeze(1);
    return top + target.rest_mass * (drawn - target.rest_log_prob).clamp_max(0).exp();
}

} // namespace entrodraft::model::torch
