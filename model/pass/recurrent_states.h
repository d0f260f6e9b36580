// States of linear attention's layers, for every sequence that a rank has, so that a text can be cut back.
//
// A layer knows the earlier rows only by its state. Keys and values can be cut, but a state cannot. So a slot keeps the
// states after two of its positions: a front, where the last pass began, and a base some way before it. It also keeps
// the inputs: the values that rows from the base on gave to their states. A later state is made by applying these
// inputs again, row by row, which gives the same bits as the rows' own pass. A pass whose rows are a tree does so along
// each branch (delta_plan.h). This is a part of KvCache: positions are positions in a slot of KvCache. A CPU's states
// are in this object. For memory elsewhere, such as a GPU's, a RecurrentMemory copies there.
#pragma once

#include "model/host/buffer.h"

#include <memory>
#include <span>
#include <vector>

namespace entrodraft::model {

// Converts a count or position, never negative, to the type that containers and pointers take.
constexpr std::size_t index(int value) {
    return static_cast<std::size_t>(value);
}

inline constexpr int kMaxLinearKeyDim = 256; // largest size that kernels for GPUs take

// Memory for states and inputs that RecurrentStates manages but cannot access itself.
class RecurrentMemory {
  public:
    virtual ~RecurrentMemory() = default;
    // Moves inputs of positions from[i] of a slot, in every layer, to positions to + i. `from` increases, and from[i]
    // >= to + i.
    virtual void move(int slot, std::span<const int> from, int to) = 0;
    // Copies all of slot `from` to slot `to`.
    virtual void copy(int from, int to) = 0;
};

class RecurrentStates {
  public:
    // A text can be cut back by at least this number: a round's most drafted tokens and its first row.
    static constexpr int kReach = 128;

    struct Shape {
        int n_layers = 0;
        int n_key_heads = 0; // held by this rank
        int group = 1;       // value heads of a key head
        int key_dim = 0, value_dim = 0;
        int n_convolved = 0;
        int tree_positions = 0;         // of a slot, in addition to its text
        int prompt_rows = 0;            // of a chunk of a prompt, where it may have more than other passes
        int inputs(int capacity) const; // number of positions whose inputs a slot keeps
        // Number of values that a row gives to a key head's states: query, key and values before the convolution, then
        // the values' decays, then their steps.
        std::size_t input_floats() const { return index(2 * key_dim + group * (value_dim + 2)); }
    };
    // For one rank.
    static std::size_t floats_per_slot(const Shape& shape, int capacity);

    // Throws std::bad_alloc. `elsewhere`: holds the states and inputs in place of this object's own memory.
    RecurrentStates(const Shape& shape, int n_slots, int capacity, std::unique_ptr<RecurrentMemory> elsewhere = {});

    int reach(int slot, int length) const { return length >= base_[index(slot)] ? length : 0; }
    // Forgets the states from `position` on. Throws std::logic_error where reach() is less.
    void cut(int slot, int position);
    // Like RecurrentMemory::move. The slot is cut to `to` already.
    void move(int slot, std::span<const int> from, int to);
    // Slot `to` becomes the first `length` positions of slot `from`.
    void become(int from, int to, int length);

    // Says how a pass that begins after `begin` positions of a slot brings its states there. The base takes the inputs
    // from `base_from` on. The front, which may first become a copy of the base, takes the inputs from `front_from` on.
    // It is kept after `front_to` positions: `begin`, or the end of a prompt's chunk.
    struct Advance {
        int base_from = 0, base_to = 0;
        int front_from = 0, front_to = 0;
        bool copies_base = false; // else the front stays where it was
    };
    // The plan is the same for all layers. Afterwards the object counts it as done. Throws std::invalid_argument where
    // the pass and its tree's cached nodes, up to `end`, have too many rows.
    Advance advance(int slot, int begin, int end, bool keeps_end = false);

    // States of a layer, counted among its kind: [key_dim][value_dim]. After 0 positions a state counts as zeros,
    // whatever it holds. Only where states and inputs are not elsewhere.
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
    std::unique_ptr<RecurrentMemory> elsewhere_; // or it has the next three
    Buffer bases_, fronts_;                      // [n_layers][n_slots][value heads][key_dim][value_dim]
    Buffer inputs_; // [n_layers][n_slots][key heads][n_inputs_][input_floats()], at position % n_inputs_
    std::vector<int> base_, front_; // [n_slots], number of positions before the state; -1: there is no front
};

} // namespace entrodraft::model
