#include "model/pass/recurrent_states.h"

#include "model/pass/pass_rows.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <stdexcept>
#include <utility>

namespace entrodraft::model {
namespace {

constexpr int kAdvanced = 32; // positions that a base may be further back than kReach before it moves up

} // namespace

int RecurrentStates::Shape::inputs(int capacity) const {
    // Room for the distance to the base, for two passes' rows (all rows of a tree that is read level by level) or a
    // prompt's chunk, and for the rows that the base's own convolution needs.
    return std::min(capacity, kReach + kAdvanced + std::max(2 * kMaxRows, prompt_rows) + tree_positions + n_convolved);
}

std::size_t RecurrentStates::floats_per_slot(const Shape& shape, int capacity) {
    const std::size_t states = 2 * index(shape.group) * index(shape.key_dim) * index(shape.value_dim);
    return index(shape.n_layers) * index(shape.n_key_heads) *
           (states + index(shape.inputs(capacity)) * shape.input_floats());
}

RecurrentStates::RecurrentStates(const Shape& shape, int n_slots, int capacity,
                                 std::unique_ptr<RecurrentMemory> elsewhere)
    : shape_(shape), n_slots_(n_slots), n_inputs_(shape.inputs(capacity)), elsewhere_(std::move(elsewhere)),
      base_(index(n_slots), 0), front_(index(n_slots), 0) {
    if (elsewhere_) return;
    const std::size_t heads = index(shape.n_layers) * index(n_slots) * index(shape.n_key_heads);
    bases_ = Buffer(heads * index(shape.group) * state_floats() * sizeof(float));
    fronts_ = Buffer(bases_.bytes());
    inputs_ = Buffer(heads * index(n_inputs_) * shape.input_floats() * sizeof(float));
}

float* RecurrentStates::state(Buffer& states, int layer, int slot, int value_head) {
    const int n_heads = shape_.n_key_heads * shape_.group;
    return states.as<float>() +
           ((index(layer) * index(n_slots_) + index(slot)) * index(n_heads) + index(value_head)) * state_floats();
}

float* RecurrentStates::input(int layer, int slot, int key_head, int position) {
    const std::size_t head =
        (index(layer) * index(n_slots_) + index(slot)) * index(shape_.n_key_heads) + index(key_head);
    return inputs_.as<float>() + (head * index(n_inputs_) + index(position % n_inputs_)) * shape_.input_floats();
}

void RecurrentStates::cut(int slot, int position) {
    int& base = base_[index(slot)];
    if (reach(slot, position) < position)
        throw std::logic_error(fmt::format(
            "slot {} of the cache has states of linear attention from position {} on alone: it cannot be cut to {}",
            slot, base, position));
    if (position < base) base = 0; // the next pass begins before a front that is further on, and notices it
}

void RecurrentStates::move(int slot, std::span<const int> from, int to) {
    if (elsewhere_) return elsewhere_->move(slot, from, to);
    for (const int position : from)
        move_position(slot, position, to++);
}

void RecurrentStates::move_position(int slot, int from, int to) {
    for (int layer = 0; layer < shape_.n_layers; ++layer)
        for (int head = 0; head < shape_.n_key_heads; ++head)
            std::memcpy(input(layer, slot, head, to), input(layer, slot, head, from),
                        shape_.input_floats() * sizeof(float));
}

void RecurrentStates::become(int from, int to, int length) {
    if (reach(from, length) < length)
        throw std::logic_error(
            fmt::format("slot {} of the cache cannot become the first {} positions of slot {}, whose "
                        "states of linear attention begin at {}",
                        to, length, from, base_[index(from)]));
    const bool has_front = front_[index(from)] >= 0 && front_[index(from)] <= length;
    if (length > 0) elsewhere_ ? elsewhere_->copy(from, to) : copy(from, to);
    base_[index(to)] = length == 0 ? 0 : base_[index(from)];
    front_[index(to)] = has_front ? front_[index(from)] : -1;
}

void RecurrentStates::copy(int from, int to) {
    const std::size_t state_bytes = index(shape_.group) * state_floats() * sizeof(float);
    const std::size_t inputs_bytes = index(n_inputs_) * shape_.input_floats() * sizeof(float);
    for (int layer = 0; layer < shape_.n_layers; ++layer)
        for (int head = 0; head < shape_.n_key_heads; ++head) {
            const int value_head = head * shape_.group;
            std::memcpy(base(layer, to, value_head), base(layer, from, value_head), state_bytes);
            std::memcpy(front(layer, to, value_head), front(layer, from, value_head), state_bytes);
            std::memcpy(input(layer, to, head, 0), input(layer, from, head, 0), inputs_bytes);
        }
}

RecurrentStates::Advance RecurrentStates::advance(int slot, int begin, int end, bool keeps_end) {
    int& base = base_[index(slot)];
    int& front = front_[index(slot)];
    Advance advance;
    advance.base_from = advance.base_to = base;
    if (begin - base > kReach + kAdvanced) advance.base_to = begin - kReach;
    const int first = std::max(0, advance.base_to - shape_.n_convolved + 1);
    if (end - first > n_inputs_)
        throw std::invalid_argument(
            fmt::format("a tree over a model with linear attention has at most {} nodes", n_inputs_ - (begin - first)));
    base = advance.base_to;
    advance.copies_base = front < base || front > begin;
    advance.front_from = advance.copies_base ? base : front;
    advance.front_to = front = keeps_end ? end : begin;
    return advance;
}

} // namespace entrodraft::model
