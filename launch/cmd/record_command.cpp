// entrodraft record: decodes a file of prompts once, and stores everything that a stop rule could have seen.
// recording_run.cpp turns a text into a record; docs/formats.md describes the file.
#include "launch/cli/command_options.h"
#include "launch/cli/command_pages.h"
#include "launch/cli/options.h"
#include "launch/cmd/bench/latency.h"
#include "launch/cmd/recording_run.h"
#include "launch/cmd/round_costs.h"
#include "launch/io/machine_load.h"
#include "launch/io/progress.h"
#include "launch/io/results.h"
#include "launch/load/drafters.h"
#include "launch/load/environment.h"
#include "launch/start/counted.h"
#include "launch/start/failure.h"
#include "launch/start/signals.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fmt/format.h>
#include <memory>
#include <stdexcept>

namespace entrodraft::launch {

namespace {

// The next step, on every rank: nothing (the input has ended), a prompt, the end by a signal, or not known yet.
enum Step : std::int64_t { over, one, stopped, waiting };

[[noreturn]] void refuse_other_options(const std::string& file, const spec::HeadDifference& difference) {
    throw std::runtime_error(fmt::format("{} was begun with other options: {} was {}, and is {} now; resume with those "
                                         "of that run",
                                         file, difference.field, difference.a, difference.b));
}

// The coordinator's part. Reads prompts and writes blocks, each with one write, after the blocks of an earlier run.
class RecordingOutput {
  public:
    // Refuses a file that is not empty (BadOption) unless it is to be resumed. Then its whole blocks are read, and a
    // torn block is cut off. Throws std::runtime_error that names file and reason.
    RecordingOutput(const RecordOptions& options, const ModelPair& models)
        : options_(options), file_(options.output, options.resume ? Existing::append : Existing::refuse),
          reader_(options.input, options.requests, models.prompt_limits()), progress_(options.quiet) {
        if (options.resume) {
            if (!file_.is_plain_file())
                throw BadOption(
                    fmt::format("--resume needs --output to be a plain file, and {} is not", options.output));
            existing_ = spec::read_recording(options.output, true);
            file_.cut_to(existing_.whole_bytes);
        }
        has_head_ = !is_new();
        skip_recorded();
        // Other ranks wait while this rank reads. It waits for input at most a part of their timeout.
        const double patience = std::min(1.0, options.models.collective_timeout_seconds / 4);
        reader_.lines().set_patience(std::chrono::milliseconds(std::lround(patience * 1e3)));
    }

    // Goes on to the next request that can be served. Lines that cannot be served are written as errors.
    Step fetch() {
        request_.reset();
        while (!is_full()) {
            if (stop_signal() != 0) return stopped;
            std::optional<InputItem> item = reader_.next();
            if (!item) return reader_.lines().interrupted() ? stopped : reader_.lines().waiting() ? waiting : over;
            if (auto* request = std::get_if<spec::Request>(&*item)) {
                request_ = std::move(*request);
                return one;
            }
            const BadLine& bad = std::get<BadLine>(*item);
            write(spec::RecordedError{bad.id, bad.error});
        }
        return over;
    }
    void begin_texts() { progress_.begin(fraction(), new_tokens_); }
    const spec::Request* request() const { return request_ ? &*request_ : nullptr; } // result of the last fetch()

    // Errors of lines before the first text are written after the head.
    void write_head(const spec::RecordingHead& head) {
        file_.write_text(spec::pack(head));
        has_head_ = true;
        for (const spec::RecordedLine& line : waiting_)
            file_.write_text(spec::pack(line));
        waiting_.clear();
    }
    void write(const spec::RecordedLine& line) {
        progress_.clear();
        if (has_head_)
            file_.write_text(spec::pack(line));
        else
            waiting_.push_back(line);
        count(line);
        progress_.update(fraction(), lines_, new_tokens_);
    }
    void summarise(double seconds, bool interrupted) {
        progress_.clear();
        if (options_.quiet) return;
        const std::string why = why_no_sampling(options_.requests, ", and no line has another");
        if (!interrupted && !reader_.any_samples() && !why.empty()) log_line("warning: " + why);
        log_line(fmt::format("{}: {}, {}{}, in {:.1f} s{}", options_.output, counted(lines_ - errors_, "text"),
                             counted(new_tokens_, "new token"),
                             errors_ > 0 ? fmt::format(", {} with errors", counted(errors_, "line")) : "", seconds,
                             interrupted ? "; interrupted: go on with --resume" : ""));
    }

