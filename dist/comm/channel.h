// Carries messages between replica 0's coordinator, which hands out prompts, and the coordinators of the other
// replicas.
//
// send() never waits for the other side; receive() waits as long as its caller says. Heartbeats travel with the
// messages, so that a dead replica is noticed in time. Session makes the channel. It is not for use inside a round.
#pragma once

#include "dist/layout/layout.h"
#include "dist/rank/clock.h"

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace entrodraft::dist {

struct Message {
    int from = 0; // the sender's replica
    std::vector<std::byte> bytes;
};

class Channel {
  public:
    // A replica that is silent for `timeout_seconds`, the longest time of a step, and two heartbeats more counts as
    // dead. `clock` outlives the channel.
    Channel(const RankLayout& layout, const Clock& clock, double timeout_seconds);
    virtual ~Channel() = default;

    // Takes a copy of the bytes; empty bytes are a heartbeat. Messages to one replica arrive in order. Throws Error.
    void send(int to, std::span<const std::byte> bytes);
    // Returns the next message, or nothing when none comes within `wait_seconds`. It also sends the heartbeats, so call
    // it between any two steps until it returns nothing. Throws Timeout that names a silent replica.
    std::optional<Message> receive(double wait_seconds);
    // Returns once all messages have reached their receivers, or will reach them without this rank. Throws Timeout.
    virtual void flush(Deadline deadline) = 0;

  protected:
    virtual void begin_send(int to, std::span<const std::byte> bytes) = 0;
    virtual std::optional<Message> poll() = 0; // returns the next message that has come whole, heartbeats included
    // Notes that a message of that replica has arrived, or at least its beginning.
    void heard_from(int replica) { silent_seconds_[replica] = 0; }

  private:
    void check_heartbeats();
    std::chrono::nanoseconds longest_nap() const;

    RankLayout layout_;
    const Clock& clock_;
    double timeout_seconds_;
    double heartbeat_seconds_; // between two heartbeats of this rank
    double heartbeat_at_;      // last heartbeat of this rank
    double checked_at_;
    double used_at_;                     // last message, sent or received, that was no heartbeat
    std::vector<double> silent_seconds_; // by replica; counts only time in which this rank listened
};

// `mpi_comm` points to an MPI_Comm (mpi.h is not included here) that returns errors and that nothing else uses. Its
// ranks are the replicas. It and `clock` outlive the result.
std::unique_ptr<Channel> make_mpi_channel(const void* mpi_comm, const RankLayout& layout, const Clock& clock,
                                          double timeout_seconds);

} // namespace entrodraft::dist
