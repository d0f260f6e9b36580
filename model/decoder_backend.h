// What computes a decoder's passes: the threads of a CPU (decoder.cpp) or a GPU (gpu/decoder.h). Decoder hides which.
#pragma once

#include "model/decoder.h"
#include "model/rank_shard.h"

#include <algorithm>
#include <utility>

namespace entrodraft::model {

struct DecoderBackend {
    // The context is cut to what the cache holds.
    DecoderBackend(const ModelConfig& of, const RankShard& held, KvCache&& memory, int capacity)
        : config(of), shard(held), cache(std::move(memory)) {
        config.max_positions = std::min(of.max_positions, capacity);
    }
    virtual ~DecoderBackend() = default;

    // These are Decoder's: see there.
    virtual std::size_t weight_bytes() const = 0;
    virtual double operations_per_row() const = 0;
    virtual PassResult forward(const Pass& pass) = 0;
    virtual bool has_device_draft_loop() const { return false; }
    virtual bool keeps_logits_on_device() const { return false; }

    ModelConfig config;
    RankShard shard;
    KvCache cache;
};

} // namespace entrodraft::model
