// Steps, counters and slots in shared memory: see node_comm.h.
//
// The counters alone order memory accesses: a release store after the slot is written, an acquire load before it is
// read.
//
// Wake-ups are not lost. A reader that goes to sleep adds itself to `sleepers` (S1), then loads the counter (S2), and
// sleeps only while the counter has that value. The writer stores the counter (W1), then loads `sleepers` (W2), and
// wakes the sleepers if there are any. All four accesses are sequentially consistent, so there is one order of them. If
// S1 comes before W2, the writer sees the sleeper and wakes it. Otherwise W1 < W2 < S1 < S2: the reader sees the new
// counter and does not sleep.
//
// Between S2 and the sleep, the kernel compares the word again, under the lock that a wake takes. So the sleep returns
// at once if the store and the wake came before it, and a later wake finds the sleeper. The word is the lower half of
// the counter. It could look like the old value only after 2^32 more steps, but the counter cannot pass the reader's
// own step by more than kSlots.
//
// A rank that is killed in its sleep stays counted in `sleepers`. This costs the other ranks one system call a step
// until they end too. Where futexes do not work, a sleeper naps instead. A sleep is never longer than
// Backoff::kLongestSleep; after it the sleeper checks the counter and the clock.
#include "dist/comm/node_comm.h"

#include "dist/comm/rank_order_sum.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <sched.h>
#include <utility>

namespace entrodraft::dist {
namespace {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free,
              "counters are shared between processes");

int this_core() {
#if defined(__linux__)
    return sched_getcpu();
#else
    return -1;
#endif
}

} // namespace

// A rank's segment begins with this header.
struct NodeComm::Header {
    std::atomic<std::uint64_t> step;     // the step that the rank has reached
    std::atomic<std::uint32_t> sleepers; // number of ranks that sleep until it moves on
    std::atomic<std::int32_t> core;      // core that the rank was on, plus 1; 0: not known

    // The word that the sleepers sleep on: the half of `step` that every step changes.
    const std::uint32_t* word() const {
        return reinterpret_cast<const std::uint32_t*>(&step) + (std::endian::native == std::endian::little ? 0 : 1);
    }
};

NodeComm::Header& NodeComm::header_of(int rank) const {
    return *reinterpret_cast<Header*>(segments_[rank]);
}

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
            // The ring is full here only for a writer that ran ahead by all of its slots.
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

// The slot of step s was last used in step s - kSlots. All ranks have read it once they are past that step.
bool NodeComm::slot_is_free() {
    return step_ <= kSlots || first_rank_before(step_ - kSlots + 1) < 0;
}

void NodeComm::post() {
    if (writes_slot()) std::memcpy(slot_of(rank()), in_flight_.in + in_flight_.done, chunk_bytes());
    Header& mine = header_of(rank());
    mine.core.store(this_core() + 1, std::memory_order_relaxed);
    mine.step.store(step_, std::memory_order_seq_cst);
    if (mine.sleepers.load(std::memory_order_seq_cst) > 0) wake_sleepers(mine.word());
    posted_ = true;
}

void NodeComm::consume(Deadline deadline) {
    const std::size_t bytes = chunk_bytes();
    std::byte* out = in_flight_.out ? in_flight_.out + in_flight_.done : nullptr; // in a gather only the root has one
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
    return segments_[rank] + kAlignment + (step_ % kSlots) * kSlotBytes;
}

bool NodeComm::has_reached(int rank, std::uint64_t step) {
    std::uint64_t& seen = reached_[rank];
    if (seen < step) seen = header_of(rank).step.load(std::memory_order_acquire);
    return seen >= step;
}

int NodeComm::first_rank_before(std::uint64_t step) {
    for (int r = 0; r < size(); ++r) {
        if (r != rank() && !has_reached(r, step)) return r;
    }
    return -1;
}

bool NodeComm::is_on_this_core(int rank) const {
    const int theirs = header_of(rank).core.load(std::memory_order_relaxed);
    return theirs > 0 && theirs == this_core() + 1;
}

void NodeComm::sleep_before(int rank, std::uint64_t step, std::chrono::nanoseconds longest) {
    Header& theirs = header_of(rank);
    theirs.sleepers.fetch_add(1, std::memory_order_seq_cst);
    const std::uint64_t seen = theirs.step.load(std::memory_order_seq_cst);
    if (seen < step) sleep_while(theirs.word(), static_cast<std::uint32_t>(seen), longest);
    theirs.sleepers.fetch_sub(1, std::memory_order_relaxed);
}

void NodeComm::await_all(std::uint64_t step, Deadline deadline) {
    for (int r = 0; r < size(); ++r) {
        if (r != rank()) await_rank(r, step, deadline);
    }
}

void NodeComm::await_rank(int rank, std::uint64_t step, Deadline deadline) {
    if (has_reached(rank, step)) return;
    // If the awaited rank was last seen on this rank's own core, it can only come if it gets that core.
    Wait wait(*this, rank, is_on_this_core(rank) ? 0 : spins_, deadline);
    while (!has_reached(rank, step)) {
        if (wait.step([&](std::chrono::nanoseconds longest) { sleep_before(rank, step, longest); })) continue;
        if (has_reached(rank, step)) return;
        wait.time_out();
    }
}

} // namespace entrodraft::dist
