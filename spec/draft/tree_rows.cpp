// Turns the nodes of trees into the rows of a pass: see tree.h.
#include "spec/draft/tree.h"

namespace entrodraft::spec {

void TreeRows::set(std::span<const NewNodes> trees, std::span<std::vector<TreeNode>> nodes_of_slots,
                   const std::function<int(int slot)>& first_position) {
    rows_.clear();
    logit_rows_.clear();
    cached_nodes_.clear();
    std::vector<int> first_node; // of each tree, in the pass's numbering of parents: those that are cached, ...
    for (const NewNodes& tree : trees) {
        const int first = static_cast<int>(cached_nodes_.size());
        first_node.push_back(first);
        for (const TreeNode& node : nodes_of_slots[tree.slot])
            cached_nodes_.push_back({node.token, tree.slot, 0, node.parent < 0 ? -1 : first + node.parent});
    }
    for (std::size_t i = 0; i < trees.size(); ++i) {
        const int slot = trees[i].slot;
        std::vector<TreeNode>& nodes = nodes_of_slots[slot];
        const auto n_cached = static_cast<int>(nodes.size());
        const int first_new = static_cast<int>(cached_nodes_.size() + rows_.size()); // ... and those of the pass
        for (const TreeNode& node : trees[i].nodes) {
            const int parent = node.parent < 0          ? -1
                               : node.parent < n_cached ? first_node[i] + node.parent
                                                        : first_new + node.parent - n_cached;
            int position = first_position(slot);
            for (int above = node.parent; above >= 0; above = nodes[above].parent)
                ++position;
            logit_rows_.push_back(static_cast<int>(rows_.size()));
            rows_.push_back({node.token, slot, position, parent});
            nodes.push_back(node);
        }
    }
}

model::Pass TreeRows::pass(model::LogitNeeds needs, int summary_vocab) const {
    return {.rows = rows_,
            .logit_rows = logit_rows_,
            .mask = model::Mask::by_parent,
            .needs = needs,
            .summary_vocab = summary_vocab,
            .cached_nodes = cached_nodes_};
}

} // namespace entrodraft::spec
