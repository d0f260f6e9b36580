// Rows of logits that a GPU has made of a draft by itself, a chain or a tree. They are kept until they are asked for.
//
// It knows no cache. The cache has the tokens that the GPU has read; the holder of the rows corrects it
// (model_drafter.h, head_texts.cpp).
#pragma once

#include "spec/draft/tree.h"

#include <cstddef>
#include <span>
#include <vector>

namespace entrodraft::spec {

// The rows that a loop has made of one slot's chain after the row that was asked for.
class ChainAhead {
  public:
    // Keeps the rows after a pass over a text of `length` tokens.
    void keep(std::size_t length, const model::LogitNeeds& needs, const model::PassResult& result);
    // The tokens read after that text: all that were drafted but the last.
    std::span<const TokenId> tokens() const { return tokens_; }
    // The row after the text and the first of these tokens, `length` tokens in all. Null: the row is not there, or
    // lacks something that is needed. Valid until the next call.
    const SourceLogits* row(std::size_t length, const model::LogitNeeds& needs, int vocab);

  private:
    std::size_t first_ = 0; // the first row follows this number of tokens
    std::vector<TokenId> tokens_;
    std::vector<model::LogitStats> summaries_;
    std::vector<model::NoisyToken> noisy_;
    model::RowNoise noise_; // of the row before the first
    SourceLogits row_;
};

// The rows that a loop has made of one slot's tree.
class TreeAhead {
  public:
    // `grown`: DeviceVerifier::grown(), which may be empty.
    void keep(int slot, std::span<const GrownRow> grown);
    int slot() const { return slot_; }                                // -1: there is none
    std::span<const RankedRow> text_row() const { return text_row_; } // of the text before the tree; or empty
    std::span<const TreeNode> nodes() const { return nodes_; }        // nodes that were read, in their order
    // The nodes that were asked for, in that order; the same with parents numbered among themselves.
    std::span<const int> asked() const { return asked_; }
    std::vector<TreeNode> asked_nodes() const;
    // The rows of these nodes, if all were read; else null, and nothing has changed. Their parents are numbers of nodes
    // that were asked for. Valid until the next call.
    const SourceLogits* rows_of(std::span<const NewNodes> trees, int vocab);

  private:
    int slot_ = -1;
    std::vector<RankedRow> text_row_, rows_; // rows_: of nodes_
    std::vector<TreeNode> nodes_;
    std::vector<int> asked_;
    std::vector<RankedRow> ranked_; // of rows_: those that were asked for last
    SourceLogits logits_;
};

} // namespace entrodraft::spec
