#include "spec/draft/rows_ahead.h"

#include <algorithm>
#include <utility>

namespace entrodraft::spec {

namespace {

// Returns whether `noise` belongs to a row `steps` rows after that of `of_row`.
bool is_further(const model::RowNoise& noise, const model::RowNoise& of_row, std::size_t steps) {
    return noise.key == of_row.key && noise.position == of_row.position + steps &&
           noise.temperature == of_row.temperature;
}

} // namespace

void ChainAhead::keep(std::size_t length, const model::LogitNeeds& needs, const model::PassResult& result) {
    *this = {};
    const std::size_t n = result.summaries.size();
    if (n < 2) return;
    first_ = length + 1;
    for (std::size_t i = 0; i + 1 < n; ++i)
        tokens_.push_back(result.noisy.empty() ? result.summaries[i].arg_max : result.noisy[i].token);
    summaries_.assign(result.summaries.begin() + 1, result.summaries.end());
    if (result.noisy.empty()) return;
    noisy_.assign(result.noisy.begin() + 1, result.noisy.end());
    noise_ = needs.noises[0];
}

const SourceLogits* ChainAhead::row(std::size_t length, const model::LogitNeeds& needs, int vocab) {
    if (needs.rows || length < first_ || length >= first_ + summaries_.size()) return nullptr;
    const std::size_t i = length - first_;
    if (!noisy_.empty() && !needs.noises.empty() && !is_further(needs.noises[0], noise_, i + 1)) return nullptr;
    row_ = {{}, 0, static_cast<std::size_t>(vocab), std::span(summaries_).subspan(i, 1), {}};
    if (!noisy_.empty()) row_.noisy = std::span(noisy_).subspan(i, 1);
    return &row_;
}

void TreeAhead::keep(int slot, std::span<const GrownRow> grown) {
    *this = {};
    if (grown.empty()) return;
    slot_ = slot;
    text_row_.push_back(grown[0].row);
    for (const GrownRow& each : grown.subspan(1)) {
        nodes_.push_back({each.token, each.parent});
        rows_.push_back(each.row);
    }
}

std::vector<TreeNode> TreeAhead::asked_nodes() const {
    std::vector<TreeNode> nodes;
    for (const int i : asked_) {
        const TreeNode& node = nodes_[i];
        const auto parent = std::ranges::find(asked_, node.parent);
        nodes.push_back({node.token, node.parent < 0 ? -1 : static_cast<int>(parent - asked_.begin())});
    }
    return nodes;
}

// The device reads the nodes that would have been asked for level by level, and maybe more.
const SourceLogits* TreeAhead::rows_of(std::span<const NewNodes> trees, int vocab) {
    if (trees.size() != 1 || trees[0].slot != slot_) return nullptr;
    std::vector<int> asked = asked_;
    ranked_.clear();
    for (const TreeNode& node : trees[0].nodes) { // the nodes were read in the order in which they are asked for
        const int parent = node.parent < 0 ? -1 : asked[node.parent];
        auto i = static_cast<std::size_t>(asked.empty() ? 0 : asked.back() + 1);
        while (i < nodes_.size() && (nodes_[i].parent != parent || nodes_[i].token != node.token))
            ++i;
        if (i == nodes_.size()) return nullptr;
        asked.push_back(static_cast<int>(i));
        ranked_.push_back(rows_[i]);
    }
    asked_ = std::move(asked);
    logits_ = {{}, 0, static_cast<std::size_t>(vocab), {}, {}, ranked_};
    return &logits_;
}

void GatheredRows::clear() {
    rows_.clear();
    summaries_.clear();
}

std::vector<float> GatheredRows::take(const SourceLogits& rows, std::size_t first, std::size_t n) {
    const std::span<const float> now = rows.row(first);
    rows_.insert(rows_.end(), now.begin(), now.end());
    if (!rows.summaries.empty()) summaries_.push_back(rows.summaries[first]);
    std::vector<float> ahead;
    for (std::size_t i = 1; i < n; ++i) {
        const std::span<const float> row = rows.row(first + i);
        ahead.insert(ahead.end(), row.begin(), row.end());
    }
    return ahead;
}

void GatheredRows::add(std::span<const float> ahead, std::size_t i, const model::LogitNeeds& needs) {
    const std::span<const float> row = ahead.subspan(i * vocab_, vocab_);
    rows_.insert(rows_.end(), row.begin(), row.end());
    if (needs.summary != model::LogitSummary::none)
        summaries_.push_back(model::kernels::best_kernels().logit_stats(row.data(), static_cast<int>(vocab_), 0));
}

} // namespace entrodraft::spec
