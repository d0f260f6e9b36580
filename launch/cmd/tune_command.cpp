// entrodraft tune: the best setting of every stop rule for a pair and its prompts. Settings are tried in simulation, on
// a recording of half the prompts; the best of each rule is run on the other half, and the winner written for --config.
#include "launch/cli/command_options.h"
#include "launch/cli/replay_options.h"
#include "launch/cmd/bench/bench_prompts.h"
#include "launch/cmd/recording_run.h"
#include "launch/cmd/round_costs.h"
#include "launch/cmd/tuning.h"
#include "launch/commands.h"
#include "launch/counted.h"
#include "launch/decode_one.h"
#include "launch/environment.h"
#include "launch/failure.h"
#include "launch/io/report.h"
#include "launch/io/results.h"
#include "launch/load/drafters.h"
#include "launch/machine_load.h"
#include "launch/replaced_file.h"

#include <algorithm>
#include <climits>
#include <set>
#include <stdexcept>

namespace entrodraft::launch {

namespace {

// Prompts to choose settings on, and to confirm them on. On the coordinator.
struct Prompts {
    std::vector<spec::Request> chosen_on;
    std::vector<spec::Request> confirmed_on;
};

Prompts read_prompts(const TuneOptions& options, const PromptLimits& limits) {
    std::vector<spec::Request> all = read_all_prompts({options.input, options.requests, options.max_prompts}, limits);
    for (spec::Request& prompt : all)
        if (prompt.sampling.temperature != options.requests.sampling.temperature)
            throw std::runtime_error(
                options.input + ": the line of id " + prompt.id +
                " has a temperature of its own; tune one temperature at a time, with --temperature");
    if (!options.recording.empty()) return {{}, std::move(all)};
    if (all.size() == 1)
        throw std::runtime_error(options.input +
                                 ": holds 1 prompt; settings are chosen on one half and confirmed on the other");
    Prompts prompts;
    for (std::size_t i = 0; i < all.size(); ++i)
        (i % 2 == 0 ? prompts.chosen_on : prompts.confirmed_on).push_back(std::move(all[i]));
    return prompts;
}

// Everything that tuning works with, step by step. Collective over the world but where it says otherwise.
class Tuning {
  public:
    Tuning(dist::Session& session, const TuneOptions& options)
        : session_(session), options_(options), timeout_(options.models.collective_timeout_seconds),
          models_(open_models(session, options.models, {.ahead = RecordingRun::kChains})),
          drafters_(session, *models_, {}, timeout_), watch_(session, timeout_) {
        in_agreement(session, timeout_, [&] {
            if (!coordinates()) return;
            check_outputs();
            prompts_ = read_prompts(options, models_->prompt_limits());
            if (options.recording.empty()) return;
            recording_ = spec::read_recording(options.recording);
            check_recording();
        });
    }

    void find_costs() {
        if (!options_.costs.empty()) {
            in_agreement(session_, timeout_, [&] { costs_ = spec::read_costs(options_.costs.front()); });
            if (session_.world_rank() == 0) say_if_disturbed(costs_, options_.costs.front());
            return;
        }
        RoundCostPlan plan;
        plan.max_draft_tokens = options_.max_draft_tokens;
        plan.timeout_seconds = timeout_;
        const std::vector<spec::Request>& prompts =
            prompts_.chosen_on.empty() ? prompts_.confirmed_on : prompts_.chosen_on;
        const auto costs = measure_round_costs(session_, *models_, drafters_, prompts, plan, kNoSignal);
        if (coordinates()) costs_ = costs->front();
    }

    void record() {
        if (from_writer(session_, timeout_, recording_.whole_bytes > 0 ? 1 : 0) == 1) return;
        RecordingRun run(session_, *models_, drafters_,
                         {options_.max_draft_tokens, coordinates() ? std::optional(costs_) : std::nullopt, timeout_});
        const std::int64_t n_prompts =
            from_writer(session_, timeout_, static_cast<std::int64_t>(prompts_.chosen_on.size()));
        Progress progress(options_.quiet || !coordinates());
        std::int64_t new_tokens = 0;
        for (std::int64_t i = 0; i < n_prompts; ++i) {
            const spec::Request* request = coordinates() ? &prompts_.chosen_on[static_cast<std::size_t>(i)] : nullptr;
            auto line = run.record(request, kNoSignal);
            if (!coordinates()) continue;
            if (const auto* text = std::get_if<spec::TextRecord>(&*line)) new_tokens += text->new_tokens;
            recording_.lines.push_back(std::move(*line));
            progress.update(static_cast<double>(i + 1) / static_cast<double>(n_prompts), i + 1, new_tokens);
        }
        if (coordinates())
            recording_.head =
                recording_head(*models_, options_.models, options_.input, options_.requests, options_.max_draft_tokens);
    }

