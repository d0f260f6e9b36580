// The parts that all transports share (start and wait in one call), and the group of one rank.
#include "dist/comm/communicator.h"

#include "dist/rank/error.h"

#include <cstring>

namespace entrodraft::dist {

void Communicator::all_reduce_sum(float* data, std::size_t count, Deadline deadline) {
    start_all_reduce_sum(data, count, ElementType::float32);
    wait(deadline);
}

void Communicator::broadcast(void* data, std::size_t bytes, int root, Deadline deadline) {
    start_broadcast(data, bytes, root);
    wait(deadline);
}

void Communicator::gather(const void* mine, void* all, std::size_t bytes, int root, Deadline deadline) {
    start_gather(mine, all, bytes, root);
    wait(deadline);
}

void Communicator::barrier(Deadline deadline) {
    float nothing = 0; // no rank has the sum before all ranks have come
    all_reduce_sum(&nothing, 1, deadline);
}

void Communicator::enqueue_all_reduce_sum(void*, std::size_t, ElementType, void*) {
    throw Error("a communicator of host memory (" + name() + ") cannot sum in the order of a stream");
}

void Communicator::enqueue_all_gather(const void*, void*, std::size_t, void*) {
    throw Error("a communicator of host memory (" + name() + ") cannot gather in the order of a stream");
}

std::unique_ptr<SymmetricBuffer> Communicator::make_symmetric_buffer(std::size_t, Deadline) {
    return nullptr;
}

void Communicator::await_stream(void*, Deadline) {
    throw Error("a communicator of host memory (" + name() + ") has nothing on a stream");
}

Traffic Traffic::since(const Traffic& before) const {
    return {broadcasts - before.broadcasts,
            broadcast_bytes - before.broadcast_bytes,
            gathers - before.gathers,
            gather_bytes - before.gather_bytes,
            all_reduces - before.all_reduces,
            all_reduce_bytes - before.all_reduce_bytes,
            waited_seconds - before.waited_seconds};
}

void Communicator::count_again(const Traffic& enqueued) {
    traffic_.gathers += enqueued.gathers;
    traffic_.gather_bytes += enqueued.gather_bytes;
    traffic_.all_reduces += enqueued.all_reduces;
    traffic_.all_reduce_bytes += enqueued.all_reduce_bytes;
}

void Communicator::count_all_reduce(std::size_t bytes) {
    ++traffic_.all_reduces;
    traffic_.all_reduce_bytes += bytes;
}

void Communicator::count_broadcast(std::size_t bytes) {
    ++traffic_.broadcasts;
    traffic_.broadcast_bytes += bytes;
}

void Communicator::count_gather(std::size_t bytes) {
    ++traffic_.gathers;
    traffic_.gather_bytes += bytes;
}

void SelfComm::start_all_reduce_sum(void*, std::size_t count, ElementType type) {
    if (type != ElementType::float32) throw Error("all-reduce on the host takes float32 only");
    count_all_reduce(count * sizeof(float));
}

void SelfComm::start_broadcast(void*, std::size_t bytes, int) {
    count_broadcast(bytes);
}

void SelfComm::start_gather(const void* mine, void* all, std::size_t bytes, int) {
    count_gather(bytes);
    if (bytes > 0) std::memmove(all, mine, bytes);
}

} // namespace entrodraft::dist
