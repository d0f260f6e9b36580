// Puts a bias into a row, before a library adds the product.
#include "model/gpu/kernels.h"
#include "model/gpu/simt.cuh"

namespace entrodraft::model::gpu {

namespace {

constexpr int kThreads = 256;

template <typename T> __global__ void start_rows_with_bias(Linear call) {
    begin_kernel();
    const int n = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
    if (n >= call.n) return;
    T* y = static_cast<T*>(call.y) + static_cast<std::size_t>(blockIdx.y) * static_cast<std::size_t>(call.y_stride);
    y[n] = from_float<T>(call.add ? to_float(y[n]) + call.bias[n] : call.bias[n]);
}

} // namespace

void start_with_bias(void* stream, const Linear& call) {
    const dim3 blocks(blocks_for(static_cast<std::size_t>(call.n), kThreads), static_cast<unsigned>(call.rows));
    with_type(call.y_type, [&]<typename T>(T*) { launch(stream, {blocks, kThreads}, start_rows_with_bias<T>, call); });
}

} // namespace entrodraft::model::gpu
