// Prepares a pass for the layers. Checks its rows against the contract of decoder.h, and cuts them into segments: rows
// of one sequence that follow one another. In a tree, bits say from which rows each row descends. Decoder and attention
// call it.
#pragma once

#include "model/pass/decoder.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace entrodraft::model {

// Rows that extend one slot: [begin, end) of the pass, after `cached` positions.
struct Segment {
    int slot = 0;
    int begin = 0;
    int end = 0;
    int cached = 0;
    int tree_begin = 0; // `cached` minus the tree's nodes that are cached already: ancestor bits begin here
};

// Rows of one segment, or of all segments whose slots begin with the same blocks: attention takes them together.
struct Bundle {
    KvCache::Prefix prefix; // length 0: one segment, whose slot has its own beginning
    int begin = 0;          // index into PassLayout::bundled
    int end = 0;
};

struct PassLayout {
    static constexpr std::size_t kAncestorWords = kMaxRows / 64; // minimum

    Pass pass;
    std::vector<Segment> segments;
    std::vector<int> segment_of;             // [rows]
    std::vector<KvCache::Prefix> beginnings; // [segments], the beginning of each slot
    std::vector<Bundle> bundles;
    std::vector<int> bundled; // rows, bundle after bundle
    std::vector<TokenId> tokens;
    std::size_t ancestor_words = kAncestorWords;
    std::vector<std::uint64_t> ancestors; // [rows][ancestor_words], for Mask::by_parent; bit i: position tree_begin + i
    int last_position = 0;
    int max_rows = kMaxRows; // of a pass that is not a prompt's chunk
    bool retrieves = false;  // whether the decoder has chunks of texts

    // Returns one past the last row of its segment that this row may see.
    int seen_end(int row) const {
        const Segment& segment = segments[index(segment_of[index(row)])];
        return std::min(segment.end, row + pass.block_rows - (row - segment.begin) % pass.block_rows);
    }
    // Number of cached keys before the row in its branch: its position, where older ones were not dropped.
    int place_of(int row) const;
    const std::uint64_t* ancestors_of(int row) const { return &ancestors[index(row) * ancestor_words]; }
    int rows() const { return static_cast<int>(pass.rows.size()); }
    // Throws std::invalid_argument on rows that break decoder.h's contract.
    void set(const Pass& next, const ModelConfig& config, const KvCache& cache, int max_prompt_rows = kMaxRows);

    // For an encoder: takes the rows of a source's chunk, in slot 0, in place of a pass.
    void set_source(std::span<const Row> chunk);

  private:
    void add_row(int row, const ModelConfig& config, const KvCache& cache);
    void bundle_segments(const KvCache& cache);
    void check_wishes(const ModelConfig& config) const;
    void add_cached_nodes();
    void trace_ancestors();
};

} // namespace entrodraft::model
