// Updates the figures and writes the pages: see server_figures.h.
#include "launch/http/server_figures.h"

#include <algorithm>
#include <fmt/format.h>

namespace entrodraft::launch {

void Histogram::add(double value) {
    const auto bucket = std::ranges::lower_bound(upper_bounds_, value) - upper_bounds_.begin();
    ++counts_[static_cast<std::size_t>(bucket)];
    sum_ += value;
}

void Histogram::append_lines(const std::string& name, const std::string& labels, std::string& text) const {
    text += fmt::format("# TYPE {} histogram\n", name);
    std::int64_t below = 0;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
        below += counts_[i];
        const std::string bound = i < upper_bounds_.size() ? fmt::format("{}", upper_bounds_[i]) : "+Inf";
        text += fmt::format("{}_bucket{{{},le=\"{}\"}} {}\n", name, labels, bound, below);
    }
    text += fmt::format("{0}_sum{{{1}}} {2}\n{0}_count{{{1}}} {3}\n", name, labels, sum_, below);
}

void ServerFigures::note_progress(std::int64_t running, std::int64_t waiting) {
    const std::lock_guard lock(mutex_);
    progress_ = Clock::now();
    running_ = running;
    waiting_ = waiting;
}

void ServerFigures::note_served(const spec::Stats& stats, const std::string& finish_reason) {
    const std::lock_guard lock(mutex_);
    ++served_[finish_reason];
    stats_ += stats;
    first_token_.add(stats.seconds.first_token);
    if (const auto milliseconds = stats.tpot_ms()) each_token_.add(*milliseconds / 1e3);
    whole_.add(stats.seconds.total);
}

void ServerFigures::note_failed() {
    const std::lock_guard lock(mutex_);
    ++failed_;
}

void ServerFigures::note_cancelled() {
    const std::lock_guard lock(mutex_);
    ++cancelled_;
}

void ServerFigures::note_refused(int status) {
    const std::lock_guard lock(mutex_);
    ++refused_[status];
}

void ServerFigures::begin_draining() {
    const std::lock_guard lock(mutex_);
    draining_ = true;
}

bool ServerFigures::is_draining() const {
    const std::lock_guard lock(mutex_);
    return draining_;
}

double ServerFigures::seconds_since_progress() const {
    const std::lock_guard lock(mutex_);
    return std::chrono::duration<double>(Clock::now() - progress_).count();
}

namespace {

// Writes metrics with the label of the model.
class Page {
  public:
    explicit Page(std::string labels) : labels_(std::move(labels)) {}

    void begin(const char* metric, const char* type) { text_ += fmt::format("# TYPE {} {}\n", metric, type); }
    template <typename Number> void line(const char* metric, const std::string& more_labels, Number value) {
        text_ += fmt::format("{}{{{}{}}} {}\n", metric, labels_, more_labels, value);
    }
    template <typename Number> void counter(const char* metric, Number value) {
        begin(metric, "counter");
        line(metric, "", value);
    }
    template <typename Number> void gauge(const char* metric, Number value) {
        begin(metric, "gauge");
        line(metric, "", value);
    }
    void histogram(const char* metric, const Histogram& histogram) { histogram.append_lines(metric, labels_, text_); }
    const std::string& text() const { return text_; }

  private:
    std::string labels_, text_;
};

void add_entropies(Page& page, const char* metric, const std::vector<spec::Acceptances>& bins,
                   std::int64_t spec::Acceptances::*count) {
    page.begin(metric, "counter");
    for (std::size_t bin = 0; bin < bins.size(); ++bin)
        page.line(metric, fmt::format(",from_nats=\"{}\"", static_cast<double>(bin) * spec::kEntropyBinNats),
                  bins[bin].*count);
}

} // namespace

template <typename Page> void ServerFigures::add_own(Page& page) const {
    const auto seconds_since = [](Clock::time_point then) {
        return std::chrono::duration<double>(Clock::now() - then).count();
    };
    page.counter("entrodraft:requests_failed_total", failed_);
    page.counter("entrodraft:requests_cancelled_total", cancelled_);
    page.begin("entrodraft:requests_refused_total", "counter");
    for (const auto& [status, n] : refused_)
        page.line("entrodraft:requests_refused_total", fmt::format(",status=\"{}\"", status), n);
    page.counter("entrodraft:rounds_total", stats_.rounds);
    page.counter("entrodraft:target_passes_total", stats_.target_passes);
    page.counter("entrodraft:draft_passes_total", stats_.draft_passes);
    add_entropies(page, "entrodraft:verified_tokens_by_entropy_total", stats_.by_entropy, &spec::Acceptances::verified);
    add_entropies(page, "entrodraft:accepted_tokens_by_entropy_total", stats_.by_entropy, &spec::Acceptances::accepted);
    page.gauge("entrodraft:seconds_since_progress", seconds_since(progress_));
    page.gauge("entrodraft:draining", draining_ ? 1 : 0);
    page.gauge("entrodraft:uptime_seconds", seconds_since(begun_));
}

std::string ServerFigures::prometheus(const std::string& model) const {
    const std::lock_guard lock(mutex_);
    std::string name = model;
    std::erase_if(name, [](char c) { return c == '"' || c == '\\' || c == '\n'; });
    Page page(fmt::format("model_name=\"{}\"", name));
    page.gauge("vllm:num_requests_running", running_);
    page.gauge("vllm:num_requests_waiting", waiting_);
    page.counter("vllm:prompt_tokens_total", stats_.prompt_tokens);
    page.counter("vllm:generation_tokens_total", stats_.new_tokens);
    page.begin("vllm:request_success_total", "counter");
    for (const auto& [reason, n] : served_)
        page.line("vllm:request_success_total", fmt::format(",finished_reason=\"{}\"", reason), n);
    const std::vector<spec::Acceptances>& by_position = stats_.by_position;
    page.counter("vllm:spec_decode_num_drafts_total", by_position.empty() ? 0 : by_position.front().verified);
    page.counter("vllm:spec_decode_num_draft_tokens_total", stats_.drafted);
    page.counter("vllm:spec_decode_num_accepted_tokens_total", stats_.accepted);
    page.begin("vllm:spec_decode_num_accepted_tokens_per_pos_total", "counter");
    for (std::size_t i = 0; i < by_position.size(); ++i)
        page.line("vllm:spec_decode_num_accepted_tokens_per_pos_total", fmt::format(",position=\"{}\"", i),
                  by_position[i].accepted);
    page.histogram("vllm:time_to_first_token_seconds", first_token_);
    page.histogram("vllm:request_time_per_output_token_seconds", each_token_);
    page.histogram("vllm:e2e_request_latency_seconds", whole_);
    add_own(page);
    return page.text();
}

} // namespace entrodraft::launch
