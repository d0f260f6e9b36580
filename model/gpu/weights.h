// All weights of a model that one rank has, in the memory of a GPU (gpu/device_matrix.h). model/weights/layer_plan.h
// plans the tensors, as for CPUs. Called by gpu/decoder.
#pragma once

#include "model/files/checkpoint.h"
#include "model/gpu/device_matrix.h"
#include "model/weights/layer_plan.h"

#include <functional>
#include <vector>

namespace entrodraft::model::gpu {

// The tensors of a layer, or those around the layers. Some planned matrices are one matrix here:
// - Role::up: gates and ups by turns (Epilogue), or ups alone.
// - Role::expert_up: the same for all experts, one after another; Role::expert_down likewise.
// - Role::absorb: all own heads, one after another; Role::expand likewise.
using DeviceTensors = HeldTensors<DeviceMatrix, DeviceNorm>;

struct DeviceWeights {
    // Reads the rank's slice. `type` is that of the activations, the embedding (which is looked up), the router, and
    // the matrices that absorb and expand. `multiplied` is that of all other matrices that are not quantised in the
    // file. A head that is the embedding is stored twice if it has codes, or if the rank holds more of the embedding
    // than of the head. `progress` receives the bytes done and the total. Throws BadFile, dist::Error.
    DeviceWeights(const Checkpoint& checkpoint, const ModelConfig& config, const RankShard& shard, NumberType type,
                  WeightType multiplied, const std::function<void(std::size_t, std::size_t)>& progress);

    const DeviceMatrix& head() const { return outer[embedding_is_head ? Role::embedding : Role::head]; }

    NumberType type;
    DeviceTensors outer;
    bool embedding_is_head = false;
    DeviceNorm feature_scale; // FusionConfig::features_scale, as a norm over all of a row
    std::vector<DeviceTensors> layers;
    int widest_order = 0;           // the longest DeviceMatrix::order
    std::size_t bytes_per_pass = 0; // read by a pass of one row
    double operations_per_row = 0;  // multiply-adds times two
};

} // namespace entrodraft::model::gpu
