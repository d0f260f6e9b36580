// Keys and values of every sequence a rank holds, layer by layer: append, truncate, fork, keep.
//
// A sequence owns one slot of fixed capacity; physical memory is taken as positions are first written.
// Keys lie transposed in blocks of 16 positions, [kv_head][position / 16][head_dim][16], so that a block's
// scores need no horizontal sums; values lie [kv_head][position][head_dim]. float32 on CPU.
#pragma once

#include "entrodraft/model/buffer.h"

#include <cstdint>
#include <span>
#include <vector>

namespace entrodraft::model {

class KvCache {
  public:
    static constexpr int kBlock = 16; // positions of a key block

    struct Shape {
        int n_layers = 0;
        int n_kv_heads = 0; // held by this rank
        int head_dim = 0;
        int n_slots = 1;
        int capacity = 0; // positions a slot
    };

    // Throws std::bad_alloc.
    explicit KvCache(const Shape& shape);

    const Shape& shape() const { return shape_; }
    int length(int slot) const { return lengths_[static_cast<std::size_t>(slot)]; }

    // The slot grew by `rows` positions that the forward pass has written. Throws std::out_of_range past capacity.
    void append(int slot, int rows);
    // Only the first `length` positions stand. Throws std::out_of_range when the slot holds fewer.
    void truncate(int slot, int length);
    // Slot `to` becomes a copy of slot `from`.
    void fork(int from, int to);
    // Of the positions from `length` on, those at length + path[i] stand, in that order, and no others:
    // what keeps one branch of a token tree. `path` is increasing.
    void keep(int slot, int length, std::span<const int> path);

    // First element of a head's keys or values in a layer. Shapes above.
    float* keys(int layer, int slot, int kv_head);
    float* values(int layer, int slot, int kv_head);

    std::size_t bytes_per_position() const;

  private:
    std::size_t head_floats() const;
    std::size_t head_index(int layer, int slot, int kv_head) const;
    void copy_position(int slot, int from, int to);

    Shape shape_;
    Buffer keys_;
    Buffer values_;
    std::vector<int> lengths_;
};

} // namespace entrodraft::model
