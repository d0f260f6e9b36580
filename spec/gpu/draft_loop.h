// A draft that the device goes on with by itself: behind each row it notes the token and asks the stop rule, as
// numbers, whether another is wanted. Rows may stay for the verification.
//
// Called by device_verifier.cpp; kernels in draft_loop.cu.
#pragma once

#include "model/device_extension.h"
#include "spec/stop/device_stop_rule.h"

#include <cstddef>
#include <cstdint>
#include <map>

namespace entrodraft::spec::gpu {

// A draft on the device; what the host sets comes first.
struct DraftState {
    DeviceStopRule rule;
    std::int32_t kept_row;                    // number under which the next row stays; negative: none stays
    double product;                           // of acceptances
    double squares[model::gpu::kMaxLoopRows]; // x^2
};

// Behind each row: state.rule decides.
struct DecideCall {
    model::gpu::DeviceLoop loop;
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

class DraftLoop final : public model::DeviceExtension {
  public:
    DraftLoop() : state_(1), host_state_(1) {}

    // Of the next pass; `first_kept` as DeviceVerifier::draft has it.
    void set(const DeviceStopRule& rule, int first_kept);
    // The row that drafted token `number` was drawn from; null where none was ever kept.
    const float* kept_row(int number) const;

    int form() const override { return keeps() ? 1 : 0; }
    void prepare(const model::DeviceLogits& logits, dist::Deadline deadline) override;
    void copy_in(const model::DeviceLogits& logits) override;
    void enqueue(const model::DeviceLogits& logits) override;
    int max_rows() const override { return host_state_.data()->rule.max_rows; }
    void decide(const model::gpu::Stream& stream, const model::gpu::DeviceLoop& loop) override;

  private:
    bool keeps() const { return host_state_.data()->kept_row >= 0; }

    model::gpu::DeviceArray<DraftState> state_;
    model::gpu::PinnedArray<DraftState> host_state_;
    std::map<std::size_t, model::gpu::DeviceArray<float>> kept_; // by vocabulary: [kMaxKept][vocabulary]
    std::size_t stride_ = 0;                                     // of the rows kept last
};

} // namespace entrodraft::spec::gpu
