// The bfloat16 type of the CUDA stand-in: see cuda_runtime.h.
#pragma once

#include "model/files/half.h"
#include "tests/cuda_stand_in/cuda_runtime.h"

struct __nv_bfloat16 {
    std::uint16_t bits;
};
inline float __bfloat162float(__nv_bfloat16 value) {
    return entrodraft::model::from_bfloat16(value.bits);
}
inline __nv_bfloat16 __float2bfloat16_rn(float value) {
    return {entrodraft::model::to_bfloat16(value)};
}
