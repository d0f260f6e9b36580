// The shape of linear attention's states in the memory of a GPU, as plain numbers. Called by gpu/device_states, and by
// inspection, which is also in builds without GPU code.
#pragma once

#include "model/gpu/delta_net.h"
#include "model/gpu/memory.h"
#include "model/pass/recurrent_states.h"

namespace entrodraft::model::gpu {

// Returns a view without memory yet.
inline StatesView states_view(NumberType type, const RecurrentStates::Shape& shape, int capacity) {
    StatesView view;
    view.type = type;
    view.n_layers = shape.n_layers;
    view.n_key_heads = shape.n_key_heads;
    view.group = shape.group;
    view.key_dim = shape.key_dim;
    view.key_stride = key_stride_of(shape.key_dim);
    view.value_dim = shape.value_dim;
    view.n_convolved = shape.n_convolved;
    view.n_inputs = shape.inputs(capacity);
    view.input_stride = aligned(view.input_numbers());
    return view;
}
// Sizes of a slot: its float32 numbers, and its numbers of the view's type.
inline std::size_t floats_of_slot(const StatesView& view) {
    return 2 * view.state_numbers();
}
inline std::size_t inputs_of_slot(const StatesView& view) {
    return index(view.n_layers) * index(view.n_inputs) * index(view.input_stride);
}

} // namespace entrodraft::model::gpu
