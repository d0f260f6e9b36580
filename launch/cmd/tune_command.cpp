// entrodraft tune: finds the best setting of every stop rule for a pair and its prompts. It tries settings in
// simulation, on a recording of half the prompts. The best setting of each rule then decodes the other half. The winner
// is written to a file for --config.
#include "launch/cli/command_options.h"
#include "launch/cli/command_pages.h"
#include "launch/cli/options.h"
#include "launch/cmd/bench/comparison.h"
#include "launch/cmd/bench/latency.h"
#include "launch/cmd/recording_run.h"
#include "launch/cmd/round_costs.h"
#include "launch/cmd/tuning.h"
#include "launch/io/machine_load.h"
#include "launch/io/progress.h"
#include "launch/io/results.h"
#include "launch/io/rule_figures.h"
#include "launch/load/drafters.h"
#include "launch/start/counted.h"
#include "launch/start/failure.h"
#include "launch/start/replaced_file.h"

#include <algorithm>
#include <climits>
#include <fmt/format.h>
#include <set>
#include <stdexcept>

namespace entrodraft::launch {

namespace {

constexpr int kWideRepetitions = 20; // most repetitions of passes that only trees make, within kWideSeconds
constexpr double kWideSeconds = 15;

// Prompts for choosing settings, and prompts for confirming them. On the coordinator.
struct Prompts {
    std::vector<spec::Request> chosen_on;
    std::vector<spec::Request> confirmed_on;
};

Prompts read_prompts(const TuneOptions& options, const PromptLimits& limits) {
    std::vector<spec::Request> all = read_all_prompts(options.input, options.requests, options.max_prompts, limits);
    for (spec::Request& prompt : all)
        if (prompt.sampling.temperature != options.requests.sampling.temperature)
            throw std::runtime_error(
                fmt::format("{}: the line of id {} has a temperature of its own; tune one temperature "
                            "at a time, with --temperature",
                            options.input, prompt.id));
    if (!options.recording.empty()) return {{}, std::move(all)};
    if (all.size() == 1)
        throw std::runtime_error(fmt::format(
            "{}: holds 1 prompt; settings are chosen on one half and confirmed on the other", options.input));
    Prompts prompts;
    for (std::size_t i = 0; i < all.size(); ++i)
        (i % 2 == 0 ? prompts.chosen_on : prompts.confirmed_on).push_back(std::move(all[i]));
    return prompts;
}

// The steps of tuning and their state. Collective over the world unless it says otherwise.
class Tuning {
  public:
    Tuning(dist::Session& session, const TuneOptions& options)
        : session_(session), options_(options),
          models_(open_models(session, options.models,
                              {.ahead = RecordingRun::kChains, .trees = !options.trees.empty(), .records = true})),
          drafters_(session, *models_, {}, session.timeout_seconds()), watch_(session, models_->placed.team->size()) {
        in_agreement(session, [&] {
            if (!coordinates()) return;
            prompts_ = read_prompts(options, models_->prompt_limits());
            if (options.recording.empty()) return;
            recording_ = spec::read_recording(options.recording);
            check_recording();
        });
    }

    void find_costs() {
        if (!options_.costs.empty()) {
            costs_ = read_costs(session_, options_.costs).front();
            in_agreement(session_, [&] {
                if (!options_.trees.empty())
                    require_wide_enough(costs_, options_.costs.front(), spec::TreeOptions::kDefaultTokens);
            });
            return;
        }
        const std::vector<spec::Request>& prompts =
            prompts_.chosen_on.empty() ? prompts_.confirmed_on : prompts_.chosen_on;
        const auto costs = measure_round_costs({session_, *models_, drafters_, prompts, options_.max_draft_tokens,
                                                !options_.trees.empty(), options_.quiet, kNoSignal});
        if (coordinates()) costs_ = costs->front();
        const int most_drafted =
            std::max(options_.max_draft_tokens, options_.trees.empty() ? 0 : spec::TreeOptions::kDefaultTokens);
        const auto n_timed = from_writer(session_, std::ssize(costs_.t_target)); // a head may draft fewer tokens
        if (n_timed > most_drafted) return;
        LatencyPlan wide;
        wide.rows = {most_drafted + 1};
        wide.repetitions = kWideRepetitions;
        wide.max_seconds = kWideSeconds;
        const std::vector<PassTimes> passes = measure_passes(session_, *models_, wide, options_.quiet);
        if (coordinates()) add_wider_passes(passes.front(), costs_);
    }

