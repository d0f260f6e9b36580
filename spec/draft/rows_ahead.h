// Keeps rows of logits that were made before they are asked for. Some are rows of a chain or tree that a GPU has
// drafted by itself. Others are rows for several tokens ahead, which one pass of a draft head gives.
//
// This file knows no cache. The cache contains the tokens that the GPU has read, and the owner of the rows corrects it
// (model_drafter.h, head_texts_recurrent.cpp).
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
    // `grown`: DeviceRound::grown(), which may be empty.
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

// An answer that consists of rows of several passes, each of which also gives rows of tokens further ahead.
class GatheredRows {
  public:
    explicit GatheredRows(int vocab) : vocab_(static_cast<std::size_t>(vocab)) {}

    // Calls run(part), which takes the rows of a pass, for consecutive parts of `items`. Returns the answer. By
    // rows_of(item), a part has at most `max_rows` rows, or it is a single item.
    template <typename Item, typename RowsOf, typename Run>
    SourceLogits gather(std::span<const Item> items, std::size_t max_rows, RowsOf rows_of, Run run) {
        clear();
        for (std::size_t begin = 0, end = 0; begin < items.size(); begin = end) {
            for (std::size_t rows = 0; end < items.size(); ++end) {
                rows += rows_of(items[end]);
                if (end > begin && rows > max_rows) break;
            }
            run(items.subspan(begin, end - begin));
        }
        return logits();
    }
    void clear();
    // Adds row `first` of a pass. Returns the n - 1 rows after it, [n - 1][vocab], which will be asked for later.
    std::vector<float> take(const SourceLogits& rows, std::size_t first, std::size_t n);
    // Adds row i of those that take() returned.
    void add(std::span<const float> ahead, std::size_t i, const model::LogitNeeds& needs);
    SourceLogits logits() const { return {rows_, vocab_, vocab_, summaries_}; } // valid until the next clear()

  private:
    std::size_t vocab_;
    std::vector<float> rows_; // [rows][vocab]
    std::vector<model::LogitStats> summaries_;
};

} // namespace entrodraft::spec
