// Rows of logits that a GPU has made of a draft by itself, a chain or a tree, until they are asked for.
//
// Knows no cache: that has what the GPU has read, and is put right by who holds the rows (model_drafter.h,
// head_texts.cpp).
#pragma once

#include "spec/draft/tree.h"

#include <cstddef>
#include <span>
#include <vector>

namespace entrodraft::spec {

// What a loop has made of one slot's chain beyond the row that was asked for.
class ChainAhead {
  public:
    // Behind a pass over a text of `length` tokens.
    void keep(std::size_t length, const model::LogitNeeds& needs, const model::PassResult& result);
    // Those that were read behind that text: all but the last.
    std::span<const TokenId> tokens() const { return tokens_; }
    // What follows the text and the first of these, `length` tokens in all; null: it is not there, or has not all that
    // is needed. Valid until the next call.
    const SourceLogits* row(std::size_t length, const model::LogitNeeds& needs, int vocab);

  private:
    std::size_t first_ = 0; // tokens that the first row follows
    std::vector<TokenId> tokens_;
    std::vector<model::LogitStats> summaries_;
    std::vector<model::NoisyToken> noisy_;
    model::RowNoise noise_; // of the row before the first
    SourceLogits row_;
};

// What a loop has made of one slot's tree.
class TreeAhead {
  public:
    // DeviceVerifier::grown(), which may be empty.
    void keep(int slot, std::span<const GrownRow> grown);
    int slot() const { return slot_; }                                // -1: there is none
    std::span<const RankedRow> text_row() const { return text_row_; } // of the text that the tree is behind; or empty
    std::span<const TreeNode> nodes() const { return nodes_; }        // that were read, in their order
    // Which of these were asked for, in that order; and these, numbered among themselves.
    std::span<const int> asked() const { return asked_; }
    std::vector<TreeNode> asked_nodes() const;
    // Of these nodes, whose parents are numbers of those asked for, if all were read; null: they were not, and nothing
    // has changed. Valid until the next call.
    const SourceLogits* rows_of(std::span<const NewNodes> trees, int vocab);

  private:
    int slot_ = -1;
    std::vector<RankedRow> text_row_, rows_; // rows_: of nodes_
    std::vector<TreeNode> nodes_;
    std::vector<int> asked_;
    std::vector<RankedRow> ranked_; // of rows_, those that were asked for last
    SourceLogits logits_;
};

} // namespace entrodraft::spec
