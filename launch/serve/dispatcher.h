// Hands out requests to replicas as they become free, and takes their reports.
//
// A run has one dispatcher. It is on the writer, which also coordinates replica 0. It runs when that replica's request
// tracker calls it, between rounds. The trackers of other replicas reach it over a channel. The derived class decides
// where requests come from and where results go: input_dispatcher.h, http_dispatcher.h.
#pragma once

#include "dist/comm/channel.h"
#include "launch/serve/messages.h"

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace entrodraft::launch {

class Dispatcher {
  public:
    virtual ~Dispatcher() = default;

    // `channel` leads to the other replicas; null if there are none. It outlives this object.
    virtual void start(dist::Channel* channel) { channel_ = channel; }
    // Takes a replica's report. Throws what the derived class throws.
    void handle(int replica, const Report& report);
    // Takes reports and requests, and hands requests out. Returns the next assignment of replica 0, or nothing if there
    // is none within `wait_seconds`. Throws as above, and dist::Timeout.
    std::optional<Assignment> receive(double wait_seconds);

  protected:
    // `batch_size`: texts that a replica decodes together.
    Dispatcher(int n_replicas, int batch_size) : replicas_(static_cast<std::size_t>(n_replicas)), batch_(batch_size) {}

    // Returns whether read() could add to ready() now.
    virtual bool can_read() const = 0;
    // Adds requests to ready() while can_read(). If there are none, waits for one, at most `wait_seconds`.
    virtual void read(double wait_seconds) = 0;
    // Takes what a report says of its request.
    virtual void take(const Report& report) = 0;

    RunState state() const { return state_; }
    std::int64_t n_slots() const { return batch_ * std::ssize(replicas_); }
    std::int64_t n_under_way() const;
    std::deque<Assignment>& ready() { return ready_; } // read, but not handed out
    const std::deque<Assignment>& ready() const { return ready_; }
    bool has_other_replicas() const { return channel_ != nullptr; }
    // No more requests come. Once all are served, the replicas finish.
    void end_input() { input_ended_ = true; }
    bool input_ended() const { return input_ended_; }
    bool is_interrupted() const { return is_interrupted_; }
    std::vector<double> busy_seconds() const; // of each replica
    // Sends to all replicas.
    void send_all(const Assignment& assignment);

  private:
    struct Replica {
        std::int64_t under_way = 0; // requests assigned to it that it has not finished
        bool has_ended = false;     // its last report has come
        double busy_seconds = 0;
    };

    void hand_out();
    void update_state();
    void send(int replica, Assignment assignment);

    std::vector<Replica> replicas_;
    std::int64_t batch_;
    dist::Channel* channel_ = nullptr;
    RunState state_ = RunState::serving;
    bool input_ended_ = false;
    bool is_interrupted_ = false; // a replica has seen a signal
    std::deque<Assignment> ready_;
    std::deque<Assignment> to_own_; // for replica 0
};

} // namespace entrodraft::launch
