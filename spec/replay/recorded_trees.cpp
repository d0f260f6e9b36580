// Recorded rows of trees: see recorded_trees.h.
#include "spec/replay/recorded_trees.h"

#include <algorithm>

namespace entrodraft::spec {

RecordedTrees::RecordedTrees(const TextRecord& text, const DraftRecord& draft, bool is_head)
    : text_(text), draft_(draft), is_head_(is_head) {
    for (std::size_t row = 0; row < draft.tree_parent.size(); ++row)
        index(static_cast<Row>(row));
}

// Indexes a row whose columns are filled.
void RecordedTrees::index(Row row) {
    const auto at = static_cast<std::size_t>(row);
    const std::size_t before =
        at > 0 ? first_child_.back() + static_cast<std::size_t>(draft_.tree_children[at - 1]) : 0;
    first_child_.push_back(before);
    if (at >= draft_.places()) row_behind_[{draft_.tree_parent[at], draft_.tree_behind[at]}] = row;
}

RecordedTrees::Row RecordedTrees::after(Row row, TokenId token) const {
    const auto next = static_cast<std::size_t>(row) + 1;
    if (!is_head_ && next < draft_.places() && token == text_.token[next - 1]) return static_cast<Row>(next);
    const auto found = row_behind_.find({row, token});
    return found == row_behind_.end() ? kNone : found->second;
}

RecordedTrees::Row RecordedTrees::parent(Row row) const {
    const auto at = static_cast<std::size_t>(row);
    return at < draft_.places() ? row - 1 : draft_.tree_parent[at];
}

TokenId RecordedTrees::behind(Row row) const {
    const auto at = static_cast<std::size_t>(row);
    return at < draft_.places() ? text_.token[at - 1] : draft_.tree_behind[at];
}

std::vector<TreeChild> RecordedTrees::children(Row row, int n) const {
    const auto at = static_cast<std::size_t>(row);
    std::vector<TreeChild> children(static_cast<std::size_t>(std::min(n, draft_.tree_children[at])));
    for (std::size_t i = 0; i < children.size(); ++i) {
        const std::size_t child = first_child_[at] + i;
        children[i] = {draft_.tree_token[child],
                       {draft_.tree_entropy[at], draft_.tree_probability[child]},
                       {draft_.tree_ranked_entropy[at], draft_.tree_ranked_probability[child]}};
    }
    return children;
}

RecordedTrees::Row RecordedTrees::append(DraftRecord& draft, Row parent, TokenId token,
                                         const std::vector<TreeChild>& children) {
    draft.tree_parent.push_back(parent);
    draft.tree_behind.push_back(token);
    draft.tree_children.push_back(static_cast<std::int32_t>(children.size()));
    draft.tree_entropy.push_back(children.empty() ? 0 : children.front().seen.entropy_nats);
    draft.tree_ranked_entropy.push_back(children.empty() ? 0 : children.front().ranked.entropy_nats);
    for (const TreeChild& child : children) {
        draft.tree_token.push_back(child.token);
        draft.tree_probability.push_back(child.seen.probability);
        draft.tree_ranked_probability.push_back(child.ranked.probability);
    }
    const Row row = static_cast<Row>(draft.tree_parent.size()) - 1;
    index(row);
    return row;
}

} // namespace entrodraft::spec
