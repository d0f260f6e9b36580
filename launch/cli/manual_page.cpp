// Pages of commands as roff: see manual_page.h.
#include "launch/cli/manual_page.h"

#include "launch/cli/command_pages.h"

#include <cctype>
#include <string_view>

namespace entrodraft::launch {

namespace {

// Text that stands for itself at any place of a line.
std::string roff(std::string_view text) {
    std::string result;
    bool begins_line = true;
    for (const char c : text) {
        if (begins_line && (c == '.' || c == '\'')) result += "\\&";
        begins_line = c == '\n';
        if (c == '\\')
            result += "\\e";
        else if (c == '-')
            result += "\\-";
        else
            result += c;
    }
    return result;
}

// An argument of a macro.
std::string quoted_roff(std::string_view text) {
    std::string result = "\"";
    for (const char c : roff(text))
        result += c == '"' ? "\"\"" : std::string(1, c);
    return result + "\"";
}

std::string upper_case(std::string_view text) {
    std::string result(text);
    for (char& c : result)
        c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return result;
}

template <typename Lines> std::string typed_lines(const Lines& lines) {
    std::string text = ".PP\n.nf\n";
    for (const char* line : lines)
        text += roff(line) + "\n";
    return text + ".fi\n";
}

std::string option_entry(const OptionSpec& option) {
    const std::string name = std::string("--") + option.name, value = option.value;
    const std::string head = value.empty() ? ".B " + roff(name) : ".BI " + roff(name) + " " + quoted_roff(" " + value);
    return ".TP\n" + head + "\n" + roff(help_of(option)) + "\n";
}

std::string command_section(const CommandPage& page) {
    std::string text =
        ".SH " + quoted_roff(upper_case(page.name)) + "\n" + roff(page.summary) + ".\n" + typed_lines(page.usage);
    if (*page.remarks != '\0') text += ".PP\n" + roff(page.remarks);
    for (const OptionGroup& group : page.groups()) {
        text += ".SS " + quoted_roff(group.title) + "\n";
        for (const OptionSpec& option : group.options)
            text += option_entry(option);
    }
    if (page.examples.empty()) return text;
    return text + ".SS Examples\n" + typed_lines(page.examples);
}

} // namespace

std::string manual_page(const std::string& version) {
    std::string text =
        ".TH ENTRODRAFT 1 \"\" " + quoted_roff(version) +
        " \"User Commands\"\n"
        ".SH NAME\n"
        "entrodraft \\- distributed speculative decoding with entropy\\-based stop decisions\n"
        ".SH SYNOPSIS\n"
        ".B entrodraft\n.I COMMAND\n[options]\n.br\n"
        ".B mpirun \\-n\n.I N\n.B entrodraft\n.I COMMAND\n[options]\n"
        ".SH DESCRIPTION\n"
        "A draft model proposes tokens; the target model, sharded across the ranks of an MPI job, verifies "
        "them in one pass. Results go to standard output or a file, messages to standard error.\n"
        ".SH COMMANDS\n";
    for (const CommandPage& page : command_pages())
        text += ".TP\n.B " + roff(page.name) + "\n" + roff(page.summary) + "\n";
    for (const CommandPage& page : command_pages())
        text += command_section(page);
    return text +
           ".SH EXIT STATUS\n"
           "0: all done; 1: failure; 2: bad options; 3: some input lines had errors; 75: stopped by a signal after a "
           "clean flush: run again with \\-\\-resume.\n"
           ".SH SEE ALSO\n"
           ".BR mpirun (1)\n";
}

} // namespace entrodraft::launch
