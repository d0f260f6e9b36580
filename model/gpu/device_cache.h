// Keys and values in the memory of a GPU: the KvMemory of a decoder's texts and sources. Called by gpu/decoder and
// gpu/encoder.
#pragma once

#include "model/gpu/device_states.h"
#include "model/gpu/kernels.h"
#include "model/gpu/memory.h"
#include "model/pass/kv_cache.h"

#include <algorithm>
#include <memory>
#include <span>

namespace entrodraft::model::gpu {

// Keys and values of all slots in device memory. The books are KvCache's.
class DeviceCache final : public KvMemory {
  public:
    DeviceCache(NumberType type, const KvCache::Shape& shape, const Stream& stream)
        : stream_(stream), n_layers_(shape.n_layers) {
        const int positions = KvCache::whole_blocks(shape.capacity);
        const int stride = (shape.head_dim + kHeadAlign - 1) / kHeadAlign * kHeadAlign;
        const int value_dim = shape.value_dim > 0 ? shape.value_dim : shape.head_dim;
        const std::size_t bytes = index(shape.n_layers) * index(shape.n_slots) * index(shape.n_kv_heads) *
                                  index(positions) * index(stride) * bytes_of(type);
        keys_ = DeviceBytes(bytes);
        view_ = {type,      keys_.data(),   keys_.data(), shape.n_slots, shape.n_kv_heads,
                 positions, shape.head_dim, stride,       value_dim};
        if (view_.is_latent()) return;
        values_ = DeviceBytes(bytes);
        view_.values = values_.data();
    }

    const CacheView& view() const { return view_; }
    void copy(int from_slot, int from, int to_slot, int to, int count) override {
        copy_positions(stream_.handle(), {view_, n_layers_, from_slot, from, to_slot, to, count});
    }
    void move(int slot, std::span<const int> from, int to) override {
        for (; !from.empty(); to += MoveCall::kMaxCount) {
            const auto some = from.first(std::min(from.size(), index(MoveCall::kMaxCount)));
            MoveCall call = {view_, n_layers_, slot, to, static_cast<int>(some.size())};
            std::ranges::copy(some, call.from);
            move_positions(stream_.handle(), call);
            from = from.subspan(some.size());
        }
    }

  private:
    const Stream& stream_;
    int n_layers_;
    CacheView view_;
    DeviceBytes keys_, values_;
};

// A DeviceCache and its books.
struct BookedCache {
    BookedCache() = default;
    BookedCache(NumberType type, const KvCache::Shape& shape, const Stream& stream) {
        auto memory = std::make_unique<DeviceCache>(type, shape, stream);
        view = memory->view();
        std::unique_ptr<DeviceStates> of_states;
        if (shape.recurrent.n_layers > 0) {
            of_states = std::make_unique<DeviceStates>(type, shape.recurrent, shape.n_slots,
                                                       KvCache::whole_blocks(shape.capacity), stream);
            states = of_states->view();
        }
        books = std::make_shared<KvCache>(shape, std::move(memory), std::move(of_states));
    }

    std::shared_ptr<KvCache> books;
    CacheView view;
    StatesView states; // for linear attention, if the model has it
};

} // namespace entrodraft::model::gpu
