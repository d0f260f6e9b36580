// Presets out of synthetic texts: see preset_replay.h.
#include "entrodraft/launch/bench/preset_replay.h"

#include "entrodraft/launch/counted.h"
#include "entrodraft/launch/environment.h"
#include "entrodraft/launch/study/simulation_report.h"
#include "entrodraft/spec/synthetic.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>

namespace entrodraft::launch {

namespace {

constexpr int kTokens = 20'000; // of all texts of a case

// One case on its way.
class CaseReplay {
  public:
    CaseReplay(const Preset& preset, const PresetCase& preset_case, const PresetReplayPlan& plan)
        : preset_(preset), case_(preset_case), plan_(plan), costs_(preset_case.costs()) {
        const PresetSetting& setting = preset.setting;
        synthetic_.new_tokens = setting.mean_new_tokens > 0 ? setting.mean_new_tokens : setting.max_new_tokens;
        synthetic_.texts = plan.texts > 0 ? plan.texts : std::max(1, kTokens / synthetic_.new_tokens);
        if (preset.kind == PresetKind::simulation_cost && plan.texts == 0) synthetic_.texts = 1000;
        synthetic_.max_draft_tokens = setting.max_draft_tokens;
        synthetic_.seed = plan.seed;
        synthetic_.costs = costs_;
    }

    ComparedCase run() {
        ComparedCase compared;
        compared.preset_case = case_;
        std::string origin;
        compared.alpha = synthetic_.alpha = acceptance(origin);
        compared.basis = "REPLAYED, its acceptance is SYNTHETIC: alpha " + format_number(synthetic_.alpha, 3) + " (" +
                         origin + "), " + counted(synthetic_.texts, "text") + " of " +
                         counted(synthetic_.new_tokens, "token") + ", seed " + std::to_string(plan_.seed);
        compared.costs = costs_text();
        const spec::SyntheticRecording recording = make_synthetic(synthetic_);
        const auto texts = recording.pointers();
        for (const PublishedRow& row : with_usual_rows(case_))
            compared.rows.push_back({name_of(row), row, figures(recording, texts, setting_of(row))});
        PublishedRow oracle;
        oracle.label = "oracle";
        spec::StopRuleOptions any;
        any.max_tokens = synthetic_.max_draft_tokens;
        compared.rows.push_back(
            {"oracle", oracle, figures(recording, texts, {spec::ReplayKind::oracle, any, 0, costs_})});
        return compared;
    }

  private:
    spec::ReplaySetting setting_of(const PublishedRow& row) const {
        const auto rule = rule_of(row, preset_.setting);
        if (rule) return {spec::ReplayKind::rule, *rule, 0, costs_};
        spec::StopRuleOptions any;
        any.max_tokens = synthetic_.max_draft_tokens;
        return {spec::ReplayKind::plain, any, 0, costs_};
    }

    double acceptance(std::string& origin) const {
        if (plan_.alpha) {
            origin = "--alpha";
            return *plan_.alpha;
        }
        if (case_.alpha) {
            origin = "published";
            return *case_.alpha;
        }
        if (case_.matching_share) {
            origin = "published: about 2 tokens match for 1 that does not";
            return *case_.matching_share;
        }
        return solved(origin);
    }

    // The acceptance at which the row of alpha_from comes out as published.
    double solved(std::string& origin) const {
        const auto row = std::find_if(case_.rows.begin(), case_.rows.end(),
                                      [&](const PublishedRow& each) { return each.rule == case_.alpha_from; });
        const bool by_share = row->accepted_share.has_value();
        const auto wanted = by_share ? row->accepted_share : published_speedup(case_, *row);
        const std::string what = by_share ? "accepted/drafted" : "speed-up over none";
        if (!wanted) throw std::runtime_error(preset_.name + ": " + row->rule + " has no " + what + " to solve for");
        origin = "solved so that " + row->rule + " has its published " + what + " of " + format_number(*wanted, 3);
        spec::SyntheticOptions options = synthetic_;
        const auto replayed = [&](double alpha) {
            options.alpha = alpha;
            const spec::SyntheticRecording recording = make_synthetic(options);
            const OurFigures ours = figures(recording, recording.pointers(), setting_of(*row));
            return by_share ? ours.accepted_share.value_or(0) : ours.speedup.value_or(0);
        };
        double low = 0, high = 1;
        if (!(replayed(low) <= *wanted && replayed(high) >= *wanted))
            throw std::runtime_error(preset_.name + ": no acceptance gives " + row->rule + " its published " + what);
        constexpr int kHalvings = 14;
        for (int i = 0; i < kHalvings; ++i) {
            const double middle = (low + high) / 2;
            (replayed(middle) < *wanted ? low : high) = middle;
        }
        return (low + high) / 2;
    }

