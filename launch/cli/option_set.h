// Options as data. A command declares each option once, bound to the field that has its default. --help, the command
// line, --config files, completion, manual page and docs/cli.md follow from the declaration. This file does not know
// the meaning of an option; options.h does.
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

// ---- given values ----

// Returns the parts of "a, b", without the blanks around them.
Names split_list(const std::string& text, char separator = ',');

struct GivenValue {
    std::string name; // the option's name
    std::string text;
    std::string place = ""; // "" for the command line, else " (FILE line N)"
    std::string whole = ""; // the whole value if this is a part of it, such as "--shard 3/16"; else ""

    // Returns the beginning of a message: "--seed x (FILE line N):", or for a part "--shard x/16: 'x'".
    std::string spelled() const;
    // part() returns a part of the value. meant() replaces another name by the usual one of its pair.
    GivenValue part(const std::string& of_it) const { return {name, of_it, place, "--" + name + " " + text}; }
    // The part before the first colon, as a value of its own.
    GivenValue head() const { return {name, text.substr(0, text.find(':')), place}; }
    GivenValue meant(const std::map<std::string, std::string>& others) const;
};

class ParsedOptions {
  public:
    bool given(const std::string& name) const { return values_.count(name) > 0; }
    const std::vector<GivenValue>& values(const std::string& name) const; // empty if it was not given
    std::string text(const std::string& name, const std::string& default_value = "") const;
    Names texts(const std::string& name) const;

    // Throws BadOption if the option was given and has no effect. `why` ends the message.
    void refuse_without_effect(const std::string& name, bool has_effect, const std::string& why) const;

    void add(const GivenValue& value) { values_[value.name].push_back(value); }
    // Adds values of options that this does not hold yet, so that the command line wins over a --config file.
    void add_missing(const ParsedOptions& other) { values_.insert(other.values_.begin(), other.values_.end()); }
    // Returns the message with the --config line of each option in it that comes from a --config file.
    std::string with_places(const std::string& message) const;
    // Returns all names and values in a fixed order, for comparing ranks.
    std::string canonical_text() const;

  private:
    std::map<std::string, std::vector<GivenValue>> values_;
};

// ---- values ----

constexpr double kNoLimit = 1e300; // for numbers that only have to be finite
struct Range {
    double min = 0, max = kNoLimit;
};
constexpr Range at_least(double min) {
    return {min, kNoLimit};
}

// Returns the text of the file that the option names, at most 1 MiB. Throws BadOption.
std::string read_named_file(const GivenValue& given);

// Throw BadOption that names option and place. Lists are separated by commas and hold at least one number.
void read_value(const GivenValue& value, Range range, int& field);
void read_value(const GivenValue& value, Range range, double& field);
void read_value(const GivenValue& value, Range range, std::uint64_t& field); // the range is ignored
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
// Returns the index of the value among `choices`. Throws BadOption that lists them.
std::size_t index_among(const Names& choices, const GivenValue& value);

// ---- values with keys: "typical:epsilon=0.1:delta=0.3" ----

struct ValueKey {
    std::string name;
    std::function<void(const GivenValue&)> read; // gets the key's value; of a switch its name
    bool is_switch = false;
    bool by_place = false; // numbers without a key count for these keys, in their order
};
// A key for a number.
template <typename Number> ValueKey number_key(std::string name, Number& field, Range range) {
    return {std::move(name), [&field, range](const GivenValue& given) { read_value(given, range, field); }};
}
// Reads the keys behind the first colon. Throws BadOption for a key that is unknown or given twice.
void read_keys(const GivenValue& given, const std::vector<ValueKey>& keys);

// ---- declarations ----

struct OptionSpec {
    std::string name;  // without dashes
    std::string value; // placeholder for its value in --help; "" for a switch
    std::string help;
    bool repeatable = false;
    Names choices = {};          // its values if there are only a few; completion offers them
    std::string separators = ""; // characters that may separate several values in one
    Names aliases = {};          // other names; a name of one or two letters has one dash
    bool is_positional = false;  // takes arguments without a name; at most one such option a command
    bool is_written = false;     // the file that it names is written; other files are read
    bool is_common = false;      // --help shows it; --help=all shows the others as well
    std::string details = "";    // more help, which --help=all shows alone
    std::string missing = "";    // for the message that it is missing; empty: it is optional

    bool is_switch() const { return value.empty(); }
    bool is_directory() const { return value == "DIR"; }
    bool is_file() const { return value.starts_with("FILE"); } // or "FILE|-"
    OptionSpec& also(const std::string& names);                // names separated by blanks
    OptionSpec& required(const char* what);
    OptionSpec& choosing(const Names& names, std::string of_several = "");
    OptionSpec& detailed(const std::string& text);
};
// Returns "top_k" for "top-k": the name of the field of lines and of OUTPUT.settings.
std::string field_of_option(std::string name);
// Returns the option's help, followed by its aliases and, with `all`, its details.
std::string help_of(const OptionSpec& option, bool all = true);

struct OptionGroup {
    std::string title;
    std::vector<OptionSpec> options;
};

