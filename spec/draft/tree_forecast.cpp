// Expresses a tree's growth as numbers by which a GPU reads levels: see DeviceTreePlan. A value that is not known
// before the first row is taken from the last round.
#include "spec/draft/tree_growth.h"

#include <algorithm>

namespace entrodraft::spec {

static_assert(DeviceTreePlan::kMaxNodes == Packet::kMaxDraftTokens);
static_assert(DeviceTreePlan::kRanks == RankChances::kOwn);

DeviceTreePlan TreeShape::plan(double residual) const {
    DeviceTreePlan plan;
    plan.n_children = plan.width = options_.most_children();
    plan.n_eos = static_cast<int>(std::min<std::size_t>(limits_.eos_tokens.size(), DeviceTreePlan::kMaxEos));
    std::copy_n(limits_.eos_tokens.begin(), plan.n_eos, plan.eos);
    if (is(TreeOptions::Shape::eagle2)) plan.shape = DeviceTreePlan::Shape::probability;
    if (is(TreeOptions::Shape::expected_gain)) {
        plan.shape = DeviceTreePlan::Shape::gain;
        plan.min_reach = kMinReach;
        for (std::size_t rank = 0; rank < RankChances::kOwn; ++rank)
            std::ranges::copy(chances_.line(rank, residual), plan.weights[rank]);
        for (int rank = 0; rank < plan.n_children; ++rank)
            plan.mean_chances[rank] = chances_.mean(rank);
    }
    if (!is(TreeOptions::Shape::fixed)) return plan;
    std::vector<int> depths(children_.size(), 0);                 // [path + 1]
    std::vector<int> inner(children_.size() + 1, 0);              // nodes of a depth that have children
    for (std::size_t path = 0; path < children_.size(); ++path) { // parents before children
        plan.child_counts[path] = static_cast<std::uint8_t>(children_[path].size());
        if (children_[path].empty()) continue;
        plan.first_child[path] = static_cast<std::uint8_t>(children_[path].front());
        ++inner[depths[path]];
        for (const int child : children_[path])
            depths[child + 1] = depths[path] + 1;
    }
    plan.width = *std::ranges::max_element(inner);
    return plan;
}

DeviceTreePlan TreeGrowth::forecast() const {
    DeviceTreePlan plan = shape_->plan(residual_.value());
    if (task_->request->ignore_eos) plan.n_eos = 0;
    // A level's nodes are read if another level may follow.
    const auto left = static_cast<std::size_t>(std::min(task_->left_tokens, shape_->options().most_levels()));
    const int most = static_cast<int>(std::min(left, room_.along_path - text_.size())) - 1;
    plan.max_levels = std::max(most, 0);
    if (!task_->rule->options().type().weighs_costs) {
        plan.rule = task_->rule->forecast(plan.max_levels + 1);
        plan.max_levels = std::min(plan.max_levels, plan.rule.max_rows - 1);
    }
    const int nodes = std::min(DeviceTreePlan::kMaxNodes, plan.width * plan.max_levels);
    plan.max_nodes = static_cast<int>(std::min(static_cast<std::size_t>(nodes), room_.in_all - text_.size()));
    if (plan.shape != DeviceTreePlan::Shape::gain || !task_->gain) return plan;
    if (!task_->gain->pace.is_known()) { // level by level until it is
        plan.max_levels = 0;
        return plan;
    }
    const Worth worth(*task_->gain, {.passes = 1, .load = load_}); // the first pass is made in any case
    plan.of_target_row = price_of_row(worth, n_proposed_);
    plan.of_row = worth.of_passes(0, 1);
    for (int k = 0; k < DeviceTreePlan::kLevels; ++k) // each pass includes its first row
        plan.of_passes[k] = worth.of_passes(k + 1, -k - 1);
    return plan;
}

} // namespace entrodraft::spec
