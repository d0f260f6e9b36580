// entrodraft serve: answers HTTP requests in OpenAI's dialect.
//
// On the first rank, the HTTP server has a thread of its own, and the rank hands requests to replicas as generate does.
// The port takes connections when all ranks are ready. SIGTERM or SIGUSR1 to the first rank begins the shutdown:
// requests that were accepted before are answered, and new requests are refused.
#include "launch/cli/command_options.h"
#include "launch/cli/command_pages.h"
#include "launch/cmd/served_run.h"
#include "launch/http/api.h"
#include "launch/io/openai_batch.h"
#include "launch/io/progress.h"
#include "launch/load/drafters.h"
#include "launch/load/model_pair.h"
#include "launch/load/pair_engine.h"
#include "launch/serve/http_dispatcher.h"
#include "launch/serve/request_tracker.h"
#include "launch/start/failure.h"
#include "launch/start/phase.h"
#include "launch/start/signals.h"

#include <atomic>
#include <ctime>
#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace entrodraft::launch {

namespace {

constexpr double kFlushSeconds = 5; // for clients to take the end of their answers

// The first rank's part.
struct Frontend {
    ServerFigures figures;
    std::atomic<bool> drains = false;
    std::optional<HttpDispatcher> dispatcher;
    std::optional<Api> api;
    std::optional<HttpServer> server; // its thread ends before the others go

    explicit Frontend(const ServeOptions& options) {
        dispatcher.emplace(
            options.replicas, options.batch_size, static_cast<std::size_t>(options.max_waiting),
            [this] { return drains || stop_signal() != 0; }, figures);
        HttpOptions http;
        http.address = options.address;
        http.port = options.port;
        server.emplace(
            http, [this](std::shared_ptr<HttpExchange> exchange) { api->handle(std::move(exchange)); },
            [this] { dispatcher->wake(); });
    }
};

// Returns the keys of the file, a line each. Throws BadOption.
std::vector<std::string> keys_of(const std::string& file) {
    if (file.empty()) return {};
    std::vector<std::string> keys;
    for (const std::string& key : split_list(read_named_file({"api-key-file", file}), '\n'))
        if (!key.empty()) keys.push_back(key);
    refuse_if(keys.empty(), "--api-key-file " + file + " has no key; write one into it");
    return keys;
}

std::string served_name(const ServeOptions& options) {
    if (!options.served_name.empty()) return options.served_name;
    const std::filesystem::path target = options.models.target;
    return (target.has_filename() ? target : target.parent_path()).filename().string();
}

ApiSetting api_setting(const ServeOptions& options, const ModelPair& models) {
    ApiSetting setting;
    setting.model = served_name(options);
    setting.api_keys = keys_of(options.api_key_file);
    setting.defaults = options.requests;
    setting.limits = models.prompt_limits();
    setting.tokenizer = &*models.opened.target.tokenizer;
    for (const std::int64_t token : models.opened.target.config.eos_token_ids)
        setting.eos_tokens.push_back(static_cast<model::TokenId>(token));
    setting.version = version_text().substr(version_text().find(' ') + 1);
    setting.stuck_seconds = options.models.collective_timeout_seconds / 2;
    if (options.given.given("seed")) setting.fixed_seed = options.requests.sampling.seed;
    return setting;
}

// Returns the figures of vLLM's field metrics.speculative_decoding; null for several texts.
Json speculative_figures(const spec::Request& request, const spec::Stats& stats, int most_drafted) {
    if (request.num_samples > 1) return nullptr;
    Json histogram = Json::array();
    for (const std::int64_t n : stats.rounds_of_accepted)
        histogram.push_back(n);
    return {{"mean_acceptance_length", stats.mean_acceptance_length()},
            {"draft_acceptance_rate", stats.draft_acceptance_rate()},
            {"acceptance_histogram", histogram},
            {"num_spec_steps", stats.by_position.empty() ? 0 : stats.by_position.front().verified}, // with a draft
            {"num_accepted_draft_tokens", stats.accepted},
            {"num_draft_tokens", stats.drafted},
            {"num_spec_tokens", most_drafted}};
}

// Serves until the end has begun and all that was taken is answered. Collective over the world.
void serve(dist::Session& session, const ServeOptions& options, const ModelPair& models, spec::Engine& engine,
           Frontend* frontend) {
    const PlacedPair& placed = models.placed;
    HttpDispatcher* const dispatcher = frontend ? &*frontend->dispatcher : nullptr;
    const std::unique_ptr<dist::Channel> channel =
        session.channel(placed.layout, placed.clock, session.timeout_seconds());
    if (dispatcher) dispatcher->start(channel.get());
    const SpeculationOptions& speculation = options.speculation;
    const int most_drafted = speculation.drafter.kinds.empty() ? 0 : speculation.stop_rules.front().max_tokens;
    const auto result_of = [&](const spec::Request& request, const spec::Completion& completion) {
        Json body =
            openai_body(request, completion, *models.opened.target.tokenizer, served_name(options), std::time(nullptr));
        body["metrics"] = {{"speculative_decoding", speculative_figures(request, completion.stats, most_drafted)}};
        return compact(body);
    };
    std::optional<RequestTracker> tracker;
    if (placed.layout.is_coordinator()) tracker.emplace(dispatcher, channel.get(), options, placed.clock, result_of);
    if (frontend) {
        frontend->server->start();
        if (!options.quiet)
            log_line(fmt::format("serving {} at http://{}:{}", served_name(options), options.address,
                                 frontend->server->port()));
    }
    const bool interrupted = run_engine(session, engine, tracker ? &*tracker : nullptr, kNoSignal);
    session.watch().enter(dist::kNoRound, "end");
    if (tracker) tracker->close(interrupted);
    if (frontend) frontend->server->stop(kFlushSeconds);
    if (frontend && !options.quiet) log_line("all that was taken is answered; the server ends");
}

} // namespace

