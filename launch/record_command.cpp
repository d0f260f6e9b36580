// entrodraft record: decodes a file of prompts once and keeps what every stop rule could have seen on the way.
//
// How a text becomes a record is recording_run.cpp's affair; the file is docs/RECORDING.md's.
#include "entrodraft/launch/bench_latency.h"
#include "entrodraft/launch/command_options.h"
#include "entrodraft/launch/commands.h"
#include "entrodraft/launch/environment.h"
#include "entrodraft/launch/failure.h"
#include "entrodraft/launch/recording_file.h"
#include "entrodraft/launch/recording_run.h"
#include "entrodraft/launch/replay_options.h"
#include "entrodraft/launch/report.h"
#include "entrodraft/launch/requests.h"
#include "entrodraft/launch/round_costs.h"
#include "entrodraft/launch/signals.h"

#include <algorithm>
#include <filesystem>
#include <stdexcept>

namespace entrodraft::launch {

namespace {

const char* const kUsage = "Usage: entrodraft record --target DIR --draft DIR --input FILE --output FILE [options]\n"
                           "\n"
                           "Texts are greedy, or at a --temperature sampled with the acceptance gumbel: both are the "
                           "same whatever is drafted.\n"
                           "Exit codes as of generate: 75 stopped by a signal, run again with --resume.\n";

// What a prompt is on every rank: none (the input has ended), or one to be recorded.
enum Step : std::int64_t { over, one };

// The coordinator's side: prompts in, blocks out.
class RecordingDesk {
  public:
    RecordingDesk(const RecordOptions& options, const ModelPair& models)
        : options_(options), file_(options.output, options.resume),
          reader_(options.input, options.requests, models.prompt_limits()), progress_(options.quiet) {
        std::error_code ignored;
        if (std::filesystem::equivalent(options.input, options.output, ignored))
            throw BadOption("--input and --output are the same file: " + options.output);
        has_head_ = !file_.is_new();
        skip_recorded();
    }

    // The next request that can be served; lines that cannot are written on the way.
    std::optional<spec::Request> next() {
        while (!is_full()) {
            std::optional<InputItem> item = reader_.next();
            if (!item) return std::nullopt;
            if (auto* request = std::get_if<spec::Request>(&*item)) return std::move(*request);
            const BadLine& bad = std::get<BadLine>(*item);
            write(spec::RecordedError{bad.id, bad.error});
        }
        return std::nullopt;
    }

    // Errors of lines before the first text wait for it.
    void write_head(const spec::RecordingHead& head) {
        file_.write(head);
        has_head_ = true;
        for (const spec::RecordedLine& line : waiting_)
            file_.write(line);
        waiting_.clear();
    }
    void write(const spec::RecordedLine& line) {
        progress_.clear();
        if (has_head_)
            file_.write(line);
        else
            waiting_.push_back(line);
        ++lines_;
        if (const auto* text = std::get_if<spec::TextRecord>(&line))
            new_tokens_ += text->new_tokens;
        else
            ++errors_;
        progress_.update(reader_.fraction(), lines_, new_tokens_);
    }
    void summarise(double seconds, bool interrupted) {
        progress_.clear();
        if (options_.quiet) return;
        say(options_.output + ": " + std::to_string(lines_ - errors_) + " texts, " + std::to_string(new_tokens_) +
            " new tokens" + (errors_ > 0 ? ", " + std::to_string(errors_) + " lines with errors" : "") + ", in " +
            format_number(seconds, 1) + " s" + (interrupted ? "; interrupted: go on with --resume" : ""));
    }

    RecordingFile& file() { return file_; }
    bool has_errors() const { return errors_ > 0; }

  private:
    bool is_full() const { return options_.most_prompts > 0 && lines_ >= options_.most_prompts; }

    // The input's first lines are those that stand in the file.
    void skip_recorded() {
        for (const spec::RecordedLine& line : file_.existing().lines) {
            const std::optional<InputItem> item = reader_.next();
            const std::string id = std::visit([](const auto& each) { return each.id; }, line);
            if (!item || id_of(*item) != id)
                throw std::runtime_error(options_.output + ": its text number " + std::to_string(lines_) + ", of id " +
                                         id + ", is not that of " + options_.input +
                                         "; resume with the input of that run");
            ++lines_;
            errors_ += std::holds_alternative<spec::RecordedError>(line) ? 1 : 0;
        }
    }

