// Steps, counters and slots in shared memory: see node_comm.h.
//
// The counters carry all ordering: a release store after the slot is written, an acquire load before it is read.
#include "entrodraft/dist/node_comm.h"

#include "entrodraft/dist/rank_order_sum.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

namespace entrodraft::dist {
namespace {

static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free, "counters are shared between processes");

std::atomic_ref<std::uint64_t> counter_in(std::byte* segment) {
    return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(segment));
}

} // namespace

NodeComm::NodeComm(Group group)
    : HostComm(group.rank, std::move(group.world_ranks), group.board), segments_(std::move(group.segments)),
      reached_(segments_.size(), 0), parts_(segments_.size(), nullptr),
      spins_(group.crowded ? Backoff::kCrowdedSpins : Backoff::kSpins) {}

void NodeComm::begin() {
    posted_ = false;
    if (in_flight_.bytes > 0 && (!writes_slot() || slot_is_free())) post();
}

void NodeComm::finish(Deadline deadline) {
    while (in_flight_.done < in_flight_.bytes) {
        if (!posted_) {
            // Only a writer that ran ahead by all of its slots comes here with a full ring.
            if (writes_slot() && step_ > kSlots) await_all(step_ - kSlots + 1, deadline);
            post();
        }
        consume(deadline);
        in_flight_.done += chunk_bytes();
        posted_ = false;
        ++step_;
    }
}

std::size_t NodeComm::chunk_bytes() const {
    return std::min(kSlotBytes, in_flight_.bytes - in_flight_.done);
}

bool NodeComm::writes_slot() const {
    switch (in_flight_.kind) {
    case Collective::broadcast:
        return is_root();
    case Collective::gather:
        return !is_root();
    default:
        return true;
    }
}

// The slot of step s was last used in step s - kSlots, which all ranks have read once they are past it.
bool NodeComm::slot_is_free() {
    return step_ <= kSlots || first_rank_before(step_ - kSlots + 1) < 0;
}

void NodeComm::post() {
    if (writes_slot()) std::memcpy(slot_of(rank()), in_flight_.in + in_flight_.done, chunk_bytes());
    counter_in(segments_[static_cast<std::size_t>(rank())]).store(step_, std::memory_order_release);
    posted_ = true;
}

void NodeComm::consume(Deadline deadline) {
    const std::size_t bytes = chunk_bytes();
    std::byte* out = in_flight_.out ? in_flight_.out + in_flight_.done : nullptr; // of a gather the root has one alone
    switch (in_flight_.kind) {
    case Collective::all_reduce:
        await_all(step_, deadline);
        for (std::size_t r = 0; r < n_ranks(); ++r) {
            parts_[r] = reinterpret_cast<const float*>(slot_of(static_cast<int>(r)));
        }
        sum_in_rank_order(reinterpret_cast<float*>(out), parts_, bytes / sizeof(float));
        return;
    case Collective::broadcast:
        if (is_root()) return;
        await_rank(in_flight_.root, step_, deadline);
        std::memcpy(out, slot_of(in_flight_.root), bytes);
        return;
    case Collective::gather:
        if (!is_root()) return;
        for (int r = 0; r < size(); ++r) {
            std::byte* place = out + static_cast<std::size_t>(r) * in_flight_.bytes;
            if (r == rank()) {
                std::memmove(place, in_flight_.in + in_flight_.done, bytes);
            } else {
                await_rank(r, step_, deadline);
                std::memcpy(place, slot_of(r), bytes);
            }
        }
        return;
    case Collective::none:
        return;
    }
}

std::byte* NodeComm::slot_of(int rank) const {
    return segments_[static_cast<std::size_t>(rank)] + kAlignment + (step_ % kSlots) * kSlotBytes;
}

bool NodeComm::has_reached(int rank, std::uint64_t step) {
    std::uint64_t& seen = reached_[static_cast<std::size_t>(rank)];
    if (seen < step) seen = counter_in(segments_[static_cast<std::size_t>(rank)]).load(std::memory_order_acquire);
    return seen >= step;
}

int NodeComm::first_rank_before(std::uint64_t step) {
    for (int r = 0; r < size(); ++r) {
        if (r != rank() && !has_reached(r, step)) return r;
    }
    return -1;
}

void NodeComm::await_all(std::uint64_t step, Deadline deadline) {
    for (int r = 0; r < size(); ++r) {
        if (r != rank()) await_rank(r, step, deadline);
    }
}

void NodeComm::await_rank(int rank, std::uint64_t step, Deadline deadline) {
    if (has_reached(rank, step)) return;
    Wait wait(*this, rank, spins_, deadline);
    while (!has_reached(rank, step)) {
        if (wait.step()) continue;
        if (has_reached(rank, step)) return;
        wait.time_out();
    }
}

} // namespace entrodraft::dist
