// States of linear attention in the memory of a GPU: the RecurrentMemory of a decoder's texts. Called by
// gpu/device_cache and inspection.
#pragma once

#include "model/gpu/delta_net.h"
#include "model/gpu/memory.h"
#include "model/recurrent_states.h"

#include <algorithm>
#include <span>

namespace entrodraft::model::gpu {

// Without memory as yet.
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
// Of a slot: float32, and numbers of the view's type.
inline std::size_t floats_of_slot(const StatesView& view) {
    return 2 * view.state_numbers();
}
inline std::size_t inputs_of_slot(const StatesView& view) {
    return index(view.n_layers) * index(view.n_inputs) * index(view.input_stride);
}

class DeviceStates final : public RecurrentMemory {
  public:
    DeviceStates(NumberType type, const RecurrentStates::Shape& shape, int n_slots, int capacity, const Stream& stream)
        : stream_(stream), view_(states_view(type, shape, capacity)), states_(index(n_slots) * floats_of_slot(view_)),
          inputs_(index(n_slots) * inputs_of_slot(view_) * bytes_of(type)) {
        view_.states = states_.data();
        view_.inputs = inputs_.data();
    }

    const StatesView& view() const { return view_; }
    void copy(int from, int to) override { copy_states(stream_.handle(), view_, from, to); }
    void move(int slot, std::span<const int> from, int to) override {
        for (; !from.empty(); to += MoveCall::kMaxCount) {
            const auto some = from.first(std::min(from.size(), index(MoveCall::kMaxCount)));
            MoveInputsCall call = {view_, slot, to, static_cast<int>(some.size())};
            std::ranges::copy(some, call.from);
            move_inputs(stream_.handle(), call);
            from = from.subspan(some.size());
        }
    }

  private:
    const Stream& stream_;
    StatesView view_;
    DeviceArray<float> states_;
    DeviceBytes inputs_;
};

} // namespace entrodraft::model::gpu
