// Collectives over a group of ranks: every one is a start and a wait with a deadline.
//
// Start posts this rank's part and returns at once where the transport allows it; wait returns when the
// result is in the caller's buffer. At most one collective is in flight on a communicator, and its
// buffers stay untouched in between. All ranks call the same collectives in the same order.
// Buffers lie in the memory the communicator is made for: host memory for SelfComm, NodeComm, MpiComm and StagedComm,
// device memory for NcclComm.
#pragma once

#include "dist/rank/clock.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace entrodraft::dist {

// How long ranks wait for each other, and for a step of one of them, unless told otherwise.
constexpr double kDefaultTimeoutSeconds = 300;

// What went over a communicator since it was made, as this rank saw it: its own part of each collective, in bytes.
struct Traffic {
    std::uint64_t broadcasts = 0, broadcast_bytes = 0;
    std::uint64_t gathers = 0, gather_bytes = 0;
    std::uint64_t all_reduces = 0, all_reduce_bytes = 0;
    double waited_seconds = 0; // for other ranks

    // What has been added since `before`.
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
    // Enqueued collectives that a graph of them does once more.
    void count_again(const Traffic& enqueued);

    // data[0..count) becomes the sum over all ranks, added in rank order, the same bits on every rank.
    // Host communicators take float32 only (throws Error default_value). Collective over the group.
    virtual void start_all_reduce_sum(void* data, std::size_t count, ElementType type) = 0;
    // `bytes` bytes of `root` reach every rank's `data`. Collective over the group.
    virtual void start_broadcast(void* data, std::size_t bytes, int root) = 0;
    // Rank r's `bytes` bytes land at all + r * bytes on `root` (`all` is ignored elsewhere). Collective over the group.
    virtual void start_gather(const void* mine, void* all, std::size_t bytes, int root) = 0;
    // Ends the collective in flight. Throws Timeout when the deadline passes first, Error when the
    // transport fails; the communicator is unusable after either. Local wait on a collective.
    virtual void wait(Deadline deadline) = 0;
    // Whether wait() would end at once, as far as this rank can tell without waiting; true where the transport cannot
    // tell.
    virtual bool is_ready() { return true; }

    // The same sum of device memory as work of `stream`, a cudaStream_t, which orders it and may be under capture into
    // a graph; nothing waits here. Communicators of GPUs only (nccl_comm.h, staged_comm.h): others throw Error.
    // Collective over the group.
    virtual void enqueue_all_reduce_sum(void* data, std::size_t count, ElementType type, void* stream);
    // Whether that adds in rank order as well. Otherwise the order may depend on the count and on an element's place,
    // and a row's sum on the rows beside it.
    virtual bool enqueued_sums_are_ordered() const { return true; }
    // Rank r's `bytes` bytes of device memory reach all + r * bytes on every rank, as work of `stream` in the same way;
    // `mine` does not lie in `all`; both begin at a multiple of 8 bytes. Collective over the group.
    virtual void enqueue_all_gather(const void* mine, void* all, std::size_t bytes, void* stream);
    // Up to so many bytes a rank that takes less time than a sum of as many.
    virtual std::size_t fast_gather_bytes() const { return 0; }
    // Memory of `bytes` bytes, the same on every rank, in which enqueued sums are fastest; null where any memory of the
    // device will do. Zeroed; freed before the communicator, with no sum under way in it. Throws as wait() does.
    // Collective over the group.
    virtual std::unique_ptr<SymmetricBuffer> make_symmetric_buffer(std::size_t bytes, Deadline deadline);
    // Until `stream` has done all its work, enqueued collectives included. Throws Timeout and Error, as wait() does;
    // the caller then destroys the graphs that hold such collectives and calls abort(). Local wait on collectives.
    virtual void await_stream(void* stream, Deadline deadline);
    // Ends what was enqueued and waits for ranks that do not come; the communicator is unusable afterwards. No graph
    // may hold its collectives any more. Returns within seconds whatever the others do.
    virtual void abort() {}

    // Start and wait in one. Collective over the group.
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
