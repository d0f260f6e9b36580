// A pass as the layers need it: its rows checked against the contract, cut into runs of one sequence, with the bits
// that say which rows of a tree a row descends from. Called by decoder and attention.
#pragma once

#include "model/pass/decoder.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace entrodraft::model {

// Rows that extend one slot: [begin, end) of the pass, behind `cached` positions.
struct Segment {
    int slot = 0;
    int begin = 0;
    int end = 0;
    int cached = 0;
    int tree_begin = 0; // `cached`, but for the nodes of its tree that are cached already: where ancestor bits begin
};

// Rows of segments whose slots begin with the same blocks, or of one segment: attention takes them together.
struct Bundle {
    KvCache::Prefix prefix; // length 0: one segment's slot, which begins with its own
    int begin = 0;          // of PassLayout::bundled
    int end = 0;
};

struct PassLayout {
    static constexpr std::size_t kAncestorWords = kMaxRows / 64; // at least

    Pass pass;
    std::vector<Segment> segments;
    std::vector<int> segment_of;             // [rows]
    std::vector<KvCache::Prefix> beginnings; // [segments], what each slot begins with
    std::vector<Bundle> bundles;
    std::vector<int> bundled; // rows, bundle after bundle
    std::vector<TokenId> tokens;
    std::size_t ancestor_words = kAncestorWords;
    std::vector<std::uint64_t> ancestors; // [rows][ancestor_words], of Mask::by_parent; bit i: position tree_begin + i
    int last_position = 0;
    int max_rows = kMaxRows; // of a pass that is not a prompt's chunk
    bool retrieves = false;  // whether the decoder has chunks of texts

    // Behind the last row of its segment that this row may see.
    int seen_end(int row) const {
        const Segment& segment = segments[index(segment_of[index(row)])];
        return std::min(segment.end, row + pass.block_rows - (row - segment.begin) % pass.block_rows);
    }
    // Keys that the row's branch has in front of it in the cache: its position, where no older ones were dropped.
    int place_of(int row) const;
    const std::uint64_t* ancestors_of(int row) const { return &ancestors[index(row) * ancestor_words]; }
    int rows() const { return static_cast<int>(pass.rows.size()); }
    // Throws std::invalid_argument on rows that break decoder.h's contract.
    void set(const Pass& next, const ModelConfig& config, const KvCache& cache, int max_prompt_rows = kMaxRows);

    // Of an encoder: rows of a chunk of a source, in slot 0, whatever pass they are of.
    void set_source(std::span<const Row> chunk);

  private:
    void add_row(int row, const ModelConfig& config, const KvCache& cache);
    void bundle_segments(const KvCache& cache);
    void check_wishes(const ModelConfig& config) const;
    void add_cached_nodes();
    void trace_ancestors();
};

} // namespace entrodraft::model
