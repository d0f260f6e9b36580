// Scripts for bash and zsh: see completion.h.
#include "launch/cli/completion.h"

#include "launch/cli/command_pages.h"

#include <string_view>
#include <vector>

namespace entrodraft::launch {

namespace {

// What a shell is to offer for an option's value.
enum class ValueKind { none, file, directory, choices, other };

ValueKind value_kind(const OptionSpec& option) {
    const std::string_view shown = option.value;
    if (shown.empty()) return ValueKind::none;
    if (option.choices.names) return ValueKind::choices;
    if (shown == "DIR") return ValueKind::directory;
    return shown.starts_with("FILE") ? ValueKind::file : ValueKind::other;
}

template <typename Use> void for_each_option(const CommandPage& page, Use use) {
    for (const OptionGroup& group : page.groups())
        for (const OptionSpec& option : group.options)
            use(option);
}

std::string blank_list(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names)
        text += (text.empty() ? "" : " ") + name;
    return text;
}

// Names of commands, and those behind "bench".
struct CommandNames {
    std::vector<const CommandPage*> commands, benches;
};

CommandNames command_names() {
    CommandNames names;
    for (const CommandPage& page : command_pages())
        (std::string_view(page.name).starts_with("bench ") ? names.benches : names.commands).push_back(&page);
    return names;
}

std::string last_word(const CommandPage& page) {
    const std::string name = page.name;
    return name.substr(name.find(' ') + 1); // all of it where there is no blank
}

// ---- bash ----

// One command's case: its options, and what follows those that take a value.
std::string bash_case(const CommandPage& page) {
    std::string options, files, directories, others, choices;
    const auto add = [](std::string& patterns, const OptionSpec& option) {
        patterns += (patterns.empty() ? "--" : "|--") + std::string(option.name);
    };
    for_each_option(page, [&](const OptionSpec& option) {
        options += (options.empty() ? "--" : " --") + std::string(option.name);
        switch (value_kind(option)) {
        case ValueKind::none:
            break;
        case ValueKind::file:
            return add(files, option);
        case ValueKind::directory:
            return add(directories, option);
        case ValueKind::other:
            return add(others, option);
        case ValueKind::choices:
            choices += "        --" + std::string(option.name) + ") kind=-W separators='" + option.choices.separators +
                       "' values='" + blank_list(option.choices.names()) + "' ;;\n";
        }
    });
    const auto line = [](const std::string& patterns, const char* action) {
        return patterns.empty() ? "" : "        " + patterns + ") " + action + " ;;\n";
    };
    return "    '" + std::string(page.name) + "')\n        options='" + options + "'\n        case $previous in\n" +
           line(files, "kind=-f") + line(directories, "kind=-d") + choices + line(others, "return") +
           "        esac ;;\n";
}

// "--name=value" comes as three words; of a list, what is before the last separator stays.
constexpr const char* kBashBegin = R"(_entrodraft() {
    local word=$2 previous=$3 command=${COMP_WORDS[1]-} at=2 options= kind= values= separators= head=
    if [ "$word" = = ]; then
        word=
    elif [ "$previous" = = ]; then
        previous=${COMP_WORDS[COMP_CWORD - 2]}
    fi
)";
constexpr const char* kBashEnd = R"(    esac
    case $kind in
    '') mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word") ;;
    -W)
        if [ -n "$separators" ]; then head=${word%"${word##*[$separators]}"}; fi
        mapfile -t COMPREPLY < <(compgen -P "$head" -W "$values" -- "${word#"$head"}") ;;
    *) compopt -o filenames && mapfile -t COMPREPLY < <(compgen "$kind" -- "$word") ;;
    esac
}
complete -F _entrodraft entrodraft
)";

// ---- zsh ----

std::string backslashed(std::string_view text, std::string_view special) {
    std::string result;
    for (const char c : text) {
        if (c == '\'') {
            result += "'\\''"; // all of it is in single quotes
            continue;
        }
        if (c == '\\' || special.find(c) != std::string_view::npos) result += '\\';
        result += c;
    }
    return result;
}

