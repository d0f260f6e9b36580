// Rows of the target beside the draft's rows that tokens were drawn from, where both lie on the device: what rejection
// and block need to know of them, and the token emitted where a text ends.
//
// Accepts nothing: the host does (verify.h). Called by device_verifier.cpp; kernels in verify_rows.cu.
#pragma once

#include "model/device_extension.h"
#include "model/gpu/summed_array.h"
#include "spec/gpu/draft_loop.h"
#include "spec/verify/device_rows.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace entrodraft::spec::gpu {

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
    model::gpu::DeviceNoise noise;
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
    model::gpu::DeviceNoisy best;
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

class VerifyExtension final : public model::DeviceExtension {
  public:
    // Of the next pass, [its logit rows]; `draft` has kept the rows of what was drafted on this rank.
    void set(std::span<const DraftedRow> rows, const DraftLoop& draft);
    std::span<const VerifiedRow> verified() const { return host_verified_.span().first(n_rows_); }

    void prepare(const model::DeviceLogits& logits, dist::Deadline deadline) override;
    void copy_in(const model::DeviceLogits& logits) override;
    void enqueue(const model::DeviceLogits& logits) override;
    void copy_out(const model::DeviceLogits& logits) override;

  private:
    template <typename T> using DeviceArray = model::gpu::DeviceArray<T>;
    template <typename T> using PinnedArray = model::gpu::PinnedArray<T>;

    std::size_t n_rows_ = 0;
    PinnedArray<DeviceDraftedRow> host_drafted_; // [kMaxRows]
    PinnedArray<VerifiedRow> host_verified_;
    DeviceArray<DeviceDraftedRow> drafted_;
    DeviceArray<VerifiedRow> verified_;
    DeviceArray<VerifyMasses> mass_parts_, masses_; // [kMaxRows][kStatsBlocks], [kMaxRows]
    DeviceArray<VerifyPart> parts_;                 // as mass_parts_
    model::gpu::SummedArray whole_rows_;            // [kMaxRows][vocab_size], where the vocabulary is sharded
};

} // namespace entrodraft::spec::gpu
