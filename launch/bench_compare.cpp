// entrodraft bench compare: stop rules side by side on the same prompts, in one process, prompt by prompt.
//
// Texts are compared with plain decoding before any figure is shown. Times come from the engine's own statistics;
// predictions from the costs of passes measured apart (bench latency). Settings take turns on every prompt, in
// rotating order, so that noise meets all alike; medians are of the ratios within each prompt.
#include "entrodraft/launch/bench_latency.h"
#include "entrodraft/launch/command_options.h"
#include "entrodraft/launch/commands.h"
#include "entrodraft/launch/draft_overhead.h"
#include "entrodraft/launch/failure.h"
#include "entrodraft/launch/phase.h"
#include "entrodraft/launch/report.h"
#include "entrodraft/launch/requests.h"
#include "entrodraft/launch/results.h"
#include "entrodraft/spec/generate.h"

#include <algorithm>
#include <fstream>
#include <stdexcept>

namespace entrodraft::launch {

namespace {

const char* const kUsage = "Usage: entrodraft bench compare --target DIR --draft DIR --input FILE [options]\n";
constexpr int kNgram = 8;
constexpr volatile int kNoSignal = 0;

// A way to decode: a rule, or none. Its engine stays over all prompts.
struct Setting {
    std::string name;
    std::optional<spec::StopRuleOptions> rule; // none: plain decoding
    std::unique_ptr<spec::Engine> engine;
};

// What a setting did at one temperature. On the coordinator.
struct Outcome {
    const Setting* setting = nullptr;
    spec::Stats stats; // of all prompts
    std::vector<spec::Stats> stats_of_prompts;
    std::vector<std::vector<spec::TokenId>> texts;
    int different_texts = 0; // from plain decoding; counted when greedy
    double speedup = 0;      // over all prompts together
    double predicted = 0;
    double median_speedup = 0;        // of the prompts' own: what a burst of noise on a few of them does not move
    double median_over_predicted = 0; // of each prompt's speed-up over its prediction

    double repeated_share() const {
        double sum = 0;
        for (const auto& text : texts)
            sum += spec::repeated_ngram_share(text, kNgram);
        return texts.empty() ? 0 : sum / static_cast<double>(texts.size());
    }
};

struct Temperature {
    double temperature = 0;
    std::vector<Outcome> outcomes; // [0] is plain decoding
};

// Settings that --tune tries: the best of each rule is shown.
std::vector<spec::StopRuleOptions> tuning_grid(int max_tokens) {
    std::vector<spec::StopRuleOptions> grid;
    spec::StopRuleOptions rule;
    rule.max_tokens = max_tokens;
    rule.num_draft_tokens = std::min(5, max_tokens);
    const auto add = [&](spec::StopRuleKind kind) {
        rule.kind = kind;
        grid.push_back(rule);
    };
    for (double tau : {0.5, 1.0, 1.5, 2.0, 2.25, 2.5, 3.0, 3.5, 4.0}) {
        rule.threshold = tau;
        add(spec::StopRuleKind::static_threshold);
    }
    for (double tau : {2.0, 5.0, 10.0, 15.0, 20.0, 30.0}) {
        rule.threshold = tau;
        add(spec::StopRuleKind::cumulative);
    }
    rule.threshold.reset();
    for (int lambda = 4; lambda <= 12; ++lambda)
        for (int window : {1, 3, 7}) {
            rule.factor = lambda / 10.0;
            rule.window = window;
            add(spec::StopRuleKind::moving_average);
        }
    for (int k = 1; k <= std::min(6, max_tokens); ++k) {
        rule.num_draft_tokens = k;
        add(spec::StopRuleKind::constant);
    }
    rule.num_draft_tokens = std::min(5, max_tokens);
    add(spec::StopRuleKind::heuristic);
    for (double c : {0.2, 0.3, 0.4, 0.5, 0.6}) {
        rule.confidence = c;
        add(spec::StopRuleKind::confidence);
    }
    for (double h : {0.3, 0.4, 0.5, 0.6, 0.7}) {
        rule.svip_threshold = h;
        add(spec::StopRuleKind::svip);
    }
    for (double gamma : {0.05, 0.1, 0.2}) {
        rule.adaedl_gamma = gamma;
        add(spec::StopRuleKind::adaedl);
    }
    add(spec::StopRuleKind::expected_gain);
    return grid;
}

class Comparison {
  public:
    // `costs` of a file are expected-gain's too; without one it measures as it goes.
    Comparison(dist::Session& session, ModelPair& models, const CompareOptions& options,
               const std::optional<spec::Costs>& costs);

