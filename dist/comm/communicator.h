// Collectives over a group of ranks. Every collective is a start and a wait with a deadline.
//
// The start posts this rank's part, and returns at once if the transport allows it. The wait returns when the result is
// in the caller's buffer. At most one collective is in flight on a communicator, and its buffers must not change until
// the wait returns. All ranks call the same collectives in the same order. SelfComm, NodeComm, MpiComm and StagedComm
// take buffers in host memory, and NcclComm takes buffers in device memory. Enqueued collectives take device memory.
#pragma once

#include "dist/rank/clock.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace entrodraft::dist {

// The default for how long ranks wait for each other, and for a step of one of them.
constexpr double kDefaultTimeoutSeconds = 300;

// The traffic of a communicator since it was made: this rank's own part of each collective, in bytes.
struct Traffic {
    std::uint64_t broadcasts = 0, broadcast_bytes = 0;
    std::uint64_t gathers = 0, gather_bytes = 0;
    std::uint64_t all_reduces = 0, all_reduce_bytes = 0;
    double waited_seconds = 0; // on other ranks

    // Returns the traffic added since `before`.
    Traffic since(const Traffic& before) const;
};

enum class ElementType { float32, bfloat16, float16 };

// Device memory that a communicator has made.
class SymmetricBuffer {
  public:
    virtual ~SymmetricBuffer() = default;
    virtual void* data() const = 0;
};

class Communicator {
  public:
    virtual ~Communicator() = default;

    virtual int rank() const = 0;
    virtual int size() const = 0;
    virtual std::string name() const = 0; // "self", "node", "mpi", "nccl": for reports
    const Traffic& traffic() const { return traffic_; }
    // Counts enqueued collectives that a graph runs once more.
    void count_again(const Traffic& enqueued);

    // data[0..count) becomes the sum over all ranks, added in rank order, with the same bits on every rank. Host
    // communicators take float32 only (they throw Error otherwise). Collective over the group.
    virtual void start_all_reduce_sum(void* data, std::size_t count, ElementType type) = 0;
    // `bytes` bytes of `root` reach every rank's `data`. Collective over the group.
    virtual void start_broadcast(void* data, std::size_t bytes, int root) = 0;
    // Rank r's `bytes` bytes land at all + r * bytes on `root`; others ignore `all`. Collective over the group.
    virtual void start_gather(const void* mine, void* all, std::size_t bytes, int root) = 0;
    // Ends the collective in flight. Throws Timeout when the deadline passes first, and Error when the transport fails;
    // the communicator is unusable after either. Local wait on a collective.
    virtual void wait(Deadline deadline) = 0;
    // Returns whether wait() would end at once, as far as this rank can tell without waiting; true where the transport
    // cannot tell.
    virtual bool is_ready() { return true; }

    // Enqueues the same sum over device memory on `stream`, a cudaStream_t that may be under capture into a graph. The
    // call does not wait. Only communicators of GPUs do it (nccl_comm.h, staged_comm.h); others throw Error. Collective
    // over the group.
    virtual void enqueue_all_reduce_sum(void* data, std::size_t count, ElementType type, void* stream);
    // Returns whether that sum adds in rank order too. If not, the order may depend on the count and on an element's
    // place, so a row's sum may depend on the other rows of the buffer.
    virtual bool enqueued_sums_are_ordered() const { return true; }
    // Enqueues a gather on `stream` in the same way: rank r's `bytes` bytes reach all + r * bytes on every rank. `mine`
    // does not lie in `all`; both begin at a multiple of 8 bytes. Collective over the group.
    virtual void enqueue_all_gather(const void* mine, void* all, std::size_t bytes, void* stream);
    // Returns the largest number of bytes per rank at which a gather takes less time than a sum of the same size.
    virtual std::size_t fast_gather_bytes() const { return 0; }
    // Makes `bytes` bytes of zeroed memory, the same size on every rank, in which enqueued sums are fastest. Returns
    // null where any device memory is as fast. Free it before the communicator, when none of its sums is running.
    // Throws as wait() does. Collective over the group.
    virtual std::unique_ptr<SymmetricBuffer> make_symmetric_buffer(std::size_t bytes, Deadline deadline);
    // Waits until `stream` has done all its work, enqueued collectives included. Throws Timeout and Error as wait()
    // does; the caller then destroys graphs with such collectives and calls abort(). Local wait on collectives.
    virtual void await_stream(void* stream, Deadline deadline);
    // Ends enqueued collectives that wait for ranks that do not come. The communicator is unusable afterwards. Graphs
    // must not hold its collectives any more. Returns within seconds whatever the others do.
    virtual void abort() {}

    // While the group has nothing to do, ranks that poll look seldom (HostComm::kRestingNap), and use next to no
    // processor time.
    void rest(bool rests) { rests_ = rests; }

    // Each does start and wait in one call. Collective over the group.
    void all_reduce_sum(float* data, std::size_t count, Deadline deadline);
    void broadcast(void* data, std::size_t bytes, int root, Deadline deadline);
    void gather(const void* mine, void* all, std::size_t bytes, int root, Deadline deadline);
    // Returns once all ranks have come. Collective over the group.
    virtual void barrier(Deadline deadline);

  protected:
    void count_all_reduce(std::size_t bytes);
    void count_broadcast(std::size_t bytes);
    void count_gather(std::size_t bytes);

    Traffic traffic_;
    bool rests_ = false;
};

// A group of one: every collective is a copy or nothing.
class SelfComm final : public Communicator {
  public:
    int rank() const override { return 0; }
    int size() const override { return 1; }
    std::string name() const override { return "self"; }
    void start_all_reduce_sum(void* data, std::size_t count, ElementType type) override;
    void start_broadcast(void* data, std::size_t bytes, int root) override;
    void start_gather(const void* mine, void* all, std::size_t bytes, int root) override;
    void wait(Deadline) override {}
};

} // namespace entrodraft::dist
