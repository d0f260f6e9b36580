// Test models on a GPU, or on the stand-in for one. For tests only.
#pragma once

#include "model/gpu/decoder.h"
#include "tests/model/golden_models.h"

#ifdef ENTRODRAFT_ON_STAND_IN
#include "tests/cuda_stand_in/cuda_runtime.h"
#endif

namespace entrodraft {

#ifdef ENTRODRAFT_ON_STAND_IN
inline constexpr bool kOnStandIn = true;
#else
inline constexpr bool kOnStandIn = false;
#endif

inline std::unique_ptr<model::Decoder> load_on_gpu(const model::Checkpoint& checkpoint,
                                                   const model::ModelConfig& config,
                                                   const model::DecoderOptions& options, dist::Communicator& tp,
                                                   model::ThreadTeam&) {
    return model::gpu::load_decoder(checkpoint, config, options, tp);
}

inline TestModelOptions on_gpu(model::WeightType type = model::WeightType::float32, int n_slots = 1) {
    TestModelOptions options;
    options.load = &load_on_gpu;
    options.decoder.weight_type = type;
    options.decoder.n_slots = n_slots;
    options.decoder.capacity = 300;
    return options;
}

} // namespace entrodraft
