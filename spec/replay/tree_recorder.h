// Records what trees read along a text: for every place that a round may begin at, the rows of every tree that a shape
// and narrower ones of its kind may grow there.
//
// Called by the recorder, on the coordinator.
#pragma once

#include "spec/draft/model_drafter.h"
#include "spec/draft/siblings.h"
#include "spec/replay/recorded_trees.h"

#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace entrodraft::spec {

class TreeRecorder {
  public:
    // `texts` has read the text in its slot 0 when finish() is called; the others are for branches. It outlives this.
    TreeRecorder(std::span<const TreeOptions> trees, const DraftLimits& limits, ModelTexts& texts, int n_slots);

    // All of it outlives the text.
    void begin_text(const Request& request, const TextRecord& text, DraftRecord& draft);
    // The row of the next place. Local.
    void add_place(const RowOfText& row);
    // All rows off the text. `positions`: of the target; `before_pass` is called with the place that comes next. Local.
    void finish(std::span<const TokenId> tokens, int positions, const std::function<void(std::size_t)>& before_pass);

  private:
    struct Growing;
    struct Wanted;

    void grow(std::vector<Growing*> growing, const std::function<void(std::size_t)>& before_pass);
    RecordedTrees::Row row_of(const Growing& tree, int node) const;
    void read(std::span<const Wanted> wanted);
    std::vector<TokenId> text_before(RecordedTrees::Row row, std::size_t& place) const;

    std::vector<TreeShape> shapes_;
    DraftLimits limits_;
    ModelTexts& texts_;
    int n_slots_;
    int most_children_ = 0;
    Siblings siblings_;
    const Request* request_ = nullptr;
    const TextRecord* text_ = nullptr;
    DraftRecord* draft_ = nullptr;
    std::optional<RecordedTrees> rows_;
    std::span<const TokenId> tokens_; // prompt and places
};

} // namespace entrodraft::spec
