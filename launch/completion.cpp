// The script for bash: one function that looks at the words so far.
#include "entrodraft/launch/completion.h"

#include <map>
#include <string_view>

namespace entrodraft::launch {

namespace {

// What bash is to offer for an option's value, going by what stands for it in --help.
enum class Value { none, file, directory, words, other };

Value value_of(std::string_view shown) {
    if (shown.empty()) return Value::none;
    if (shown == "DIR") return Value::directory;
    if (shown.starts_with("FILE")) return Value::file;
    return shown.find('|') != std::string_view::npos ? Value::words : Value::other;
}

std::string words_of(std::string_view shown) {
    std::string words(shown);
    for (char& c : words)
        if (c == '|') c = ' ';
    return words;
}

// "a|b", or "-" where a case would otherwise have no pattern.
std::string pattern(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names)
        text += (text.empty() ? "--" : "|--") + name;
    return text.empty() ? "-" : text;
}

// One command's case: its options, and what follows those that take a value.
std::string case_of(const CompletedCommand& command) {
    std::string options;
    std::vector<std::string> files, directories, others;
    std::map<std::string, std::vector<std::string>> listed; // options by the words they take
    for (const OptionGroup& group : *command.groups)
        for (const OptionSpec& option : group.options) {
            options += (options.empty() ? "--" : " --") + std::string(option.name);
            switch (value_of(option.value)) {
            case Value::none:
                break;
            case Value::file:
                files.emplace_back(option.name);
                break;
            case Value::directory:
                directories.emplace_back(option.name);
                break;
            case Value::words:
                listed[words_of(option.value)].emplace_back(option.name);
                break;
            case Value::other:
                others.emplace_back(option.name);
                break;
            }
        }
    std::string text = "    '" + command.name + "')\n        options='" + options + "'\n        case $previous in\n";
    text += "        " + pattern(files) + ") kind=-f ;;\n";
    text += "        " + pattern(directories) + ") kind=-d ;;\n";
    for (const auto& [words, names] : listed)
        text += "        " + pattern(names) + ") kind=-W values='" + words + "' ;;\n";
    text += "        " + pattern(others) + ") return ;;\n        esac ;;\n";
    return text;
}

} // namespace

std::string bash_completion(const std::vector<CompletedCommand>& commands) {
    std::string first, second, cases;
    for (const CompletedCommand& command : commands) {
        const std::size_t space = command.name.find(' ');
        if (space == std::string::npos)
            first += command.name + " ";
        else
            second += command.name.substr(space + 1) + " ";
        cases += case_of(command);
    }
    return "# Completion of entrodraft for bash. To load it: eval \"$(entrodraft completion bash)\"\n"
           "_entrodraft() {\n"
           "    local word=$2 previous=$3 command=${COMP_WORDS[1]-} at=2 options= kind= values=\n"
           "    if [ \"$COMP_CWORD\" = 1 ]; then\n"
           "        mapfile -t COMPREPLY < <(compgen -W '" +
           first +
           "bench completion --help --version' -- \"$word\")\n"
           "        return\n"
           "    fi\n"
           "    if [ \"$command\" = bench ]; then\n"
           "        if [ \"$COMP_CWORD\" = 2 ]; then\n"
           "            mapfile -t COMPREPLY < <(compgen -W '" +
           second +
           "' -- \"$word\")\n"
           "            return\n"
           "        fi\n"
           "        command=\"bench ${COMP_WORDS[2]}\"\n"
           "        at=3\n"
           "    fi\n"
           "    if [ \"$COMP_CWORD\" -lt $at ]; then return; fi\n"
           "    case $command in\n"
           "    completion) options=bash ;;\n" +
           cases +
           "    esac\n"
           "    case $kind in\n"
           "    '') mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$word\") ;;\n"
           "    -W) mapfile -t COMPREPLY < <(compgen -W \"$values\" -- \"$word\") ;;\n"
           "    *) compopt -o filenames && mapfile -t COMPREPLY < <(compgen \"$kind\" -- \"$word\") ;;\n"
           "    esac\n"
           "}\n"
           "complete -F _entrodraft entrodraft\n";
}

} // namespace entrodraft::launch
