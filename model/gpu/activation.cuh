// The activations of an MLP, and the places of a gated MLP's gates.
//
// Included by delta_net.cu, linear.cuh and rows.cu.
#pragma once

#include "model/gpu/kernels.h"
#include "model/gpu/simt.cuh"

namespace entrodraft::model::gpu {

// Returns the matrix row of gate i. Its up is kGateGroup rows further on.
__device__ inline int gate_row(int i) {
    return i / kGateGroup * 2 * kGateGroup + i % kGateGroup;
}

__device__ inline float activated(Activation activation, float x) {
    switch (activation) {
    case Activation::silu:
        return x / (1.0f + expf(-x));
    case Activation::gelu:
        return 0.5f * x * erfcf(-x * 0.70710678118654752f);
    case Activation::gelu_tanh:
        return x / (1.0f + expf(-1.5957691216057308f * (x + 0.044715f * (x * x * x))));
    case Activation::relu:
        return x < 0.0f ? 0.0f : x; // NaN stays NaN
    }
    return 0;
}

// Combines a gate and its up, as a gated MLP does. limit and slope are those of ExpertsConfig.
__device__ inline float gated(Activation activation, float limit, float slope, float gate, float up) {
    if (limit <= 0) return activated(activation, gate) * up;
    const float low = gate > limit ? limit : gate; // NaN stays NaN
    const float within = up > limit ? limit : up < -limit ? -limit : up;
    return activated(activation, slope * low) * ((within + 1) / slope);
}

} // namespace entrodraft::model::gpu
