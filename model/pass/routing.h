// Which experts the rows of a pass go through, and with which weights: plain arithmetic on a router's products, the
// same for every device. Called by the operations of layers with experts.
#pragma once

#include "model/families/config.h"

#include <span>
#include <vector>

namespace entrodraft::model {

struct ChosenExpert {
    int expert = 0;
    float weight = 0;
};

// Of one row, by its logits, [n_experts], and the bias of scores that counts in the choice, [n_experts] or empty.
// Writes [n_chosen], in the order of the experts' numbers. Of equal scores the lower number's counts as better.
void choose_experts(const ExpertsConfig& experts, std::span<const float> logits, std::span<const float> correction,
                    std::span<ChosenExpert> chosen);

// The rows of each expert: those of expert e, with its weights, are [begin[e], begin[e + 1]), in order.
struct ExpertRows {
    std::vector<int> begin;     // [n_experts + 1]
    std::vector<int> rows;      // [n_rows * n_chosen]
    std::vector<float> weights; // as many

    // Of `chosen`, [n_rows][n_chosen].
    void set(const ExpertsConfig& experts, std::span<const ChosenExpert> chosen);
    int count(int expert) const {
        const auto at = static_cast<std::size_t>(expert);
        return begin[at + 1] - begin[at];
    }
};

} // namespace entrodraft::model
