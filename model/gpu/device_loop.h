// A loop of passes on the device: behind each row of one token a kernel of the caller's decides whether that token is
// read as the next row.
//
// Called by gpu/decoder, as the first and the repeated part of one graph; what kernels do with it is in
// device_loop.cuh.
#pragma once

#include "model/gpu/kernels.h"

#include <cstddef>
#include <cstdint>

namespace entrodraft::model::gpu {

inline constexpr int kMaxLoopRows = 128;

// The rows that a loop has made, the pass's own first.
struct LoopState {
    int n_rows;
    int max_rows; // set by the host
    struct Row {
        DeviceLogitStats stats;
        DeviceNoisy noisy;
    } rows[kMaxLoopRows];

    // Up to and including so many rows.
    static constexpr std::size_t bytes_of_rows(int n) {
        return offsetof(LoopState, rows) + static_cast<std::size_t>(n) * sizeof(Row);
    }
};

// What kernels need of a loop, in device memory: the columns of the pass's RowTable, of which row 0 becomes the next
// row, and what its last row says.
struct DeviceLoop {
    std::int32_t* tokens = nullptr;
    std::int32_t* slots = nullptr;
    std::int32_t* positions = nullptr;
    std::int32_t* places = nullptr;
    std::int32_t* n_keys = nullptr;
    std::int32_t* window_ends = nullptr;
    std::int32_t* first_keys = nullptr;
    std::int32_t* prefix_slots = nullptr;
    std::int32_t* prefix_lengths = nullptr;
    std::int32_t* mask_begins = nullptr;
    std::int32_t* logit_rows = nullptr;      // [1]: the row of the table that the logits are of
    DeviceNoise* noises = nullptr;           // [1]; null: no row has noise
    const DeviceLogitStats* stats = nullptr; // [1]
    const DeviceNoisy* noisy = nullptr;      // [1]; null where noises is
    LoopState* state = nullptr;
    unsigned long long condition = 0; // of the graph's repeated part
};

} // namespace entrodraft::model::gpu
