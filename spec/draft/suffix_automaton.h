// Finds all substrings of a text of token ids, by a suffix automaton (Blumer et al. 1985). Adding a token takes
// amortised constant time, and so does a search.
//
// The form of the states is compact. State i, up to the text's length, stands for the text's first i tokens. Its length
// is i, and the text itself gives its transition to i + 1, so only a link is stored. The other states were split off
// where two contexts meet. Their transitions are in blocks of 2^k slots. On English books (0.26 split states a token)
// this takes 31 bytes a token; one hash table of all transitions would take about 80 (an estimate). lookup_corpus.h is
// for texts that do not grow. Knows nothing of drafting. Called by the suffix drafter.
#pragma once

#include "spec/draft/lookup_index.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace entrodraft::spec {

class SuffixAutomaton {
  public:
    static constexpr std::size_t kMaxTokens = 0x7fffffff;
    // Number of repeated suffixes that are marked as seen when a token is appended, the longest first.
    static constexpr int kRefreshed = 16;

    // A text of more than `max_tokens` (<= kMaxTokens) tokens is refused.
    explicit SuffixAutomaton(std::size_t max_tokens = kMaxTokens);

    void clear();
    // Throws std::length_error if the text would become too long; then only clear() may follow.
    void append(TokenId token);
    std::span<const TokenId> text() const { return text_; }

    // The longest proper suffix of the text that also ends earlier in it (the two may overlap), at its latest
    // occurrence. It is an earlier occurrence if more than kRefreshed - 1 longer suffixes, all distinct in their
    // earlier places, ended at the same place too.
    std::optional<LookupMatch> match() const;

    // Its contents and its work, in units that do not depend on the machine.
    struct Counts {
        std::size_t states = 0;
        std::size_t transitions = 0;
        std::uint64_t steps = 0; // links followed, slots searched, transitions copied, in all appends since clear()
        std::size_t bytes = 0;
    };
    Counts counts() const;

  private:
    using State = std::uint32_t; // up to the text's length: of its first tokens; from kSplit on: of splits_
    static constexpr State kRoot = 0;
    static constexpr State kSplit = 0x80000000;
    static constexpr std::uint32_t kNone = 0xffffffff;

    struct Edge {
        TokenId token = 0;
        State to = kRoot; // the root: an empty slot, since no transition leads there
    };
    struct Block { // edges_[first, first + slots_for(count))
        std::uint32_t first = 0;
        std::uint32_t count = 0;
    };
    struct Split {
        std::uint32_t length = 0; // of its longest substring
        State link = kRoot;
        std::uint32_t end = 0; // position after its latest occurrence
        Block block;
    };

    static bool is_split(State state) { return state >= kSplit; }
    std::uint32_t length(State state) const { return is_split(state) ? splits_[state - kSplit].length : state; }
    State link(State state) const { return is_split(state) ? splits_[state - kSplit].link : links_[state]; }
    std::uint32_t end(State state) const;
    void refresh(State state);

    const Block* block_of(State state) const;
    Block& make_block_of(State state);
    State to(State state, TokenId token, std::uint64_t& steps) const;
    const Edge* find_edge(const Block& block, TokenId token, std::uint64_t& steps) const;
    void add_edge(State state, TokenId token, State to);
    void insert(Block& block, Edge edge);
    std::uint32_t allocate(std::uint32_t slots);
    void release(std::uint32_t first, std::uint32_t slots);
    State split(State from, TokenId token, State target);

    std::size_t max_tokens_;
    std::vector<TokenId> text_;
    std::vector<State> links_;          // [text size + 1]
    std::vector<std::uint32_t> latest_; // [text size + 1] ends of these states
    std::vector<Split> splits_;
    Block root_block_;
    std::unordered_map<State, Block>
        prefix_blocks_; // of the few prefixes of the text that occur again and continue differently
    std::vector<Edge> edges_;
    std::array<std::uint32_t, 32> free_; // [log2 of slots] first of a chain of blocks, through their first slot's `to`
    std::optional<LookupMatch> match_;   // without its source
    std::size_t n_extra_transitions_ = 0;
    std::uint64_t steps_ = 0;
};

} // namespace entrodraft::spec