    void simulate() {
        in_agreement(session_, 24 * 3600.0, [&] { // the other ranks have nothing to do
            if (!coordinates()) return;
            const std::vector<const spec::TextRecord*> texts = recording_.texts();
            if (texts.empty()) throw std::runtime_error("no text could be recorded to choose settings on");
            for (spec::TunedRule& rule :
                 spec::tune({&recording_.head, texts, 0, costs_, options_.max_draft_tokens, models_->team->size()})) {
                ConfirmedRule& confirmed = rules_.emplace_back();
                confirmed.simulated_ms = rule.seconds_per_token * 1e3;
                settings_.push_back(rule.best.setting.rule);
                confirmed.tuned = std::move(rule);
            }
        });
        const std::int64_t n_rules = from_writer(session_, timeout_, static_cast<std::int64_t>(settings_.size()));
        settings_.resize(static_cast<std::size_t>(n_rules));
        models_->replica->broadcast(settings_.data(), settings_.size() * sizeof settings_[0],
                                    dist::RankLayout::kCoordinatorReplicaRank, dist::Deadline::after_seconds(timeout_));
    }

    void confirm() {
        CompareOptions compare;
        compare.models = options_.models;
        compare.temperatures = {options_.requests.sampling.temperature};
        compare.max_new_tokens = INT_MAX; // each prompt's own
        compare.drafters = {{{"model"}, {0}, {}}};
        for (const spec::StopRuleOptions& rule : settings_)
            compare.rules.push_back({rule});
        compare.max_draft_tokens = options_.max_draft_tokens;
        compare.acceptances = {spec::Acceptance::gumbel};
        compare.quiet = options_.quiet;
        const std::vector<spec::Costs> costs = {costs_};
        std::vector<PromptTimes> times(rules_.size());
        PromptTimes plain;
        for (int repetition = 0; repetition < options_.repetitions; ++repetition) {
            Comparison comparison(session_, *models_, drafters_, compare, costs, false);
            comparison.take_prompts(prompts_.confirmed_on);
            comparison.run();
            in_agreement(session_, timeout_, [&] {
                if (!coordinates()) return;
                comparison.require_plain_texts();
                note(comparison.results.front(), times, plain);
            });
        }
        if (coordinates()) verify(rules_, times, plain);
    }

    // Collective over the world.
    void stop_watching() { machine_ = watch_.stop(); }

    // Local, on the coordinator.
    void report() const {
        const Winner winner = winner_of(rules_);
        const ConfirmedRule& best = *winner.rule;
        const spec::StopRuleOptions& rule = best.tuned.best.setting.rule;
        const std::string name = describe(rule, EntropyUnit::nats);
        const std::vector<std::string> about = remarks_of(winner, rules_);
        std::vector<std::string> remarks = {
            "made by entrodraft tune for " + options_.models.target + " and " + options_.models.drafts.front(),
            format_number(best.measured_ms.mean, 4) + " ms a token on " +
                counted(static_cast<std::int64_t>(prompts_.confirmed_on.size()), "prompt") + ", " +
                format_number(best.speedup.mean, 3) +
                " times as fast as plain decoding (95 %: " + format_speedup_interval(best.speedup) + ")"};
        remarks.insert(remarks.end(), about.begin(), about.end());
        if (!machine_.is_trusted()) remarks.push_back(machine_.warning());
        std::string conclusion =
            (winner.against_plain == AgainstPlain::nothing_is_faster ? "" : "best: " + name + "\n");
        for (const std::string& line : about)
            conclusion += line + "\n";
        conclusion += prediction_warning(rules_) + machine_.warning_line();
        const std::size_t again = chosen_and_confirmed();
        ResultWriter writer("-", Existing::refuse);
        writer.write_text(
            "settings chosen on " + counted(static_cast<std::int64_t>(recording_.texts().size()), "text") + ", run " +
            counted(options_.repetitions, "time") + " on " + std::to_string(prompts_.confirmed_on.size()) +
            (again == 0 ? " others" : ", " + std::to_string(again) + " of them the same") + "\n\n" +
            tuning_table(rules_) + "\n" + conclusion);
        replace_file(options_.output, config_text(rule, recording_.head.noisy, remarks));
        if (!options_.report.empty()) replace_file(options_.report, indented(report_json(winner)));
        writer.write_text("written to " + options_.output + "\n");
    }

