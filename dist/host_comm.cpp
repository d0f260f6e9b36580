// Starts and ends host collectives, one at a time, and refuses all after a failure.
#include "entrodraft/dist/host_comm.h"

#include "entrodraft/dist/error.h"

#include <utility>

namespace entrodraft::dist {

const char* name_of(Collective kind) {
    switch (kind) {
    case Collective::none:
        return "nothing";
    case Collective::all_reduce:
        return "all-reduce";
    case Collective::broadcast:
        return "broadcast";
    case Collective::gather:
        return "gather";
    }
    throw Error("unknown collective");
}

HostComm::HostComm(int rank, std::vector<int> world_ranks) : rank_(rank), world_ranks_(std::move(world_ranks)) {}

void HostComm::start_all_reduce_sum(void* data, std::size_t count, ElementType type) {
    if (type != ElementType::float32) throw Error("all-reduce on the host takes float32 only");
    auto* bytes = static_cast<std::byte*>(data);
    start({.kind = Collective::all_reduce, .in = bytes, .out = bytes, .bytes = count * sizeof(float)});
}

void HostComm::start_broadcast(void* data, std::size_t bytes, int root) {
    auto* payload = static_cast<std::byte*>(data);
    start({.kind = Collective::broadcast, .in = payload, .out = payload, .bytes = bytes, .root = root});
}

void HostComm::start_gather(const void* mine, void* all, std::size_t bytes, int root) {
    start({.kind = Collective::gather,
           .in = static_cast<const std::byte*>(mine),
           .out = static_cast<std::byte*>(all),
           .bytes = bytes,
           .root = root});
}

void HostComm::start(const InFlight& collective) {
    if (broken_) throw Error(std::string(name_of(collective.kind)) + " on a communicator that has failed before");
    if (in_flight_.kind != Collective::none) {
        throw Error(std::string(name_of(collective.kind)) + " started while a " + name_of(in_flight_.kind) +
                    " is in flight");
    }
    if (collective.root < 0 || collective.root >= size()) {
        throw Error(std::string(name_of(collective.kind)) + " with root " + std::to_string(collective.root) +
                    " in a group of " + std::to_string(size()));
    }
    in_flight_ = collective;
    try {
        begin();
    } catch (...) {
        broken_ = true;
        throw;
    }
}

void HostComm::wait(Deadline deadline) {
    if (broken_) throw Error("wait on a communicator that has failed before");
    if (in_flight_.kind == Collective::none) throw Error("wait without a collective in flight");
    try {
        finish(deadline);
    } catch (...) {
        broken_ = true;
        throw;
    }
    in_flight_.kind = Collective::none;
}

} // namespace entrodraft::dist
