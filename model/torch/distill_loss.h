// The losses for distillation. Includes nothing from torch.
#pragma once

#include <string>

namespace entrodraft::model::torch {

// Training minimizes one of these. p is the target's distribution of a next token, q the trained model's.
enum class DistillLoss {
    forward_kl, // sum p ln(p / q)
    reverse_kl, // sum q ln(q / p)
    jsd,        // half of the sum of both to the mean of p and q: Jensen-Shannon divergence
    tvd,        // half of sum |p - q|, which equals 1 - alpha
    log_alpha,  // -ln alpha, with alpha = sum min(p, q)
};
std::string to_string(DistillLoss loss); // "forward-kl", ...

} // namespace entrodraft::model::torch
