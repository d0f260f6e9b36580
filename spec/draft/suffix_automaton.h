// All substrings of a text of token ids, as a suffix automaton (Blumer et al. 1985): built token by token, each in
// amortised constant time, and searched so.
//
// Made compact by what the states of a text are. State i up to the text's length is that of its first i tokens: its
// length is i and its transition to i + 1 is the text, so it stores a link alone. The others, split off where two
// contexts meet, hold their transitions in blocks of 2^k slots. On English books (0.26 of them a token) that makes 27
// bytes a token once built, 31 with latest occurrences; all transitions in one hash table were reckoned at 80.
// Knows nothing of drafting. Called by the suffix drafter.
#pragma once

#include "spec/draft/lookup_index.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace entrodraft::spec {

class SuffixAutomaton {
  public:
    static constexpr std::size_t kMaxTokens = 0x7fffffff;
    // How many repeated suffixes are noted as seen when a token is appended, the longest first.
    static constexpr int kRefreshed = 16;

    // Which occurrence of a substring is remembered: the first, exactly; or the latest. The latest is exact unless
    // more than kRefreshed - 1 longer suffixes, all distinct in where they had been, ended at the same place as well;
    // then it is an earlier occurrence.
    enum class Occurrence { first, latest };

    // A longer text than `max_tokens` (<= kMaxTokens) is refused.
    explicit SuffixAutomaton(Occurrence occurrence, std::size_t max_tokens = kMaxTokens);

    void clear();
    // Before a text of known length: spares the growing of what is sized by it. Local.
    void reserve(std::size_t n_tokens);
    // Gives back memory kept for growing. Local.
    void shrink();
    // Throws std::length_error where the text would become too long; then only clear() goes on. Local.
    void append(TokenId token);
    std::span<const TokenId> text() const { return text_; }

    // The longest proper suffix of the text that also ends earlier in it (the two may overlap), at the occurrence that
    // is remembered. Local.
    std::optional<LookupMatch> match() const;

    // A place in the search of another token sequence through this text, which must not grow meanwhile.
    struct Cursor {
        std::uint32_t state = 0;
        std::size_t length = 0; // of the longest suffix of what was fed that is in this text
    };
    // Feeds a token. Returns how many states it looked at, 2 for each token fed at most, on average. Local.
    int advance(Cursor& cursor, TokenId token) const;
    // The longest suffix of what was fed that is in this text and is followed by something there. Local.
    std::optional<LookupMatch> match(const Cursor& cursor) const;

    // What it holds and what it did, in units that do not depend on the machine.
    struct Counts {
        std::size_t states = 0;
        std::size_t transitions = 0;
        std::uint64_t steps = 0; // links followed, slots looked at, transitions copied, in all appends since clear()
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
        State to = kRoot; // the root: an empty slot, since nothing leads there
    };
    struct Block { // edges_[first, first + slots_for(count))
        std::uint32_t first = 0;
        std::uint32_t count = 0;
    };
    struct Split {
        std::uint32_t length = 0; // of its longest substring
        State link = kRoot;
        std::uint32_t end = 0; // position behind the occurrence that is remembered
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

    Occurrence occurrence_;
    std::size_t max_tokens_;
    std::vector<TokenId> text_;
    std::vector<State> links_;          // [text size + 1]
    std::vector<std::uint32_t> latest_; // [text size + 1] ends of these states; empty under Occurrence::first
    std::vector<Split> splits_;
    Block root_block_;
    std::unordered_map<State, Block>
        prefix_blocks_; // of the few texts' beginnings that come again, and go on otherwise
    std::vector<Edge> edges_;
    std::array<std::uint32_t, 32> free_; // [log2 of slots] first of a chain of blocks, through their first slot's `to`
    std::optional<LookupMatch> match_;   // without its source
    std::size_t n_extra_transitions_ = 0;
    std::uint64_t steps_ = 0;
};

// A reference text, searched by any number of cursors. Throws std::length_error above SuffixAutomaton::kMaxTokens.
std::shared_ptr<const SuffixAutomaton> index_corpus(std::span<const TokenId> tokens);

} // namespace entrodraft::spec