    void record() {
        if (!options_.recording.empty()) return;
        RecordingRun run(
            session_, *models_, drafters_,
            {options_.max_draft_tokens, options_.trees, coordinates() ? std::optional(costs_) : std::nullopt});
        const std::int64_t n_prompts = from_writer(session_, std::ssize(prompts_.chosen_on));
        Progress progress(options_.quiet || !coordinates());
        std::int64_t new_tokens = 0;
        for (std::int64_t i = 0; i < n_prompts; ++i) {
            const spec::Request* request = coordinates() ? &prompts_.chosen_on[i] : nullptr;
            auto line = run.record(request, kNoSignal);
            if (!coordinates()) continue;
            if (const auto* text = std::get_if<spec::TextRecord>(&*line)) new_tokens += text->new_tokens;
            recording_.lines.push_back(std::move(*line));
            progress.update(static_cast<double>(i + 1) / static_cast<double>(n_prompts), i + 1, new_tokens);
        }
        if (!coordinates()) return;
        recording_.head =
            recording_head(*models_, options_.models, options_.input, options_.requests, options_.max_draft_tokens);
        for (const spec::TreeOptions& tree : options_.trees)
            recording_.head.add_tree(tree);
    }

    void simulate() {
        in_agreement(session_, 24 * 3600.0, [&] { // the other ranks only wait
            if (!coordinates()) return;
            const std::vector<const spec::TextRecord*> texts = recording_.texts();
            if (texts.empty()) throw std::runtime_error("no text could be recorded to choose settings on");
            std::vector<spec::TunedRule> tuned =
                spec::tune({&recording_.head, texts, 0, costs_, options_.max_draft_tokens, models_->placed.team->size(),
                            options_.trees});
            std::ranges::stable_partition(tuned, [](const auto& rule) { return !rule.best.setting.tree; });
            for (spec::TunedRule& rule : tuned) { // chains first, because compare() runs them first
                settings_.push_back({rule.best.setting.rule, -1});
                if (rule.best.setting.tree) settings_.back().tree = place_of(rule.best.setting.tree->name);
                rules_.emplace_back().tuned = std::move(rule);
            }
        });
        settings_.resize(static_cast<std::size_t>(from_writer(session_, std::ssize(settings_))));
        models_->placed.replica->broadcast(settings_.data(), settings_.size() * sizeof settings_[0],
                                           dist::RankLayout::kCoordinatorReplicaRank, session_.deadline());
    }

    void confirm() {
        CompareOptions settings;
        settings.models = options_.models;
        settings.temperatures = {options_.requests.sampling.temperature};
        settings.requests.max_new_tokens = INT_MAX; // each prompt's own
        settings.drafters = {draft_alone(*models_, 0)};
        const std::vector<spec::TreeOptions> trees = all_trees();
        for (const TunedSetting& setting : settings_)
            if (setting.tree < 0)
                settings.rules.push_back({setting.rule});
            else
                settings.trees.push_back(trees.at(setting.tree));
        settings.max_draft_tokens = options_.max_draft_tokens;
        settings.acceptances = {spec::AcceptanceOptions()};
        settings.quiet = options_.quiet;
        const ComparisonTask task = {session_, *models_, drafters_, settings, {costs_}, prompts_.confirmed_on};
        PromptTimes plain;
        for (int repetition = 0; repetition < options_.repetitions; ++repetition) {
            const Temperature result = compare(task).front();
            in_agreement(session_, [&] {
                if (!coordinates()) return;
                for (const Outcome& outcome : result.outcomes)
                    if (different_texts(settings, result, outcome).value_or(0) > 0)
                        throw std::runtime_error(outcome.setting.name() +
                                                 ": texts differ from plain decoding; no figure is shown");
                note(result, plain);
            });
        }
        if (coordinates()) verify(rules_, plain);
        machine_ = watch_.stop();
    }