// "'*--draft=[checkpoint of the draft]:DIR:_path_files -/'", as _arguments takes it.
std::string zsh_option(const OptionSpec& option) {
    const ValueKind kind = value_kind(option);
    std::string text = "'" + std::string(option.repeatable ? "*" : "") + "--" + option.name +
                       (kind == ValueKind::none ? "[" : "=[") + backslashed(help_of(option), "[]") + "]";
    if (kind != ValueKind::none) text += ":" + backslashed(option.value, ":") + ":";
    switch (kind) {
    case ValueKind::none:
        break;
    case ValueKind::file:
        text += "_files";
        break;
    case ValueKind::directory:
        text += "_path_files -/";
        break;
    case ValueKind::other:
        text += " "; // nothing to offer
        break;
    case ValueKind::choices: {
        const std::string names = blank_list(option.choices.names()), separators = option.choices.separators;
        text += separators.empty() ? "(" + names + ")" : "_values -s " + separators.substr(0, 1) + " value " + names;
    }
    }
    return text + "'";
}

std::string zsh_case(const CommandPage& page) {
    std::string text = "    '" + std::string(page.name) + "')\n        _arguments";
    for_each_option(page, [&](const OptionSpec& option) { text += " \\\n            " + zsh_option(option); });
    return text + " ;;\n";
}

std::string zsh_described(const std::vector<const CommandPage*>& pages) {
    std::string text;
    for (const CommandPage* page : pages)
        text += " \\\n            '" + last_word(*page) + ":" + backslashed(page->summary, ":") + "'";
    return text;
}

// The file may lie in a folder of $fpath, or be evaluated.
constexpr const char* kZshEnd = R"(    completion) _values shell bash zsh ;;
    esac
}
if [ "$funcstack[1]" = _entrodraft ]; then
    _entrodraft "$@"
else
    compdef _entrodraft entrodraft
fi
)";

} // namespace

std::string bash_completion() {
    const CommandNames names = command_names();
    std::string commands, benches, cases;
    for (const CommandPage* page : names.commands)
        commands += last_word(*page) + " ";
    for (const CommandPage* page : names.benches)
        benches += last_word(*page) + " ";
    for (const CommandPage& page : command_pages())
        cases += bash_case(page);
    return "# Completion of entrodraft for bash. To load it: eval \"$(entrodraft completion bash)\"\n" +
           std::string(kBashBegin) +
           "    if [ \"$COMP_CWORD\" = 1 ]; then\n"
           "        mapfile -t COMPREPLY < <(compgen -W '" +
           commands +
           "bench completion help --help --version' -- \"$word\")\n"
           "        return\n"
           "    fi\n"
           "    if [ \"$command\" = bench ]; then\n"
           "        if [ \"$COMP_CWORD\" = 2 ]; then\n"
           "            mapfile -t COMPREPLY < <(compgen -W '" +
           benches +
           "' -- \"$word\")\n"
           "            return\n"
           "        fi\n"
           "        command=\"bench ${COMP_WORDS[2]}\"\n"
           "        at=3\n"
           "    fi\n"
           "    if [ \"$COMP_CWORD\" -lt $at ]; then return; fi\n"
           "    case $command in\n"
           "    completion) options='bash zsh' ;;\n"
           "    help) options='" +
           commands + "bench --man --markdown' ;;\n" + cases + kBashEnd;
}

std::string zsh_completion() {
    const CommandNames names = command_names();
    std::string cases;
    for (const CommandPage& page : command_pages())
        cases += zsh_case(page);
    return "#compdef entrodraft\n"
           "# Completion of entrodraft for zsh. To load it: eval \"$(entrodraft completion zsh)\", after compinit\n"
           "_entrodraft() {\n"
           "    local command\n"
           "    local -a commands benches\n"
           "    if (( CURRENT == 2 )); then\n"
           "        commands=(" +
           zsh_described(names.commands) +
           " \\\n            'bench:measurements' 'completion:script for a shell' 'help:options of a command')\n"
           "        _describe command commands\n"
           "        return\n"
           "    fi\n"
           "    command=$words[2]\n"
           "    if [[ $command == bench ]]; then\n"
           "        if (( CURRENT == 3 )); then\n"
           "            benches=(" +
           zsh_described(names.benches) +
           ")\n"
           "            _describe bench benches\n"
           "            return\n"
           "        fi\n"
           "        command=\"bench $words[3]\"\n"
           "        shift words\n"
           "        (( CURRENT-- ))\n"
           "    fi\n"
           "    shift words\n"
           "    (( CURRENT-- ))\n"
           "    case $command in\n" +
           cases + kZshEnd;
}

} // namespace entrodraft::launch
