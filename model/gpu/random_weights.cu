// Rows of random weights, made where they are read: see model/checkpoint/generated_values.h.
#include "model/checkpoint/generated_values.h"
#include "model/gpu/kernels.h"
#include "model/gpu/simt.cuh"

namespace entrodraft::model::gpu {

namespace {

constexpr int kWarps = 8; // of a block

// A warp a row.
template <typename Code> __global__ void fill_rows(RandomRows call) {
    begin_kernel();
    const int row = static_cast<int>(blockIdx.x) * kWarps + warp_of_thread();
    if (row >= call.rows) return;
    const std::uint64_t first = (call.first_row + static_cast<std::uint64_t>(row)) * call.row_step;
    const auto index_of = [&](int input) {
        return random_weight_index(call.key, first + static_cast<std::uint64_t>(input) * call.input_step);
    };
    const Code* codes = static_cast<const Code*>(call.codes);
    if (call.scales != nullptr) {
        float largest = 0; // m, where 2 m + 1 is the magnitude
        for (int i = lane_of_thread(); i < call.whole_inputs; i += kWarp) {
            const int index = index_of(i), middle = kRandomWeights / 2;
            const auto magnitude = static_cast<float>(index < middle ? middle - 1 - index : index - middle);
            largest = magnitude > largest ? magnitude : largest;
        }
        const int table = static_cast<int>(warp_max(largest));
        codes += table * kRandomWeights;
        if (lane_of_thread() == 0) call.scales[row] = call.scale_of[table];
    }
    Code* out = static_cast<Code*>(call.out) + static_cast<std::size_t>(row) * static_cast<std::size_t>(call.stride);
    for (int i = lane_of_thread(); i < call.inputs; i += kWarp)
        out[i] = codes[index_of(call.first_input + i)];
}

} // namespace

void fill_random_rows(void* stream, const RandomRows& call) {
    const Grid grid = {blocks_for(static_cast<std::size_t>(call.rows), kWarps), kWarps * kWarp};
    switch (call.code_bytes) {
    case 1:
        return launch(stream, grid, fill_rows<std::uint8_t>, call);
    case 2:
        return launch(stream, grid, fill_rows<std::uint16_t>, call);
    default:
        return launch(stream, grid, fill_rows<std::uint32_t>, call);
    }
}

} // namespace entrodraft::model::gpu
