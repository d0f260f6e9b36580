// entrodraft bench preset: published experiments, run again on models, or replayed with synthetic acceptance without.
//
// The replay is preset_replay.cpp's, the runs are preset_run.cpp's, the tables preset_report.cpp's.
#include "entrodraft/launch/bench/preset_replay.h"
#include "entrodraft/launch/bench/preset_report.h"
#include "entrodraft/launch/bench/preset_run.h"
#include "entrodraft/launch/commands.h"
#include "entrodraft/launch/failure.h"
#include "entrodraft/launch/options/command_options.h"
#include "entrodraft/launch/options/preset_options.h"
#include "entrodraft/launch/replaced_file.h"

#include <algorithm>

namespace entrodraft::launch {

namespace {

// "NAME ..." is "--name NAME ...".
Arguments named(const Arguments& arguments) {
    Arguments all = arguments;
    if (!all.empty() && all.front().rfind("--", 0) != 0) all.insert(all.begin(), "--name");
    return all;
}

void fill_in(std::string& command, const std::string& what, const std::string& with) {
    const std::string place = "{" + what + "}";
    for (std::size_t at = command.find(place); at != std::string::npos; at = command.find(place, at + with.size()))
        command.replace(at, place.size(), with);
}

std::vector<std::string> commands_of(const Preset& preset, const PresetOptions& options) {
    std::vector<std::string> commands = preset.commands;
    std::string target, draft, input;
    if (options.real) {
        target = options.real->models.target;
        draft = options.real->models.drafts.empty() ? "" : options.real->models.drafts.front();
        input = options.real->input;
    }
    for (std::string& command : commands) {
        fill_in(command, "target", target.empty() ? "TARGET" : target);
        fill_in(command, "draft", draft.empty() ? "DRAFT" : draft);
        fill_in(command, "input", input.empty() ? "PROMPTS" : input);
    }
    const bool has_own = std::any_of(commands.begin(), commands.end(), [](const std::string& command) {
        return command.find("bench preset") != std::string::npos;
    });
    if (!has_own && (preset.kind == PresetKind::speed || preset.kind == PresetKind::alpha))
        commands.insert(commands.begin(),
                        "entrodraft bench preset " + preset.name + " --target TARGET --draft DRAFT --input PROMPTS");
    return commands;
}

// Without models: everything on one rank.
PresetReport report_alone(const Preset& preset, const PresetOptions& options) {
    const PresetReplayPlan plan = {options.alpha, options.texts, options.seed.value_or(0)};
    const char* const of_replays = options.alpha ? "--alpha" : options.texts > 0 ? "--texts" : "--seed";
    if ((options.alpha || options.texts > 0 || options.seed) && !can_be_replayed(preset, plan))
        throw BadOption(std::string(of_replays) + " has no effect: the preset " + preset.name + " is not replayed");
    return report_of(preset, replay_preset(preset, plan), commands_of(preset, options));
}

} // namespace

int run_bench_preset(dist::Session& session, const Arguments& arguments) {
    const auto options = read_options(session, named(arguments), page_of("bench preset"), preset_options);
    if (!options) return kAllServed;
    in_agreement(session, session.start_seconds(), [&] {
        if (session.world_rank() == 0 && !options->output.empty()) require_replaceable(options->output);
    });
    constexpr double kLongSeconds = 24 * 3600.0; // the other ranks have nothing to do
    if (!options->list && options->real && preset_named(options->name).kind != PresetKind::study) {
        bool is_mine = false;
        const PresetReport report = run_preset(session, preset_named(options->name), *options, is_mine);
        in_agreement(session, options->real->models.collective_timeout_seconds, [&] {
            if (is_mine) show(report, options->output, options->json);
        });
        return kAllServed;
    }
    in_agreement(session, kLongSeconds, [&] {
        if (session.world_rank() != 0) return;
        show(options->list ? list_of_presets() : report_alone(preset_named(options->name), *options), options->output,
             options->json);
    });
    return kAllServed;
}

} // namespace entrodraft::launch
