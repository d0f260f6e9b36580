// The drafted tokens of a round as a tree: parents[i] is the token that drafted token i follows, -1 the round's next
// token, and always below i. A chain is the tree in which each follows the one before. Row 0 of a pass over them
// follows the next token, row i + 1 drafted token i.
#pragma once

#include "spec/verify/token_id.h"

#include <cstdint>
#include <span>
#include <vector>

namespace entrodraft::spec {

// As packets carry them.
using Parents = std::span<const std::int8_t>;

bool is_chain(Parents parents);
// The parents of a chain of so many tokens, at most 127.
Parents chain_parents(std::size_t n);
// -1: the round's next token.
int parent_of(Parents parents, int node);
// Drafted tokens up to `node`, itself among them; 0 for -1.
int depth_of(Parents parents, int node);
// These, from the first on: increasing.
std::vector<int> path_to(Parents parents, int node);
// The children of `node`, in order.
std::vector<int> children_of(Parents parents, int node);
// From `node` down, the first child of each: the best path where drafters put the best child first.
std::vector<int> first_path(Parents parents, int node = -1);

} // namespace entrodraft::spec
