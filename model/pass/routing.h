// Computes the experts and their weights for each row of a pass. It is plain arithmetic on a router's products, the
// same for every device. The operations of layers with experts call it.
#pragma once

#include "model/families/config.h"

#include <span>
#include <vector>

namespace entrodraft::model {

struct ChosenExpert {
    int expert = 0;
    float weight = 0;
};

// Chooses for one row, by its logits, [n_experts], and a bias on scores, [n_experts] or empty, that counts only in the
// choice. Writes [n_chosen], in the order of the experts' numbers. Of equal scores the lower number wins.
void choose_experts(const ExpertsConfig& experts, std::span<const float> logits, std::span<const float> correction,
                    std::span<ChosenExpert> chosen);

// The rows of each expert, and their weights: expert e has [begin[e], begin[e + 1]), in order.
struct ExpertRows {
    std::vector<int> begin;     // [n_experts + 1]
    std::vector<int> rows;      // [n_rows * n_chosen]
    std::vector<float> weights; // [n_rows * n_chosen]

    // `chosen`: [n_rows][n_chosen].
    void set(const ExpertsConfig& experts, std::span<const ChosenExpert> chosen);
    int count(int expert) const {
        const auto at = static_cast<std::size_t>(expert);
        return begin[at + 1] - begin[at];
    }
};

} // namespace entrodraft::model
