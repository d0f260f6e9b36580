// entrodraft generate: one prompt streamed to stdout, or JSON lines in and JSON lines out.
//
// Opens models and files, hands requests to the engine and writes what comes back. How text is made is spec's affair.
#include "entrodraft/launch/command_options.h"
#include "entrodraft/launch/commands.h"
#include "entrodraft/launch/drafters.h"
#include "entrodraft/launch/failure.h"
#include "entrodraft/launch/model_pair.h"
#include "entrodraft/launch/phase.h"
#include "entrodraft/launch/report.h"
#include "entrodraft/launch/requests.h"
#include "entrodraft/launch/results.h"
#include "entrodraft/launch/signals.h"
#include "entrodraft/spec/generate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <sstream>

namespace entrodraft::launch {

namespace {

const char* const kUsage =
    "Usage: entrodraft generate --target DIR [--draft DIR] (--prompt TEXT | --input FILE) [options]\n"
    "\n"
    "Exit codes: 0 all served; 1 failure; 2 bad options; 3 some lines had errors;\n"
    "75 stopped by a signal after a clean flush: run again with --resume.\n";

// How long to wait for a line before the other ranks are told that there is none yet: far less than they wait,
// and little enough that a signal to any rank ends the wait within the half second that SIGTERM leaves.
std::chrono::milliseconds patience(double collective_timeout_seconds) {
    return std::chrono::milliseconds(std::clamp(static_cast<int>(collective_timeout_seconds * 250), 1, 200));
}

// The coordinator's side of a run: where requests come from and completions go.
class Desk {
  public:
    // Opens the files; before the models, so that a mistake there does not cost the loading of them.
    explicit Desk(const GenerateOptions& options);
    // Reads the prompt, or passes over what an earlier run served.
    void begin(const ModelPair& models);

    std::optional<spec::Request> next_request();
    bool waiting() { return reader_ && reader_->lines().waiting(); }
    void on_text(const spec::Request& request, std::string_view text);
    void on_round(const spec::Request& request, const spec::RoundTrace& trace);
    void on_complete(const spec::Request& request, spec::Completion completion);
    // Ends the streamed text and reports.
    void finish(RunSummary summary);
    int exit_code() const;

  private:
    bool streams() const { return options_->prompt.has_value(); }
    // Whether sampled text is the same whatever is drafted.
    bool follows_noise() const { return options_->speculation.acceptance.kind == spec::Acceptance::gumbel; }
    void write_bad_line(const BadLine& bad);
    void give_up(const spec::Request& request, const std::string& why);
    void compare(const spec::Request& request, const spec::Completion& plain);

