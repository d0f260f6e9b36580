// Drafts trees from rows of logits. Declares the sources of rows for the nodes of a tree. See tree.cpp.
#pragma once

#include "model/pass/decoder.h"
#include "spec/draft/chain.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace entrodraft::spec {

// A token after a text, or after another such token.
struct TreeNode {
    TokenId token = 0;
    int parent = -1; // of the slot's nodes, in the order in which they were read; -1: the text
};
// New nodes of a slot's tree.
struct NewNodes {
    int slot = 0;
    std::span<const TreeNode> nodes;
};

// The limits on the tree nodes that a source can read.
struct TreeLimits {
    std::size_t room = 0;               // additional positions of its cache, for nodes only
    std::size_t most_rows = kNoContext; // of all nodes of a tree
    std::size_t rows_a_node = 1;
};

// A source that also gives the rows after the nodes of a tree.
class TreeSource : public LogitSource {
  public:
    // The row after each of these nodes. It makes one pass, of at most `max_rows` rows in all, or none if a GPU has
    // read them by itself. Slots increase, and rows_after() has read the text that their trees follow.
    virtual SourceLogits rows_after_nodes(std::span<const NewNodes> trees, model::LogitNeeds needs) = 0;
    // The number of a tree's nodes that it can read after a text of `text` tokens.
    std::size_t nodes_behind(std::size_t text) const {
        return std::min(facts_.context + limits_.room - text, limits_.most_rows) / limits_.rows_a_node;
    }

  protected:
    explicit TreeSource(SourceFacts facts, const TreeLimits& limits = {})
        : LogitSource(std::move(facts)), limits_(limits) {}

    TreeLimits limits_;
};

// The rows of a pass over new nodes of several slots' trees.
class TreeRows {
  public:
    // Adds the new nodes to the slots' nodes, [slot]. `first_position(slot)`: the position right after the text.
    void set(std::span<const NewNodes> trees, std::span<std::vector<TreeNode>> nodes,
             const std::function<int(int slot)>& first_position);
    // The pass of a model that asks for these logits. Valid until the next call.
    model::Pass pass(model::LogitNeeds needs, int summary_vocab) const;

  private:
    std::vector<model::Row> rows_, cached_nodes_;
    std::vector<int> logit_rows_;
};

// Drafts trees of the shape that `options` say. A pass reads a level of all sequences' trees at once. Throws
// std::invalid_argument on an impossible shape.
std::unique_ptr<Drafter> make_tree_drafter(std::unique_ptr<TreeSource> source, const TreeOptions& options,
                                           const DraftSetting& setting);

} // namespace entrodraft::spec
