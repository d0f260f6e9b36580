// Verification on the device, as the host has it: see verify_rows.h.
#include "spec/gpu/verify_rows.h"

#include "model/decoder.h"

#include <algorithm>

namespace entrodraft::spec::gpu {

namespace {

constexpr std::size_t kMaxVerified = model::Decoder::kMaxRows;
using model::gpu::kStatsBlocks;

} // namespace

void VerifyExtension::set(std::span<const DraftedRow> rows, const DraftLoop& draft) {
    if (host_drafted_.size() == 0) host_drafted_ = PinnedArray<DeviceDraftedRow>(kMaxVerified);
    const std::span<DeviceDraftedRow> table = host_drafted_.span();
    n_rows_ = rows.size();
    std::fill(table.begin(), table.end(), DeviceDraftedRow{}); // padding, of temperature 0
    int number = 0;                                            // of the drafted token in its text
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const DraftedRow& row = rows[i];
        number = row.is_first ? 0 : number + 1;
        table[i] = {row.drafted >= 0 ? draft.kept_row(number) : nullptr,
                    {{row.noise.key[0], row.noise.key[1]}, row.noise.position, row.noise.temperature},
                    row.drafted,
                    row.is_first ? 1 : 0,
                    row.is_scaled ? 1 : 0,
                    row.lenience};
    }
}

void VerifyExtension::prepare(const model::DeviceLogits& logits, dist::Deadline deadline) {
    if (verified_.size() > 0) return;
    mass_parts_ = DeviceArray<VerifyMasses>(kMaxVerified * kStatsBlocks);
    masses_ = DeviceArray<VerifyMasses>(kMaxVerified);
    parts_ = DeviceArray<VerifyPart>(kMaxVerified * kStatsBlocks);
    drafted_ = DeviceArray<DeviceDraftedRow>(kMaxVerified);
    verified_ = DeviceArray<VerifiedRow>(kMaxVerified);
    host_verified_ = PinnedArray<VerifiedRow>(kMaxVerified);
    if (logits.tp.size() > 1)
        whole_rows_ =
            model::gpu::SummedArray(logits.tp, kMaxVerified * static_cast<std::size_t>(logits.vocab_size), deadline);
}

void VerifyExtension::copy_in(const model::DeviceLogits& logits) {
    copy(logits.stream, drafted_.data(), host_drafted_.data(), kMaxVerified * sizeof(DeviceDraftedRow));
}

// Rows that are sharded across ranks are put together first, as a sum of which each rank has a part; the draft's rows
// are on rank 0 alone, and so is a verification that counts.
void VerifyExtension::enqueue(const model::DeviceLogits& logits) {
    void* const stream = logits.stream.handle();
    VerifyCall call;
    call.logits = logits.logits;
    call.stride = logits.stride();
    if (logits.tp.size() > 1) {
        call.logits = whole_rows_.data();
        call.stride = static_cast<std::size_t>(logits.vocab_size);
        widen_rows(stream,
                   {logits.logits, static_cast<int>(logits.stride()), static_cast<int>(logits.local_vocab.begin),
                    whole_rows_.data(), logits.vocab_size, logits.rows});
        logits.tp.enqueue_all_reduce_sum(whole_rows_.data(), static_cast<std::size_t>(logits.rows) * call.stride,
                                         dist::ElementType::float32, stream);
    }
    call.rows = logits.rows;
    call.count = logits.counted;
    call.drafted = drafted_.data();
    call.mass_parts = mass_parts_.data();
    call.masses = masses_.data();
    call.parts = parts_.data();
    call.verified = verified_.data();
    verify_rows(stream, call);
}

void VerifyExtension::copy_out(const model::DeviceLogits& logits) {
    copy(logits.stream, host_verified_.data(), verified_.data(),
         static_cast<std::size_t>(logits.rows) * sizeof(VerifiedRow));
}

} // namespace entrodraft::spec::gpu
