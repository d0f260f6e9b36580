// Options as data: a command declares its groups once; help, the command line and --config files follow from that.
//
// A wrapper around Boost.Program_options that adds nearest-name suggestions and values with a place.
// Knows nothing of what an option means; options.cpp does.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::launch {

constexpr double kNoLimit = 1e300; // of numbers that only have to be finite

// The values that an option takes where these are few: --help shows them in place of "{}", completion offers them.
struct Choices {
    const std::vector<std::string>& (*names)() = nullptr; // nullptr: any value
    const char* separators = "";                          // what may be between several of them in one value
};

struct OptionSpec {
    const char* name;  // without dashes
    const char* value; // what stands for its value in --help; "" for a switch
    const char* help;
    bool repeatable = false;
    Choices choices = {};
    const char* aliases = "";   // other names, separated by blanks; those of one or two letters take one dash
    bool is_positional = false; // an argument without a name is a value of it
};

// The option, of a closed set.
OptionSpec choosing(OptionSpec option, const std::vector<std::string>& (*names)(), const char* separators = "");
// The option, known by other names too, as other programs have it.
OptionSpec with_aliases(OptionSpec option, const char* aliases);
// The option, whose name may be left out. At most one of a command.
OptionSpec positional(OptionSpec option);
// Its help, with the choices in place and the aliases behind.
std::string help_of(const OptionSpec& option);

struct OptionGroup {
    const char* title;
    std::vector<OptionSpec> options;
};

// What was given, by name. Reading a value that does not parse throws BadOption naming option and place.
class ParsedOptions {
  public:
    bool given(const std::string& name) const { return values_.count(name) > 0; }
    bool on(const std::string& name) const { return given(name); }
    std::string text(const std::string& name, const std::string& default_value) const;
    std::vector<std::string> texts(const std::string& name) const;
    // The name of a file; "" where none was given, BadOption where it is empty.
    std::string file(const std::string& name) const;
    int integer(const std::string& name, int default_value, int least, int most) const;
    std::uint64_t unsigned_integer(const std::string& name, std::uint64_t default_value) const;
    // A finite number in [least, most].
    double number(const std::string& name, double default_value, double least, double most) const;
    // Such numbers, separated by commas; at least one.
    std::vector<double> numbers(const std::string& name, const std::vector<double>& default_value, double least,
                                double most) const;
    // Whole numbers in [least, most], separated by commas; none where the option was not given.
    std::vector<int> integers(const std::string& name, int least, int most) const;
    // The index of the value among `choices`; BadOption lists them when it is none.
    std::size_t choice(const std::string& name, std::size_t default_value,
                       const std::vector<std::string>& choices) const;

    // Adds a value. `place` is "" for the command line, else " (FILE line N)".
    void add(const std::string& name, const std::string& value, const std::string& place);
    // Adds a part of another option's value, which messages name in its place: `whole` is "--shard 3/16".
    void add_part(const std::string& name, const std::string& value, const std::string& whole);
    // Adds the value of `name` that `from` was given as number `index`, from 0.
    void add_nth(const ParsedOptions& from, const std::string& name, std::size_t index);
    // Values of options that this does not hold yet: how a --config file yields to the command line.
    void add_missing(const ParsedOptions& other);
    // What was given, as messages begin with it: "--seed x (FILE line N)", or of a part "--shard x/16: 'x'".
    std::string spelled(const std::string& name) const;
    // A message, with the line of the --config file behind it for each option in it that is in one.
    std::string with_places(const std::string& message) const;
    // All names and values in a fixed order, for comparing ranks.
    std::string canonical_text() const;

  private:
    struct Value {
        std::string text;
        std::string place;
        std::string whole; // what it is a part of; "": it is an option's own
    };
    const Value* find(const std::string& name) const;

    std::map<std::string, std::vector<Value>> values_;
};

// Parses `arguments` (what follows the command), and the --config file that they name. Throws BadOption.
// With --help or -h among them nothing else is looked at. What was given by an alias is found under the option's name.
ParsedOptions parse_options(const std::vector<OptionGroup>& groups, const std::vector<std::string>& arguments);

// "option = value" lines of a --config file: '#' begins a comment line, a value in double quotes is a JSON string,
// a switch takes true or false. Throws BadOption naming file and line.
ParsedOptions parse_config(const std::vector<OptionGroup>& groups, const std::string& file);

// The groups as --help shows them.
std::string options_text(const std::vector<OptionGroup>& groups);

// How many letters have to be put in, taken out or exchanged to make one of the other. Local.
std::size_t edit_distance(std::string_view a, std::string_view b);
// The candidate that `name` is a part of ("temp", or "max-tokens" of "max-new-tokens"), or else the nearest by edit
// distance, if near enough to be meant.
std::optional<std::string> nearest(std::string_view name, const std::vector<std::string>& candidates);
// "must be one of a, b, c", with what was meant where one of them is near.
std::string must_be_one_of(const std::vector<std::string>& choices, std::string_view given);

// "a, b": the parts, without the blanks around them. Local.
std::vector<std::string> split_list(const std::string& text, char separator = ',');

} // namespace entrodraft::launch
