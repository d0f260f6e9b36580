#include "spec/verify/token_tree.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace entrodraft::spec {

int parent_of(Parents parents, int node) {
    return int{parents[node]};
}

Parents chain_parents(std::size_t n) {
    static const std::vector<std::int8_t> all = [] {
        std::vector<std::int8_t> parents(std::numeric_limits<std::int8_t>::max());
        std::iota(parents.begin(), parents.end(), std::int8_t{-1});
        return parents;
    }();
    return Parents(all).first(n);
}

bool is_chain(Parents parents) {
    return std::ranges::equal(parents, chain_parents(parents.size()));
}

int depth_of(Parents parents, int node) {
    int depth = 0;
    for (; node >= 0; node = parent_of(parents, node))
        ++depth;
    return depth;
}

std::vector<int> path_to(Parents parents, int node) {
    std::vector<int> path;
    for (; node >= 0; node = parent_of(parents, node))
        path.push_back(node);
    std::ranges::reverse(path);
    return path;
}

std::vector<int> children_of(Parents parents, int node) {
    std::vector<int> children;
    for (int i = node + 1; i < static_cast<int>(parents.size()); ++i)
        if (parent_of(parents, i) == node) children.push_back(i);
    return children;
}

std::vector<int> first_path(Parents parents, int node) {
    std::vector<int> path;
    for (int i = node + 1; i < static_cast<int>(parents.size()); ++i)
        if (parent_of(parents, i) == node) path.push_back(node = i);
    return path;
}

} // namespace entrodraft::spec