    // Local, on the coordinator.
    void report() const {
        const ConfirmedRule& winner = winner_of(rules_);
        const std::vector<std::string> about = remarks_of(winner, rules_);
        std::vector<std::string> remarks = {
            fmt::format("made by entrodraft tune for {} and {}", options_.models.target,
                        options_.models.draft_directories().front()),
            fmt::format("{:.4f} ms a token on {}, {:.3f} times as fast as plain decoding (95 %: {})",
                        winner.measured_ms.mean, counted(std::ssize(prompts_.confirmed_on), "prompt"),
                        winner.speedup.mean, format_speedup_interval(winner.speedup))};
        remarks.insert(remarks.end(), about.begin(), about.end());
        if (!machine_.is_trusted()) remarks.push_back(machine_.warning());
        const std::size_t again = chosen_and_confirmed();
        std::string text = fmt::format("settings chosen on {}, run {} on {}{}\n\n{}\n",
                                       counted(std::ssize(recording_.texts()), "text"),
                                       counted(options_.repetitions, "time"), prompts_.confirmed_on.size(),
                                       again == 0 ? " others" : fmt::format(", {} of them the same", again),
                                       table_of(rows_of(rules_, confirmed_row)));
        if (winner.may_beat_plain()) text += fmt::format("best: {}\n", winner.name());
        for (const std::string& line : about)
            text += line + "\n";
        ResultWriter writer("-", Existing::refuse);
        writer.write_text(text + prediction_warning(rules_) + machine_.warning_line());
        replace_file(options_.output, config_text(winner, recording_.head.noisy, remarks));
        if (!options_.report.empty()) replace_file(options_.report, indented(report_json(winner)));
        writer.write_text("written to " + options_.output + "\n");
    }

  private:
    // Trivially copyable, because ranks send it.
    struct TunedSetting {
        spec::StopRuleOptions rule;
        int tree = -1; // place in all_trees(); -1: a chain
    };

    bool coordinates() const { return models_->placed.layout.is_coordinator(); }

    // Returns the trees that may win, in the same order on every rank.
    std::vector<spec::TreeOptions> all_trees() const {
        std::vector<spec::TreeOptions> all;
        for (const spec::TreeOptions& widest : options_.trees)
            for (spec::TreeOptions& tree : spec::narrower_trees(widest))
                all.push_back(std::move(tree));
        return all;
    }
    int place_of(const std::string& tree) const {
        const std::vector<spec::TreeOptions> all = all_trees();
        return static_cast<int>(std::ranges::find(all, tree, &spec::TreeOptions::name) - all.begin());
    }

    void note(const Temperature& result, PromptTimes& plain) {
        auto rule = rules_.begin();
        for (const Outcome& outcome : result.outcomes) {
            // When sampling, each acceptance has its own plain decoding; greedy decoding has one for both.
            const bool is_same = result.temperature == 0 || outcome.setting.is_gumbel();
            if (!outcome.setting.drafts() && is_same) plain.add(outcome.stats_of_prompts);
            if (outcome.setting.kind != SettingKind::speculative) continue;
            rule->times.add(outcome.stats_of_prompts);
            rule->stats = outcome.stats;
            rule->predicted_ms = spec::seconds_per_token(outcome.stats, costs_) * 1e3;
            ++rule;
        }
    }

