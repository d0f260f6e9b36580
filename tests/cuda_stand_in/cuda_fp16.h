// The float16 type of the CUDA stand-in: see cuda_runtime.h.
#pragma once

#include "model/files/half.h"
#include "tests/cuda_stand_in/cuda_runtime.h"

struct __half {
    std::uint16_t bits;
};
inline float __half2float(__half value) {
    return entrodraft::model::from_float16(value.bits);
}
inline __half __float2half_rn(float value) {
    return {entrodraft::model::to_float16(value)};
}
