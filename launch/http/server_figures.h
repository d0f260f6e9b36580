// The server's figures: what runs, what was served, how long it took. The dispatcher updates them, and the thread of
// the HTTP server reads them for /metrics and /health.
#pragma once

#include "spec/protocol/request.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace entrodraft::launch {

// Counts of values by bucket, as Prometheus has them.
class Histogram {
  public:
    explicit Histogram(std::vector<double> upper_bounds)
        : upper_bounds_(std::move(upper_bounds)), counts_(upper_bounds_.size() + 1) {}
    void add(double value);
    // Appends the lines of the metric. `labels`: such as model_name="m".
    void append_lines(const std::string& name, const std::string& labels, std::string& text) const;

  private:
    std::vector<double> upper_bounds_;
    std::vector<std::int64_t> counts_; // [bucket], the last without a bound
    double sum_ = 0;
};

class ServerFigures {
  public:
    // ---- the dispatcher ----
    void note_progress(std::int64_t running, std::int64_t waiting); // between two steps of the ranks
    void note_served(const spec::Stats& stats, const std::string& finish_reason);
    void note_failed();
    void note_cancelled();
    void begin_draining();
    // ---- the server ----
    void note_refused(int status);
    bool is_draining() const;
    // Returns the seconds since the ranks last made a step together.
    double seconds_since_progress() const;
    // Returns the page of /metrics: names of vLLM where it has the figure, else names of our own.
    std::string prometheus(const std::string& model) const;

  private:
    using Clock = std::chrono::steady_clock;
    template <typename Page> void add_own(Page& page) const; // figures that vLLM lacks

    mutable std::mutex mutex_; // for all below
    Clock::time_point begun_ = Clock::now(), progress_ = Clock::now();
    std::int64_t running_ = 0, waiting_ = 0, failed_ = 0, cancelled_ = 0;
    bool draining_ = false;
    std::map<std::string, std::int64_t> served_; // by finish reason
    std::map<int, std::int64_t> refused_;        // by HTTP status
    spec::Stats stats_;
    Histogram first_token_{{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                            1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560}};
    Histogram each_token_{
        {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}};
    Histogram whole_{{0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}};
};

} // namespace entrodraft::launch
