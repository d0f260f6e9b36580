#include "spec/draft/target_states.h"

#include <algorithm>
#include <stdexcept>

namespace entrodraft::spec {

void TargetStates::take(std::size_t first_position, std::span<const float> states) {
    if (first_position != n_known())
        throw std::logic_error("take_hidden: hidden states must follow those that are known");
    unread_.insert(unread_.end(), states.begin(), states.end());
}

std::size_t TargetStates::n_early(std::size_t end, std::size_t max_rows) const {
    const std::size_t blocks = end > n_read_ ? std::min(end - n_read_, n_unread()) / block_ : 0;
    return blocks < 2 ? 0 : std::min(blocks - 1, max_rows / block_) * block_;
}

void TargetStates::mark_early(std::size_t n) {
    unread_.erase(unread_.begin(), unread_.begin() + static_cast<std::ptrdiff_t>(n * width_));
    n_read_ += n;
}

void TargetStates::read_again() {
    if (n_unread() >= block_) return;
    const std::size_t n = n_unread() > 0 ? block_ - 1 : last_.size() / width_;
    n_read_ -= n;
    unread_.insert(unread_.begin(), last_.end() - static_cast<std::ptrdiff_t>(n * width_), last_.end());
}

void TargetStates::mark_drafted() {
    const std::size_t n = block_ + n_unread() % block_;
    last_.assign(unread_.end() - static_cast<std::ptrdiff_t>(n * width_), unread_.end());
    n_read_ = n_known();
    unread_.clear();
}

} // namespace entrodraft::spec
