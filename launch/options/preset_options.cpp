// Options of bench preset and bench alpha: see preset_options.h.
#include "entrodraft/launch/options/preset_options.h"

#include "entrodraft/launch/bench/presets.h"
#include "entrodraft/launch/failure.h"
#include "entrodraft/launch/options/shared_options.h"

#include <algorithm>
#include <climits>

namespace entrodraft::launch {

namespace {

void refuse(const ParsedOptions& given, const std::vector<const char*>& options, const std::string& why) {
    for (const char* option : options)
        if (given.given(option)) throw BadOption(std::string("--") + option + " " + why);
}

const std::vector<const char*> kOfRuns = {"draft",
                                          "device",
                                          "dtype",
                                          "draft-dtype",
                                          "draft-placement",
                                          "threads",
                                          "max-context",
                                          "collective-timeout",
                                          "input",
                                          "prompts",
                                          "max-new-tokens",
                                          "draft-table",
                                          "quiet"};
const std::vector<const char*> kOfReplays = {"alpha", "texts"};

// What the preset's runs need of models; a preset without rules or drafters needs none.
void check_models(const ParsedOptions& given, const Preset& preset, const PresetModels& real) {
    const std::string name = "the preset " + preset.name;
    if (preset.kind == PresetKind::theory || preset.kind == PresetKind::simulation_cost)
        throw BadOption("--target has no effect: " + name + " needs no models");
    if (preset.kind == PresetKind::study) {
        const std::string why = "has no effect: " + name + " only names the commands that measure it";
        for (const char* option : kOfRuns)
            if (std::string(option) != "draft" && std::string(option) != "input") refuse(given, {option}, why);
        refuse(given, {"seed"}, why);
        return;
    }
    if (real.input.empty()) throw BadOption("--input FILE is missing: the prompts to run " + name + " on");
    const std::size_t n_drafts = real.models.drafts.size();
    const bool takes_table = preset.kind == PresetKind::alpha;
    if (!takes_table) refuse(given, {"draft-table"}, "has no effect: " + name + " compares rules, not drafters");
    if (takes_table) {
        if (n_drafts == 0 && real.draft_table.empty())
            throw BadOption("--draft DIR or --draft-table FILE is missing: what " + name + " measures");
        return;
    }
    const bool needs_none = preset.drafts_nothing() || preset.setting.drafter != DrafterKind::model;
    const bool is_cascade =
        std::any_of(preset.cases.begin(), preset.cases.end(), [](const PresetCase& one) { return one.cascade; });
    if (needs_none && n_drafts > 0) throw BadOption("--draft has no effect: " + name + " drafts without a model");
    if (!needs_none && n_drafts != (is_cascade ? 2u : 1u))
        throw BadOption(name +
                        (is_cascade ? " needs --draft DIR twice, the larger one first" : " needs --draft DIR, once"));
}

} // namespace

PresetOptions preset_options(const ParsedOptions& given) {
    refuse_later_work(given);
    PresetOptions options;
    options.list = given.on("list");
    options.output = json_output(given);
    options.json = given.on("json");
    if (options.list) {
        refuse(given, {"name", "seed", "target"}, "has no effect with --list");
        refuse(given, kOfRuns, "has no effect with --list");
        refuse(given, kOfReplays, "has no effect with --list");
        return options;
    }
    options.name = given.text("name", "");
    if (options.name.empty()) throw BadOption("which preset? Name one right behind the command, or give --list");
    const Preset& preset = preset_named(options.name);
    if (given.given("seed")) options.seed = given.unsigned_integer("seed", 0);
    options.quiet = given.on("quiet");
    if (given.given("target")) {
        refuse(given, kOfReplays, "has no effect on runs of models");
        PresetModels& real = options.real.emplace();
        real.models = model_options(given);
        real.placement = draft_placement(given);
        real.input = given.file("input");
        real.draft_table = given.file("draft-table");
        real.most_prompts = given.integer("prompts", 0, 1, INT_MAX);
        if (given.given("max-new-tokens")) real.max_new_tokens = given.integer("max-new-tokens", 1, 1, INT_MAX);
        check_models(given, preset, real);
        return options;
    }
    refuse(given, kOfRuns, "has no effect without --target DIR");
    if (given.given("alpha")) options.alpha = given.number("alpha", 0, 0, 1);
    options.texts = given.integer("texts", 0, 1, 1'000'000);
    return options;
}

DrafterBenchOptions alpha_options(const ParsedOptions& given) {
    refuse_later_work(given);
    constexpr int kLeastNewTokens = 2; // one may be drafted for
    DrafterBenchOptions options;
    read_drafter_bench(given, kLeastNewTokens, options);
    const std::size_t n_drafts = options.models.drafts.size();
    if (n_drafts > 1 && !given.given("drafters")) {
        ParsedOptions each;
        std::string names;
        for (std::size_t draft = 1; draft <= n_drafts; ++draft)
            names += (names.empty() ? "draft" : ",draft") + std::to_string(draft);
        each.add("drafters", names, "");
        options.drafters = compared_drafters(each, n_drafts);
    } else {
        if (n_drafts == 0 && !given.given("drafters"))
            throw BadOption("nothing to measure: give --draft DIR, or --drafters NAME,NAME");
        options.drafters = compared_drafters(given, n_drafts);
    }
    refuse_unused_drafts(given, options);
    for (const DrafterChoice& drafter : options.drafters)
        require_one_model(drafter, options.placement);
    options.sources = drafter_sources(given, options.drafters);
    return options;
}

} // namespace entrodraft::launch
