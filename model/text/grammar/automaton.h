// A grammar as positions between bytes, which a recognizer walks (recognizer.h). An edge goes over a byte or over
// nothing, or calls a rule. Rules that no text can complete are removed, and so are the parts that lead only to them.
// So from each position the grammar can still be completed.
#pragma once

#include "model/text/grammar/expression.h"

#include <cstdint>
#include <vector>

namespace entrodraft::model::grammar {

using Position = std::int32_t;
inline constexpr Position kNoPosition = -1;

struct ByteEdge {
    std::uint8_t first = 0, last = 0;
    Position to = kNoPosition;
};

struct PositionEdges {
    std::vector<ByteEdge> bytes;
    std::vector<Position> next;    // without a byte
    Position called = kNoPosition; // position where a rule begins
    Position back = kNoPosition;   // position to continue from once the rule is complete
    bool ends_rule = false;
    bool only_ends = false; // nothing else can follow here: a caller that continues from here need not return
};

class Automaton {
  public:
    static constexpr std::size_t kMaxPositions = 200'000;

    // Throws BadGrammar where a rule is missing, where rules are left-recursive, where no text fits the rules, or where
    // they are too large.
    explicit Automaton(const Rules& rules);

    Position start() const { return start_; }
    const PositionEdges& at(Position position) const { return positions_[position]; }
    std::size_t size() const { return positions_.size(); }

  private:
    friend class AutomatonBuilder;
    void drop_what_never_ends();
    void note_what_only_ends();

    std::vector<PositionEdges> positions_;
    Position start_ = 0;
};

} // namespace entrodraft::model::grammar
