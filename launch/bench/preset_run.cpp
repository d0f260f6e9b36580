// Running a preset: see preset_run.h.
#include "entrodraft/launch/bench/preset_run.h"

#include "entrodraft/launch/bench/alpha_run.h"
#include "entrodraft/launch/bench/bench_latency.h"
#include "entrodraft/launch/bench/bench_prompts.h"
#include "entrodraft/launch/bench/comparison.h"
#include "entrodraft/launch/bench/comparison_report.h"
#include "entrodraft/launch/counted.h"
#include "entrodraft/launch/environment.h"
#include "entrodraft/launch/phase.h"

#include <algorithm>
#include <stdexcept>

namespace entrodraft::launch {

namespace {

// How far ahead the oracle is looked for: it costs a run that always drafts so many tokens.
constexpr int kOracleTokens = 32;
constexpr int kLatencyRepetitions = 20;

DrafterSources sources_of(const Preset& preset, const PresetModels& real) {
    DrafterSources sources;
    sources.draft_table = real.draft_table;
    if (preset.setting.drafter != DrafterKind::ngram) return sources;
    sources.ngram.shortest = 1;
    sources.ngram.longest = preset.setting.ngram_max;
    if (preset.setting.ngram_first) sources.ngram.match = spec::NgramMatch::first;
    return sources;
}

int max_new_tokens(const Preset& preset, const PresetModels& real) {
    return real.max_new_tokens.value_or(preset.setting.max_new_tokens);
}

struct PromptCounts {
    std::size_t all = 0;
    std::size_t shorter = 0; // than the preset's
};

// The first tokens of each prompt, as many as the preset has.
std::vector<spec::Request> prompts_of(dist::Session& session, const ModelPair& models, const Preset& preset,
                                      const PresetOptions& options, PromptCounts& counts) {
    const PresetSetting& setting = preset.setting;
    RequestDefaults defaults;
    defaults.max_new_tokens = max_new_tokens(preset, *options.real);
    defaults.sampling.seed = options.seed.value_or(0);
    defaults.sampling.top_p = setting.top_p;
    defaults.processing.no_repeat_ngram_size = setting.no_repeat_ngram_size;
    std::vector<spec::Request> prompts = read_bench_prompts(
        session, models, {options.real->input, defaults, options.real->most_prompts, setting.prompt_tokens},
        options.real->models.collective_timeout_seconds);
    for (const spec::Request& prompt : prompts)
        counts.shorter += static_cast<int>(prompt.prompt.size()) < setting.prompt_tokens ? 1 : 0;
    counts.all = prompts.size();
    return prompts;
}

// ---- rules side by side ----

std::vector<PublishedRow> rows_of(const Preset& preset, const PresetCase& one) {
    return preset.drafts_nothing() ? one.rows : with_usual_rows(one);
}

bool are_same(const spec::StopRuleOptions& a, const spec::StopRuleOptions& b) {
    return describe(a, EntropyUnit::nats) == describe(b, EntropyUnit::nats) && a.drop_stop_token == b.drop_stop_token &&
           a.min_tokens == b.min_tokens && a.max_tokens == b.max_tokens;
}

// What runs with one lenience.
CompareOptions compare_options(const Preset& preset, const PresetOptions& options, double lenience) {
    const PresetModels& real = *options.real;
    CompareOptions compare;
    compare.models = real.models;
    compare.placement = real.placement;
    compare.input = real.input;
    compare.max_new_tokens = max_new_tokens(preset, real);
    compare.max_draft_tokens = std::min(preset.setting.max_draft_tokens, kOracleTokens);
    compare.acceptances = {spec::Acceptance::rejection};
    compare.lenience = lenience;
    compare.quiet = options.quiet;
    compare.seed = options.seed.value_or(0);
    compare.sources = sources_of(preset, real);
    DrafterChoice drafter;
    drafter.kinds = {preset.setting.drafter};
    for (std::size_t draft = 0; draft < real.models.drafts.size(); ++draft)
        drafter.drafts.push_back(draft);
    if (real.placement == dist::DraftPlacement::dedicated) drafter.ahead = spec::AheadOptions{}; // as elsewhere
    if (!preset.drafts_nothing()) compare.drafters = {drafter};
    const std::size_t n_levels = std::max<std::size_t>(1, real.models.drafts.size());
    compare.temperatures.clear();
    for (const PresetCase& one : preset.cases) {
        if (std::find(compare.temperatures.begin(), compare.temperatures.end(), one.temperature) ==
            compare.temperatures.end())
            compare.temperatures.push_back(one.temperature);
        for (const PublishedRow& row : rows_of(preset, one)) {
            const auto rule = rule_of(row, preset.setting);
            if (!rule || row.lenience != lenience) continue;
            const auto known = [&](const auto& levels) { return are_same(levels.front(), *rule); };
            if (std::none_of(compare.rules.begin(), compare.rules.end(), known))
                compare.rules.emplace_back(n_levels, *rule);
        }
    }
    return compare;
}

std::vector<double> leniences_of(const Preset& preset) {
    std::vector<double> all = {1};
    for (const PresetCase& one : preset.cases)
        for (const PublishedRow& row : one.rows)
            if (std::find(all.begin(), all.end(), row.lenience) == all.end()) all.push_back(row.lenience);
    return all;
}

OurFigures figures_of(const Comparison& comparison, const Temperature& result, const Outcome& outcome,
                      const PresetCase& one, double lenience) {
    const spec::Stats& stats = outcome.stats;
    OurFigures ours;
    ours.ms_per_token = stats.ms_per_token();
    ours.speedup = result.outcomes.front().stats.ms_per_token() / stats.ms_per_token();
    ours.tokens_per_pass = stats.tokens_per_target_pass();
    if (stats.drafted == 0) return ours;
    ours.alpha = stats.alpha();
    if (one.cascade) { // the smallest draft first, as published
        for (auto level = stats.levels.rbegin(); level != stats.levels.rend(); ++level)
            ours.level_shares.push_back(level->draft_acceptance_rate());
        ours.level_shares.push_back(stats.draft_acceptance_rate());
        return ours;
    }
    ours.accepted_share = stats.draft_acceptance_rate();
    // The textbook knows neither drafters that propose only sometimes nor lossy acceptance.
    const spec::StopRuleOptions& rule = outcome.setting->rules.front();
    if (rule.kind == spec::StopRuleKind::constant && outcome.setting->drafter.has(DrafterKind::model) &&
        lenience == 1 && ours.alpha) {
        const spec::Costs costs = comparison.costs_of(outcome.setting->drafter).front();
        ours.iid_speedup = spec::walltime_factor(*ours.alpha, rule.num_draft_tokens_or_default(),
                                                 costs.t_draft / costs.target_seconds(1));
    }
    return ours;
}

void add_texts(const Outcome& outcome, OurFigures& ours) {
    constexpr double kMsPerSecond = 1e3;
    double sum = 0;
    for (const spec::Stats& text : outcome.stats_of_prompts) {
        ours.ms_of_texts.push_back((text.seconds.total - text.seconds.prefill) * kMsPerSecond);
        sum += ours.ms_of_texts.back();
    }
    ours.ms_per_round = sum / static_cast<double>(std::max<std::int64_t>(outcome.stats.rounds, 1));
}

// The rows of one case that ran in this comparison.
void add_rows(const Preset& preset, const Comparison& comparison, double lenience, ComparedCase& compared) {
    const PresetCase& one = compared.preset_case;
    const auto result = std::find_if(comparison.results.begin(), comparison.results.end(),
                                     [&](const Temperature& each) { return each.temperature == one.temperature; });
    const auto outcome_of = [&](const PublishedRow& row) -> const Outcome* {
        const auto rule = rule_of(row, preset.setting);
        for (const Outcome& outcome : result->outcomes) {
            const bool is_plain = outcome.setting->kind == SettingKind::plain;
            const bool is_rule = outcome.setting->kind == SettingKind::speculative;
            if (rule ? is_rule && are_same(outcome.setting->rules.front(), *rule) : is_plain) return &outcome;
        }
        return nullptr;
    };
    for (const PublishedRow& row : rows_of(preset, one)) {
        if (row.lenience != lenience) continue;
        ComparedRow& added = compared.rows.emplace_back();
        added.name = name_of(row);
        added.published = row;
        const Outcome* outcome = outcome_of(row);
        if (outcome == nullptr) throw std::logic_error(preset.name + ": " + added.name + " did not run");
        added.ours = figures_of(comparison, *result, *outcome, one, lenience);
        if (preset.shows_texts) add_texts(*outcome, added.ours);
    }
    if (lenience < 1 || one.cascade) return; // a cascade's oracle would stop on every level
    for (const Outcome& outcome : result->outcomes) {
        if (outcome.setting->kind != SettingKind::longest) continue;
        ComparedRow& oracle = compared.rows.emplace_back();
        oracle.name = "oracle (predicted from costs)";
        oracle.published.label = "oracle";
        oracle.ours.speedup = oracle_speedup(outcome.stats, comparison.costs_of(outcome.setting->drafter).front());
    }
}

PresetReport run_rules(dist::Session& session, ModelPair& models, const Drafters& drafters, const Preset& preset,
                       const PresetOptions& options) {
    const double timeout = options.real->models.collective_timeout_seconds;
    const Json environment = environment_of(session, models);
    PromptCounts counts;
    const std::vector<spec::Request> prompts = prompts_of(session, models, preset, options, counts);
    LatencyPlan latency_plan;
    latency_plan.timeout_seconds = timeout;
    latency_plan.repetitions = kLatencyRepetitions;
    latency_plan.rows = std::min(preset.setting.max_draft_tokens, kOracleTokens) + 1;
    latency_plan.context = fitting_context(models, latency_plan.rows);
    const Latency latency = measure_latency(session, models, latency_plan);
    std::vector<spec::Costs> costs;
    in_agreement(session, timeout, [&] { costs = level_costs(latency, models, latency_plan); });
    std::vector<ComparedCase> cases;
    for (const PresetCase& one : preset.cases)
        cases.emplace_back().preset_case = one;
    for (const double lenience : leniences_of(preset)) {
        const CompareOptions compare = compare_options(preset, options, lenience);
        Comparison comparison(session, models, drafters, compare, costs, false);
        comparison.take_prompts(prompts);
        comparison.run();
        in_agreement(session, timeout, [&] {
            if (!models.layout.is_coordinator()) return;
            if (lenience == 1) comparison.require_plain_texts();
            for (ComparedCase& one : cases)
                add_rows(preset, comparison, lenience, one);
        });
    }
    if (!models.layout.is_coordinator()) return {};
    for (ComparedCase& one : cases)
        one.basis =
            "ours MEASURED on these models, " + counted(counts.all, "prompt") + ", at most " +
            counted(compare_options(preset, options, 1).max_new_tokens, "new token") +
            (counts.shorter > 0 ? ", " + std::to_string(counts.shorter) + " of them shorter than the preset's" : "");
    PresetReport report = report_of(preset, cases, {});
    report.json["environment"] = environment;
    report.json["prompts"] = counts.all;
    report.json["max_new_tokens"] = max_new_tokens(preset, *options.real);
    report.text = environment_line(environment) + "\n" + report.text;
    return report;
}

// ---- drafters ----

PresetReport run_drafters(dist::Session& session, ModelPair& models, const Drafters& drafters, const Preset& preset,
                          const PresetOptions& options) {
    const PresetModels& real = *options.real;
    AlphaPlan plan;
    for (std::size_t draft = 0; draft < real.models.drafts.size(); ++draft)
        plan.drafters.push_back({{DrafterKind::model}, {draft}, {}});
    if (!real.draft_table.empty()) {
        plan.drafters.push_back({{DrafterKind::unigram}, {}, {}});
        plan.drafters.push_back({{DrafterKind::bigram}, {}, {}});
    }
    for (const PresetCase& one : preset.cases)
        if (std::find(plan.temperatures.begin(), plan.temperatures.end(), one.temperature) == plan.temperatures.end())
            plan.temperatures.push_back(one.temperature);
    plan.max_new_tokens = max_new_tokens(preset, real);
    plan.timeout_seconds = real.models.collective_timeout_seconds;
    plan.quiet = options.quiet;
    PromptCounts counts;
    const std::vector<spec::Request> prompts = prompts_of(session, models, preset, options, counts);
    const std::vector<AlphaFigure> figures = measure_alpha(session, models, drafters, prompts, plan);
    const Json environment = environment_of(session, models);
    if (!models.layout.is_coordinator()) return {};
    std::vector<ComparedCase> cases;
    for (const PresetCase& one : preset.cases) {
        ComparedCase& published = cases.emplace_back();
        published.preset_case = one;
        for (const PublishedRow& row : one.rows)
            published.rows.push_back({name_of(row), row, {}});
    }
    PresetReport report = report_of(preset, cases, {});
    report.json["environment"] = environment;
    for (const AlphaFigure& figure : figures)
        report.json["ours"].push_back(to_json(figure));
    report.text = environment_line(environment) + "\n" + report.text + "\nours, MEASURED on these models, " +
                  counted(counts.all, "prompt") + ", at most " + counted(plan.max_new_tokens, "new token") + "\n" +
                  alpha_table(figures);
    return report;
}

} // namespace

PresetReport run_preset(dist::Session& session, const Preset& preset, const PresetOptions& options, bool& is_mine) {
    const double timeout = options.real->models.collective_timeout_seconds;
    const DrafterSources sources = sources_of(preset, *options.real);
    in_agreement(session, timeout, [&] { require_readable(sources); });
    const auto models = open_models(session, options.real->models, {.draft = options.real->placement});
    const Drafters drafters(session, *models, sources, timeout);
    is_mine = models->layout.is_coordinator();
    return preset.kind == PresetKind::alpha ? run_drafters(session, *models, drafters, preset, options)
                                            : run_rules(session, *models, drafters, preset, options);
}

} // namespace entrodraft::launch
