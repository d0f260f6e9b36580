// The reference of all commands and options, made from their declarations: see command_pages.h.
#include "launch/cli/command_pages.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <string_view>
#include <utility>
#include <vector>

namespace entrodraft::launch {

namespace {

// ---- roff ----

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

// ---- Markdown ----

// How many letters of "--option" begin here; 0: none.
std::size_t option_length(std::string_view text) {
    if (!text.starts_with("--")) return 0;
    std::size_t end = 2;
    while (end < text.size() && (text[end] == '-' || (text[end] >= 'a' && text[end] <= 'z')))
        ++end;
    return end > 2 ? end : 0;
}

// Plain text with options as code; what Markdown would take for markup outside of `code` is escaped.
std::string markdown(std::string_view text) {
    std::string result;
    bool is_code = false;
    for (std::size_t at = 0; at < text.size(); ++at) {
        const char c = text[at];
        if (c == '`') is_code = !is_code;
        const std::size_t length = is_code ? 0 : option_length(text.substr(at));
        if (length > 0) {
            result += "`" + std::string(text.substr(at, length)) + "`";
            at += length - 1;
            continue;
        }
        if (!is_code && (c == '<' || c == '*' || c == '\\')) result += '\\';
        result += c;
    }
    return result;
}

// As GitHub makes anchors of headings: "bench latency" is #bench-latency.
std::string link_to(const std::string& heading) {
    std::string anchor = heading;
    std::replace(anchor.begin(), anchor.end(), ' ', '-');
    return fmt::format("[{}](#{})", heading, anchor);
}

// ---- both ----

std::string capitals(std::string text) {
    for (char& c : text)
        c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return text;
}

// How a markup writes each part. Text is plain, but for `code` between backticks in paragraphs.
struct Markup {
    bool is_roff;

