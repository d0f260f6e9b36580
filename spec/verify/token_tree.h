// The drafted tokens of a round as a tree. Drafted token i follows drafted token parents[i] < i; -1 stands for the
// round's next token. A chain is the tree in which each token follows the one before. A pass over them has a row after
// each token: row 0 comes after the next token, and row i + 1 after drafted token i.
#pragma once

#include "spec/verify/token_id.h"

#include <cstdint>
#include <span>
#include <vector>

namespace entrodraft::spec {

// The form in which packets carry them.
using Parents = std::span<const std::int8_t>;

bool is_chain(Parents parents);
// The parents of a chain of n tokens, n <= 127.
Parents chain_parents(std::size_t n);
// -1: the round's next token.
int parent_of(Parents parents, int node);
// Number of drafted tokens on the path to `node`, itself included; 0 for -1.
int depth_of(Parents parents, int node);
// The drafted tokens on the path to `node`, itself included, in increasing order.
std::vector<int> path_to(Parents parents, int node);
// The children of `node`, in order.
std::vector<int> children_of(Parents parents, int node);
// The path from `node` down that takes each first child. It is the best path if drafters put the best child first.
std::vector<int> first_path(Parents parents, int node = -1);

} // namespace entrodraft::spec