    // Contents of the file before this run; its head is empty if the file was empty.
    const spec::Recording& existing() const { return existing_; }
    bool is_new() const { return existing_.whole_bytes == 0; }
    bool has_errors() const { return errors_ > 0; }
    // Returns "; its first error: ..." while errors wait for the head; else nothing.
    std::string first_error() const {
        const auto* error = waiting_.empty() ? nullptr : std::get_if<spec::RecordedError>(&waiting_.front());
        return error ? "; its first error: " + error->error : "";
    }

  private:
    bool is_full() const { return options_.max_prompts > 0 && lines_ >= options_.max_prompts; }
    // Returns the share of the input that was read, or of --max-prompts if that is larger.
    double fraction() const {
        if (options_.max_prompts == 0) return reader_.fraction();
        return std::max(reader_.fraction(), static_cast<double>(lines_) / options_.max_prompts);
    }

    // Skips the input's first lines, which are in the file already. Throws if they are not the same.
    void skip_recorded() {
        for (const spec::RecordedLine& line : existing_.lines) {
            const std::optional<InputItem> item = reader_.next();
            const std::string id = std::visit([](const auto& each) { return each.id; }, line);
            const auto* request = item ? std::get_if<spec::Request>(&*item) : nullptr;
            const auto* text = std::get_if<spec::TextRecord>(&line);
            const bool is_same = item && id_of(*item) == id && (!text || (request && request->prompt == text->prompt));
            if (!is_same)
                throw std::runtime_error(fmt::format("{}: its text number {}, of id {}, is not that of {}; resume with "
                                                     "the input of that run",
                                                     options_.output, lines_, id, options_.input));
            if (text && text->max_new_tokens != request->max_new_tokens)
                refuse_other_options(options_.output, {"max_new_tokens of id " + id, compact(text->max_new_tokens),
                                                       compact(request->max_new_tokens)});
            if (text && text->ignore_eos != request->ignore_eos)
                refuse_other_options(options_.output, {"ignore_eos of id " + id, compact(text->ignore_eos),
                                                       compact(request->ignore_eos)});
            count(line);
        }
    }

    void count(const spec::RecordedLine& line) {
        ++lines_;
        if (const auto* text = std::get_if<spec::TextRecord>(&line))
            new_tokens_ += text->new_tokens;
        else
            ++errors_;
    }

