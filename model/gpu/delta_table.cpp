#include "model/gpu/delta_table.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace entrodraft::model::gpu {

DeltaTables::DeltaTables(int n_slots)
    : max_segments_(std::min(n_slots, kMaxRows)), host_(bytes(kMaxRows)), device_(bytes(kMaxRows)) {}

std::size_t DeltaTables::bytes(int n_steps) const {
    return kHeadBytes + index(max_segments_) * sizeof(DeltaSegment) + index(n_steps) * sizeof(DeltaTreeStep);
}

bool DeltaTables::fill(const PassLayout& layout, RecurrentStates& states) {
    steps_.clear();
    n_saved_ = 0;
    int n_segments = 0;
    for (const Segment& segment : layout.segments) {
        const DeltaPlan plan = delta_plan(layout, segment, states, layout.pass.is_prompt);
        const RecurrentStates::Advance& advance = plan.advance;
        const bool is_tree = layout.pass.mask == Mask::by_parent;
        host_segments()[n_segments++] = {.slot = segment.slot,
                                         .first_row = segment.begin,
                                         .n_rows = segment.end - segment.begin,
                                         .begin = plan.begin,
                                         .base_from = advance.base_from,
                                         .base_to = advance.base_to,
                                         .front_from = advance.front_from,
                                         .front_to = advance.front_to,
                                         .copies_base = advance.copies_base ? 1 : 0,
                                         .first_step = n_steps(),
                                         .n_steps = is_tree ? static_cast<int>(plan.steps.size()) : 0,
                                         .first_saved = n_saved_};
        if (is_tree) add_steps(plan);
    }
    std::memcpy(host_.data(), &n_segments, sizeof n_segments);
    const std::size_t needed = bytes(n_steps());
    const bool grows = host_.size() < needed;
    if (grows) {
        const std::size_t room = bytes(static_cast<int>(std::bit_ceil(steps_.size())));
        PinnedArray<std::byte> larger(room);
        std::memcpy(larger.data(), host_.data(), bytes(0));
        host_ = std::move(larger);
        device_ = DeviceArray<std::byte>(room);
    }
    std::ranges::copy(steps_, reinterpret_cast<DeltaTreeStep*>(host_.data() + bytes(0)));
    return grows;
}

// A state stays in registers as long as each step follows the previous one. If another child of a node will follow its
// state later, the state is saved before the first child's step.
void DeltaTables::add_steps(const DeltaPlan& plan) {
    int held = DeltaTreeStep::kFront; // number of the state in registers
    for (std::size_t i = 0; i < plan.steps.size(); ++i) {
        const DeltaStep& step = plan.steps[i];
        DeltaTreeStep next = {.position = step.position, .row = step.row, .parent = plan.parents[i]};
        if (step.from != held) next.load = step.from;
        if (step.from == held && step.from >= 0 && step.from != step.to) next.save = step.from;
        held = step.to;
        steps_.push_back(next);
    }
    n_saved_ += plan.n_states;
}

void DeltaTables::copy_in(const Stream& stream, int n_steps) const {
    copy_by_kernel(stream, device_.data(), host_.data(), bytes(n_steps));
}

DeltaTable DeltaTables::table(int rows) const {
    return {reinterpret_cast<const std::int32_t*>(device_.data()),
            reinterpret_cast<const DeltaSegment*>(device_.data() + kHeadBytes),
            reinterpret_cast<const DeltaTreeStep*>(device_.data() + bytes(0)), std::min(rows, max_segments_)};
}

} // namespace entrodraft::model::gpu
