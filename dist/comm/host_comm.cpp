// Starts and ends host collectives, one at a time. Refuses all further ones after a failure.
#include "dist/comm/host_comm.h"

#include "dist/rank/error.h"

#include <cstdio>
#include <fmt/format.h>
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

HostComm::HostComm(int rank, std::vector<int> world_ranks, RankBoard* board)
    : rank_(rank), world_ranks_(std::move(world_ranks)), board_(board) {}

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
        throw Error(fmt::format("{} with root {} in a group of {}", name_of(collective.kind), collective.root, size()));
    }
    in_flight_ = collective;
    switch (collective.kind) {
    case Collective::all_reduce:
        count_all_reduce(collective.bytes);
        break;
    case Collective::broadcast:
        count_broadcast(collective.bytes);
        break;
    case Collective::gather:
        count_gather(collective.bytes);
        break;
    case Collective::none:
        break;
    }
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

// ---- waiting ----

HostComm::Wait::Wait(HostComm& comm, int rank, int spins, Deadline deadline)
    : comm_(comm), rank_(rank), began_(std::chrono::steady_clock::now()),
      backoff_(deadline, comm.rests_ ? 0 : spins,
               comm.rests_ ? std::chrono::milliseconds(0) : std::chrono::milliseconds(Backoff::kPatience)) {}

HostComm::Wait::~Wait() {
    comm_.traffic_.waited_seconds += seconds();
    if (is_shown_) comm_.board_->end_wait();
}

void HostComm::Wait::show() {
    if (is_shown_ || !comm_.board_) return;
    comm_.board_->begin_wait(rank_ == RankBoard::kEverybody ? rank_ : comm_.world_rank_of(rank_));
    is_shown_ = true;
}

double HostComm::Wait::seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
}

void HostComm::Wait::time_out() {
    is_shown_ = false; // the wait stays on the board: others may ask why this rank does not come
    const std::string others =
        comm_.size() == 2 ? "the other rank" : fmt::format("the other {} ranks", comm_.size() - 1);
    const std::string whom =
        rank_ == RankBoard::kEverybody ? others : fmt::format("rank {}", comm_.world_rank_of(rank_));
    char text[160];
    std::snprintf(text, sizeof text, "rank %d waited %.1f s for %s in %s%s: ", comm_.world_rank_of(comm_.rank_),
                  seconds(), whom.c_str(), name_of(comm_.in_flight_.kind),
                  rank_ == RankBoard::kEverybody ? " over MPI" : "");
    throw Timeout(text + comm_.what_is_known_of(rank_));
}

// For kEverybody, names the ranks that do not wait as this rank does, because one of them is to blame.
std::string HostComm::what_is_known_of(int rank) const {
    if (!board_) return (rank < 0 ? "one" : fmt::format("rank {}", world_rank_of(rank))) + " is dead, stopped or stuck";
    if (rank != RankBoard::kEverybody) return board_->what_is_known_of(world_rank_of(rank));
    std::string text;
    for (int other = 0; other < size(); ++other)
        if (other != rank_ && !board_->waits(world_rank_of(other)))
            text += (text.empty() ? "" : "; ") + board_->what_is_known_of(world_rank_of(other));
    return text.empty() ? "all of them wait too" : text;
}

} // namespace entrodraft::dist
