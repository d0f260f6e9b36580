// The pages of commands: help, and examples that are command lines. What is made of them: reference.py.
#include "launch/cli/command_pages.h"
#include "launch/start/failure.h"

#include <algorithm>
#include <gtest/gtest.h>
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
        const std::string help = help_text(page, false), last = std::string(page.examples.back()) + "\n";
        EXPECT_TRUE(help.starts_with("Usage: ")) << name;
        EXPECT_TRUE(help.ends_with(last)) << help;
    }
}

TEST(CommandPages, HelpNamesEveryChoice) {
    for (const CommandPage& page : command_pages()) {
        const std::string help = help_text(page, true);
        EXPECT_EQ(help.find("{}"), std::string::npos) << page.name;
        EXPECT_NE(overview_text().find(page.summary), std::string::npos);
    }
    for (const char* name : {"static", "expected-gain", "float8", "dedicated", "typical"})
        EXPECT_NE(help_text(page_of("generate"), true).find(name), std::string::npos) << name;
    EXPECT_THROW(page_of("nonsense"), std::invalid_argument);
}

} // namespace command_pages_test
