// Keys and values of every sequence a rank holds, layer by layer: append, truncate, fork, share, keep.
//
// A sequence owns one slot of fixed capacity; physical memory is taken as positions are first written. Whole blocks at
// its beginning may be those of another slot, read where they lie (share): continuations of one text cost next to none.
// Keys lie transposed in blocks of 16 positions, [kv_head][position / 16][head_dim][16], so that a block's
// scores need no horizontal sums; values lie [kv_head][position][value_dim]. So it is on a CPU; memory that lies
// elsewhere, as a GPU's, has a KvMemory that copies there.
#pragma once

#include "model/families/config.h"
#include "model/host/buffer.h"
#include "model/pass/kv_head.h"
#include "model/pass/recurrent_states.h"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace entrodraft::model {

// Keys and values that KvCache keeps the books of and cannot reach itself.
class KvMemory {
  public:
    virtual ~KvMemory() = default;
    // Positions [from, from + count) of every layer and head of a slot, to those from `to` on of a slot.
    virtual void copy(int from_slot, int from, int to_slot, int to, int count) = 0;
    // Positions from[i] of every layer and head of a slot, to positions to + i. `from` increases, from[i] >= to + i.
    virtual void move(int slot, std::span<const int> from, int to) = 0;
};

class KvCache {
  public:
    static constexpr int kBlock = 16; // positions of a key block

    struct Shape {
        int n_layers = 0;
        int n_kv_heads = 0; // held by this rank
        int head_dim = 0;
        int n_slots = 1;
        int capacity = 0;                      // positions a slot
        int value_dim = 0;                     // 0: head_dim, as of keys
        RecurrentStates::Shape recurrent = {}; // of linear attention's layers, which n_layers does not count
        WeightType type = WeightType::float32; // of memory of its own: float32, bfloat16, float16 or int8
    };
    // Counts a key and a value of a head, and of int8 a scale for each. Pure.
    static std::size_t bytes_of_position(WeightType type, int head_dim, int value_dim);

    // Throws std::bad_alloc.
    explicit KvCache(const Shape& shape);
    // Of memory that is already there, with room for whole blocks; `states`: of linear attention's layers.
    KvCache(const Shape& shape, std::unique_ptr<KvMemory> elsewhere, std::unique_ptr<RecurrentMemory> states = {});
    static int whole_blocks(int positions) { return (positions + kBlock - 1) / kBlock * kBlock; }

    const Shape& shape() const { return shape_; }
    int length(int slot) const { return lengths_[static_cast<std::size_t>(slot)]; }

    // The slot grew by `rows` positions that the forward pass has written. Throws std::out_of_range past capacity.
    void append(int slot, int rows);
    // The most positions, up to `length`, that the slot can be cut to: all of them, or, where linear attention's states
    // are further on, none.
    int reach(int slot, int length) const { return recurrent_ ? recurrent_->reach(slot, length) : length; }
    // Only the first `length` positions are kept. Throws std::out_of_range when the slot holds fewer, std::logic_error
    // where another slot reads some of the rest, or what reach() says is less.
    void truncate(int slot, int length);
    // Slot `to` becomes a copy of slot `from`. Throws std::logic_error where another slot reads what `to` held.
    void fork(int from, int to);
    // Slot `to` becomes the first `length` positions of slot `from`. Whole blocks stay where they lie: in `from`, or,
    // if `from` shares them itself, in the slot that it has them from; what lies behind them is copied. Until `to` is
    // cut, forked or shared into anew, its source can be neither cut below those blocks nor replaced. Where `from` has
    // its beginning from `to`, that stays in place, so a continuation goes back into its source at the cost of its own
    // rows. Throws std::out_of_range when `from` holds fewer, std::logic_error where another slot reads what `to` held.
    void share(int from, int to, int length);
    // Of the positions from `length` on, those at length + path[i] are kept, in that order, and no others:
    // what keeps one branch of a token tree. `path` is increasing. Throws as truncate does.
    void keep(int slot, int length, std::span<const int> path);

    // The positions of a slot that lie in another: [0, length), whole blocks. length 0: none, and slot is itself.
    struct Prefix {
        int slot = 0;
        int length = 0;
    };
    Prefix prefix(int slot) const { return prefixes_[static_cast<std::size_t>(slot)]; }

    // A head's own keys and values in a layer, those of its prefix left out. Of memory of its own only, as the next.
    KvHead head(int layer, int slot, int kv_head);

    struct HeadPlace {
        int layer = 0, slot = 0, kv_head = 0, position = 0; // the last of the slot's own
    };
    // Writes a key, [head_dim], and a value, [value_dim], rounded to the cache's type. int8: the largest number of each
    // is 127 times its scale.
    void put(const HeadPlace& to, const float* key, const float* value);
    // Reads a key, [head_dim], and a value, [value_dim], as put() has rounded them; nullptr: not that.
    void read(const HeadPlace& from, float* key, float* value);
    // `count` positions from `to` on become those from `from` on of a cache whose heads have the same sizes and type.
    // Both have memory of their own.
    void copy_in(HeadPlace to, KvCache& other, HeadPlace from, int count);

    // Of a decoder with an encoder: under which number the keys and values of a slot's source are kept (-1: it has
    // none). Slots that were forked or shared from one have its number.
    int source(int slot) const { return sources_[static_cast<std::size_t>(slot)]; }
    // A number below n_slots that no other slot has: for a source to come.
    int new_source(int slot);

    RecurrentStates& recurrent() { return *recurrent_; } // of a model that has linear attention

    std::size_t bytes_per_position() const;

  private:
    void move(int slot, std::span<const int> from, int to);
    void move_position(int slot, int from, int to);
    void copy_range(int from, int to, int begin, int end);
    void become(int from, int to, Prefix in_place, int length);
    void own_from(int slot, int position, int end);
    void check_unread(int slot, int position) const;

    Shape shape_;
    std::unique_ptr<RecurrentStates> recurrent_; // or none
    std::unique_ptr<KvMemory> elsewhere_;        // or the next three
    Buffer keys_, values_;
    Buffer scales_; // of int8: [2][heads of all layers and slots][capacity], of keys, then of values
    std::vector<int> lengths_, sources_;
    std::vector<Prefix> prefixes_; // what `slot` names has no prefix itself, and holds `length` positions at least
};

} // namespace entrodraft::model
