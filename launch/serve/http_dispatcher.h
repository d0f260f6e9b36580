// Takes requests from the HTTP server's thread. Results go to the clients, in any order.
#pragma once

#include "launch/http/api.h"
#include "launch/http/server_figures.h"
#include "launch/serve/dispatcher.h"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

namespace entrodraft::launch {

class HttpDispatcher final : public Dispatcher {
  public:
    // `max_queue`: requests that may wait for a free place. `drains` is asked between rounds whether the end is to
    // begin. `figures` outlives this object.
    HttpDispatcher(int n_replicas, int batch_size, std::size_t max_queue, std::function<bool()> drains,
                   ServerFigures& figures);

    // ---- from any thread ----
    // Takes a job. Returns false if too many requests wait.
    bool submit(ApiJob job);
    // Looks again at clients that may have left and at `drains`.
    void wake();

  private:
    // A prompt of a job, handed to a replica or about to be.
    struct Open {
        std::shared_ptr<ApiAnswer> answer;
        std::size_t prompt = 0; // its number in the job
    };

    bool can_read() const override { return state() == RunState::serving && !input_ended(); }
    void read(double wait_seconds) override;
    void take(const Report& report) override;
    void cancel_what_nobody_waits_for();

    std::size_t max_queue_;
    std::function<bool()> drains_;
    ServerFigures& figures_;
    std::map<std::int64_t, Open> open_; // by order
    std::int64_t next_order_ = 0;

    std::mutex mutex_; // for all below
    std::condition_variable arrival_;
    std::deque<ApiJob> arrived_;
    std::size_t n_waiting_ = 0; // requests in arrived_ and ready()
    bool woken_ = false;
    bool closed_ = false; // no job is taken any more
};

} // namespace entrodraft::launch
