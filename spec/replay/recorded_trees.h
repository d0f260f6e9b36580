// The rows of a draft that trees read along a text: the columns tree_* of a DraftRecord, found by what they follow.
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
    // Number i < places is the row of place i; the others follow a token that the text does not have there, or, of a
    // head, any: it reads the text's own token behind a place as one that it has drafted.
    using Row = std::int32_t;
    static constexpr Row kNone = -1; // no such row is recorded

    // Both outlive it, and `draft` grows by append() alone.
    RecordedTrees(const TextRecord& text, const DraftRecord& draft, bool is_head);

    // The row behind this token in that row.
    Row after(Row row, TokenId token) const;
    // Of a row that is no first place's: the one before it, and the token between them.
    Row parent(Row row) const;
    TokenId behind(Row row) const;
    // What of a row's children is recorded, at most `n`.
    std::vector<TreeChild> children(Row row, int n) const;
    // One more row of `draft`, the one that this was made of: of the next place (`parent` kNone), or behind a token of
    // a row that there is. Places come first.
    Row append(DraftRecord& draft, Row parent, TokenId token, const std::vector<TreeChild>& children);

  private:
    void index(Row row);

    const TextRecord& text_;
    const DraftRecord& draft_;
    bool is_head_;
    std::vector<std::size_t> first_child_;              // [rows]
    std::map<std::pair<Row, TokenId>, Row> row_behind_; // of those that are no place's
};

} // namespace entrodraft::spec
