// Keys and values of every sequence that a rank has, layer by layer: append, truncate, fork, share, keep.
//
// A sequence has one slot of fixed capacity. A slot takes physical memory when positions are first written. Whole
// blocks at its beginning may be blocks of another slot, read in place (share), so continuations of one text cost
// little. On a CPU, keys are transposed in blocks of 16 positions, [kv_head][position / 16][head_dim][16], so that a
// block's scores need no horizontal sums. Values are [kv_head][position][value_dim]. For memory elsewhere, such as a
// GPU's, a KvMemory copies there.
#pragma once

#include "model/families/config.h"
#include "model/host/buffer.h"
#include "model/pass/kv_head.h"
#include "model/pass/recurrent_states.h"

#include <memory>
#include <span>
#include <vector>

namespace entrodraft::model {

// Memory for keys and values that KvCache manages but cannot access itself.
class KvMemory {
  public:
    virtual ~KvMemory() = default;
    // Copies `count` positions of every layer and head, from `from` on of one slot, to `to` on of another or the same.
    virtual void copy(int from_slot, int from, int to_slot, int to, int count) = 0;
    // Moves positions from[i] of a slot, in every layer and head, to to + i. `from` increases, from[i] >= to + i.
    virtual void move(int slot, std::span<const int> from, int to) = 0;
};

class KvCache {
  public:
    static constexpr int kBlock = 16; // positions in a block of keys

    struct Shape {
        int n_layers = 0;
        int n_kv_heads = 0; // held by this rank
        int head_dim = 0;
        int n_slots = 1;
        int capacity = 0;                      // positions per slot
        int value_dim = 0;                     // 0: head_dim, as for keys
        RecurrentStates::Shape recurrent = {}; // for linear attention's layers, which n_layers does not count
        WeightType type = WeightType::float32; // for its own memory: float32, bfloat16, float16 or int8
    };
    // Counts one head's key and value, and for int8 a scale for each. Pure.
    static std::size_t bytes_of_position(WeightType type, int head_dim, int value_dim);

    // Throws std::bad_alloc.
    explicit KvCache(const Shape& shape);
    // Uses existing memory with room for whole blocks. `states`: for linear attention's layers.
    KvCache(const Shape& shape, std::unique_ptr<KvMemory> elsewhere, std::unique_ptr<RecurrentMemory> states = {});
    static int whole_blocks(int positions) { return (positions + kBlock - 1) / kBlock * kBlock; }

    const Shape& shape() const { return shape_; }
    int length(int slot) const { return lengths_[slot]; }

    // The slot grows by `rows` positions that the forward pass has written. Throws std::out_of_range past capacity.
    void append(int slot, int rows);
    // Returns the largest length, up to `length`, that the slot can be cut to. It is `length`, or 0 where linear
    // attention's states are further on.
    int reach(int slot, int length) const { return recurrent_ ? recurrent_->reach(slot, length) : length; }
    // Keeps only the first `length` positions. Throws std::out_of_range when the slot holds fewer, and std::logic_error
    // where another slot reads some of the rest, or where reach() is less.
    void truncate(int slot, int length);
    // Slot `to` becomes a copy of slot `from`. Throws std::logic_error where another slot reads from `to`.
    void fork(int from, int to);
    // Slot `to` becomes the first `length` positions of slot `from`. Whole blocks stay where they lie: in `from`, or,
    // if `from` shares them itself, in their own slot. The positions after them are copied. Until `to` is cut, forked
    // or shared into anew, its source can be neither cut below those blocks nor replaced. If `from` shares its
    // beginning from `to`, that stays in place, so a continuation goes back into its source at the cost of its own
    // rows. Throws std::out_of_range when `from` holds fewer, std::logic_error where another slot reads from `to`.
    void share(int from, int to, int length);
    // From position `length` on, keeps only positions length + path[i], in that order: this keeps one branch of a token
    // tree. `path` is increasing. Throws as truncate does.
    void keep(int slot, int length, std::span<const int> path);

    // The first positions of a slot that lie in another slot: [0, length), whole blocks. With length 0, slot is itself.
    struct Prefix {
        int slot = 0;
        int length = 0;
    };
    Prefix prefix(int slot) const { return prefixes_[slot]; }

    // A head's own keys and values in a layer, without its prefix. Like the next functions, only for memory of its own.
    KvHead head(int layer, int slot, int kv_head);

    struct HeadPlace {
        int layer = 0, slot = 0, kv_head = 0, position = 0; // the last of the slot's own
    };
    // Writes a key, [head_dim], and a value, [value_dim], rounded to the cache's type. For int8, the largest number of
    // each is 127 times its scale.
    void put(const HeadPlace& to, const float* key, const float* value);
    // Reads a key, [head_dim], and a value, [value_dim], as put() has rounded them. nullptr skips one of them.
    void read(const HeadPlace& from, float* key, float* value);
    // Copies `count` positions, from `from` on, of a cache with the same head sizes and type, to positions from `to`
    // on. Both caches have memory of their own.
    void copy_in(HeadPlace to, KvCache& other, HeadPlace from, int count);

    // For a decoder with an encoder: the number under which a slot's source keeps its keys and values (-1: it has
    // none). Slots forked or shared from another slot have its number.
    int source(int slot) const { return sources_[slot]; }
    // Gives the slot a number below n_slots that no other slot has, for its next source.
    int new_source(int slot);

    RecurrentStates& recurrent() { return *recurrent_; } // only in a model with linear attention

  private:
    void move(int slot, std::span<const int> from, int to);
    void move_position(int slot, int from, int to);
    void copy_range(int from, int to, int begin, int end);
    void become(int from, int to, Prefix in_place, int length);
    void own_from(int slot, int position, int end);
    void check_unread(int slot, int position) const;

    Shape shape_;
    std::unique_ptr<RecurrentStates> recurrent_; // or none
    std::unique_ptr<KvMemory> elsewhere_;        // or it has the next three
    Buffer keys_, values_;
    Buffer scales_; // for int8: [2][heads of all layers and slots][capacity], first keys, then values
    std::vector<int> lengths_, sources_;
    std::vector<Prefix> prefixes_; // the slot that it names has no prefix itself, and holds at least `length`
};

} // namespace entrodraft::model
