#include "launch/cmd/commands.h"

#include "launch/io/results.h"
#include "launch/start/failure.h"
#include "launch/start/phase.h"

#include <algorithm>
#include <fmt/format.h>

namespace entrodraft::launch {

namespace {

bool asks_for(const Arguments& arguments, std::initializer_list<const char*> names) {
    return !arguments.empty() && std::find(names.begin(), names.end(), arguments[0]) != names.end();
}

bool asks_for_version(const Arguments& arguments) {
    return asks_for(arguments, {"--version", "version"});
}

// Returns the command that the arguments name. Throws BadOption, with a suggestion.
const CommandPage& find_command(const Arguments& arguments) {
    const std::size_t n_before = asks_for(arguments, {"bench"}) ? 1 : 0;
    const std::string prefix = n_before > 0 ? "bench " : "";
    Names names;
    for (const CommandPage& page : command_pages()) {
        if (!std::string_view(page.name).starts_with(prefix)) continue;
        const std::string name = split_list(page.name + prefix.size(), ' ')[0];
        if (arguments.size() > n_before && arguments[n_before] == name) return page;
        if (names.empty() || names.back() != name) names.push_back(name);
    }
    const std::string all = listed(names, "or");
    refuse_if(arguments.size() == n_before,
              fmt::format("no {}command is given: {}; see entrodraft --help", prefix, all));
    const std::string& given = arguments[n_before];
    refuse_if(given.starts_with('-'),
              fmt::format("the command goes first, then its options: {}; see entrodraft --help", all));
    const auto meant = nearest(given, names);
    throw BadOption(fmt::format("unknown command '{}{}'; {}", prefix, given,
                                meant ? fmt::format("did you mean {}{}?", prefix, *meant)
                                      : fmt::format("it must be {}; see entrodraft --help", all)));
}

} // namespace

bool is_for_one_rank(const Arguments& arguments) {
    if (asks_for(arguments, {"help"}) || asks_for_version(arguments)) return true;
    if (std::ranges::any_of(arguments, asks_for_help)) return true;
    try {
        return find_command(arguments).is_for_one_rank;
    } catch (const BadOption&) { // the first rank reports the unknown command
        return true;
    }
}

void print_help(dist::Session& session, const CommandPage& page, bool all) {
    print(session, help_text(page, all));
}

int run_command(dist::Session& session, const Arguments& arguments) {
    if (asks_for(arguments, {"help"})) { // "help bench latency" means "bench latency --help"
        Arguments asked(arguments.begin() + 1, arguments.end());
        if (asked == Arguments{"--json"}) {
            print(session, declarations_as_json(version_text()));
            return kAllServed;
        }
        asked.emplace_back("--help");
        return run_command(session, asked);
    }
    const bool is_bench = asks_for(arguments, {"bench"});
    const Arguments after_bench(arguments.begin() + (is_bench ? 1 : 0), arguments.end());
    if (asks_for_version(arguments) || asks_for(after_bench, {"--help", "-h"})) {
        print(session, asks_for_version(arguments) ? version_text() + "\n" : overview_text());
        return kAllServed;
    }
    const CommandPage* command = nullptr;
    in_agreement(session, [&] { command = &find_command(arguments); });
    return command->run(session, {after_bench.begin() + 1, after_bench.end()});
}

} // namespace entrodraft::launch
