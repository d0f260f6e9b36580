// Turns jobs into assignments, and reports into answers: see http_dispatcher.h.
#include "launch/serve/http_dispatcher.h"

#include <chrono>
#include <utility>
#include <vector>

namespace entrodraft::launch {

HttpDispatcher::HttpDispatcher(int n_replicas, int batch_size, std::size_t max_queue, std::function<bool()> drains,
                               ServerFigures& figures)
    : Dispatcher(n_replicas, batch_size), max_queue_(max_queue), drains_(std::move(drains)), figures_(figures) {}

bool HttpDispatcher::submit(ApiJob job) {
    const std::lock_guard lock(mutex_);
    if (closed_ || n_waiting_ + job.requests.size() > max_queue_) return false;
    n_waiting_ += job.requests.size();
    arrived_.push_back(std::move(job));
    arrival_.notify_one();
    return true;
}

void HttpDispatcher::wake() {
    const std::lock_guard lock(mutex_);
    woken_ = true;
    arrival_.notify_one();
}

void HttpDispatcher::read(double wait_seconds) {
    std::deque<ApiJob> arrived;
    bool may_have_left = false;
    {
        std::unique_lock lock(mutex_);
        const bool waits = wait_seconds > 0 && ready().empty() && n_under_way() == 0;
        if (waits)
            arrival_.wait_for(lock, std::chrono::duration<double>(wait_seconds),
                              [this] { return !arrived_.empty() || woken_; });
        arrived.swap(arrived_);
        may_have_left = std::exchange(woken_, false);
        n_waiting_ = ready().size();
        for (const ApiJob& job : arrived)
            n_waiting_ += job.requests.size();
        if (drains_() && arrived.empty()) closed_ = true;
        if (closed_) end_input();
    }
    if (drains_()) figures_.begin_draining();
    for (ApiJob& job : arrived)
        for (std::size_t prompt = 0; prompt < job.requests.size(); ++prompt) {
            open_[next_order_] = {job.answer, prompt};
            ready().push_back({state(), next_order_++, std::move(job.requests[prompt])});
        }
    if (may_have_left) cancel_what_nobody_waits_for();
    figures_.note_progress(n_under_way(), std::ssize(ready()));
}

// Requests that no replica has are dropped here; a replica ends the text after its round.
void HttpDispatcher::cancel_what_nobody_waits_for() {
    const auto is_gone = [this](std::int64_t order) {
        const auto found = open_.find(order);
        return found != open_.end() && found->second.answer->is_gone();
    };
    std::erase_if(ready(), [&](const Assignment& waiting) { return is_gone(waiting.order); });
    std::vector<std::int64_t> gone;
    for (const auto& [order, open] : open_)
        if (open.answer->is_gone()) gone.push_back(order);
    for (const std::int64_t order : gone) {
        open_.erase(order);
        figures_.note_cancelled();
        send_all({.state = state(), .order = order, .cancels = true});
    }
}

void HttpDispatcher::take(const Report& report) {
    const auto found = open_.find(report.order);
    const bool is_of_request = !report.text.empty() || !report.result.empty();
    if (!is_of_request || found == open_.end()) return; // its client has left
    ApiAnswer& answer = *found->second.answer;
    if (!report.text.empty()) answer.piece(found->second.prompt, report.sample, report.text, report.logprobs);
    if (report.result.empty()) return;
    Json body = Json::parse(report.result);
    if (report.stats) {
        figures_.note_served(*report.stats, body["choices"][0]["finish_reason"].get<std::string>());
        answer.result(found->second.prompt, std::move(body));
    } else {
        figures_.note_failed();
        answer.failure(400, body["error"]["message"].get<std::string>());
    }
    open_.erase(found);
}

} // namespace entrodraft::launch