    const GenerateOptions* options_;
    ResultWriter writer_;
    std::optional<ResultWriter> trace_;
    std::unique_ptr<LineReader> lines_; // until begin()
    std::optional<RequestReader> reader_;
    std::optional<spec::Request> prompt_;       // of --prompt, until it is handed out
    std::optional<spec::Request> to_check_;     // decoded once, to be decoded again without drafting
    spec::Completion drafted_;                  // what that gave
    std::map<std::string, std::int64_t> order_; // of requests handed out, by id
    std::int64_t next_order_ = 0;
    RunSummary counts_;
    Progress progress_;
};

// The name of an output file that is not the input; a resumed one would be cut and appended to.
const std::string& output_beside_input(const GenerateOptions& options) {
    namespace fs = std::filesystem;
    std::error_code ignored;
    const std::string input = options.input == "-" ? "/dev/stdin" : options.input;
    if (!options.prompt && options.output != "-" && fs::is_regular_file(options.output, ignored) &&
        fs::equivalent(input, options.output, ignored))
        throw BadOption("--input and --output are the same file: " + options.output);
    return options.output;
}

Desk::Desk(const GenerateOptions& options)
    : options_(&options), writer_(output_beside_input(options), options.resume ? Existing::resume : Existing::refuse),
      progress_(options.quiet || options.prompt.has_value()) {
    if (!streams()) lines_ = std::make_unique<LineReader>(options.input);
    if (!options.trace.empty()) trace_.emplace(options.trace, Existing::refuse, "--trace");
}

void Desk::begin(const ModelPair& models) {
    if (const std::string why = spec::why_invalid(options_->requests.processing, models.vocab_size); !why.empty())
        throw BadOption(why);
    if (streams()) {
        const InputItem item = request_of_prompt(*options_->prompt, options_->requests, models.prompt_limits());
        if (const auto* bad = std::get_if<BadLine>(&item)) throw BadOption("--prompt: " + bad->error);
        prompt_ = std::get<spec::Request>(item);
        return;
    }
    reader_.emplace(std::move(lines_), options_->requests, models.prompt_limits());
    skip_served(*reader_, writer_, options_->output);
    reader_->lines().set_patience(patience(options_->models.collective_timeout_seconds));
    next_order_ = counts_.resumed = static_cast<std::int64_t>(writer_.served().size());
}

std::optional<spec::Request> Desk::next_request() {
    if (to_check_) {
        spec::Request again = *to_check_;
        again.plain = true;
        return again;
    }
    if (streams()) return std::exchange(prompt_, std::nullopt);
    while (auto item = reader_->next()) {
        if (const auto* bad = std::get_if<BadLine>(&*item)) {
            write_bad_line(*bad);
            continue;
        }
        auto& request = std::get<spec::Request>(*item);
        order_.emplace(request.id, next_order_++);
        return std::move(request);
    }
    return std::nullopt;
}

void Desk::write_bad_line(const BadLine& bad) {
    ++counts_.with_error;
    progress_.clear();
    writer_.put(next_order_++, error_line(bad));
}

void Desk::on_text(const spec::Request& request, std::string_view text) {
    if (streams() && !request.plain) writer_.write_text(text);
}

void Desk::on_round(const spec::Request& request, const spec::RoundTrace& trace) {
    trace_->write_text(trace_line(request, trace) + "\n");
}

void Desk::on_complete(const spec::Request& request, spec::Completion completion) {
    if (request.plain) return compare(request, completion);
    if (!completion.failure.empty()) return give_up(request, completion.failure);
    counts_.stats += completion.stats;
    ++counts_.served;
    if (streams()) {
        writer_.write_text("\n");
    } else {
        progress_.clear();
        const auto order = order_.find(request.id);
        writer_.put(order->second, result_line(request, completion));
        order_.erase(order);
        const LineReader& lines = reader_->lines();
        const double fraction = lines.file_bytes() == 0
                                    ? -1
                                    : static_cast<double>(lines.bytes_read()) / static_cast<double>(lines.file_bytes());
        progress_.update(fraction, next_order_, counts_.stats.new_tokens);
    }
    if (options_->check && (request.sampling.greedy() || follows_noise())) {
        to_check_ = request;
        drafted_ = std::move(completion);
    }
}

// A text that could not go on.
void Desk::give_up(const spec::Request& request, const std::string& why) {
    ++counts_.with_error;
    progress_.clear();
    if (streams()) {
        writer_.write_text("\n");
        return say("--prompt: " + why);
    }
    const auto order = order_.find(request.id);
    writer_.put(order->second, error_line({request.id, std::nullopt, why}));
    order_.erase(order);
}

void Desk::compare(const spec::Request& request, const spec::Completion& plain) {
    to_check_.reset();
    ++counts_.checked;
    if (drafted_.tokens == plain.tokens) return;
    ++counts_.check_differs;
    std::size_t first = 0;
    while (first < drafted_.tokens.size() && first < plain.tokens.size() &&
           drafted_.tokens[first] == plain.tokens[first])
        ++first;
    std::ostringstream text;
    text << "check: id " << request.id << " differs from decoding without a draft at new token " << first
         << " (from 0)";
    if (first < plain.logit_margins.size() && !std::isnan(plain.logit_margins[first]))
        text << ", where the best " << (request.sampling.greedy() ? "logit" : "logit and noise") << " leads by "
             << plain.logit_margins[first];
    progress_.clear();
    say(text.str());
}

void Desk::finish(RunSummary summary) {
    progress_.clear();
    summary.stats = counts_.stats;
    summary.served = counts_.served;
    summary.with_error = counts_.with_error;
    summary.resumed = counts_.resumed;
    summary.checked = counts_.checked;
    summary.check_differs = counts_.check_differs;
    counts_.interrupted = summary.interrupted = summary.interrupted || (reader_ && reader_->lines().interrupted());
    summary.resumable = !streams() && options_->output != "-";
    if (streams() && summary.interrupted) writer_.write_text("\n");
    if (options_->quiet) return;
    std::string text = format_summary(summary);
    text.pop_back(); // say() ends the last line
    say(text);
}

int Desk::exit_code() const {
    if (counts_.interrupted) return kStopped;
    if (counts_.check_differs > 0) return kFailure;
    return counts_.with_error + writer_.served_with_error() > 0 ? kSomeLinesFailed : kAllServed;
}

spec::EngineOptions engine_options(const GenerateOptions& options, const ModelPair& models,
                                   const std::optional<spec::Costs>& costs) {
    spec::EngineOptions engine;
    engine.acceptance = options.speculation.acceptance;
    engine.stop_rule = options.speculation.stop_rules.front();
    engine.costs = costs;
    engine.n_slots = models.batch_size;
    engine.vocab_size = models.vocab_size;
    engine.record_margins = options.check;
    engine.timeout_seconds = options.models.collective_timeout_seconds;
    return engine;
}

} // namespace

int run_generate(dist::Session& session, const Arguments& arguments) {
    const auto options = read_options(session, arguments, kUsage, generate_groups(), generate_options);
    if (!options) return kAllServed;
    install_signal_handlers(session.world_rank() == 0);
    const double timeout = options->models.collective_timeout_seconds;
    const Placement placement = {options->replicas, options->placement, options->batch_size};
    std::optional<Desk> desk;
    in_agreement(session, timeout, [&] {
        if (layout_of(session, placement).is_coordinator()) desk.emplace(*options);
    });
    std::vector<std::optional<spec::Costs>> costs;
    in_agreement(session, timeout, [&] {
        costs = read_costs_files(options->speculation);
        require_readable(options->speculation.sources);
    });
    const auto models = open_models(session, options->models, placement);
    const bool coordinates = models->layout.is_coordinator();
    in_agreement(session, timeout, [&] {
        if (desk) desk->begin(*models);
    });
    spec::EngineCallbacks callbacks;
    if (coordinates) {
        callbacks.next_request = [&] { return desk->next_request(); };
        callbacks.waiting = [&] { return desk->waiting(); };
        callbacks.on_text = [&](const spec::Request& request, std::string_view text) { desk->on_text(request, text); };
        if (!options->trace.empty())
            callbacks.on_round = [&](const spec::Request& request, const spec::RoundTrace& trace) {
                desk->on_round(request, trace);
            };
        callbacks.on_complete = [&](const spec::Request& request, spec::Completion completion) {
            desk->on_complete(request, std::move(completion));
        };
    }
    const SpeculationOptions& speculation = options->speculation;
    const Drafters drafters(session, *models, speculation.sources, timeout);
    const std::unique_ptr<spec::BatchDrafter> drafter =
        drafters.make(speculation.drafter, speculation.stop_rules, costs);
    spec::Engine engine(engine_options(*options, *models, costs.front()), models->engine_parts(drafter.get()));
    RunSummary summary;
    const double start = models->clock.now_seconds();
    summary.interrupted = engine.run(callbacks, stop_signal()) == spec::RunEnd::interrupted;
    disarm_abandonment();
    if (!coordinates) return static_cast<int>(from_writer(session, timeout, 0));

    summary.wall_seconds = models->clock.now_seconds() - start;
    summary.ranks = session.world_size();
    summary.threads = models->team->size();
    summary.speculation = speculation;
    summary.costs = costs.front();
    if (speculation.drafter.kinds == std::vector{DrafterKind::model} && speculation.drafter.drafts.size() == 1)
        summary.operations_ratio = operations_ratio(*models);
    desk->finish(summary);
    return static_cast<int>(from_writer(session, timeout, desk->exit_code()));
}

} // namespace entrodraft::launch
