// From the command's name to the command.
#include "entrodraft/launch/commands.h"

#include "entrodraft/launch/completion.h"
#include "entrodraft/launch/failure.h"
#include "entrodraft/launch/generate/results.h"
#include "entrodraft/launch/options/option_set.h"
#include "entrodraft/launch/options/options.h"
#include "entrodraft/launch/options/preset_options.h"
#include "entrodraft/launch/options/replay_options.h"
#include "entrodraft/launch/phase.h"

#include <algorithm>

namespace entrodraft::launch {

namespace {

const char* const kUsage = R"(Usage: entrodraft COMMAND [options]      entrodraft COMMAND --help

  generate         decode one --prompt, or a JSONL file of them
  record           decode prompts once and keep what every stop rule could have seen
  simulate         replay any stop rules over a recording: exact counts, times from costs
  tune             the best setting of every stop rule, confirmed by real runs, as a --config file
  tokenize         text to token ids and back
  build-table      count a text's tokens and pairs, for --drafter bigram and unigram
  inspect          what a checkpoint is and what each rank would hold; reads no weights
  doctor           whether the ranks find each other, their cores and their files; times every collective
  bench latency    time passes and collectives; write the costs file
  bench compare    stop rules side by side on a file of prompts
  bench alpha      how well drafters foresee a target: accepted share and sum min(p, q)
  bench preset     published experiments, run again or replayed, with the published figures beside
  bench load       time loading and watch its memory
  bench theory     best draft lengths and factors of the textbook's model, as tables
  bench scaling    measured passes of several rank counts beside a model of them; extrapolation to GPUs

  completion bash  a script for bash that completes commands and options

  --help or -h, --version; help COMMAND

On several ranks: mpirun -n N entrodraft ...
)";

using Command = int (*)(dist::Session&, const Arguments&);

struct CommandName {
    const char* name;
    Command run;
    const std::vector<OptionGroup>& (*groups)() = nullptr; // nullptr: it has no options of its own
};

constexpr CommandName kCommands[] = {
    {"generate", run_generate, generate_groups},
    {"record", run_record, record_groups},
    {"simulate", run_simulate, simulate_groups},
    {"tune", run_tune, tune_groups},
    {"tokenize", run_tokenize, tokenize_groups},
    {"build-table", run_build_table, build_table_groups},
    {"inspect", run_inspect, inspect_groups},
    {"doctor", run_doctor, doctor_groups},
    {"bench", run_bench},
    {"completion", run_completion},
};

constexpr CommandName kBenches[] = {
    {"latency", run_bench_latency, latency_groups}, {"compare", run_bench_compare, compare_groups},
    {"alpha", run_bench_alpha, alpha_groups},       {"preset", run_bench_preset, preset_groups},
    {"load", run_bench_load, load_groups},          {"theory", run_bench_theory, theory_groups},
    {"scaling", run_bench_scaling, scaling_groups},
};

// "a, b or c".
std::string listed(const std::vector<std::string>& names) {
    std::string text;
    for (std::size_t i = 0; i < names.size(); ++i)
        text += (i == 0 ? "" : i + 1 < names.size() ? ", " : " or ") + names[i];
    return text;
}

// The command of this name. Throws BadOption, with a suggestion.
template <std::size_t n>
Command find(const CommandName (&commands)[n], const std::string& prefix, const Arguments& arguments) {
    std::vector<std::string> names;
    for (const CommandName& command : commands)
        names.emplace_back(command.name);
    const std::string all = listed(names);
    if (arguments.empty())
        throw BadOption("no " + (prefix.empty() ? "command" : prefix + "command") + " is given: " + all +
                        "; see entrodraft --help");
    for (const CommandName& command : commands)
        if (arguments[0] == command.name) return command.run;
    if (arguments[0].rfind('-', 0) == 0)
        throw BadOption("the command goes first, then its options: " + all + "; see entrodraft --help");
    const auto meant = nearest(arguments[0], names);
    throw BadOption(
        "unknown command '" + prefix + arguments[0] + "'" +
        (meant ? "; did you mean " + prefix + *meant + "?" : "; it must be " + all + "; see entrodraft --help"));
}

bool asks_for(const Arguments& arguments, std::initializer_list<const char*> names) {
    return !arguments.empty() && std::find(names.begin(), names.end(), arguments[0]) != names.end();
}

constexpr std::initializer_list<const char*> kHelp = {"--help", "-h"};

} // namespace

int run_command(dist::Session& session, const Arguments& arguments) {
    Command command = nullptr;
    if (asks_for(arguments, {"help"})) { // "help bench load" is "bench load --help"
        Arguments asked(arguments.begin() + 1, arguments.end());
        asked.emplace_back("--help");
        return run_command(session, asked);
    }
    const bool asks_for_version = asks_for(arguments, {"--version", "version"});
    if (asks_for_version || asks_for(arguments, kHelp)) {
        print(session, asks_for_version ? version_text() + "\n" : kUsage);
        return kAllServed;
    }
    in_agreement(session, session.start_seconds(), [&] { command = find(kCommands, "", arguments); });
    return command(session, {arguments.begin() + 1, arguments.end()});
}

int run_bench(dist::Session& session, const Arguments& arguments) {
    Command command = nullptr;
    if (asks_for(arguments, kHelp)) {
        print(session, kUsage);
        return kAllServed;
    }
    in_agreement(session, session.start_seconds(), [&] { command = find(kBenches, "bench ", arguments); });
    return command(session, {arguments.begin() + 1, arguments.end()});
}

int run_completion(dist::Session& session, const Arguments& arguments) {
    if (asks_for(arguments, kHelp)) {
        print(session, kUsage);
        return kAllServed;
    }
    in_agreement(session, session.start_seconds(), [&] {
        if (arguments != Arguments{"bash"})
            throw BadOption("completion of which shell? There is 'entrodraft completion bash': load it with "
                            "eval \"$(entrodraft completion bash)\"");
    });
    std::vector<CompletedCommand> commands;
    for (const CommandName& command : kCommands)
        if (command.groups) commands.push_back({command.name, &command.groups()});
    for (const CommandName& bench : kBenches)
        commands.push_back({std::string("bench ") + bench.name, &bench.groups()});
    print(session, bash_completion(commands));
    return kAllServed;
}

std::string version_text() {
    return "entrodraft " ENTRODRAFT_VERSION;
}

void print(dist::Session& session, std::string_view text) {
    if (session.world_rank() == 0) ResultWriter("-", Existing::refuse).write_text(text);
}

} // namespace entrodraft::launch
