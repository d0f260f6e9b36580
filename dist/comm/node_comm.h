// Collectives among ranks of one host, through memory that all of them map. They are the hot path of CPU runs.
//
// Every collective is cut into chunks. Every chunk is one step, and steps have the same numbers on all ranks. A rank
// has a counter (the step that it has reached) and a ring of slots. It copies its part into the slot of the step, then
// advances its counter. Readers wait for the counter and read the slot. A wait first spins, unless the awaited rank was
// last on the reader's own core. Then it yields, and then it sleeps on a futex until the counter changes. A rank that
// has reached step s has read all of step s - 1. So a slot is free again once all ranks are past the step that used it,
// without a second barrier. NodeComm does not depend on MPI: Session makes the memory, and the tests use threads.
#pragma once

#include "dist/comm/host_comm.h"

#include <cstdint>

namespace entrodraft::dist {

class NodeComm final : public HostComm {
  public:
    static constexpr std::size_t kSlots = 4;
    static constexpr std::size_t kSlotBytes = 32 * 1024;
    static constexpr std::size_t kAlignment = 128; // two cache lines: the prefetcher fetches them in pairs
    // Each rank has one segment: its counter, then its slots.
    static constexpr std::size_t kSegmentBytes = kAlignment + kSlots * kSlotBytes;

    struct Group {
        int rank = 0;
        std::vector<int> world_ranks;     // in rank order, for messages
        std::vector<std::byte*> segments; // one per rank: kSegmentBytes, aligned to kAlignment, zeroed before first use
        bool crowded = false;             // there are more ranks than cores: give the core away sooner
        RankBoard* board = nullptr;       // of the world; null: nothing is known of ranks that do not come
    };

    // Local; the segments outlive it.
    explicit NodeComm(Group group);

    std::string name() const override { return "node"; }
    bool is_ready() override {
        return posted_ && first_rank_before(step_) < 0;
    } // for its first chunk, if it has several

  private:
    void begin() override;
    void finish(Deadline deadline) override;

    std::size_t chunk_bytes() const;
    bool writes_slot() const;
    bool slot_is_free();
    void post();
    void consume(Deadline deadline);
    std::byte* slot_of(int rank) const;
    struct Header;
    Header& header_of(int rank) const;
    bool is_on_this_core(int rank) const; // at that rank's last post
    void sleep_before(int rank, std::uint64_t step, std::chrono::nanoseconds longest);
    bool has_reached(int rank, std::uint64_t step);
    int first_rank_before(std::uint64_t step); // -1 when all have reached it
    void await_all(std::uint64_t step, Deadline deadline);
    void await_rank(int rank, std::uint64_t step, Deadline deadline);

    std::vector<std::byte*> segments_;
    std::vector<std::uint64_t> reached_; // per rank: the step last seen on its counter
    std::vector<const float*> parts_;    // per rank: its slot, while summing
    std::uint64_t step_ = 1;             // the step under way or next
    bool posted_ = false;                // whether this rank has posted its part of the step
    int spins_;
};

} // namespace entrodraft::dist
