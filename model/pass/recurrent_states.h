// States of linear attention's layers, of every sequence a rank holds, so that a text can be cut back.
//
// A state is all that a layer knows of the rows before; it cannot be cut as keys and values are. So a slot holds states
// after two of its positions: a front, where the last pass began, and a base some way behind it; and what the rows from
// the base on gave to their states, their inputs. A state further on is made by applying these inputs again, row by
// row, which gives the bits that the rows' own pass had. A pass whose rows are a tree does so along each branch
// (delta_plan.h). The books are KvCache's, of which this is a part: positions are those of a slot in it. States of a
// CPU are here; memory that lies elsewhere, as a GPU's, has a RecurrentMemory that copies there.
#pragma once

#include "model/host/buffer.h"

#include <memory>
#include <span>
#include <vector>

namespace entrodraft::model {

// A count or position, never negative, as what containers and pointers take.
constexpr std::size_t index(int value) {
    return static_cast<std::size_t>(value);
}

inline constexpr int kMaxLinearKeyDim = 256; // that kernels for GPUs take

// States and inputs that RecurrentStates keeps the books of and cannot reach itself.
class RecurrentMemory {
  public:
    virtual ~RecurrentMemory() = default;
    // Inputs of positions from[i] of a slot, of every layer, become those of positions to + i. `from` increases,
    // from[i] >= to + i.
    virtual void move(int slot, std::span<const int> from, int to) = 0;
    // All of slot `from` to slot `to`.
    virtual void copy(int from, int to) = 0;
};

class RecurrentStates {
  public:
    // How far back a text can be cut at least: a round's most drafted tokens and its first row.
    static constexpr int kReach = 128;

    struct Shape {
        int n_layers = 0;
        int n_key_heads = 0; // held by this rank
        int group = 1;       // value heads of a key head
        int key_dim = 0, value_dim = 0;
        int n_convolved = 0;
        int tree_positions = 0;         // of a slot, beside its text
        int prompt_rows = 0;            // of a chunk of a prompt, where it may have more than other passes
        int inputs(int capacity) const; // positions of which a slot keeps them
        // Numbers that a row gives to a key head's states: query, key and values before the convolution, then the
        // values' decays, then their steps.
        std::size_t input_floats() const { return index(2 * key_dim + group * (value_dim + 2)); }
    };
    // Of one rank.
    static std::size_t floats_per_slot(const Shape& shape, int capacity);

    // Throws std::bad_alloc. `elsewhere`: what holds states and inputs, where these here do not.
    RecurrentStates(const Shape& shape, int n_slots, int capacity, std::unique_ptr<RecurrentMemory> elsewhere = {});

    int reach(int slot, int length) const { return length >= base_[index(slot)] ? length : 0; }
    // What lies from `position` on is no longer so. Throws std::logic_error where reach() is less.
    void cut(int slot, int position);
    // As RecurrentMemory has it. The slot is cut to `to` already.
    void move(int slot, std::span<const int> from, int to);
    // Slot `to` becomes the first `length` positions of slot `from`.
    void become(int from, int to, int length);

    // How a pass that begins behind `begin` positions of a slot brings its states there. The inputs from `base_from` on
    // are applied to the base, then those from `front_from` on to the front, which may be the base's copy first, and
    // which is kept behind `front_to` positions: `begin` or, of a prompt's chunk, where it ends.
    struct Advance {
        int base_from = 0, base_to = 0;
        int front_from = 0, front_to = 0;
        bool copies_base = false; // else the front is where it was
    };
    // Of one layer as of all others. The books say afterwards that it has been done.
    // Throws std::invalid_argument where the pass and the tree that it goes on with, up to `end`, have too many rows.
    Advance advance(int slot, int begin, int end, bool keeps_end = false);

    // Of a layer, counted among its kind. [key_dim][value_dim]; after no positions it counts as zeros, whatever it
    // holds. These, and inputs, are not elsewhere.
    float* base(int layer, int slot, int value_head) { return state(bases_, layer, slot, value_head); }
    float* front(int layer, int slot, int value_head) { return state(fronts_, layer, slot, value_head); }
    float* input(int layer, int slot, int key_head, int position);

  private:
    void move_position(int slot, int from, int to);
    void copy(int from, int to);
    float* state(Buffer& states, int layer, int slot, int value_head);
    std::size_t state_floats() const { return index(shape_.key_dim) * index(shape_.value_dim); }

    Shape shape_;
    int n_slots_, n_inputs_;
    std::unique_ptr<RecurrentMemory> elsewhere_; // or the next three
    Buffer bases_, fronts_;                      // [n_layers][n_slots][value heads][key_dim][value_dim]
    Buffer inputs_; // [n_layers][n_slots][key heads][n_inputs_][input_floats()], of position % n_inputs_
    std::vector<int> base_, front_; // [n_slots], after how many positions; a front of -1 is of none
};

} // namespace entrodraft::model