    OurFigures figures(const spec::SyntheticRecording& recording, const std::vector<const spec::TextRecord*>& texts,
                       const spec::ReplaySetting& setting) const {
        const auto began = std::chrono::steady_clock::now();
        const spec::Simulated simulated = simulate(recording.head, texts, std::span(&setting, 1), 1).front();
        const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
        const SimulatedSetting all = figures_of(simulated);
        const spec::Stats& stats = simulated.stats;
        OurFigures ours;
        ours.speedup = all.speedup;
        if (case_.t_draft_ms) ours.ms_per_token = all.ms_per_token.mean; // of c alone there are none
        if (stats.drafted > 0) ours.accepted_share = stats.draft_acceptance_rate();
        ours.tokens_per_pass = stats.tokens_per_target_pass();
        if (setting.kind == spec::ReplayKind::rule && setting.rule.kind == spec::StopRuleKind::constant)
            ours.iid_speedup =
                spec::walltime_factor(synthetic_.alpha, setting.rule.num_draft_tokens_or_default(), case_.cost_ratio());
        if (preset_.kind == PresetKind::simulation_cost) ours.milliseconds = took.count();
        if (preset_.shows_texts) show_texts(simulated, ours);
        if (preset_.shows_lengths && setting.kind != spec::ReplayKind::plain)
            spec::Replay(recording.head, setting).replay(*texts.front(), [&](const spec::ReplayedRound& round) {
                ours.lengths.push_back(static_cast<int>(round.draft->tokens.size()));
            });
        return ours;
    }

    void show_texts(const spec::Simulated& simulated, OurFigures& ours) const {
        constexpr double kMsPerSecond = 1e3;
        for (const spec::SimulatedText& text : simulated.texts)
            ours.ms_of_texts.push_back(text.seconds * kMsPerSecond);
        ours.ms_per_round = spec::predicted_seconds(simulated.stats, costs_) * kMsPerSecond /
                            static_cast<double>(std::max<std::int64_t>(simulated.stats.rounds, 1));
    }

    std::string costs_text() const {
        if (case_.c) return "c " + format_number(*case_.c, 4) + " (" + case_.costs_origin + ")";
        return "t_draft " + format_number(*case_.t_draft_ms, 2) + " ms, t_target " +
               format_number(*case_.t_target_ms, 2) + " ms for any number of rows (" + case_.costs_origin + ")";
    }

    const Preset& preset_;
    const PresetCase& case_;
    const PresetReplayPlan& plan_;
    spec::Costs costs_;
    spec::SyntheticOptions synthetic_;
};

bool can_be_replayed(const Preset& preset, const PresetCase& one, const PresetReplayPlan& plan) {
    const bool has_acceptance = plan.alpha || one.alpha || one.matching_share || !one.alpha_from.empty();
    return preset.kind != PresetKind::alpha && one.has_costs() && has_acceptance && !one.cascade;
}

} // namespace

bool can_be_replayed(const Preset& preset, const PresetReplayPlan& plan) {
    return std::any_of(preset.cases.begin(), preset.cases.end(),
                       [&](const PresetCase& one) { return can_be_replayed(preset, one, plan); });
}

std::vector<ComparedCase> replay_preset(const Preset& preset, const PresetReplayPlan& plan) {
    std::vector<ComparedCase> cases;
    for (const PresetCase& one : preset.cases) {
        if (can_be_replayed(preset, one, plan)) {
            cases.push_back(CaseReplay(preset, one, plan).run());
            continue;
        }
        ComparedCase& published = cases.emplace_back();
        published.preset_case = one;
        for (const PublishedRow& row : one.rows)
            published.rows.push_back({name_of(row), row, {}});
    }
    return cases;
}

} // namespace entrodraft::launch
