#include "model/pass/routing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace entrodraft::model {
namespace {

void make_scores(RouterScore kind, std::vector<float>& logits) {
    if (kind == RouterScore::sigmoid) {
        for (float& logit : logits)
            logit = 1.0f / (1.0f + std::exp(-logit));
        return;
    }
    const float max = *std::ranges::max_element(logits);
    float sum = 0;
    for (float& logit : logits)
        sum += logit = std::exp(logit - max);
    for (float& logit : logits)
        logit /= sum;
}

// Returns the indices of the `count` best values, the best first.
std::vector<int> best_of(std::span<const float> values, int count) {
    std::vector<int> order(values.size());
    std::iota(order.begin(), order.end(), 0);
    const auto is_better = [&](int a, int b) {
        const float of_a = values[a], of_b = values[b];
        return of_a != of_b ? of_a > of_b : a < b;
    };
    std::partial_sort(order.begin(), order.begin() + count, order.end(), is_better);
    order.resize(static_cast<std::size_t>(count));
    return order;
}

// Excludes the experts of all groups but the best.
void mask_groups(const ExpertsConfig& experts, std::vector<float>& values) {
    if (experts.n_chosen_groups == experts.n_groups) return;
    const auto size = static_cast<std::size_t>(experts.n_experts / experts.n_groups);
    std::vector<float> of_groups;
    for (std::size_t begin = 0; begin < values.size(); begin += size) {
        const std::span<const float> group = std::span<const float>(values).subspan(begin, size);
        of_groups.push_back(0);
        for (const int best : best_of(group, experts.n_group_best))
            of_groups.back() += group[best];
    }
    std::vector<bool> stays(of_groups.size(), false);
    for (const int best : best_of(of_groups, experts.n_chosen_groups))
        stays[best] = true;
    for (std::size_t i = 0; i < values.size(); ++i)
        if (!stays[i / size]) values[i] = -std::numeric_limits<float>::infinity();
}

} // namespace

void choose_experts(const ExpertsConfig& experts, std::span<const float> logits, std::span<const float> correction,
                    std::span<ChosenExpert> chosen) {
    std::vector<float> scores(logits.begin(), logits.end());
    make_scores(experts.score, scores);
    std::vector<float> values = scores;
    for (std::size_t i = 0; i < correction.size(); ++i)
        values[i] += correction[i];
    mask_groups(experts, values);
    std::vector<int> best = best_of(values, experts.n_chosen);
    std::ranges::sort(best);
    float sum = experts.normalizes ? 1e-20f : 1.0f; // the scores may all be 0
    for (std::size_t i = 0; i < best.size(); ++i) {
        chosen[i] = {best[i], scores[best[i]]};
        if (experts.normalizes) sum += chosen[i].weight;
    }
    for (ChosenExpert& one : chosen)
        one.weight = one.weight / sum * experts.scale;
}

void ExpertRows::set(const ExpertsConfig& experts, std::span<const ChosenExpert> chosen) {
    begin.assign(static_cast<std::size_t>(experts.n_experts) + 1, 0);
    for (const ChosenExpert& one : chosen)
        ++begin[static_cast<std::size_t>(one.expert) + 1];
    std::partial_sum(begin.begin(), begin.end(), begin.begin());
    rows.resize(chosen.size());
    weights.resize(chosen.size());
    std::vector<int> next(begin.begin(), begin.end() - 1);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
        const auto at = static_cast<std::size_t>(next[chosen[i].expert]++);
        rows[at] = static_cast<int>(i) / experts.n_chosen;
        weights[at] = chosen[i].weight;
    }
}

} // namespace entrodraft::model
