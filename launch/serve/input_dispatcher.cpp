// Reading and writing: see input_dispatcher.h.
#include "launch/serve/input_dispatcher.h"

#include "launch/start/failure.h"
#include "launch/start/replaced_file.h"

#include <chrono>
#include <cmath>
#include <fmt/format.h>
#include <utility>

namespace entrodraft::launch {

InputDispatcher::InputDispatcher(const GenerateOptions& options)
    : Dispatcher(options.replicas, options.batch_size), options_(&options),
      writer_(options.output, options.resume ? Existing::resume : Existing::refuse),
      progress_(options.quiet || options.prompt.has_value()) {
    if (!streams()) reader_.emplace(options.input, options.requests);
    if (!streams() && writer_.is_plain_file() && options.output != "-") settings_.emplace(options.output);
    refuse_if(
        settings_ && !options.summary.empty() && are_one_file(options.summary, settings_->file()),
        fmt::format("--summary {} is where the settings of --output are kept; name another file", options.summary));
    if (!options.trace.empty()) trace_.emplace(options.trace, Existing::refuse, "--trace");
    if (!options.timeline.empty()) timeline_.emplace(options.timeline, Existing::refuse, "--timeline");
}

void InputDispatcher::read_first(const PromptLimits& limits, const Json& settings) {
    if (const std::string why = spec::why_invalid(options_->requests.processing, limits.vocab_size); !why.empty())
        throw BadOption(why);
    if (streams()) {
        InputItem item = request_of_prompt(*options_->prompt, options_->requests, limits);
        if (const auto* bad = std::get_if<BadLine>(&item)) throw BadOption("--prompt: " + bad->error);
        ready().push_back({state(), next_order_++, std::move(std::get<spec::Request>(item))});
        end_input();
        return;
    }
    reader_->set_limits(limits);
    if (options_->shard) reader_->keep(*options_->shard);
    std::vector<std::uint64_t> known;
    if (settings_)
        known = settings_->compare(settings, writer_.served().size(), {options_->resume_anyway, options_->quiet});
    served_lines_ = skip_served(*reader_, writer_, options_->output, known);
    next_order_ = std::ssize(writer_.served());
}

void InputDispatcher::start(dist::Channel* channel) {
    writer_.keep();
    if (settings_) {
        settings_->begin(served_lines_);
        writer_.before_each_line([this] { settings_->write_next(); });
    }
    if (trace_) trace_->keep();
    Dispatcher::start(channel);
    if (reader_) progress_.begin(reader_->fraction(), 0);
}

// With one replica, a line is read when it is asked for. With several, some lines are read in advance, to know in time
// whether there are enough for all.
bool InputDispatcher::can_read() const {
    const std::int64_t max_ready = has_other_replicas() ? n_slots() + 1 : 1;
    return state() == RunState::serving && !input_ended() && std::ssize(ready()) < max_ready &&
           next_order_ - writer_.written() < kMaxResultsAhead * n_slots();
}

void InputDispatcher::read(double wait_seconds) {
    while (can_read()) {
        const double patience = ready().empty() ? wait_seconds : 0;
        reader_->lines().set_patience(std::chrono::milliseconds(std::lround(patience * 1e3)));
        std::optional<InputItem> item = reader_->next();
        if (!item) {
            if (!reader_->lines().waiting() && !reader_->lines().interrupted()) end_input();
            return;
        }
        if (settings_) settings_->expect(reader_->last_hash());
        if (const auto* bad = std::get_if<BadLine>(&*item)) {
            ++summary_.with_error;
            progress_.clear();
            writer_.put(next_order_++, error_line(*bad));
            continue;
        }
        ready().push_back({state(), next_order_++, std::move(std::get<spec::Request>(*item))});
    }
}

void InputDispatcher::take(const Report& report) {
    if (!report.text.empty()) writer_.write_text(report.text);
    if (!report.trace.empty()) trace_->write_text(report.trace + "\n");
    if (!report.result.empty()) write(report);
    if (!report.note.empty()) print(report.note);
    if (report.checked) ++summary_.checked;
    if (report.checked && !report.note.empty()) ++summary_.check_differs;
}

void InputDispatcher::write(const Report& report) {
    if (report.stats) {
        ++summary_.served;
        summary_.stats += *report.stats;
        summary_.latencies.add(*report.stats);
    } else {
        ++summary_.with_error;
    }
    if (streams()) return writer_.write_text("\n");
    progress_.clear();
    writer_.put(report.order, report.result);
    progress_.update(reader_->fraction(), next_order_, summary_.stats.new_tokens);
}

RunSummary InputDispatcher::finish() {
    summary_.interrupted = is_interrupted();
    summary_.replicas_busy_seconds = busy_seconds();
    progress_.clear();
    if (streams() && summary_.interrupted) writer_.write_text("\n");
    writer_.require_intact();
    if (trace_) trace_->require_intact();
    summary_.resumed = std::ssize(writer_.served());
    summary_.resumable = !streams() && writer_.is_plain_file();
    return summary_;
}

void InputDispatcher::write_timeline(std::string_view text) {
    try {
        timeline_->write_text(text);
    } catch (...) {
        timeline_->cut_to(0); // half of a timeline is not JSON
        throw;
    }
}

void InputDispatcher::print(const std::string& text) {
    progress_.clear();
    log_line(text);
}

} // namespace entrodraft::launch
