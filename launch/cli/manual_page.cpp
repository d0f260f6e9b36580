// Pages of commands as roff: see manual_page.h.
#include "launch/cli/manual_page.h"

#include "launch/cli/reference.h"

#include <cctype>
#include <string_view>

namespace entrodraft::launch {

namespace {

// Plain text; `code` between backticks is bold.
std::string roff(std::string_view text) {
    std::string result;
    bool begins_line = true, is_code = false;
    for (const char c : text) {
        if (begins_line && (c == '.' || c == '\'')) result += "\\&";
        begins_line = c == '\n';
        if (c == '\\')
            result += "\\e";
        else if (c == '-')
            result += "\\-";
        else if (c == '`')
            result += (is_code = !is_code) ? "\\fB" : "\\fR";
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

class RoffFormat : public ReferenceFormat {
  public:
    explicit RoffFormat(const std::string& version) : version_(version) {}

    std::string begin() const override {
        return ".TH ENTRODRAFT 1 \"\" " + quoted_roff(version_) +
               " \"User Commands\"\n"
               ".SH NAME\n"
               "entrodraft \\- distributed speculative decoding with entropy\\-based stop decisions\n"
               ".SH SYNOPSIS\n"
               ".B entrodraft\n.I COMMAND\n[options]\n.br\n"
               ".B mpirun \\-n\n.I N\n.B entrodraft\n.I COMMAND\n[options]\n"
               ".SH DESCRIPTION\n"
               "A draft model proposes tokens; the target model, sharded across the ranks of an MPI job, verifies "
               "them in one pass. Results go to standard output or a file, messages to standard error.\n";
    }
    std::string section(std::string_view title) const override {
        return ".SH " + quoted_roff(upper_case(title)) + "\n";
    }
    std::string subsection(std::string_view title) const override { return ".SS " + quoted_roff(title) + "\n"; }
    std::string paragraph(std::string_view text) const override {
        return ".PP\n" + roff(text) + (text.ends_with('\n') ? "" : "\n");
    }
    std::string command_lines(const std::vector<const char*>& lines) const override {
        std::string text = ".PP\n.nf\n";
        for (const char* line : lines)
            text += roff(line) + "\n";
        return text + ".fi\n";
    }
    std::string command(std::string_view name, std::string_view summary) const override {
        return ".TP\n.B " + roff(name) + "\n" + roff(summary) + "\n";
    }
    std::string term(std::string_view name, std::string_view meaning) const override { return command(name, meaning); }
    std::string option(const OptionSpec& option) const override {
        const std::string name = "--" + std::string(option.name), value = option.value;
        const std::string head =
            value.empty() ? ".B " + roff(name) : ".BI " + roff(name) + " " + quoted_roff(" " + value);
        return ".TP\n" + head + "\n" + roff(help_of(option)) + "\n";
    }
    std::string options_of(const CommandPage& page, const std::vector<std::string>& names) const override {
        std::string listed;
        for (const std::string& name : names)
            listed += (listed.empty() ? "`--" : ", `--") + name + "`";
        return paragraph("As of " + std::string(page.name) + ": " + listed);
    }
    std::string end() const override { return ".SH SEE ALSO\n.BR mpirun (1)\n"; }

  private:
    std::string version_;
};

} // namespace

std::string manual_page(const std::string& version) {
    return reference(RoffFormat(version));
}

} // namespace entrodraft::launch