  private:
    bool coordinates() const { return models_->layout.is_coordinator(); }

    void note(const Temperature& result, std::vector<PromptTimes>& times, PromptTimes& plain) {
        std::size_t rule = 0;
        for (const Outcome& outcome : result.outcomes) {
            // Sampled, there is plain decoding of each acceptance; greedily the two are one.
            const bool is_same = result.temperature == 0 || outcome.setting->acceptance == spec::Acceptance::gumbel;
            if (outcome.setting->kind == SettingKind::plain && is_same) plain.add(outcome.stats_of_prompts);
            if (outcome.setting->kind != SettingKind::speculative) continue;
            times.at(rule).add(outcome.stats_of_prompts);
            rules_[rule].stats = outcome.stats;
            rules_[rule].predicted_ms = spec::seconds_per_token(outcome.stats, costs_) * 1e3;
            ++rule;
        }
    }

    // Files that are to be written, before anything takes time.
    void check_outputs() const {
        for (const std::string& output : {options_.output, options_.report})
            if (!output.empty()) require_replaceable(output);
    }

    // Settings are chosen on it as if it had been recorded here.
    void check_recording() const {
        const spec::RecordingHead& begun = recording_.head;
        if (begun.drafts.size() != 1)
            throw std::runtime_error(options_.recording + " holds " + std::to_string(begun.drafts.size()) +
                                     " drafts; tune one pair at a time");
        if (begun.max_draft_tokens < options_.max_draft_tokens)
            throw std::runtime_error(options_.recording + " holds drafts of up to " +
                                     counted(begun.max_draft_tokens, "token") + "; give --max-draft-tokens " +
                                     std::to_string(begun.max_draft_tokens));
        spec::RecordingHead own =
            recording_head(*models_, options_.models, options_.input, options_.requests, begun.max_draft_tokens);
        own.sampling.seed = begun.sampling.seed;
        if (const std::string field = spec::first_difference(begun, own); !field.empty())
            throw std::runtime_error(options_.recording + " was made with other options (its field " + field +
                                     " differs); give those of that record, or record anew");
    }

    // Prompts that settings were chosen on and that confirm them as well.
    std::size_t chosen_and_confirmed() const {
        std::set<std::vector<spec::TokenId>> chosen_on;
        for (const spec::TextRecord* text : recording_.texts())
            chosen_on.insert(text->prompt);
        std::size_t both = 0;
        for (const spec::Request& prompt : prompts_.confirmed_on)
            both += chosen_on.count(prompt.prompt);
        return both;
    }

    Json report_json(const Winner& winner) const {
        Json json;
        json["command"] = "tune";
        json["machine"] = to_json(machine_);
        json["costs"] = Json::parse(spec::to_json(costs_));
        json["chosen_on"] = recording_.texts().size();
        json["confirmed_on"] = prompts_.confirmed_on.size();
        json["repetitions"] = options_.repetitions;
        json["simulated"] = tried_json(rules_, costs_);
        json["confirmed"] = tuning_json(rules_);
        json["winner"] = tuning_json({*winner.rule}).front();
        json["beats_plain"] = winner.against_plain == AgainstPlain::faster;
        return json;
    }

    dist::Session& session_;
    const TuneOptions& options_;
    double timeout_;
    std::unique_ptr<ModelPair> models_;
    Drafters drafters_;
    MachineWatch watch_;
    MachineLoad machine_; // while costs were measured and rules run
    Prompts prompts_;
    spec::Recording recording_;
    spec::Costs costs_;
    std::vector<ConfirmedRule> rules_;            // on the coordinator
    std::vector<spec::StopRuleOptions> settings_; // of the same rules, on every rank
};

} // namespace

int run_tune(dist::Session& session, const Arguments& arguments) {
    const auto options = read_options<TuneOptions>(session, arguments, page_of("tune"));
    if (!options) return kAllServed;
    Tuning tuning(session, *options);
    tuning.find_costs();
    tuning.record();
    tuning.simulate();
    tuning.confirm();
    tuning.stop_watching();
    in_agreement(session, options->models.collective_timeout_seconds, [&] {
        if (session.world_rank() == 0) tuning.report();
    });
    return kAllServed;
}

} // namespace entrodraft::launch
