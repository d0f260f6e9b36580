// Records the rows that trees read along a text. It does so for every place where a round may begin, and for every tree
// that a shape, or a narrower one of its kind, may grow there.
//
// Called by the recorder, on the coordinator.
#pragma once

#include "spec/draft/siblings.h"
#include "spec/draft/tree.h"
#include "spec/replay/recorded_trees.h"

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace entrodraft::spec {

class TreeRecorder {
  public:
    // `source`, a head's or a model's, reads the text in its slot 0. It outlives this.
    TreeRecorder(std::span<const TreeOptions> trees, const DraftLimits& limits, TreeSource& source, bool is_head);

    // The arguments must stay until the text is recorded.
    void begin_text(const Request& request, const TextRecord& text, DraftRecord& draft);
    // Adds the row of the next place, if there is one.
    void add_place(const std::optional<RowOfText>& row);
    // Adds the rows after a place. All places must be added, and the source must be as in a round that begins here.
    // `tokens`: prompt and places; `positions`: of the target; `before_pass` is called before each slow step.
    void follow(std::size_t place, std::span<const TokenId> tokens, int positions,
                const std::function<void()>& before_pass);

  private:
    struct Growing;
    struct Wanted;

    void read_frontiers(std::span<Growing* const> growing, const std::function<void()>& before_pass);
    RecordedTrees::Row row_of(const Growing& tree, int node) const;
    std::vector<RecordedTrees::Row> path_to(RecordedTrees::Row row) const;
    void read(std::span<const Wanted> wanted);

    std::vector<TreeShape> shapes_;
    DraftLimits limits_;
    TreeSource& source_;
    bool is_head_;
    int most_children_ = 0;
    Siblings siblings_;
    const Request* request_ = nullptr;
    const TextRecord* text_ = nullptr;
    DraftRecord* draft_ = nullptr;
    std::optional<RecordedTrees> rows_;
    RecordedTrees::Row place_ = 0;              // the present place
    std::span<const TokenId> before_;           // the text before it
    std::map<RecordedTrees::Row, int> node_of_; // the source's nodes for the rows after it that the source has read
};

} // namespace entrodraft::spec