    std::string section(const std::string& title) const {
        return is_roff ? ".SH " + quoted_roff(capitals(title)) + "\n" : "\n## " + title + "\n\n";
    }
    std::string subsection(const std::string& title) const {
        return is_roff ? ".SS " + quoted_roff(title) + "\n" : "\n### " + title + "\n\n";
    }
    std::string paragraph(std::string text) const {
        while (text.ends_with('\n'))
            text.pop_back();
        return is_roff ? ".PP\n" + roff(text) + "\n" : markdown(text) + "\n\n";
    }
    std::string command_lines(const std::vector<const char*>& lines) const {
        return is_roff ? ".PP\n.nf\n" + roff(fmt::format("{}", fmt::join(lines, "\n"))) + "\n.fi\n"
                       : fmt::format("    {}\n\n", fmt::join(lines, "\n    "));
    }
    // Entries of lists: a command with its summary, any other term, an option.
    std::string command(const std::string& name, const std::string& summary) const {
        return is_roff ? term(name, summary) : fmt::format("- {}: {}\n", link_to(name), markdown(summary));
    }
    std::string term(const std::string& name, const std::string& meaning) const {
        return is_roff ? ".TP\n.B " + roff(name) + "\n" + roff(meaning) + "\n"
                       : fmt::format("- `{}`: {}\n", name, markdown(meaning));
    }
    std::string option(const OptionSpec& option) const {
        const std::string name = "--" + option.name, help = help_of(option);
        if (option.is_switch()) return term(name, help);
        return is_roff ? ".TP\n.BI " + roff(name) + " " + quoted_roff(" " + option.value) + "\n" + roff(help) + "\n"
                       : term(name + " " + option.value, help);
    }
    // Options that `page`, an earlier one, describes in the same words.
    std::string options_of(const CommandPage& page, const Names& names) const {
        return is_roff ? paragraph(fmt::format("As of {}: `{}`", page.name, fmt::join(names, "`, `")))
                       : fmt::format("- as of {}: `{}`\n", link_to(page.name), fmt::join(names, "`, `"));
    }
};

// The first page before `page` that describes the option in the same words; nullptr: none.
const CommandPage* earlier_page_with(const OptionSpec& option, const CommandPage& page) {
    for (const CommandPage& earlier : command_pages()) {
        if (&earlier == &page) return nullptr;
        for (const OptionGroup& group : earlier.groups())
            for (const OptionSpec& known : group.options)
                if (known.name == option.name && known.value == option.value && help_of(known) == help_of(option) &&
                    known.repeatable == option.repeatable)
                    return &earlier;
    }
    return nullptr;
}

std::string command_section(const Markup& markup, const CommandPage& page) {
    std::string summary = std::string(page.summary) + ".", text = markup.section(page.name);
    summary.replace(0, 1, capitals(summary.substr(0, 1)));
    text += markup.paragraph(summary) + markup.command_lines(page.usage);
    if (*page.remarks != '\0') text += markup.paragraph(page.remarks);
    std::vector<std::pair<const CommandPage*, Names>> repeated; // options, by the page that describes them
    for (const OptionGroup& group : page.groups()) {
        std::string entries;
        for (const OptionSpec& option : group.options) {
            const CommandPage* earlier = earlier_page_with(option, page);
            if (earlier == nullptr) {
                entries += markup.option(option);
                continue;
            }
            auto at =
                std::find_if(repeated.begin(), repeated.end(), [&](const auto& one) { return one.first == earlier; });
            if (at == repeated.end()) at = repeated.insert(at, {earlier, {}});
            at->second.push_back("--" + option.name);
        }
        if (!entries.empty()) text += markup.subsection(group.title) + entries;
    }
    if (!repeated.empty()) text += markup.subsection("Options described above");
    for (const auto& [earlier, names] : repeated)
        text += markup.options_of(*earlier, names);
    if (page.examples.empty()) return text;
    return text + markup.subsection("Examples") + markup.command_lines(page.examples);
}

std::string reference(const Markup& markup) {
    std::string text = markup.section("Commands");
    for (const CommandPage& page : command_pages())
        text += markup.command(page.name, page.summary);
    for (const Term& term : other_commands())
        text += markup.term(term.name, term.meaning);
    for (const Section& section : reference_preface()) {
        text += markup.section(section.title);
        for (const char* paragraph : section.paragraphs)
            text += markup.paragraph(paragraph);
    }
    text += markup.section("Exit codes");
    for (const Term& code : exit_codes())
        text += markup.term(code.name, code.meaning);
    for (const CommandPage& page : command_pages())
        text += command_section(markup, page);
    return text;
}

} // namespace

std::string manual_page(const std::string& version) {
    constexpr const char* kBegin =
        R"( "User Commands"
.SH NAME
entrodraft \- distributed speculative decoding with entropy\-based stop decisions
.SH SYNOPSIS
.B entrodraft
.I COMMAND
[options]
.br
.B mpirun \-n
.I N
.B entrodraft
.I COMMAND
[options]
.SH DESCRIPTION
A draft model proposes tokens; the target model, sharded across the ranks of an MPI job, verifies them in one pass. )"
        R"(Results go to standard output or a file, messages to standard error.
)";
    return ".TH ENTRODRAFT 1 \"\" " + quoted_roff(version) + kBegin + reference({.is_roff = true}) +
           ".SH SEE ALSO\n.BR mpirun (1)\n";
}

std::string markdown_page() {
    std::string text =
        "# Command line\n\nGenerated by `entrodraft help --markdown`; do not edit. [formats.md](formats.md) describes "
        "files, [benchmarks.md](benchmarks.md) what is printed, [concepts.md](concepts.md#formulas) has formulas.\n" +
        reference({.is_roff = false});
    for (std::size_t at; (at = text.find("\n\n\n")) != std::string::npos;)
        text.erase(at, 1);
    while (text.ends_with("\n\n"))
        text.pop_back();
    return text;
}

} // namespace entrodraft::launch
