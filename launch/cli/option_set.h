// Options as data: a command declares each of its options once, bound to the field that holds its default. --help, the
// command line, --config files, completion, manual page and docs/cli.md follow from that.
//
// Knows nothing of what an option means; options.h does.
#pragma once

#include "launch/start/failure.h"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace entrodraft::launch {

using Names = std::vector<std::string>;

// ---- what was given ----

// "a, b": the parts, without the blanks around them.
Names split_list(const std::string& text, char separator = ',');

struct GivenValue {
    std::string name; // of the option
    std::string text;
    std::string place = ""; // "" for the command line, else " (FILE line N)"
    std::string whole = ""; // the value that this is a part of, as "--shard 3/16"; "": it is the option's own

    // As messages begin with it: "--seed x (FILE line N):", or of a part "--shard x/16: 'x'".
    std::string spelled() const;
    // A part of it; or it as it is usually called, where the first of a pair is another name of the second.
    GivenValue part(const std::string& of_it) const { return {name, of_it, place, "--" + name + " " + text}; }
    GivenValue meant(const std::map<std::string, std::string>& others) const;
};

class ParsedOptions {
  public:
    bool given(const std::string& name) const { return values_.count(name) > 0; }
    const std::vector<GivenValue>& values(const std::string& name) const; // empty where it was not given
    std::string text(const std::string& name, const std::string& default_value = "") const;
    Names texts(const std::string& name) const;

    // Throws BadOption where it was given and has no effect: `why` follows these words.
    void refuse_without_effect(const std::string& name, bool has_effect, const std::string& why) const;

    void add(const GivenValue& value) { values_[value.name].push_back(value); }
    // Values of options that this does not hold yet: how a --config file yields to the command line.
    void add_missing(const ParsedOptions& other) { values_.insert(other.values_.begin(), other.values_.end()); }
    // A message, with the line of the --config file behind it for each option in it that is in one.
    std::string with_places(const std::string& message) const;
    // All names and values in a fixed order, for comparing ranks.
    std::string canonical_text() const;

  private:
    std::map<std::string, std::vector<GivenValue>> values_;
};

// ---- values ----

constexpr double kNoLimit = 1e300; // of numbers that only have to be finite
struct Range {
    double min = 0, max = kNoLimit;
};
constexpr Range at_least(double min) {
    return {min, kNoLimit};
}

// The text of the file that the option names, at most 1 MiB. Throws BadOption.
std::string read_named_file(const GivenValue& given);

// Throw BadOption, which names option and place. Lists are separated by commas and hold at least one number.
void read_value(const GivenValue& value, Range range, int& field);
void read_value(const GivenValue& value, Range range, double& field);
void read_value(const GivenValue& value, Range range, std::uint64_t& field); // the range counts for nothing
template <typename Number> void read_value(const GivenValue& value, Range range, std::vector<Number>& field) {
    field.clear();
    refuse_if(value.text.starts_with(' ') || value.text.ends_with(' '),
              value.spelled() + " begins or ends with a blank; leave it out");
    for (const std::string& one : split_list(value.text))
        read_value(GivenValue{value.name, one, value.place}, range, field.emplace_back());
    refuse_if(field.empty(), "--" + value.name + " is empty; give " +
                                 (std::is_integral_v<Number> ? "whole numbers" : "numbers") + " separated by commas");
}
template <typename T> void read_value(const GivenValue& value, Range range, std::optional<T>& field) {
    read_value(value, range, field.emplace());
}
// The index of the value among `choices`, which BadOption lists.
std::size_t index_among(const Names& choices, const GivenValue& value);

// ---- declarations ----

struct OptionSpec {
    std::string name;  // without dashes
    std::string value; // what stands for its value in --help; "" for a switch
    std::string help;
    bool repeatable = false;
    Names choices = {};          // the values that it takes where these are few: completion offers them
    std::string separators = ""; // what may be between several of them in one value
    Names aliases = {};          // other names; those of one or two letters take one dash
    bool is_positional = false;  // an argument without a name is a value of it; at most one of a command
    bool is_written = false;     // the file that it names; other files are read
    std::string missing = "";    // what is missing without it, for the message; empty: it need not be given

    bool is_switch() const { return value.empty(); }
    bool is_directory() const { return value == "DIR"; }
    bool is_file() const { return value.starts_with("FILE"); } // or "FILE|-"
    OptionSpec& also(const std::string& names);                // separated by blanks
    OptionSpec& required(const char* what);
    OptionSpec& choosing(const Names& names, std::string of_several = "");
};
// "top_k" of "top-k": what fields of lines and of OUTPUT.settings are called.
std::string field_of_option(std::string name);
// Its help, with aliases behind.
std::string help_of(const OptionSpec& option);

struct OptionGroup {
    std::string title;
    std::vector<OptionSpec> options;
};

using ReadValue = std::function<void(const GivenValue&)>;

