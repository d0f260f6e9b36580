// A draft on the device, as the host has it: see draft_loop.h.
#include "spec/gpu/draft_loop.h"

#include "spec/verify/device_verifier.h"

#include <algorithm>
#include <cstddef>

namespace entrodraft::spec::gpu {

void DraftLoop::set(const DeviceStopRule& rule, int first_kept) {
    DraftState& state = *host_state_.data();
    state.rule = rule;
    state.kept_row = first_kept;
    if (first_kept >= 0) state.rule.max_rows = std::min(rule.max_rows, DeviceVerifier::kMaxKept - first_kept);
}

const float* DraftLoop::kept_row(int number) const {
    const auto found = kept_.find(stride_);
    return found == kept_.end() ? nullptr : found->second.data() + static_cast<std::size_t>(number) * stride_;
}

void DraftLoop::prepare(const model::DeviceLogits& logits, dist::Deadline) {
    if (!keeps()) return;
    stride_ = logits.stride();
    model::gpu::DeviceArray<float>& kept = kept_[stride_];
    if (kept.size() == 0) kept = model::gpu::DeviceArray<float>(DeviceVerifier::kMaxKept * stride_);
}

void DraftLoop::copy_in(const model::DeviceLogits& logits) {
    copy(logits.stream, state_.data(), host_state_.data(), offsetof(DraftState, product));
}

void DraftLoop::enqueue(const model::DeviceLogits& logits) {
    if (keeps())
        keep_row(logits.stream.handle(),
                 {logits.logits, logits.stride(), &state_.data()->kept_row, kept_.at(logits.stride()).data()});
}

void DraftLoop::decide(const model::gpu::Stream& stream, const model::gpu::DeviceLoop& loop) {
    decide_next_row(stream.handle(), {loop, state_.data()});
}

} // namespace entrodraft::spec::gpu
