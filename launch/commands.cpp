// From the command's name to the command.
#include "launch/commands.h"

#include "launch/cli/command_pages.h"
#include "launch/cli/option_set.h"
#include "launch/failure.h"
#include "launch/io/results.h"
#include "launch/phase.h"

#include <algorithm>
#include <fmt/format.h>

namespace entrodraft::launch {

namespace {

using Command = int (*)(dist::Session&, const Arguments&);

struct CommandName {
    const char* name;
    Command run;
};

constexpr CommandName kCommands[] = {
    {"generate", run_generate}, {"record", run_record},           {"simulate", run_simulate}, {"tune", run_tune},
    {"tokenize", run_tokenize}, {"build-table", run_build_table}, {"inspect", run_inspect},   {"doctor", run_doctor},
    {"bench", run_bench},       {"completion", run_completion},
};

constexpr CommandName kBenches[] = {
    {"latency", run_bench_latency},
    {"compare", run_bench_compare},
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
        throw BadOption(fmt::format("no {}command is given: {}; see entrodraft --help", prefix, all));
    for (const CommandName& command : commands)
        if (arguments[0] == command.name) return command.run;
    if (arguments[0].rfind('-', 0) == 0)
        throw BadOption(fmt::format("the command goes first, then its options: {}; see entrodraft --help", all));
    const auto meant = nearest(arguments[0], names);
    throw BadOption(fmt::format("unknown command '{}{}'; {}", prefix, arguments[0],
                                meant ? fmt::format("did you mean {}{}?", prefix, *meant)
                                      : fmt::format("it must be {}; see entrodraft --help", all)));
}

bool asks_for(const Arguments& arguments, std::initializer_list<const char*> names) {
    return !arguments.empty() && std::find(names.begin(), names.end(), arguments[0]) != names.end();
}

constexpr std::initializer_list<const char*> kHelp = {"--help", "-h"};

} // namespace

int run_command(dist::Session& session, const Arguments& arguments) {
    Command command = nullptr;
    if (asks_for(arguments, {"help"})) { // "help bench latency" is "bench latency --help"
        Arguments asked(arguments.begin() + 1, arguments.end());
        if (asked == Arguments{"--man"} || asked == Arguments{"--markdown"}) {
            print(session, asked[0] == "--man" ? manual_page(version_text()) : markdown_page());
            return kAllServed;
        }
        asked.emplace_back("--help");
        return run_command(session, asked);
    }
    const bool asks_for_version = asks_for(arguments, {"--version", "version"});
    if (asks_for_version || asks_for(arguments, kHelp)) {
        print(session, asks_for_version ? version_text() + "\n" : overview_text());
        return kAllServed;
    }
    in_agreement(session, [&] { command = find(kCommands, "", arguments); });
    return command(session, {arguments.begin() + 1, arguments.end()});
}

int run_bench(dist::Session& session, const Arguments& arguments) {
    Command command = nullptr;
    if (asks_for(arguments, kHelp)) {
        print(session, overview_text());
        return kAllServed;
    }
    in_agreement(session, [&] { command = find(kBenches, "bench ", arguments); });
    return command(session, {arguments.begin() + 1, arguments.end()});
}

int run_completion(dist::Session& session, const Arguments& arguments) {
    if (asks_for(arguments, kHelp)) {
        print(session, overview_text());
        return kAllServed;
    }
    in_agreement(session, [&] {
        if (arguments != Arguments{"bash"} && arguments != Arguments{"zsh"})
            throw BadOption(
                "completion of which shell? There are 'entrodraft completion bash' and 'completion zsh': load "
                "one with eval \"$(entrodraft completion bash)\"");
    });
    print(session, arguments[0] == "bash" ? bash_completion() : zsh_completion());
    return kAllServed;
}

std::string version_text() {
    return "entrodraft " ENTRODRAFT_VERSION;
}

void print(dist::Session& session, std::string_view text) {
    if (session.world_rank() == 0) ResultWriter("-", Existing::refuse).write_text(text);
}

} // namespace entrodraft::launch
