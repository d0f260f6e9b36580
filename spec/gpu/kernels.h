// Kernels of drafting and verification, as functions that put them on a stream. All pointers are device memory.
//
// No CUDA header is needed to call them. Called by device_verifier.cpp.
#pragma once

#include "model/device_extension.h"
#include "spec/verify/device_verifier.h"

#include <cstddef>
#include <cstdint>

namespace entrodraft::spec::gpu {

using namespace model::gpu;

// ---- drafting (draft_loop.cu) ----

// A draft on the device; what the host sets comes first.
struct DraftState {
    DeviceStopRule rule;
    std::int32_t kept_row;        // number under which the next row stays; negative: none stays
    double product;               // of acceptances
    double squares[kMaxLoopRows]; // x^2
};

// Behind each row: state.rule decides.
struct DecideCall {
    DeviceLoop loop;
    DraftState* state = nullptr;
};
void decide_next_row(void* stream, const DecideCall& call);

// The row, [width], is copied to row `number` of kept, [...][width]; not where that is negative.
struct KeepCall {
    const float* row = nullptr;
    std::size_t width = 0;
    const std::int32_t* number = nullptr; // on the device: it moves on with the loop
    float* kept = nullptr;
};
void keep_row(void* stream, const KeepCall& call);

// ---- verification (verify_rows.cu) ----

// wide[r][begin + i] = logits[r][i], i < count, and zeros elsewhere: what the ranks' slices sum up to is whole rows.
struct WidenCall {
    const float* logits = nullptr; // [rows][count]
    int count = 0;
    int begin = 0;
    float* wide = nullptr; // [rows][width]
    int width = 0;
    int rows = 0;
};
void widen_rows(void* stream, const WidenCall& call);

struct DeviceDraftedRow {      // as DraftedRow
    const float* draft_logits; // that `drafted` was drawn from; null where this rank has none
    DeviceNoise noise;
    std::int32_t drafted, is_first, is_scaled;
    float lenience;
};
// The largest of a row's logits and the sum of exp((logit - largest) / temperature), of part of it or of all.
struct SoftmaxMass {
    float max, inverse_sum; // 1 / sum, of all of the row
    double sum;
};
struct VerifyMasses {
    SoftmaxMass target, draft;
};
struct VerifyPart {
    double excess, overlap;
    DeviceNoisy best;
};
struct VerifyCall {
    const float* logits = nullptr; // [rows][stride]
    std::size_t stride = 0;
    int rows = 0;
    int count = 0;                             // logits that count, from the first, which is token 0's
    const DeviceDraftedRow* drafted = nullptr; // [rows]
    VerifyMasses* mass_parts = nullptr;        // workspace, [rows][kStatsBlocks]
    VerifyMasses* masses = nullptr;            // workspace, [rows]
    VerifyPart* parts = nullptr;               // workspace, [rows][kStatsBlocks]
    VerifiedRow* verified = nullptr;           // [rows]
};
void verify_rows(void* stream, const VerifyCall& call);

} // namespace entrodraft::spec::gpu
