// Keeps the beams of one text as a tree in a slot of a cache. The rows of all beams follow the prompt's rows. Each row
// is there once, and rows are in the order in which they were read. A beam is a path in the tree, so a step that
// reorders beams moves nothing.
//
// Rows that no running beam needs stay until they outnumber the needed rows. Then the needed rows are moved together.
// Called by every rank for the target (replica_state.h), and by the drafter for the draft.
#pragma once

#include "model/pass/decoder.h"
#include "spec/verify/token_id.h"

#include <cstddef>
#include <span>
#include <vector>

namespace entrodraft::spec {

// Number of positions that a slot of the cache needs for beams, besides those of a text.
int tree_positions(int num_beams, int max_positions);

class BeamTree {
  public:
    static constexpr int kText = -1; // the parent of a node that follows the text before the tree

    // `cached`: tokens of the prompt that the cache holds; `capacity`: positions of a slot.
    BeamTree(int slot, int cached, int capacity) : slot_(slot), base_(cached), capacity_(capacity) {}

    // Begins a pass of at most `n_rows` rows. From now on only nodes on the paths to `ends` are needed; an end may be
    // kText. `cache` holds their rows, null if this rank holds none. Returns the ends with their new numbers.
    std::vector<int> begin_pass(std::vector<int> ends, int n_rows, model::Decoder* cache);
    // Adds a row of the pass, after a node or kText. Returns its node.
    int add(TokenId token, int parent);
    int first_of_pass() const { return first_of_pass_; } // node of the pass's first row
    int n_rows() const { return n_nodes() - first_of_pass_; }
    // The first child of the node with that token; -2: there is none.
    int child(int node, TokenId token) const;
    // Follows `tokens` from the tree's first position on. Returns the last node, and the number of tokens to it.
    struct Walk {
        int node = kText;
        std::size_t n = 0;
    };
    Walk walk(std::span<const TokenId> tokens) const;
    // The tokens from text position `from` to the node, its own included.
    std::vector<TokenId> tokens_to(int node, int from) const;

    // Append the rows that earlier passes have read, and the rows of this pass, for model::Pass. Parents are numbered
    // over the pass's cached nodes, then its rows. `first_cached`: this tree's first cached node; `n_cached`: the
    // number of cached nodes of the whole pass.
    void append_cached_nodes(std::vector<model::Row>& nodes) const;
    void append_rows(std::vector<model::Row>& rows, int first_cached, int n_cached) const;

  private:
    struct Node {
        TokenId token = 0;
        int parent = kText;
        int position = 0; // in the text
    };

    int n_nodes() const { return static_cast<int>(nodes_.size()); }
    Node& at(int node) { return nodes_[node]; }
    const Node& at(int node) const { return nodes_[node]; }
    std::vector<int> needed(std::span<const int> ends) const;
    void remove_others(std::span<const int> nodes, std::vector<int>& ends, model::Decoder* cache);
    void take_trunk(std::vector<int>& ends);

    int slot_;
    int base_; // positions of the cache before the tree
    int capacity_;
    std::vector<TokenId> trunk_; // tokens of the last of these positions, which were nodes of all beams
    std::vector<Node> nodes_;
    int first_of_pass_ = 0;
};

// One pass over the new rows of several trees, slots increasing. Logits of all rows.
struct BeamPass {
    std::vector<model::Row> rows, cached_nodes;
    std::vector<int> logit_rows;

    void set(std::span<BeamTree* const> trees);
    model::Pass pass(model::LogitNeeds needs) const;
};

} // namespace entrodraft::spec