int run_serve(dist::Session& session, const Arguments& arguments) {
    const auto options = read_options<ServeOptions>(session, arguments, page_of("serve"));
    if (!options) return kAllServed;
    install_signal_handlers(session.world_rank() == 0, true);
    session.set_timeout(options->models.collective_timeout_seconds);
    const SpeculationOptions& speculation = options->speculation;
    const Placement placement = {options->replicas,
                                 options->placement,
                                 options->batch_size,
                                 outcomes_ahead(speculation.drafter),
                                 0,
                                 speculation.drafter.drafts_trees()};
    std::optional<Frontend> frontend;
    std::vector<std::optional<spec::Costs>> costs;
    in_agreement(session, [&] {
        if (layout_of(session, placement).is_writer()) {
            (void)keys_of(options->api_key_file); // a mistake there does not cost the loading
            frontend.emplace(*options);
        }
        costs = read_costs_files(speculation);
        require_readable(speculation.sources);
    });
    const auto models = open_models(session, options->models, placement);
    in_agreement(session, [&] {
        if (!frontend) return;
        frontend->api.emplace(
            api_setting(*options, *models), frontend->figures,
            [&](ApiJob job) { return frontend->dispatcher->submit(std::move(job)); },
            [&] {
                frontend->drains = true;
                frontend->dispatcher->wake();
            });
    });
    const Drafters drafters(session, *models, speculation.sources, session.timeout_seconds());
    const PairEngine::Setting setting = {.drafter = speculation.drafter,
                                         .rules = speculation.stop_rules,
                                         .costs = costs,
                                         .acceptance = speculation.acceptance};
    capture_rounds(session, *models, drafters, setting, options->requests);
    PairEngine engine(session, *models, drafters, setting);
    serve(session, *options, *models, engine.engine(), frontend ? &*frontend : nullptr);
    return kAllServed;
}

} // namespace entrodraft::launch
