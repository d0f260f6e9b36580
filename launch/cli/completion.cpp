// Scripts for bash and zsh: see command_pages.h.
#include "launch/cli/command_pages.h"

#include <fmt/format.h>
#include <string_view>
#include <utility>
#include <vector>

namespace entrodraft::launch {

namespace {

// What a shell is to offer for an option's value.
enum class ValueKind { none, file, directory, choices, other };

ValueKind value_kind(const OptionSpec& option) {
    if (option.is_switch()) return ValueKind::none;
    if (!option.choices.empty()) return ValueKind::choices;
    if (option.value == "DIR") return ValueKind::directory;
    return option.value.starts_with("FILE") ? ValueKind::file : ValueKind::other;
}

bool is_bench(const CommandPage& page) {
    return std::string_view(page.name).starts_with("bench ");
}

std::string last_word(const CommandPage& page) {
    const std::string name = page.name;
    return name.substr(name.find(' ') + 1); // all of it where there is no blank
}

// `written` of each page, or of those that are benches or not.
template <typename Write> std::string of_pages(Write written) {
    std::string text;
    for (const CommandPage& page : command_pages())
        text += written(page);
    return text;
}
template <typename Write> std::string of_pages(bool benches, Write written) {
    return of_pages([&](const CommandPage& page) { return is_bench(page) == benches ? written(page) : ""; });
}

std::string filled_in(std::string text, const std::vector<std::pair<std::string, std::string>>& values) {
    for (const auto& [place, value] : values)
        for (std::size_t at = 0; (at = text.find(place, at)) != std::string::npos; at += value.size())
            text.replace(at, place.size(), value);
    return text;
}

// ---- bash ----

// One command's case: its options, and what follows those that take a value.
std::string bash_case(const CommandPage& page) {
    std::string choices;
    Names options, files, directories, others;
    for (const OptionGroup& group : page.groups())
        for (const OptionSpec& option : group.options) {
            const std::string name = options.emplace_back("--" + option.name);
            const ValueKind kind = value_kind(option);
            if (kind == ValueKind::file) files.push_back(name);
            if (kind == ValueKind::directory) directories.push_back(name);
            if (kind == ValueKind::other) others.push_back(name);
            if (kind == ValueKind::choices)
                choices += fmt::format("        {}) kind=-W separators='{}' values='{}' ;;\n", name, option.separators,
                                       fmt::join(option.choices, " "));
        }
    const auto line = [](const Names& names, const char* action) {
        return names.empty() ? "" : fmt::format("        {}) {} ;;\n", fmt::join(names, "|"), action);
    };
    return fmt::format("    '{}')\n        options='{}'\n        case $previous in\n{}{}{}{}        esac ;;\n",
                       page.name, fmt::join(options, " "), line(files, "kind=-f"), line(directories, "kind=-d"),
                       choices, line(others, "return"));
}

// "--name=value" comes as three words; of a list, what is before the last separator stays.
constexpr const char* kBash = R"sh(# Completion of entrodraft for bash. To load it: eval "$(entrodraft completion bash)"
_entrodraft() {
    local word=$2 previous=$3 command=${COMP_WORDS[1]-} at=2 options= kind= values= separators= head=
    if [ "$word" = = ]; then
        word=
    elif [ "$previous" = = ]; then
        previous=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    if [ "$COMP_CWORD" = 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W '@COMMANDS@bench completion help --help --version' -- "$word")
        return
    fi
    if [ "$command" = bench ]; then
        if [ "$COMP_CWORD" = 2 ]; then
            mapfile -t COMPREPLY < <(compgen -W '@BENCHES@' -- "$word")
            return
        fi
        command="bench ${COMP_WORDS[2]}"
        at=3
    fi
    if [ "$COMP_CWORD" -lt $at ]; then return; fi
    case $command in
    completion) options='bash zsh' ;;
    help) options='@COMMANDS@bench --man --markdown' ;;
@CASES@    esac
    case $kind in
    '') mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word") ;;
    -W)
        if [ -n "$separators" ]; then head=${word%"${word##*[$separators]}"}; fi
        mapfile -t COMPREPLY < <(compgen -P "$head" -W "$values" -- "${word#"$head"}") ;;
    *) compopt -o filenames && mapfile -t COMPREPLY < <(compgen "$kind" -- "$word") ;;
    esac
}
complete -F _entrodraft entrodraft
)sh";

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

std::string zsh_action(const OptionSpec& option) {
    switch (value_kind(option)) {
    case ValueKind::file:
        return "_files";
    case ValueKind::directory:
        return "_path_files -/";
    case ValueKind::choices:
        return fmt::format(fmt::runtime(option.separators.empty() ? "({1})" : "_values -s {0} value {1}"),
                           option.separators.substr(0, 1), fmt::join(option.choices, " "));
    case ValueKind::none:
    case ValueKind::other:
        break;
    }
    return " "; // nothing to offer
}

// Options as _arguments takes them: "'*--draft=[checkpoint of the draft]:DIR:_path_files -/'".
std::string zsh_case(const CommandPage& page) {
    std::string text = fmt::format("    '{}')\n        _arguments", page.name);
    for (const OptionGroup& group : page.groups())
        for (const OptionSpec& option : group.options) {
            text += fmt::format(" \\\n            '{}--{}{}[{}]", option.repeatable ? "*" : "", option.name,
                                option.is_switch() ? "" : "=", backslashed(help_of(option), "[]"));
            if (!option.is_switch()) text += fmt::format(":{}:{}", backslashed(option.value, ":"), zsh_action(option));
            text += "'";
        }
    return text + " ;;\n";
}

std::string zsh_described(const CommandPage& page) {
    return fmt::format(" \\\n            '{}:{}'", last_word(page), backslashed(page.summary, ":"));
}

// The file may lie in a folder of $fpath, or be evaluated.
constexpr const char* kZsh = R"sh(#compdef entrodraft
# Completion of entrodraft for zsh. To load it: eval "$(entrodraft completion zsh)", after compinit
_entrodraft() {
    local command
    local -a commands benches
    if (( CURRENT == 2 )); then
        commands=(@COMMANDS@ \
            'bench:measurements' 'completion:script for a shell' 'help:options of a command')
        _describe command commands
        return
    fi
    command=$words[2]
    if [[ $command == bench ]]; then
        if (( CURRENT == 3 )); then
            benches=(@BENCHES@)
            _describe bench benches
            return
        fi
        command="bench $words[3]"
        shift words
        (( CURRENT-- ))
    fi
    shift words
    (( CURRENT-- ))
    case $command in
@CASES@    completion) _values shell bash zsh ;;
    esac
}
if [ "$funcstack[1]" = _entrodraft ]; then
    _entrodraft "$@"
else
    compdef _entrodraft entrodraft
fi
)sh";

} // namespace

std::string bash_completion() {
    const auto word = [](const CommandPage& page) { return last_word(page) + " "; };
    return filled_in(
        kBash,
        {{"@COMMANDS@", of_pages(false, word)}, {"@BENCHES@", of_pages(true, word)}, {"@CASES@", of_pages(bash_case)}});
}

std::string zsh_completion() {
    return filled_in(kZsh, {{"@COMMANDS@", of_pages(false, zsh_described)},
                            {"@BENCHES@", of_pages(true, zsh_described)},
                            {"@CASES@", of_pages(zsh_case)}});
}

} // namespace entrodraft::launch
