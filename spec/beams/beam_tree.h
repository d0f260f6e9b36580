// The beams of one text as a tree in a slot of a cache: behind the prompt's rows lie those of all beams, each once, in
// the order in which they were read. A beam is a path in it, so a step that reorders beams moves nothing.
//
// Rows of paths that no beam goes on with stay until they outnumber the others: then the rest is moved together.
// Called by every rank for the target (replica_state.h), and by the drafter for the draft.
#pragma once

#include "model/pass/decoder.h"
#include "spec/verify/token_id.h"

#include <cstddef>
#include <span>
#include <vector>

namespace entrodraft::spec {

// Positions that a cache needs beside those of a text for the beams of a slot.
int tree_positions(int num_beams, int max_positions);

class BeamTree {
  public:
    static constexpr int kText = -1; // the parent of a node that follows the text in front of the tree

    // `cached`: tokens of the prompt that the cache holds; `capacity`: positions of a slot.
    BeamTree(int slot, int cached, int capacity) : slot_(slot), base_(cached), capacity_(capacity) {}

    // Begins a pass of at most `n_rows` rows. Of all nodes, only those on the paths to `ends` (kText among them) are
    // needed from now on; `cache` is where their rows are, null where this rank holds none. Returns the ends, renamed.
    std::vector<int> begin_pass(std::vector<int> ends, int n_rows, model::Decoder* cache);
    // A row of the pass, behind a node or kText. Returns its node.
    int add(TokenId token, int parent);
    int first_of_pass() const { return first_of_pass_; } // node of the pass's first row
    int n_rows() const { return n_nodes() - first_of_pass_; }
    // The child of the node with that token, the first; -2: there is none.
    int child(int node, TokenId token) const;
    // Follows tokens from the tree's first position on: the last node on the way, and how many tokens that is.
    struct Walk {
        int node = kText;
        std::size_t n = 0;
    };
    Walk walk(std::span<const TokenId> tokens) const;
    // Tokens behind the first `from` of the text, up to the node, itself among them.
    std::vector<TokenId> tokens_to(int node, int from) const;

    // The rows that earlier passes have read, and those of this pass, for model::Pass: parents count from
    // `first_cached` among the cached nodes of the whole pass, and from `first_row` among its rows, where the pass has
    // `n_cached` cached nodes.
    void append_cached_nodes(std::vector<model::Row>& nodes) const;
    void append_rows(std::vector<model::Row>& rows, int first_cached, int n_cached) const;

  private:
    struct Node {
        TokenId token = 0;
        int parent = kText;
        int position = 0; // in the text
    };

    int n_nodes() const { return static_cast<int>(nodes_.size()); }
    Node& at(int node) { return nodes_[static_cast<std::size_t>(node)]; }
    const Node& at(int node) const { return nodes_[static_cast<std::size_t>(node)]; }
    std::vector<int> needed(std::span<const int> ends) const;
    void remove_others(std::span<const int> nodes, std::vector<int>& ends, model::Decoder* cache);
    void take_trunk(std::vector<int>& ends);

    int slot_;
    int base_; // positions of the cache in front of the tree
    int capacity_;
    std::vector<TokenId> trunk_; // the last of these positions: nodes that all beams had in common
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
