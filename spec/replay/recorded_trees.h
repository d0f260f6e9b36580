// Finds the draft's rows that trees read along a text, by the tokens before them. The rows are the columns tree_* of a
// DraftRecord.
//
// Called by the recorder, which adds rows, and by replays, which read them.
#pragma once

#include "spec/draft/tree_growth.h"
#include "spec/replay/recording.h"

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace entrodraft::spec {

class RecordedTrees {
  public:
    // Row i < places is the row of place i. The other rows follow a token that the text does not have there. With a
    // head they may follow any token: a head reads the text's own token after a place as one that it has drafted.
    using Row = std::int32_t;
    static constexpr Row kNone = -1; // no such row is recorded

    // `text` and `draft` outlive it. Only append() may add rows to `draft`.
    RecordedTrees(const TextRecord& text, const DraftRecord& draft, bool is_head);

    // The row that follows `row` by `token`; kNone: it is not recorded.
    Row after(Row row, TokenId token) const;
    // For any row but the first place's: the row before it, and the token between them.
    Row parent(Row row) const;
    TokenId behind(Row row) const;
    // The recorded children of a row, at most `n`.
    std::vector<TreeChild> children(Row row, int n) const;
    // Adds a row to `draft`, which must be the constructor's: the next place's (`parent` is kNone), or the row after a
    // token of a recorded row. Rows of places must come first.
    Row append(DraftRecord& draft, Row parent, TokenId token, const std::vector<TreeChild>& children);

  private:
    void index(Row row);

    const TextRecord& text_;
    const DraftRecord& draft_;
    bool is_head_;
    std::vector<std::size_t> first_child_;              // [rows]
    std::map<std::pair<Row, TokenId>, Row> row_behind_; // rows that are not a place's
};

} // namespace entrodraft::spec