// What a command declares. Fields outlive it. In the help of a number, "{}" is replaced by the field's value, which is
// the default; in that of a choice, by the choices. A default that has no "{}" goes behind the help, in brackets,
// unless the help has a bracket there.
class OptionSet {
  public:
    OptionSet(); // --help and --config

    void group(const char* title) { groups_.push_back({title, {}}); }
    // An option each of whose values is given to `read`; without one, a check() reads it.
    OptionSpec& add(const char* name, const char* value, const std::string& help, ReadValue read = {});
    OptionSpec& add(const char* name, bool& field, const std::string& help) {
        return add(name, "", help, [&field](const GivenValue&) { field = true; });
    }
    // Text, perhaps optional, or the texts of a repeatable option.
    template <typename Text>
    OptionSpec& add(const char* name, const char* value, Text& field, const std::string& help) {
        return add(name, value, help, [&field](const GivenValue& given) { field = given.text; });
    }
    OptionSpec& add(const char* name, const char* value, Names& field, const std::string& help) {
        OptionSpec& option = add(name, value, help, [&field](const GivenValue& given) { field.push_back(given.text); });
        option.repeatable = true;
        return option;
    }
    // A file to write. `refusal_of_stdout`: why it cannot be "-".
    OptionSpec& add_output(const char* name, std::string& field, const std::string& help,
                           const std::string& refusal_of_stdout);
    // A number, a list of them, or an optional one.
    template <typename Number>
    requires(!std::is_enum_v<Number>) OptionSpec& add(const char* name, const char* value, Number& field, Range range,
                                                      const std::string& help) {
        return add(name, value, with_default(help, default_text(field)),
                   [&field, range](const GivenValue& given) { read_value(given, range, field); });
    }
    // One of the names of an enum's values, in their order.
    template <typename Enum>
    requires std::is_enum_v<Enum> OptionSpec& add(const char* name, const char* value, Enum& field, const Names& names,
                                                  const std::string& help) {
        OptionSpec& option = add(name, value, help, [&field, names](const GivenValue& given) {
                                 field = static_cast<Enum>(index_among(names, given));
                             }).choosing(names);
        option.help = with_default(option.help, names.at(static_cast<std::size_t>(field)));
        return option;
    }
    // Called when the options declared before it are read; throws BadOption.
    void check(std::function<void(const ParsedOptions&)> step) { steps_.push_back(std::move(step)); }

    const std::vector<OptionGroup>& groups() const { return groups_; }
    // Fills the fields, and checks: first that nothing is missing and no name of a file or directory is empty. Throws
    // BadOption.
    void read(const ParsedOptions& given) const;

  private:
    static std::string with_default(std::string help, const std::string& text);
    static std::string default_text(int value) { return std::to_string(value); }
    static std::string default_text(std::uint64_t value) { return std::to_string(value); }
    static std::string default_text(double value);
    static std::string default_text(const std::vector<double>& values);
    template <typename T> static std::string default_text(const T&) { return ""; }

    std::vector<OptionGroup> groups_;
    std::vector<std::function<void(const ParsedOptions&)>> steps_;
};

// The names of an enum's values from the first to `last`, by its to_string().
template <typename Enum> Names names_up_to(Enum last) {
    Names names;
    for (int i = 0; i <= static_cast<int>(last); ++i)
        names.push_back(to_string(static_cast<Enum>(i)));
    return names;
}

// ---- command line, --config file, --help ----

// True for --help and -h.
bool asks_for_help(const std::string& argument);
// Parses `arguments` (what follows the command), and the --config file that they name. Throws BadOption.
// With --help or -h among them nothing else is looked at. What was given by an alias is found under the option's name.
ParsedOptions parse_options(const std::vector<OptionGroup>& groups, const Names& arguments);

// "option = value" lines of a --config file: '#' begins a comment line, a value in double quotes is a JSON string,
// a switch takes true or false. Throws BadOption naming file and line.
ParsedOptions parse_config(const std::vector<OptionGroup>& groups, const std::string& file);

// The groups as --help shows them.
std::string options_text(const std::vector<OptionGroup>& groups);

// ---- words ----

// How many letters have to be put in, taken out or exchanged to make one of the other.
std::size_t edit_distance(std::string_view a, std::string_view b);
// The candidate that `name` is a part of ("temp", or "max-tokens" of "max-new-tokens"), or else the nearest by edit
// distance, if near enough to be meant.
std::optional<std::string> nearest(std::string_view name, const Names& candidates);
// "must be one of a, b, c", with what was meant where one of them is near.
std::string must_be_one_of(const Names& choices, std::string_view given);
// "a, b and c", by "and" before the last.
std::string listed(Names words, const char* before_last);

// What an option of another program (vLLM, llama.cpp, transformers, SGLang) is called here, or why it is not here, for
// whoever gave its `name` (without dashes); empty where nothing is known. `has_option` tells which options the command
// has: no remedy names one that it lacks. Names that mean exactly an option of ours are its aliases.
std::string remedy_for_foreign_option(std::string_view name,
                                      const std::function<bool(std::string_view name)>& has_option);

} // namespace entrodraft::launch
