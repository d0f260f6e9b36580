// The walk over the pages of commands: see reference.h.
#include "launch/cli/reference.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <string>

namespace entrodraft::launch {

namespace {

bool has_same_words(const OptionSpec& a, const OptionSpec& b) {
    return std::strcmp(a.name, b.name) == 0 && std::strcmp(a.value, b.value) == 0 && help_of(a) == help_of(b) &&
           a.repeatable == b.repeatable;
}

// The first page before `page` that describes the option in the same words; nullptr: none.
const CommandPage* earlier_page_with(const OptionSpec& option, const CommandPage& page) {
    for (const CommandPage& earlier : command_pages()) {
        if (&earlier == &page) return nullptr;
        for (const OptionGroup& group : earlier.groups())
            for (const OptionSpec& known : group.options)
                if (has_same_words(known, option)) return &earlier;
    }
    return nullptr;
}

struct RepeatedOptions {
    const CommandPage* page;
    std::vector<std::string> names;
};

std::string command_section(const ReferenceFormat& format, const CommandPage& page) {
    std::string summary = std::string(page.summary) + ".", text = format.section(page.name);
    summary[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(summary[0])));
    text += format.paragraph(summary) + format.command_lines(page.usage);
    if (*page.remarks != '\0') text += format.paragraph(page.remarks);
    std::vector<RepeatedOptions> repeated;
    for (const OptionGroup& group : page.groups()) {
        std::string entries;
        for (const OptionSpec& option : group.options) {
            const CommandPage* earlier = earlier_page_with(option, page);
            if (earlier == nullptr) {
                entries += format.option(option);
                continue;
            }
            const auto at = std::find_if(repeated.begin(), repeated.end(),
                                         [&](const RepeatedOptions& one) { return one.page == earlier; });
            if (at == repeated.end())
                repeated.push_back({earlier, {option.name}});
            else
                at->names.emplace_back(option.name);
        }
        if (!entries.empty()) text += format.subsection(group.title) + entries;
    }
    if (!repeated.empty()) text += format.subsection("Options described above");
    for (const RepeatedOptions& one : repeated)
        text += format.options_of(*one.page, one.names);
    if (page.examples.empty()) return text;
    return text + format.subsection("Examples") + format.command_lines(page.examples);
}

} // namespace

std::string reference(const ReferenceFormat& format) {
    std::string text = format.begin() + format.section("Commands");
    for (const CommandPage& page : command_pages())
        text += format.command(page.name, page.summary);
    for (const Term& term : other_commands())
        text += format.term(term.name, term.meaning);
    for (const Section& section : reference_preface()) {
        text += format.section(section.title);
        for (const char* paragraph : section.paragraphs)
            text += format.paragraph(paragraph);
    }
    text += format.section("Exit codes");
    for (const Term& code : exit_codes())
        text += format.term(code.name, code.meaning);
    for (const CommandPage& page : command_pages())
        text += command_section(format, page);
    return text + format.end();
}

} // namespace entrodraft::launch
