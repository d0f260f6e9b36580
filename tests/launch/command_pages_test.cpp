// The pages of commands: help, manual page and docs/cli.md, and examples that are command lines.
#include "launch/cli/command_pages.h"
#include "launch/failure.h"
#include "tests/launch/scratch_file.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <vector>

namespace command_pages_test {

using namespace entrodraft::launch;

// The words of a command line, quoted ones whole.
std::vector<std::string> words_of(const std::string& line) {
    std::vector<std::string> words(1);
    bool quoted = false;
    for (const char c : line) {
        if (c == '"')
            quoted = !quoted;
        else if (c == ' ' && !quoted)
            words.emplace_back();
        else
            words.back() += c;
    }
    return words;
}

TEST(CommandPages, ExamplesAreCommandLines) {
    int examples = 0;
    for (const CommandPage& page : command_pages())
        for (const char* example : page.examples) {
            SCOPED_TRACE(example);
            const std::vector<std::string> words = words_of(example);
            auto at = std::find(words.begin(), words.end(), "entrodraft");
            ASSERT_NE(at, words.end());
            std::string name = *++at;
            if (name == "bench") name += " " + *++at;
            const CommandPage& called = page_of(name);
            std::vector<std::string> arguments(at + 1, words.end());
            if (!arguments.empty() && arguments.front() == "--config")
                arguments.erase(arguments.begin(), arguments.begin() + 2); // no such file
            EXPECT_NO_THROW(parse_options(called.groups(), arguments));
            ++examples;
        }
    EXPECT_GE(examples, 25);
}

TEST(CommandPages, HelpEndsWithThreeExamplesOfEveryMainCommand) {
    for (const char* name :
         {"generate", "record", "simulate", "tune", "inspect", "doctor", "bench latency", "bench compare"}) {
        const CommandPage& page = page_of(name);
        EXPECT_EQ(page.examples.size(), 3U) << name;
        const std::string help = help_text(page), last = std::string(page.examples.back()) + "\n";
        EXPECT_TRUE(help.starts_with("Usage: ")) << name;
        EXPECT_TRUE(help.ends_with(last)) << help;
    }
}

TEST(CommandPages, HelpNamesEveryChoice) {
    for (const CommandPage& page : command_pages()) {
        const std::string help = help_text(page);
        EXPECT_EQ(help.find("{}"), std::string::npos) << page.name;
        EXPECT_NE(overview_text().find(page.summary), std::string::npos);
    }
    for (const char* name : {"static", "expected-gain", "float8", "dedicated", "typical"})
        EXPECT_NE(help_text(page_of("generate")).find(name), std::string::npos) << name;
    EXPECT_THROW(page_of("nonsense"), std::invalid_argument);
}

TEST(ManualPage, HoldsEveryOptionAndIsCleanRoff) {
    const std::string page = manual_page("entrodraft 1.2.3");
    for (const CommandPage& command : command_pages())
        for (const OptionGroup& group : command.groups())
            for (const OptionSpec& option : group.options) {
                std::string name = "--" + option.name;
                for (std::size_t at = 0; (at = name.find('-', at)) != std::string::npos; at += 2)
                    name.insert(at, "\\");
                EXPECT_NE(page.find(name), std::string::npos) << name;
            }
    if (std::system("command -v groff > /dev/null") != 0) GTEST_SKIP() << "no groff to read the page";
    const test::ScratchFile file(page), said("");
    EXPECT_EQ(std::system(("groff -man -ww -Tascii -z " + file.path() + " > " + said.path() + " 2>&1").c_str()), 0);
    EXPECT_EQ(said.text(), "");
}

TEST(MarkdownPage, DescribesEveryOptionOfEveryCommand) {
    const std::string page = markdown_page();
    std::size_t begin = page.find("## How options are read");
    for (const CommandPage& command : command_pages()) {
        SCOPED_TRACE(command.name);
        begin = page.find("\n## " + std::string(command.name) + "\n", begin);
        ASSERT_NE(begin, std::string::npos);
        const std::string section = page.substr(begin, page.find("\n## ", begin + 1) - begin);
        for (const OptionGroup& group : command.groups())
            for (const OptionSpec& option : group.options)
                EXPECT_NE(section.find("`--" + option.name), std::string::npos) << option.name;
    }
}

TEST(MarkdownPage, IsCommitted) {
    std::ostringstream committed;
    committed << std::ifstream(ENTRODRAFT_SOURCE_DIR "/docs/cli.md", std::ios::binary).rdbuf();
    EXPECT_TRUE(committed.str() == markdown_page())
        << "docs/cli.md is stale; run: build/entrodraft help --markdown > docs/cli.md";
}

} // namespace command_pages_test