    const RecordOptions& options_;
    ResultWriter file_;
    spec::Recording existing_;
    RequestReader reader_;
    Progress progress_;
    std::int64_t lines_ = 0, errors_ = 0, new_tokens_ = 0;
    bool has_head_ = false;
    std::vector<spec::RecordedLine> waiting_; // lines that are written after the head
    std::optional<spec::Request> request_;
};

// Tells all ranks the next step. A pipe may be silent for longer than ranks wait for each other. Collective.
Step next_step(dist::Session& session, RecordingOutput* output) {
    for (;;) {
        std::int64_t step = over;
        in_agreement(session, [&] {
            if (output) step = output->fetch();
        });
        step = from_writer(session, step);
        if (step != waiting) return static_cast<Step>(step);
        session.watch().enter(dist::kNoRound, "input");
    }
}

// Returns a prompt that is decoded repeatedly to measure costs. Its text does not matter; it leaves room for drafts.
spec::Request prompt_for_costs(spec::Request prompt, int positions, int max_draft_tokens) {
    const int least = std::min(max_draft_tokens + 2, positions - 1); // new tokens, enough for the longest draft
    const auto room = static_cast<std::size_t>(positions - least);
    if (prompt.prompt.size() > room)
        prompt.prompt.erase(prompt.prompt.begin(), prompt.prompt.end() - static_cast<std::ptrdiff_t>(room));
    prompt.max_new_tokens = std::max(prompt.max_new_tokens, least);
    prompt.ignore_eos = true;
    prompt.stop_strings.clear();
    return prompt;
}

// Puts into `head` the costs of each draft with the target, the times of collectives, and the load of the machine
// meanwhile; all count on the coordinator. Returns false, on all ranks, if a signal came first. Collective.
bool measure(dist::Session& session, ModelPair& models, const Drafters& drafters, const RecordOptions& options,
             const spec::Request* first, spec::RecordingHead& head) {
    constexpr double kShort = 0.4; // seconds; this is measured with --costs too
    head.costs = read_costs(session, options.costs);
    LatencyPlan plan;
    plan.repetitions = 20;
    plan.max_seconds = 15;
    const int most_drafted = options.trees.empty() ? 0 : spec::TreeOptions::kDefaultTokens; // largest tree
    plan.rows = {std::max(options.max_draft_tokens, most_drafted) + 1};
    const MachineWatch watch(session, models.placed.team->size());
    const bool is_measured = options.costs.empty();
    if (is_measured) {
        std::vector<spec::Request> prompts;
        if (first)
            prompts.assign(kMaxCostPrompts, prompt_for_costs(*first, models.opened.target.config.max_positions,
                                                             options.max_draft_tokens));
        auto costs = measure_round_costs({session, models, drafters, prompts, options.max_draft_tokens,
                                          !options.trees.empty(), options.quiet, stop_signal()});
        if (!costs) return false;
        head.costs = std::move(*costs);
        // A head drafts fewer tokens; trees have rows of their own.
        const auto n_timed = from_writer(session, head.costs.empty() ? 0 : std::ssize(head.costs.front().t_target));
        if (n_timed < plan.max_rows()) {
            const std::vector<PassTimes> passes = measure_passes(session, models, plan, options.quiet);
            for (spec::Costs& each : head.costs)
                add_wider_passes(passes.front(), each);
        }
    }
    const std::vector<CollectiveTime> times = measure_collectives(session, models, plan, kShort);
    const MachineLoad machine = watch.stop(measure_spread(session, models, kShort));
    for (spec::Costs& each : head.costs)
        if (is_measured) each.disturbance = machine.disturbance;
    Json environment = environment_of(session, models), collectives = Json::array();
    environment["machine"] = to_json(machine);
    head.environment = compact(environment);
    for (const CollectiveTime& each : times)
        collectives.push_back({{"name", each.name}, {"median_ms", each.seconds.median * 1e3}});
    head.collectives = compact(collectives);
    if (models.placed.layout.is_coordinator() && !options.quiet) warn_of(machine);
    return true;
}

// Returns the head of this run, or the existing head of a recording that goes on. Throws BadOption if they differ.
spec::RecordingHead begun_head(const RecordOptions& options, const ModelPair& models, const RecordingOutput& output) {
    spec::RecordingHead head =
        recording_head(models, options.models, options.input, options.requests, options.max_draft_tokens);
    for (const spec::TreeOptions& tree : options.trees)
        head.add_tree(tree);
    if (output.is_new()) return head;
    const spec::RecordingHead& begun = output.existing().head;
    if (const auto difference = spec::first_difference(begun, head)) refuse_other_options(options.output, *difference);
    return begun;
}

} // namespace

int run_record(dist::Session& session, const Arguments& arguments) {
    const auto options = read_options<RecordOptions>(session, arguments, page_of("record"));
    if (!options) return kAllServed;
    install_signal_handlers(session.world_rank() == 0);
    session.set_timeout(options->models.collective_timeout_seconds);
    const auto models = open_models(session, options->models, {.ahead = RecordingRun::kChains, .records = true});
    const bool coordinates = models->placed.layout.is_coordinator();
    const Drafters drafters(session, *models, {}, session.timeout_seconds());
    const double start = models->placed.clock.now_seconds();

    std::unique_ptr<RecordingOutput> output; // on the coordinator
    spec::RecordingHead head;
    in_agreement(session, [&] {
        if (!coordinates) return;
        output = std::make_unique<RecordingOutput>(*options, *models);
        head = begun_head(*options, *models, *output);
    });
    Step step = next_step(session, output.get());
    const bool is_new = from_writer(session, coordinates && head.costs.empty() ? 1 : 0) == 1;
    in_agreement(session, [&] {
        if (is_new && step == over)
            throw std::runtime_error(fmt::format("{}: holds no prompt that can be decoded{}", options->input,
                                                 output ? output->first_error() : ""));
    });
    if (is_new && step == one) {
        if (!measure(session, *models, drafters, *options, output ? output->request() : nullptr, head)) step = stopped;
        in_agreement(session, [&] {
            if (output && step == one) output->write_head(head);
        });
    }
    RecordingPlan plan;
    plan.max_draft_tokens = options->max_draft_tokens;
    plan.trees = options->trees;
    if (coordinates && !head.costs.empty()) plan.costs = head.costs.front();
    RecordingRun run(session, *models, drafters, plan);
    if (output) output->begin_texts();
    {
        const dist::Session::BoundedSteps bounded(session, session.timeout_seconds());
        while (step == one) {
            const auto line = run.record(output ? output->request() : nullptr, stop_signal());
            if (output && line) output->write(*line);
            step = line ? next_step(session, output.get()) : stopped;
        }
    }
    const bool interrupted = step == stopped;
    cancel_abort_timer();
    if (output) output->summarise(models->placed.clock.now_seconds() - start, interrupted);
    if (interrupted) return kStopped;
    return static_cast<int>(from_writer(session, output && output->has_errors() ? kSomeLinesFailed : kAllServed));
}

} // namespace entrodraft::launch