    // Throws if settings cannot be chosen on the recording as if it had been recorded here.
    void check_recording() const {
        const spec::RecordingHead& begun = recording_.head;
        if (begun.drafts.size() != 1)
            throw std::runtime_error(
                fmt::format("{} holds {} drafts; tune one pair at a time", options_.recording, begun.drafts.size()));
        if (begun.max_draft_tokens < options_.max_draft_tokens)
            throw std::runtime_error(fmt::format("{} holds drafts of up to {}; give --max-draft-tokens {}",
                                                 options_.recording, counted(begun.max_draft_tokens, "token"),
                                                 begun.max_draft_tokens));
        spec::RecordingHead own =
            recording_head(*models_, options_.models, options_.input, options_.requests, begun.max_draft_tokens);
        own.sampling.seed = begun.sampling.seed;
        own.trees = begun.trees; // replays report trees that are missing
        own.tree_children = begun.tree_children;
        if (const auto difference = spec::first_difference(begun, own))
            throw std::runtime_error(fmt::format("{} was made with other options: its {} is {}, and that of this run "
                                                 "is {}; give those of that record, or record anew",
                                                 options_.recording, difference->field, difference->a, difference->b));
    }

    // Returns the number of prompts that settings were both chosen on and confirmed on.
    std::size_t chosen_and_confirmed() const {
        std::set<std::vector<spec::TokenId>> chosen_on;
        for (const spec::TextRecord* text : recording_.texts())
            chosen_on.insert(text->prompt);
        std::size_t both = 0;
        for (const spec::Request& prompt : prompts_.confirmed_on)
            both += chosen_on.count(prompt.prompt);
        return both;
    }

    static Json confirmed_json(const ConfirmedRule& rule) {
        Json json = json_of(confirmed_row(rule));
        json.update(counts_json(rule.stats));
        return json;
    }

    Json tried_json(const spec::TriedSetting& tried) const {
        Json json = {{"setting", tried.tree ? "tree " + tried.tree->name : describe(tried.rule)},
                     {"rule", tried.rule.name()},
                     {"parameters", parameters_json(tried.rule)},
                     {"draft", 0},
                     {"ms_per_token", tried.seconds_per_token * 1e3},
                     {"speedup", spec::predicted_plain_seconds(1, costs_) / tried.seconds_per_token}};
        if (tried.tree) json["tree"] = tried.tree->name;
        json.update(counts_json(tried.stats));
        return json;
    }

    Json report_json(const ConfirmedRule& winner) const {
        Json simulated = Json::array(), confirmed = Json::array();
        for (const ConfirmedRule& rule : rules_) {
            confirmed.push_back(confirmed_json(rule));
            for (const spec::TriedSetting& tried : rule.tuned.tried)
                simulated.push_back(tried_json(tried));
        }
        return {{"command", "tune"},
                {"machine", to_json(machine_)},
                {"costs", Json::parse(spec::to_json(costs_))},
                {"chosen_on", recording_.texts().size()},
                {"confirmed_on", prompts_.confirmed_on.size()},
                {"repetitions", options_.repetitions},
                {"simulated", simulated},
                {"confirmed", confirmed},
                {"winner", confirmed_json(winner)},
                {"beats_plain", winner.beats_plain()}};
    }

    dist::Session& session_;
    const TuneOptions& options_;
    std::unique_ptr<ModelPair> models_;
    Drafters drafters_;
    MachineWatch watch_;
    MachineLoad machine_; // load while costs were measured and rules ran
    Prompts prompts_;
    spec::Recording recording_;
    spec::Costs costs_;
    std::vector<ConfirmedRule> rules_;   // on the coordinator
    std::vector<TunedSetting> settings_; // settings of the same rules, on every rank
};

} // namespace

int run_tune(dist::Session& session, const Arguments& arguments) {
    const auto options = read_options<TuneOptions>(session, arguments, page_of("tune"));
    if (!options) return kAllServed;
    session.set_timeout(options->models.collective_timeout_seconds);
    in_agreement(session, [&] { // before anything takes time
        for (const std::string& output : {options->output, options->report})
            if (session.world_rank() == 0 && !output.empty()) require_replaceable(output);
    });
    Tuning tuning(session, *options);
    tuning.find_costs();
    tuning.record();
    tuning.simulate();
    tuning.confirm();
    in_agreement(session, [&] {
        if (session.world_rank() == 0) tuning.report();
    });
    return kAllServed;
}

} // namespace entrodraft::launch
