// Messages between the coordinators of replicas: replica 0's, where prompts are handed out, and each of the others'.
//
// send() and receive() never wait for the other side, but receive() for as long as it is told. Heartbeats travel beside
// the messages, so that a dead replica is noticed in time. Made by Session; not for the inside of a round.
#pragma once

#include "dist/layout/layout.h"
#include "dist/rank/clock.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace entrodraft::dist {

struct Message {
    int from = 0; // replica
    std::vector<std::byte> bytes;
};

class Channel {
  public:
    // A replica that is silent for longer than a step may take, `timeout_seconds`, is taken for dead. `clock` outlives
    // this.
    Channel(const RankLayout& layout, const Clock& clock, double timeout_seconds);
    virtual ~Channel() = default;

    // Takes a copy of the bytes; none: a heartbeat. Messages to one replica arrive in order. Throws Error.
    virtual void send(int to, std::span<const std::byte> bytes) = 0;
    // The next message; none when none has come within `wait_seconds`. To be called between any two steps, until there
    // is none: it sends the heartbeats. Throws Timeout that names a silent replica.
    std::optional<Message> receive(double wait_seconds);
    // Returns once all messages have reached their receivers, or will without this rank's help. Throws Timeout.
    virtual void flush(Deadline deadline) = 0;

  protected:
    virtual std::optional<Message> poll() = 0; // the next message that has come whole, heartbeats included
    // A message of that replica has arrived, at least its beginning.
    void heard_from(int replica) { silent_seconds_[static_cast<std::size_t>(replica)] = 0; }

  private:
    void check_heartbeats();

    RankLayout layout_;
    const Clock& clock_;
    double timeout_seconds_;
    double heartbeat_seconds_; // between two of ours
    double heartbeat_at_;      // the last of ours
    double checked_at_;
    std::vector<double> silent_seconds_; // by replica, while this rank listened
};

// `mpi_comm` points to an MPI_Comm (no mpi.h here) that returns errors, whose ranks are the replicas, and which nothing
// else uses. It and `clock` outlive the result.
std::unique_ptr<Channel> make_mpi_channel(const void* mpi_comm, const RankLayout& layout, const Clock& clock,
                                          double timeout_seconds);

} // namespace entrodraft::dist