    // Collective over the world, all of them.
    void read_prompts();
    void run();

    std::vector<Temperature> results;
    std::vector<spec::Request> prompts; // on the coordinator

  private:
    spec::Completion decode(Setting& setting, std::size_t prompt, double temperature, int max_new_tokens);
    void add_setting(const std::string& name, const std::optional<spec::StopRuleOptions>& rule);

    dist::Session& session_;
    ModelPair& models_;
    const CompareOptions& options_;
    std::optional<spec::Costs> costs_;
    std::unique_ptr<spec::Drafter> drafter_;
    std::vector<Setting> settings_;
    std::size_t n_prompts_ = 0; // known to all ranks
};

Comparison::Comparison(dist::Session& session, ModelPair& models, const CompareOptions& options,
                       const std::optional<spec::Costs>& costs)
    : session_(session), models_(models), options_(options), costs_(costs),
      drafter_(models.make_drafter({DrafterKind::model, {}})) {
    add_setting("plain", std::nullopt);
    const auto rules = options.tune ? tuning_grid(15) : options.rules;
    for (const spec::StopRuleOptions& rule : rules)
        add_setting(describe(rule, EntropyUnit::nats), rule);
}

void Comparison::add_setting(const std::string& name, const std::optional<spec::StopRuleOptions>& rule) {
    spec::EngineOptions engine;
    engine.stop_rule = rule.value_or(spec::StopRuleOptions{});
    engine.costs = costs_;
    engine.vocab_size = models_.vocab_size;
    engine.timeout_seconds = options_.models.collective_timeout_seconds;
    const bool coordinates = models_.layout.is_coordinator();
    const spec::EngineParts parts = {&models_.layout,
                                     models_.replica.get(),
                                     &*models_.target,
                                     rule ? drafter_.get() : nullptr,
                                     coordinates ? &*models_.tokenizer : nullptr,
                                     &models_.clock};
    settings_.push_back({name, rule, std::make_unique<spec::Engine>(engine, parts)});
}

void Comparison::read_prompts() {
    const double timeout = options_.models.collective_timeout_seconds;
    in_agreement(session_, timeout, [&] {
        if (!models_.layout.is_coordinator()) return;
        RequestDefaults defaults;
        defaults.max_new_tokens = options_.max_new_tokens;
        defaults.sampling.seed = options_.seed;
        RequestReader reader(options_.input, defaults, models_.prompt_limits());
        while (auto item = reader.next()) {
            if (const auto* bad = std::get_if<BadLine>(&*item))
                throw std::runtime_error(options_.input + ": line of id " + bad->id + ": " + bad->error);
            prompts.push_back(std::get<spec::Request>(std::move(*item)));
            if (options_.most_prompts > 0 && static_cast<int>(prompts.size()) == options_.most_prompts) break;
        }
        if (prompts.empty()) throw std::runtime_error(options_.input + ": holds no prompts");
    });
    n_prompts_ = static_cast<std::size_t>(from_writer(session_, timeout, static_cast<std::int64_t>(prompts.size())));
}

spec::Completion Comparison::decode(Setting& setting, std::size_t prompt, double temperature, int max_new_tokens) {
    spec::Completion result;
    spec::EngineCallbacks callbacks;
    bool handed_out = false;
    if (models_.layout.is_coordinator()) {
        callbacks.next_request = [&]() -> std::optional<spec::Request> {
            if (std::exchange(handed_out, true)) return std::nullopt;
            spec::Request request = prompts[prompt];
            request.sampling.temperature = temperature;
            request.max_new_tokens = std::min(request.max_new_tokens, max_new_tokens);
            return request;
        };
        callbacks.on_complete = [&](const spec::Request&, spec::Completion completion) {
            result = std::move(completion);
        };
    }
    setting.engine->run(callbacks, kNoSignal);
    return result;
}

void Comparison::run() {
    constexpr int kWarmUpTokens = 16;
    for (Setting& setting : settings_)
        decode(setting, 0, options_.temperatures.front(), kWarmUpTokens);
    Progress progress(options_.quiet || !models_.layout.is_writer());
    std::int64_t new_tokens = 0;
    const std::size_t n_settings = settings_.size();
    for (double temperature : options_.temperatures) {
        Temperature& result = results.emplace_back(Temperature{temperature, {}});
        result.outcomes.resize(n_settings);
        for (std::size_t prompt = 0; prompt < n_prompts_; ++prompt) {
            for (std::size_t turn = 0; turn < n_settings; ++turn) {
                const std::size_t i = (prompt + turn) % n_settings;
                spec::Completion completion = decode(settings_[i], prompt, temperature, options_.max_new_tokens);
                Outcome& outcome = result.outcomes[i];
                outcome.setting = &settings_[i];
                outcome.stats += completion.stats;
                outcome.stats_of_prompts.push_back(completion.stats);
                outcome.texts.push_back(std::move(completion.tokens));
                new_tokens += completion.stats.new_tokens;
            }
            const auto done = static_cast<double>((results.size() - 1) * n_prompts_ + prompt + 1);
            progress.update(done / static_cast<double>(options_.temperatures.size() * n_prompts_),
                            static_cast<std::int64_t>(done), new_tokens);
        }
    }
}

// ---- figures and their forms, on the coordinator ----

void count_differences(Temperature& result) {
    const std::vector<std::vector<spec::TokenId>>& plain = result.outcomes[0].texts;
    for (Outcome& outcome : result.outcomes)
        for (std::size_t i = 0; i < plain.size(); ++i)
            outcome.different_texts += outcome.texts[i] == plain[i] ? 0 : 1;
}

void compute_speedups(Temperature& result, const spec::Costs& costs) {
    const Outcome& plain = result.outcomes[0];
    for (Outcome& outcome : result.outcomes) {
        outcome.speedup = plain.stats.ms_per_token() / outcome.stats.ms_per_token();
        outcome.predicted = spec::predicted_speedup(outcome.stats, costs);
        std::vector<double> speedups, over_predicted;
        for (std::size_t i = 0; i < outcome.stats_of_prompts.size(); ++i) {
            const spec::Stats& stats = outcome.stats_of_prompts[i];
            speedups.push_back(plain.stats_of_prompts[i].ms_per_token() / stats.ms_per_token());
            over_predicted.push_back(speedups.back() / spec::predicted_speedup(stats, costs));
        }
        outcome.median_speedup = quantiles_of(speedups).median;
        outcome.median_over_predicted = quantiles_of(over_predicted).median;
    }
}

// With --tune only the fastest setting of each rule stays, plain decoding aside.
void keep_best_of_each_rule(Temperature& result) {
    std::vector<Outcome> best;
    for (Outcome& outcome : result.outcomes) {
        const auto same_rule = [&](const Outcome& other) {
            return other.setting->rule && outcome.setting->rule &&
                   other.setting->rule->kind == outcome.setting->rule->kind;
        };
        const auto found = std::find_if(best.begin(), best.end(), same_rule);
        if (found == best.end())
            best.push_back(std::move(outcome));
        else if (outcome.median_speedup > found->median_speedup)
            *found = std::move(outcome);
    }
    result.outcomes = std::move(best);
}

struct Share {
    const char* name;
    double seconds;
};

// Where the decoding time of an outcome went.
std::vector<Share> shares_of(const spec::StepSeconds& seconds) {
    std::vector<Share> shares = {{"draft", seconds.draft}, {"entropy", seconds.entropy}, {"announce", seconds.announce},
                                 {"score", seconds.score}, {"gather", seconds.gather},   {"decide", seconds.decide}};
    double other = seconds.total - seconds.prefill;
    for (const Share& share : shares)
        other -= share.seconds;
    shares.push_back({"other", other});
    return shares;
}

Json to_json(const Outcome& outcome, bool greedy) {
    const spec::Stats& stats = outcome.stats;
    Json json = {{"setting", outcome.setting->name},
                 {"tokens_per_second", 1e3 / stats.ms_per_token()},
                 {"ms_per_token", stats.ms_per_token()},
                 {"speedup", outcome.speedup},
                 {"predicted_speedup", outcome.predicted},
                 {"measured_over_predicted", outcome.speedup / outcome.predicted},
                 {"median_speedup", outcome.median_speedup},
                 {"median_measured_over_predicted", outcome.median_over_predicted},
                 {"acceptance_rate", stats.acceptance_rate()},
                 {"tokens_per_target_pass", stats.tokens_per_target_pass()},
                 {"mean_accepted_length", stats.mean_accepted_length()},
                 {"new_tokens", stats.new_tokens},
                 {"rounds", stats.rounds},
                 {"drafted", stats.drafted},
                 {"accepted", stats.accepted},
                 {"target_passes", stats.target_passes},
                 {"draft_passes", stats.draft_passes},
                 {"passes_of_rows", stats.passes_of_rows},
                 {"repeated_8gram_share", outcome.repeated_share()}};
    if (greedy) json["texts_different_from_plain"] = outcome.different_texts;
    const double decoding = stats.seconds.total - stats.seconds.prefill;
    for (const Share& share : shares_of(stats.seconds))
        json["time_share"][share.name] = share.seconds / decoding;
    return json;
}

std::string to_text(const Temperature& result) {
    std::string text = "Temperature " + format_number(result.temperature, 2);
    if (result.temperature == 0) text += ", every text equal to plain decoding";
    std::vector<std::vector<std::string>> figures = {
        {"setting", "tokens/s", "ms/token", "speed-up", "predicted", "measured/pred.", "median speed-up",
         "median meas./pred.", "accepted/drafted", "tokens/pass", "mean length", "repeated 8-grams"}};
    std::vector<std::vector<std::string>> times = {{"share of time, %"}};
    for (const Share& share : shares_of({}))
        times[0].push_back(share.name);
    for (const Outcome& outcome : result.outcomes) {
        const spec::Stats& stats = outcome.stats;
        figures.push_back({outcome.setting->name, format_number(1e3 / stats.ms_per_token(), 1),
                           format_number(stats.ms_per_token(), 4), format_number(outcome.speedup, 3),
                           format_number(outcome.predicted, 3), format_number(outcome.speedup / outcome.predicted, 3),
                           format_number(outcome.median_speedup, 3), format_number(outcome.median_over_predicted, 3),
                           format_number(stats.acceptance_rate(), 3), format_number(stats.tokens_per_target_pass(), 2),
                           format_number(stats.mean_accepted_length(), 2), format_number(outcome.repeated_share(), 3)});
        const double decoding = stats.seconds.total - stats.seconds.prefill;
        times.push_back({outcome.setting->name});
        for (const Share& share : shares_of(stats.seconds))
            times.back().push_back(format_number(100 * share.seconds / decoding, 2));
    }
    return text + "\n" + format_table(figures) + "\n" + format_table(times) + "\n";
}

int report(const CompareOptions& options, Comparison& comparison, const spec::Costs& costs,
           const DraftOverhead& overhead, const Json& environment) {
    Json json;
    json["environment"] = environment;
    json["prompts"] = comparison.prompts.size();
    json["max_new_tokens"] = options.max_new_tokens;
    json["costs"] = Json::parse(spec::to_json(costs));
    json["entropy_overhead"] = {{"percent_of_a_draft_step", overhead.percent},
                                {"draft_step_ms", overhead.step_seconds * 1e3},
                                {"pairs", overhead.pairs}};
    std::string text = environment_line(environment) + "\n" + std::to_string(comparison.prompts.size()) +
                       " prompts, at most " + std::to_string(options.max_new_tokens) + " new tokens each; t_draft " +
                       format_number(costs.t_draft * 1e3, 4) + " ms (first of a round " +
                       format_number(costs.t_first_draft.value_or(costs.t_draft) * 1e3, 4) + "), t_target(1) " +
                       format_number(costs.target_seconds(1) * 1e3, 4) + " ms, t_target(5) " +
                       format_number(costs.target_seconds(5) * 1e3, 4) + " ms\n\n";
    int different = 0;
    for (Temperature& result : comparison.results) {
        const bool greedy = result.temperature == 0;
        if (greedy) count_differences(result);
        compute_speedups(result, costs);
        Json all = Json::array();
        for (const Outcome& outcome : result.outcomes) {
            all.push_back(to_json(outcome, greedy));
            if (outcome.different_texts == 0) continue;
            different += outcome.different_texts;
            say(outcome.setting->name + ": " + std::to_string(outcome.different_texts) + " of " +
                std::to_string(outcome.texts.size()) + " greedy texts differ from plain decoding");
        }
        json["temperatures"].push_back({{"temperature", result.temperature}, {"settings", all}});
        if (options.tune) keep_best_of_each_rule(result);
        if (different == 0) text += to_text(result);
    }
    text += "entropy and stop decision add " + format_number(overhead.percent, 2) + " % to a draft step of " +
            format_number(overhead.step_seconds * 1e3, 4) + " ms (median of " + std::to_string(overhead.pairs) +
            " interleaved pairs)\n";
    if (!options.output.empty()) {
        std::ofstream file(options.output);
        file << json.dump(2) << '\n';
        if (!file.flush()) throw std::runtime_error(options.output + ": cannot be written");
    }
    if (different > 0) throw std::runtime_error("greedy texts differ from plain decoding; no figure is shown");
    ResultWriter("-", Existing::refuse).write_text(options.json ? json.dump(2) + "\n" : text);
    return kAllServed;
}

} // namespace

int run_bench_compare(dist::Session& session, const Arguments& arguments) {
    const auto options = read_options(session, arguments, kUsage, compare_groups(), compare_options);
    if (!options) return kAllServed;
    const double timeout = options->models.collective_timeout_seconds;
    const auto models = open_models(session, options->models, {});
    const bool coordinates = models->layout.is_coordinator();
    const Json environment = environment_of(session, *models);
    std::optional<spec::Costs> file_costs;
    in_agreement(session, timeout, [&] {
        if (options->costs.empty()) return;
        file_costs = spec::read_costs(options->costs);
        require_costs_of(environment, options->costs);
    });
    Comparison comparison(session, *models, *options, file_costs);
    comparison.read_prompts();
    LatencyPlan plan;
    plan.timeout_seconds = timeout;
    const spec::Costs costs = file_costs ? *file_costs : measure_latency(session, *models, plan).costs();
    DraftOverhead overhead;
    in_agreement(session, timeout, [&] {
        if (coordinates) overhead = measure_draft_overhead(*models, comparison.prompts.front());
    });
    comparison.run();
    in_agreement(session, timeout, [&] {
        if (coordinates) report(*options, comparison, costs, overhead, environment);
    });
    return kAllServed;
}

} // namespace entrodraft::launch
