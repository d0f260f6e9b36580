// Options as data: see option_set.h.
#include "launch/cli/option_set.h"

#include "launch/cli/foreign_options.h"
#include "launch/failure.h"

#include <algorithm>
#include <boost/program_options.hpp>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace entrodraft::launch {

namespace po = boost::program_options;

namespace {

std::vector<std::string> names_of(const std::vector<OptionGroup>& groups) {
    std::vector<std::string> names;
    for (const OptionGroup& group : groups)
        for (const OptionSpec& option : group.options)
            names.emplace_back(option.name);
    return names;
}

std::vector<std::string> aliases_of(const OptionSpec& option) {
    return split_list(option.aliases, ' ');
}

// By name or alias.
const OptionSpec* find_spec(const std::vector<OptionGroup>& groups, std::string_view name) {
    for (const OptionGroup& group : groups)
        for (const OptionSpec& option : group.options) {
            if (name == option.name) return &option;
            for (const std::string& alias : aliases_of(option))
                if (name == alias) return &option;
        }
    return nullptr;
}

// "--prompt", "-p".
std::string with_dashes(const std::string& name) {
    return (name.size() <= 2 ? "-" : "--") + name;
}

std::string strip_dashes(const std::string& name) {
    const std::size_t begin = name.find_first_not_of('-');
    return begin == std::string::npos ? "" : name.substr(begin, name.find('=') - begin);
}

// The option that an argument names: "--seed" or "-m", not "--seed=1".
const OptionSpec* find_option(const std::vector<OptionGroup>& groups, const std::string& argument) {
    const OptionSpec* option = find_spec(groups, strip_dashes(argument));
    const auto is_argument = [&](const std::string& alias) { return argument == with_dashes(alias); };
    if (option == nullptr || argument == std::string("--") + option->name) return option;
    const std::vector<std::string> aliases = aliases_of(*option);
    return std::any_of(aliases.begin(), aliases.end(), is_argument) ? option : nullptr;
}

bool is_switch(const OptionSpec& spec) {
    return *spec.value == '\0';
}

std::string comma_list(const std::vector<std::string>& names) {
    std::string list;
    for (const std::string& name : names)
        list += (list.empty() ? "" : ", ") + name;
    return list;
}

po::options_description describe(const OptionGroup& group) {
    po::options_description description(group.title, 110, 60);
    for (const OptionSpec& option : group.options) {
        if (is_switch(option))
            description.add_options()(option.name, help_of(option).c_str());
        else
            description.add_options()(option.name, po::value<std::vector<std::string>>()->value_name(option.value),
                                      help_of(option).c_str());
    }
    return description;
}

std::string trim(const std::string& text) {
    const char* blanks = " \t\r";
    const std::size_t begin = text.find_first_not_of(blanks);
    if (begin == std::string::npos) return "";
    return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

void refuse_repeats(const std::vector<OptionGroup>& groups, const ParsedOptions& parsed) {
    for (const std::string& name : names_of(groups)) {
        const auto given = parsed.texts(name);
        if (given.size() > 1 && !find_spec(groups, name)->repeatable)
            throw BadOption("--" + name + " is given " + std::to_string(given.size()) + " times; give it once");
    }
}

// "; did you mean X?", or where the names are.
std::string did_you_mean(std::string_view name, const std::vector<OptionGroup>& groups,
                         const std::string& prefix = "") {
    std::vector<std::string> candidates = names_of(groups);
    std::erase(candidates, "help"); // nobody means it who types a value
    const auto meant = nearest(name, candidates);
    return meant ? "; did you mean " + prefix + *meant + "?" : "; --help lists those there are";
}

// "--target --prompt x": the value is missing, and the next option must not stand in for it.
void refuse_options_as_values(const std::vector<OptionGroup>& groups, const std::vector<std::string>& arguments) {
    for (std::size_t i = 0; i + 1 < arguments.size(); ++i) {
        const OptionSpec* option = find_option(groups, arguments[i]);
        if (option == nullptr || is_switch(*option)) continue;
        const std::string& value = arguments[++i];
        if (find_option(groups, value.substr(0, value.find('='))) != nullptr)
            throw BadOption(arguments[i - 1] + " needs a value: " + option->value + "; write " + arguments[i - 1] +
                            "=" + value + " if " + value + " is meant as one");
    }
}

// The arguments with each option under its own name. A value that looks like an option is left as it is.
std::vector<std::string> without_aliases(const std::vector<OptionGroup>& groups,
                                         const std::vector<std::string>& arguments) {
    std::vector<std::string> plain;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        const std::size_t equals = std::min(arguments[i].find('='), arguments[i].size());
        const OptionSpec* option = find_option(groups, arguments[i].substr(0, equals));
        if (option == nullptr) {
            plain.push_back(arguments[i]);
            continue;
        }
        plain.push_back(std::string("--") + option->name + arguments[i].substr(equals));
        const bool has_value_next = !is_switch(*option) && equals == arguments[i].size() && i + 1 < arguments.size();
        if (has_value_next) plain.push_back(arguments[++i]);
    }
    return plain;
}

[[noreturn]] void refuse_unknown(const std::vector<OptionGroup>& groups, const std::string& argument) {
    const std::string name = strip_dashes(argument);
    const auto has_option = [&](std::string_view other) { return find_spec(groups, other) != nullptr; };
    const std::string remedy = remedy_for_foreign_option(name, has_option);
    throw BadOption("unknown option " + argument.substr(0, argument.find('=')) +
                    (remedy.empty() ? did_you_mean(name, groups, "--") : ": " + remedy));
}

// An argument without a name.
void add_positional(const std::vector<OptionGroup>& groups, const std::string& argument, ParsedOptions& parsed) {
    if (argument.size() > 1 && argument.front() == '-') refuse_unknown(groups, argument);
    for (const OptionGroup& group : groups)
        for (const OptionSpec& option : group.options)
            if (option.is_positional) return parsed.add(option.name, argument, "");
    throw BadOption("unexpected argument '" + argument + "'; options begin with --, and --help lists them");
}

ParsedOptions parse_arguments(const std::vector<OptionGroup>& groups, const std::vector<std::string>& arguments) {
    po::options_description all;
    for (const OptionGroup& group : groups)
        all.add(describe(group));
    namespace style = po::command_line_style;
    const int long_only = style::allow_long | style::long_allow_adjacent | style::long_allow_next;
    ParsedOptions parsed;
    try {
        const auto result =
            po::command_line_parser(without_aliases(groups, arguments)).options(all).style(long_only).run();
        refuse_options_as_values(groups, arguments);
        for (const auto& option : result.options) {
            if (option.position_key >= 0 || option.string_key.empty()) {
                add_positional(groups, option.value.at(0), parsed);
                continue;
            }
            parsed.add(option.string_key, option.value.empty() ? "true" : option.value.front(), "");
        }
    } catch (const po::unknown_option& error) {
        refuse_unknown(groups, "--" + strip_dashes(error.get_option_name()));
    } catch (const po::invalid_command_line_syntax& error) {
        const std::string name = strip_dashes(error.get_option_name());
        const OptionSpec* spec = find_spec(groups, name);
        if (spec != nullptr && is_switch(*spec)) throw BadOption("--" + name + " takes no value");
        throw BadOption("--" + name + " needs a value" + (spec != nullptr ? std::string(": ") + spec->value : ""));
    } catch (const po::error& error) {
        throw BadOption(error.what());
    }
    return parsed;
}

// Whether `part` is the beginning of a name, or some of its words.
bool is_part_of(std::string_view part, const std::string& name) {
    constexpr std::size_t kShortest = 3;
    if (part.size() < kShortest) return false;
    const std::vector<std::string> words = split_list(name, '-'), parts = split_list(std::string(part), '-');
    return name.starts_with(part) || std::all_of(parts.begin(), parts.end(), [&](const std::string& word) {
               return std::find(words.begin(), words.end(), word) != words.end();
           });
}

// Whether the message has the option in it, and not merely a longer one.
bool is_named(const std::string& option, const std::string& message) {
    for (std::size_t at = message.find(option); at != std::string::npos; at = message.find(option, at + 1)) {
        const std::size_t end = at + option.size();
        if (end == message.size() || (message[end] != '-' && !std::isalnum(static_cast<unsigned char>(message[end]))))
            return true;
    }
    return false;
}

// Digits alone: a whole number, though perhaps a larger one than can be held.
bool is_of_digits(const std::string& text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

// All of the text is the number. Nothing is "-0", for signed numbers as for others.
template <typename Number> bool parse_whole(const std::string& text, Number& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc{} && end == text.data() + text.size() && (value != 0 || text.front() != '-');
}

} // namespace

void ParsedOptions::add_nth(const ParsedOptions& from, const std::string& name, std::size_t index) {
    values_[name].push_back(from.values_.at(name).at(index));
}

const ParsedOptions::Value* ParsedOptions::find(const std::string& name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? nullptr : &found->second.front();
}

std::string ParsedOptions::text(const std::string& name, const std::string& default_value) const {
    const Value* value = find(name);
    return value == nullptr ? default_value : value->text;
}

std::string ParsedOptions::file(const std::string& name) const {
    std::string value = text(name, "");
    if (given(name) && value.empty()) throw BadOption("--" + name + " is empty; name a file");
    return value;
}

std::vector<std::string> ParsedOptions::texts(const std::string& name) const {
    std::vector<std::string> result;
    if (const auto found = values_.find(name); found != values_.end())
        for (const Value& value : found->second)
            result.push_back(value.text);
    return result;
}

int ParsedOptions::integer(const std::string& name, int default_value, int least, int most) const {
    const Value* value = find(name);
    if (value == nullptr) return default_value;
    int number = 0;
    const bool is_held = parse_whole(value->text, number);
    if (!is_held || number < least || number > most) {
        const bool is_too_large = !is_held && is_of_digits(value->text);
        const std::string range = most == INT32_MAX && !is_too_large
                                      ? "of at least " + std::to_string(least)
                                      : "from " + std::to_string(least) + " to " + std::to_string(most);
        throw BadOption(spelled(name) + " must be a whole number " + range);
    }
    return number;
}

std::uint64_t ParsedOptions::unsigned_integer(const std::string& name, std::uint64_t default_value) const {
    const Value* value = find(name);
    if (value == nullptr) return default_value;
    std::uint64_t number = 0;
    if (!parse_whole(value->text, number))
        throw BadOption(spelled(name) + " must be a whole number from 0 to 2^64 - 1");
    return number;
}

double ParsedOptions::number(const std::string& name, double default_value, double least, double most) const {
    const Value* value = find(name);
    if (value == nullptr) return default_value;
    double number = 0;
    if (!parse_whole(value->text, number) || !std::isfinite(number) || number < least || number > most) {
        std::ostringstream range;
        if (most >= 1e300)
            range << "of at least " << least;
        else
            range << "from " << least << " to " << most;
        throw BadOption(spelled(name) + " must be a number " + range.str());
    }
    return number;
}

std::vector<int> ParsedOptions::integers(const std::string& name, int least, int most) const {
    const Value* value = find(name);
    if (value == nullptr) return {};
    std::vector<int> integers;
    for (const std::string& one : split_list(value->text)) {
        ParsedOptions single;
        single.add(name, one, value->place);
        integers.push_back(single.integer(name, 0, least, most));
    }
    if (integers.empty()) throw BadOption("--" + name + " is empty; give whole numbers separated by commas");
    return integers;
}

std::vector<double> ParsedOptions::numbers(const std::string& name, const std::vector<double>& default_value,
                                           double least, double most) const {
    const Value* value = find(name);
    if (value == nullptr) return default_value;
    std::vector<double> numbers;
    for (const std::string& one : split_list(value->text)) {
        ParsedOptions single;
        single.add(name, one, value->place);
        numbers.push_back(single.number(name, 0, least, most));
    }
    if (numbers.empty()) throw BadOption("--" + name + " is empty; give numbers separated by commas");
    return numbers;
}

std::size_t ParsedOptions::choice(const std::string& name, std::size_t default_value,
                                  const std::vector<std::string>& choices) const {
    const Value* value = find(name);
    if (value == nullptr) return default_value;
    const auto found = std::find(choices.begin(), choices.end(), value->text);
    if (found == choices.end()) throw BadOption(spelled(name) + " " + must_be_one_of(choices, value->text));
    return static_cast<std::size_t>(found - choices.begin());
}

void ParsedOptions::add(const std::string& name, const std::string& value, const std::string& place) {
    values_[name].push_back({value, place, ""});
}

void ParsedOptions::add_part(const std::string& name, const std::string& value, const std::string& whole) {
    values_[name].push_back({value, "", whole});
}

std::string ParsedOptions::spelled(const std::string& name) const {
    const Value& value = values_.at(name).front();
    return value.whole.empty() ? "--" + name + " " + value.text + value.place + ":"
                               : value.whole + ": '" + value.text + "'";
}

std::string ParsedOptions::with_places(const std::string& message) const {
    std::string places;
    for (const auto& [name, values] : values_) {
        const std::string& place = values.front().place;
        if (place.empty() || !is_named("--" + name, message) || message.find(place) != std::string::npos) continue;
        places += "; --" + name + " is in " + place.substr(2, place.size() - 3);
    }
    return message + places;
}

void ParsedOptions::add_missing(const ParsedOptions& other) {
    for (const auto& [name, values] : other.values_)
        values_.emplace(name, values);
}

std::string ParsedOptions::canonical_text() const {
    std::string text;
    for (const auto& [name, values] : values_)
        for (const Value& value : values)
            text += name + '=' + value.text + '\n';
    return text;
}

ParsedOptions parse_options(const std::vector<OptionGroup>& groups, const std::vector<std::string>& arguments) {
    ParsedOptions parsed;
    const auto asks_for_help = [](const std::string& argument) { return argument == "--help" || argument == "-h"; };
    if (std::any_of(arguments.begin(), arguments.end(), asks_for_help)) {
        parsed.add("help", "true", "");
        return parsed;
    }
    parsed = parse_arguments(groups, arguments);
    refuse_repeats(groups, parsed);
    if (parsed.given("config")) parsed.add_missing(parse_config(groups, parsed.text("config", "")));
    return parsed;
}

namespace {

// It may be a pipe, or a device that never ends.
std::string read_config_text(const std::string& file) {
    constexpr std::size_t kMaxBytes = std::size_t{1} << 20;
    std::ifstream stream(file, std::ios::binary);
    if (!stream) throw BadOption("--config " + file + ": cannot be read; check the path");
    std::string text(kMaxBytes + 1, '\0');
    stream.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (stream.bad()) throw BadOption("--config " + file + ": cannot be read; it must be a file");
    text.resize(static_cast<std::size_t>(stream.gcount()));
    if (text.size() > kMaxBytes) throw BadOption("--config " + file + ": is larger than 1 MiB; name a file of options");
    return text;
}

} // namespace

ParsedOptions parse_config(const std::vector<OptionGroup>& groups, const std::string& file) {
    if (file.empty()) throw BadOption("--config is empty; name a file");
    std::istringstream stream(read_config_text(file));
    ParsedOptions parsed;
    std::string line;
    for (int number = 1; std::getline(stream, line); ++number) {
        if (number == 1 && line.rfind("\xef\xbb\xbf", 0) == 0) line.erase(0, 3); // the mark some editors write
        line = trim(line);
        if (line.empty() || line.front() == '#') continue;
        const std::string where = file + " line " + std::to_string(number);
        const std::size_t equals = line.find('=');
        if (equals == std::string::npos) throw BadOption(where + ": must read 'option = value'");
        const std::string name = trim(line.substr(0, equals));
        std::string value = trim(line.substr(equals + 1));
        const OptionSpec* spec = find_spec(groups, name);
        if (name == "config" || name == "help") throw BadOption(where + ": " + name + " belongs on the command line");
        if (spec == nullptr) throw BadOption(where + ": unknown option '" + name + "'" + did_you_mean(name, groups));
        if (!value.empty() && value.front() == '"') {
            const auto json = nlohmann::json::parse(value, nullptr, false);
            if (!json.is_string()) throw BadOption(where + ": the value in quotes must be a JSON string");
            value = json.get<std::string>();
        }
        if (is_switch(*spec)) {
            if (value != "true" && value != "false")
                throw BadOption(where + ": " + name + " is a switch; it takes true or false");
            if (value == "false") continue;
        }
        parsed.add(spec->name, value, " (" + where + ")");
    }
    refuse_repeats(groups, parsed);
    return parsed;
}

OptionSpec choosing(OptionSpec option, const std::vector<std::string>& (*names)(), const char* separators) {
    option.choices = {names, separators};
    return option;
}

OptionSpec with_aliases(OptionSpec option, const char* aliases) {
    option.aliases = aliases;
    return option;
}

OptionSpec positional(OptionSpec option) {
    option.is_positional = true;
    return option;
}

std::string help_of(const OptionSpec& option) {
    std::string help = option.help;
    const std::size_t place = help.find("{}");
    if (place != std::string::npos && option.choices.names != nullptr)
        help.replace(place, 2, comma_list(option.choices.names()));
    if (option.is_positional) help += "; the name may be left out";
    std::string others;
    for (const std::string& alias : aliases_of(option))
        others += (others.empty() ? "; also " : ", ") + with_dashes(alias);
    return help + others;
}

std::string options_text(const std::vector<OptionGroup>& groups) {
    std::ostringstream text;
    for (const OptionGroup& group : groups)
        text << '\n' << describe(group);
    return text.str();
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> previous(b.size() + 1), row(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j)
        previous[j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j)
            row[j] = std::min({previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (a[i - 1] == b[j - 1] ? 0u : 1u)});
        std::swap(previous, row);
    }
    return previous.back();
}

std::optional<std::string> nearest(std::string_view name, const std::vector<std::string>& candidates) {
    const std::size_t most = std::max<std::size_t>(2, name.size() / 3);
    std::optional<std::string> best;
    std::pair<bool, std::size_t> best_rank; // parts go first, then the nearest
    for (const std::string& candidate : candidates) {
        const bool is_part = is_part_of(name, candidate);
        const std::size_t distance = edit_distance(name, candidate);
        if (!is_part && (distance > most || distance >= candidate.size())) continue;
        const std::pair rank(!is_part, distance);
        if (best && rank >= best_rank) continue;
        best = candidate;
        best_rank = rank;
    }
    return best;
}

std::string must_be_one_of(const std::vector<std::string>& choices, std::string_view given) {
    const auto meant = nearest(given, choices);
    return "must be one of " + comma_list(choices) + (meant ? "; did you mean " + *meant + "?" : "");
}

std::vector<std::string> split_list(const std::string& text, char separator) {
    std::vector<std::string> parts;
    std::istringstream list(text);
    for (std::string one; std::getline(list, one, separator);)
        parts.push_back(trim(one));
    return parts;
}

} // namespace entrodraft::launch
