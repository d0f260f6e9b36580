// States of linear attention in the memory of a GPU: the RecurrentMemory of a decoder's texts. Called by
// gpu/device_cache.
#pragma once

#include "model/gpu/states_view.h"

#include <algorithm>
#include <span>

namespace entrodraft::model::gpu {

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
