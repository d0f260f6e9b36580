// The activations of an MLP, and where a gated one has its gates.
//
// Included by linear.cu and rows.cu.
#pragma once

#include "model/gpu/kernels.h"
#include "model/gpu/simt.cuh"

namespace entrodraft::model::gpu {

// Row of a matrix with gates that is gate i; its up is kGateGroup rows on.
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

} // namespace entrodraft::model::gpu