using ReadValue = std::function<void(const GivenValue&)>;

// The declarations of a command. Fields outlive it. In the help of a number, "{}" stands for the default, which is the
// field's value; in the help of a choice, for the choices. Without "{}", the default follows the help in brackets,
// unless the help has a bracket already.
class OptionSet {
  public:
    OptionSet(); // --help and --config

    void group(const char* title) { groups_.push_back({title, {}}); }
    // Declares an option. `read` gets each of its values; without `read`, a check() reads them.
    OptionSpec& add(const char* name, const char* value, const std::string& help, ReadValue read = {});
    OptionSpec& add(const char* name, bool& field, const std::string& help) {
        return add(name, "", help, [&field](const GivenValue&) { field = true; });
    }
    // Declares text, which may be optional.
    template <typename Text>
    OptionSpec& add(const char* name, const char* value, Text& field, const std::string& help) {
        return add(name, value, help, [&field](const GivenValue& given) { field = given.text; });
    }
    OptionSpec& add(const char* name, const char* value, Names& field, const std::string& help) {
        OptionSpec& option = add(name, value, help, [&field](const GivenValue& given) { field.push_back(given.text); });
        option.repeatable = true;
        return option;
    }
    // Declares a file to write. `refusal_of_stdout`: why it cannot be "-".
    OptionSpec& add_output(const char* name, std::string& field, const std::string& help,
                           const std::string& refusal_of_stdout);
    // Declares a number, a list of numbers, or an optional number.
    template <typename Number>
    requires(!std::is_enum_v<Number>) OptionSpec& add(const char* name, const char* value, Number& field, Range range,
                                                      const std::string& help) {
        return add(name, value, with_default(help, default_text(field)),
                   [&field, range](const GivenValue& given) { read_value(given, range, field); });
    }
    // Declares a choice among the names of an enum's values, in their order.
    template <typename Enum>
    requires std::is_enum_v<Enum> OptionSpec& add(const char* name, const char* value, Enum& field, const Names& names,
                                                  const std::string& help) {
        OptionSpec& option = add(name, value, help, [&field, names](const GivenValue& given) {
                                 field = static_cast<Enum>(index_among(names, given));
                             }).choosing(names);
        option.help = with_default(option.help, names.at(static_cast<std::size_t>(field)));
        return option;
    }
    // Marks the options that --help shows. Without this call it shows all. Throws std::logic_error for another name.
    void show_first(const Names& common);
    // Adds a step that runs after the options declared before it are read. The step throws BadOption.
    void check(std::function<void(const ParsedOptions&)> step) { steps_.push_back(std::move(step)); }

    const std::vector<OptionGroup>& groups() const { return groups_; }
    // Fills the fields and runs the checks. First checks that nothing is missing and that no file or directory name is
    // empty. Throws BadOption.
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

// Returns the names of an enum's values from the first to `last`, by its to_string().
template <typename Enum> Names names_up_to(Enum last) {
    Names names;
    for (int i = 0; i <= static_cast<int>(last); ++i)
        names.push_back(to_string(static_cast<Enum>(i)));
    return names;
}

// ---- command line, --config file, --help ----

// True for --help, -h and --help=all.
bool asks_for_help(const std::string& argument);
// Parses `arguments`, which follow the command, and the --config file that they name. Where they ask for help, looks at
// nothing else; the value of "help" is then "true" or "all". A value given by an alias is found under the option's
// name. Throws BadOption.
ParsedOptions parse_options(const std::vector<OptionGroup>& groups, const Names& arguments);

// Reads a --config file of "option = value" lines. '#' begins a comment line, a value in double quotes is a JSON
// string, and a switch takes true or false. Throws BadOption naming file and line.
ParsedOptions parse_config(const std::vector<OptionGroup>& groups, const std::string& file);

// Returns the groups as --help shows them, or with `all` as --help=all does.
std::string options_text(const std::vector<OptionGroup>& groups, bool all);

// ---- words ----

// Number of letters to insert, remove or exchange to turn one into the other.
std::size_t edit_distance(std::string_view a, std::string_view b);
// Returns the candidate that `name` is a part of ("temp", or "max-tokens" of "max-new-tokens"). Else returns the
// nearest by edit distance, if it is near enough.
std::optional<std::string> nearest(std::string_view name, const Names& candidates);
// Returns "must be one of a, b, c", with the probable choice if one is near.
std::string must_be_one_of(const Names& choices, std::string_view given);
// Returns "a, b and c", with "and" as `before_last`.
std::string listed(Names words, const char* before_last);

// Returns our name for an option of another program (vLLM, llama.cpp, transformers, SGLang), or says why it is missing
// or that it is gone; empty if nothing is known. `name` has no dashes. `has_option` tells which options the command
// has: no remedy names an option that it lacks. Names that mean exactly one of our options are its aliases. `of_ours`:
// only options that earlier versions of this program had.
std::string remedy_for_foreign_option(std::string_view name,
                                      const std::function<bool(std::string_view name)>& has_option,
                                      bool of_ours = false);

} // namespace entrodraft::launch
