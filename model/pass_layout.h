// A pass as the layers need it: its rows checked against the contract, cut into runs of one sequence, with the bits
// that say which rows of a tree a row descends from. Called by decoder and attention.
#pragma once

#include "entrodraft/model/decoder.h"

#include <cstdint>
#include <vector>

namespace entrodraft::model {

constexpr int kMostRows = Decoder::kMostRows;

// Rows that extend one slot: [begin, end) of the pass, behind `cached` positions.
struct Segment {
    int slot = 0;
    int begin = 0;
    int end = 0;
    int cached = 0;
};

struct PassLayout {
    static constexpr std::size_t kAncestorWords = kMostRows / 64;

    Pass pass;
    std::vector<Segment> segments;
    std::vector<TokenId> tokens;
    std::vector<std::uint64_t> ancestors; // [rows][kAncestorWords], of Mask::by_parent; bits count within the segment
    int last_position = 0;

    int rows() const { return static_cast<int>(pass.rows.size()); }
    // Throws std::invalid_argument on rows that break decoder.h's contract. Local.
    void set(const Pass& next, const ModelConfig& config, const KvCache& cache);

  private:
    void add_row(int index, const ModelConfig& config, const KvCache& cache);
    void check_wishes(const ModelConfig& config) const;
    void trace_ancestors();
};

} // namespace entrodraft::model
