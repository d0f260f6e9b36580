// Block heads (Falcon): a pass drafts a block of tokens after the last block of the text or of drafted tokens. A
// block's rows see one another, so in the cache each node that ends a block has a block of its own. Nodes inside a
// block need no pass: the pass over the block before has already given their rows of logits.
#include "spec/draft/head_texts.h"
#include "spec/draft/rows_ahead.h"

namespace entrodraft::spec {

namespace {

class BlockTexts final : public HeadTexts {
  public:
    BlockTexts(const HeadModules& head, int vocab, int n_slots)
        : HeadTexts(head, vocab, n_slots), blocks_(nodes_.size()), drafted_(nodes_.size()), answer_(vocab) {}

    SourceLogits rows_after_nodes(std::span<const NewNodes> trees, model::LogitNeeds needs) override {
        // The nodes of a pass have equal depth.
        if (depth_of(trees[0].slot, trees[0].nodes[0]) % block() != 0) return rows_within_blocks(trees, needs);
        return answer_.gather(
            trees, facts_.max_rows, [&](const NewNodes& tree) { return tree.nodes.size() * block(); },
            [&](std::span<const NewNodes> together) { run_nodes(together, needs.with_rows()); });
    }

  private:
    struct Block {
        std::vector<float> states; // [block()][hidden_size]: that the next block has instead of the target's
        std::vector<float> ahead;  // [block() - 1][vocab]: logits of the tokens after the next one
        int last_row = -1;         // in drafted_; -1 for the text
    };

    void drop_nodes(int slot) override {
        HeadTexts::drop_nodes(slot);
        blocks_[slot].clear();
        drafted_[slot].clear();
    }
    SourceLogits rows_after_texts(std::span<const TextEnd> texts, const model::LogitNeeds& needs) override;
    void add_block(int slot, const TreeNode& node, std::vector<TreeNode>& rows);
    void run_nodes(std::span<const NewNodes> trees, const model::LogitNeeds& needs);
    SourceLogits rows_within_blocks(std::span<const NewNodes> trees, const model::LogitNeeds& needs);

    // [slot][1 + nodes]: the block that ends with the text, or with the node; empty for nodes within a block.
    std::vector<std::vector<Block>> blocks_;
    std::vector<std::vector<TreeNode>> drafted_; // [slot]: rows of the nodes' blocks in the cache
    GatheredRows answer_;
};

// Each text needs less than two blocks of rows in the pass; passes before it can read the other rows.
SourceLogits BlockTexts::rows_after_texts(std::span<const TextEnd> texts, const model::LogitNeeds& needs) {
    return answer_.gather(
        texts, facts_.max_rows, [&](const TextEnd&) { return 2 * block() - 1; },
        [&](std::span<const TextEnd> together) {
            const model::PassResult result = run_texts(together, needs.with_rows());
            const SourceLogits rows = logits_of(result);
            for (std::size_t i = 0; i < together.size(); ++i) {
                const auto first = static_cast<std::size_t>(logit_rows_[i * block()]);
                blocks_[together[i].slot].push_back(
                    {next_features(result, rows_.size(), first), answer_.take(rows, i * block(), block())});
            }
        });
}

// Adds the rows of the block that ends with this node, after those in the cache and in `rows`.
void BlockTexts::add_block(int slot, const TreeNode& node, std::vector<TreeNode>& rows) {
    std::vector<TokenId> tokens = {node.token};
    int above = node.parent;
    for (; tokens.size() < block(); above = nodes_[slot][above].parent)
        tokens.insert(tokens.begin(), nodes_[slot][above].token);
    const Block& before = blocks_[slot][static_cast<std::size_t>(above + 1)];
    features_.insert(features_.end(), before.states.begin(), before.states.end());
    int parent = before.last_row;
    for (const TokenId token : tokens) {
        rows.push_back({token, parent});
        parent = static_cast<int>(drafted_[slot].size() + rows.size()) - 1;
    }
}

// Runs one pass over the blocks that end with these nodes.
void BlockTexts::run_nodes(std::span<const NewNodes> trees, const model::LogitNeeds& needs) {
    features_.clear();
    std::vector<std::vector<TreeNode>> added(trees.size());
    std::vector<NewNodes> new_rows;
    for (std::size_t i = 0; i < trees.size(); ++i) {
        for (const TreeNode& node : trees[i].nodes)
            add_block(trees[i].slot, node, added[i]);
        new_rows.push_back({trees[i].slot, added[i]});
    }
    const model::Pass pass = pass_of_nodes(new_rows, drafted_, needs);
    const model::PassResult result = modules_.front()->forward(pass);
    const SourceLogits rows = logits_of(result);
    std::size_t row = 0;
    for (std::size_t i = 0; i < trees.size(); ++i) {
        const int slot = trees[i].slot;
        auto last = static_cast<int>(drafted_[slot].size() - added[i].size()) - 1;
        for (const TreeNode& node : trees[i].nodes) {
            blocks_[slot].push_back(
                {next_features(result, pass.rows.size(), row), answer_.take(rows, row, block()), last += head_.block});
            nodes_[slot].push_back(node);
            row += block();
        }
    }
}

// All nodes that follow the same end of a block at the same distance have the same row.
SourceLogits BlockTexts::rows_within_blocks(std::span<const NewNodes> trees, const model::LogitNeeds& needs) {
    answer_.clear();
    for (const NewNodes& tree : trees)
        for (const TreeNode& node : tree.nodes) {
            const std::size_t n = depth_of(tree.slot, node) % block();
            int above = node.parent;
            for (std::size_t i = 1; i < n; ++i)
                above = nodes_[tree.slot][above].parent;
            answer_.add(blocks_[tree.slot][static_cast<std::size_t>(above + 1)].ahead, n - 1, needs);
            blocks_[tree.slot].emplace_back();
            nodes_[tree.slot].push_back(node);
        }
    return answer_.logits();
}

} // namespace

std::unique_ptr<TreeSource> make_block_texts(const HeadModules& head, int vocab, int n_slots) {
    return std::make_unique<BlockTexts>(head, vocab, n_slots);
}

} // namespace entrodraft::spec