    const RecordOptions& options_;
    RecordingFile file_;
    RequestReader reader_;
    Progress progress_;
    std::int64_t lines_ = 0, errors_ = 0, new_tokens_ = 0;
    bool has_head_ = false;
    std::vector<spec::RecordedLine> waiting_; // for the head
};

// A recording goes on only with the models and the sampling that it began with.
void require_same_head(const spec::RecordingHead& begun, const spec::RecordingHead& own, const std::string& file) {
    spec::RecordingHead same = own;
    same.costs = begun.costs;
    same.environment = begun.environment;
    same.collectives = begun.collectives;
    same.input = begun.input;
    if (spec::pack(same) != spec::pack(begun))
        throw std::runtime_error(file + " was begun with other models, drafts or sampling; resume with those");
}

// Costs of each draft with the target, and what the collectives take. On the coordinator.
struct Measured {
    std::vector<spec::Costs> costs;
    std::string collectives = "[]";
};

Measured measure(dist::Session& session, ModelPair& models, const Drafters& drafters, const RecordOptions& options,
                 const std::optional<spec::Request>& first) {
    const double timeout = options.models.collective_timeout_seconds;
    Measured measured;
    LatencyPlan latency_plan;
    latency_plan.repetitions = 20;
    latency_plan.rows = options.max_draft_tokens + 1;
    latency_plan.timeout_seconds = timeout;
    const Latency latency = measure_latency(session, models, latency_plan);
    Json collectives = Json::array();
    for (const CollectiveTime& each : latency.collectives)
        collectives.push_back({{"name", each.name}, {"median_ms", each.seconds.median * 1e3}});
    measured.collectives = collectives.dump();
    if (!options.costs.empty()) {
        in_agreement(session, timeout, [&] {
            for (const std::string& file : options.costs)
                measured.costs.push_back(spec::read_costs(file));
        });
        return measured;
    }
    RoundCostPlan plan;
    plan.max_draft_tokens = options.max_draft_tokens;
    plan.timeout_seconds = timeout;
    std::vector<spec::Request> prompts;
    if (first) { // the same prompt again and again: its text is not what is looked at
        prompts.assign(static_cast<std::size_t>(plan.most_prompts), *first);
        for (spec::Request& prompt : prompts) {
            prompt.ignore_eos = true;
            prompt.stop_strings.clear();
        }
    }
    measured.costs = measure_round_costs(session, models, drafters, prompts, plan);
    return measured;
}

} // namespace

int run_record(dist::Session& session, const Arguments& arguments) {
    const auto options = read_options(session, arguments, kUsage, record_groups(), record_options);
    if (!options) return kAllServed;
    install_signal_handlers(session.world_rank() == 0);
    const double timeout = options->models.collective_timeout_seconds;
    const auto models = open_models(session, options->models, {.ahead = RecordingRun::kChains});
    const bool coordinates = models->layout.is_coordinator();
    const Drafters drafters(session, *models, {}, timeout);
    const Json environment = environment_of(session, *models);
    const double start = models->clock.now_seconds();

    std::optional<RecordingDesk> desk;
    std::optional<spec::Request> request;
    in_agreement(session, timeout, [&] {
        if (!coordinates) return;
        desk.emplace(*options, *models);
    });
    spec::RecordingHead head;
    in_agreement(session, timeout, [&] {
        if (!coordinates) return;
        head = recording_head(*models, options->models, options->input, options->requests.sampling,
                              options->max_draft_tokens);
        head.environment = environment.dump();
        if (!desk->file().is_new()) {
            require_same_head(desk->file().existing().head, head, options->output);
            head = desk->file().existing().head;
        }
        request = desk->next();
        if (head.costs.empty() && !request)
            throw std::runtime_error(options->input + ": holds no prompt that can be decoded");
    });
    if (from_writer(session, timeout, coordinates && head.costs.empty() && request ? 1 : 0) == 1) {
        const Measured measured = measure(session, *models, drafters, *options, request);
        in_agreement(session, timeout, [&] {
            if (!coordinates) return;
            head.costs = measured.costs;
            head.collectives = measured.collectives;
            desk->write_head(head);
        });
    }
    RecordingPlan plan;
    plan.max_draft_tokens = options->max_draft_tokens;
    if (coordinates && !head.costs.empty()) plan.costs = head.costs.front();
    plan.timeout_seconds = timeout;
    RecordingRun run(session, *models, drafters, plan);
    bool interrupted = false;
    {
        const dist::Session::BoundedSteps bounded(session, timeout);
        while (!interrupted && from_writer(session, timeout, request ? one : over) == one) {
            const auto line = run.record(request ? &*request : nullptr, stop_signal());
            interrupted = !line;
            if (!coordinates || interrupted) continue;
            desk->write(*line);
            request = desk->next();
        }
    }
    disarm_abandonment();
    if (desk) desk->summarise(models->clock.now_seconds() - start, interrupted);
    if (interrupted) return kStopped;
    return static_cast<int>(from_writer(session, timeout, desk && desk->has_errors() ? kSomeLinesFailed : kAllServed));
}

} // namespace entrodraft::launch
