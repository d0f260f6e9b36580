// The reference of all commands and options, made from their declarations: one walk over the pages for every markup.
#pragma once

#include "launch/cli/command_pages.h"

#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::launch {

// How a markup writes each part. Text is plain, but for `code` between backticks in paragraphs.
class ReferenceFormat {
  public:
    ReferenceFormat() = default;
    ReferenceFormat(const ReferenceFormat&) = delete;
    ReferenceFormat& operator=(const ReferenceFormat&) = delete;
    virtual ~ReferenceFormat() = default;

    virtual std::string begin() const = 0;
    virtual std::string section(std::string_view title) const = 0;
    virtual std::string subsection(std::string_view title) const = 0;
    virtual std::string paragraph(std::string_view text) const = 0;
    virtual std::string command_lines(const std::vector<const char*>& lines) const = 0;
    // Entries of lists: a command with its summary, any other term, an option.
    virtual std::string command(std::string_view name, std::string_view summary) const = 0;
    virtual std::string term(std::string_view name, std::string_view meaning) const = 0;
    virtual std::string option(const OptionSpec& option) const = 0;
    // Options that `page`, an earlier one, describes in the same words.
    virtual std::string options_of(const CommandPage& page, const std::vector<std::string>& names) const = 0;
    virtual std::string end() const = 0;
};

// The commands, how their options are read, exit codes, then each command with its options and examples.
std::string reference(const ReferenceFormat& format);

} // namespace entrodraft::launch
