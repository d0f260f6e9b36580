// All weights of a model that one rank holds, in the memory of a GPU, as the kernels of this folder read them: matrices
// [outputs][inputs] in one number type or as codes of 8 or 4 bits, rows padded to kLinearAlign numbers with zeros;
// vectors in float32.
//
// Called by gpu/decoder. The CPU's are in cpu/weights.h; what is read from where is the same (model/weights/sources.h).
#pragma once

#include "model/files/checkpoint.h"
#include "model/gpu/kernels.h"
#include "model/gpu/memory.h"
#include "model/weights/sources.h"

#include <array>
#include <functional>
#include <vector>

namespace entrodraft::model::gpu {

struct DeviceMatrix {
    DeviceBytes numbers;
    int n = 0, k = 0, stride = 0;
    DeviceArray<float> bias; // [n] or empty
    CodeForm form;
    DeviceBytes scales;        // of codes: of rows or of their groups, as Linear has them
    DeviceArray<float> values; // [16] or empty
    // [k] or empty: column i is multiplied with input order[i] (GPTQ's act-order, which groups inputs in an order of
    // its own)
    DeviceArray<std::int32_t> order;
    // One or none: further outputs, which the file holds in another way (of linear attention gates that are no codes).
    std::vector<DeviceMatrix> last;

    int outputs() const { return last.empty() ? n : n + last.front().n; }
    // The product of its n outputs with activations of this type; rows, x and y are still to be said.
    Linear product(NumberType type_of_x) const;
};

struct DeviceNorm {
    DeviceArray<float> weight, bias; // empty: no norm, no bias
    Norm kind = Norm::rms;
    float epsilon = 0;
};

struct DeviceLayer {
    DeviceNorm attention_norm, mlp_norm, after_attention_norm, after_mlp_norm, query_norm, key_norm;
    DeviceMatrix qkv, output, wide, down; // wide: gates and ups by turns (Epilogue), or ups alone
    // Of a layer that attends to a source; cross_key_value: own key heads, then own value heads
    DeviceNorm cross_norm;
    DeviceMatrix cross_query, cross_key_value, cross_output;
    // Of a layer with experts, whose wide and down are those of the shared one. router: of whole experts, in the
    // activations' type, then the shared one's scale; the same on all ranks. Of the experts' matrices one behind the
    // other.
    DeviceMatrix router, experts_wide, experts_down;
    // Of latent attention: queries of their vector; and, in the activations' type, what is absorbed and expanded, own
    // head after own head.
    DeviceNorm query_down_norm, key_value_down_norm;
    DeviceMatrix query_up, absorb, expand;
    // Of linear attention, as DeltaNetVectors; its qkv is LayerShapes::linear_in.
    DeviceArray<float> convolution, decay_rates, decay_bias;
    DeviceNorm delta_norm;
    DeviceArray<float> router_correction; // [n_experts] or empty
    DeviceArray<float> sinks;             // [own query heads] or empty
};

// Of a draft head (ModelConfig::fusion).
struct DeviceFusion {
    std::vector<DeviceNorm> feature_norms;
    DeviceNorm feature_scale; // FusionConfig::features_scale, as a norm over all of a row
    DeviceMatrix feature_projection, linear, skip;
    DeviceNorm embedding_norm, state_norm, sum_norm, cell_norm;
    std::vector<DeviceMatrix> cells, residual_blocks, residual_outputs;
    std::array<const std::vector<DeviceMatrix>*, 3> lists() const {
        return {&cells, &residual_blocks, &residual_outputs};
    }
};

struct DeviceWeights {
    // Reads the rank's slice. `type`: of the activations, and of the embedding, which is looked up; `multiplied`: of
    // all other matrices that are not quantised in the file. A head that is the embedding is there twice where it has
    // codes, or where the rank holds more of the embedding than of the head.
    // `progress` is told of bytes done and of all. Throws BadFile, dist::Error. Local.
    DeviceWeights(const Checkpoint& checkpoint, const ModelConfig& config, const RankShard& shard, NumberType type,
                  WeightType multiplied, const std::function<void(std::size_t, std::size_t)>& progress);

    const DeviceMatrix& head() const { return embedding_is_head ? embedding : own_head; }

    NumberType type;
    DeviceMatrix embedding, own_head, project_in, project_out;
    bool embedding_is_head = false;
    DeviceArray<float> positions;       // learned or sinusoidal, [max_positions + position_offset][hidden_size]
    DeviceArray<float> relative_biases; // [own query heads][2 max_distance + 1], by distance, or empty
    DeviceArray<float> head_bias;       // [own outputs] or empty
    DeviceNorm embedding_norm;
    DeviceFusion fusion;
    std::vector<DeviceLayer> layers;
    DeviceNorm final_norm;
    int widest_order = 0;           // DeviceMatrix::order's, of all
    std::size_t bytes_per_pass = 0; // read by a pass of one row
    double operations_per_row = 0;  // multiply-adds times two
};

} // namespace entrodraft::model::gpu
