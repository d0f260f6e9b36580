// Options as data: see option_set.h.
#include "launch/cli/option_set.h"

#include <algorithm>
#include <boost/make_shared.hpp>
#include <boost/program_options.hpp>
#include <charconv>
#include <climits>
#include <cmath>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

namespace entrodraft::launch {

namespace po = boost::program_options;

namespace {

std::string trim(const std::string& text) {
    const char* blanks = " \t\r";
    const std::size_t begin = text.find_first_not_of(blanks);
    if (begin == std::string::npos) return "";
    return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

// ---- names ----

template <typename Use> void for_each_option(const std::vector<OptionGroup>& groups, Use use) {
    for (const OptionGroup& group : groups)
        for (const OptionSpec& option : group.options)
            use(option);
}

// Returns "--prompt" or "-p".
std::string with_dashes(const std::string& name) {
    return (name.size() <= 2 ? "-" : "--") + name;
}

std::string strip_dashes(const std::string& name) {
    const std::size_t begin = name.find_first_not_of('-');
    return begin == std::string::npos ? "" : name.substr(begin);
}

// Finds an option by name or alias.
const OptionSpec* find_spec(const std::vector<OptionGroup>& groups, std::string_view name) {
    const OptionSpec* found = nullptr;
    for_each_option(groups, [&](const OptionSpec& option) {
        if (name == option.name || std::ranges::count(option.aliases, name) > 0) found = &option;
    });
    return found;
}

// Returns the option that an argument names: "--seed", "--seed=1" or "-m".
const OptionSpec* find_option(const std::vector<OptionGroup>& groups, const std::string& argument) {
    const std::string named = argument.substr(0, argument.find('=')), name = strip_dashes(named);
    const OptionSpec* option = find_spec(groups, name);
    const bool has_its_dashes = option != nullptr && named == (name == option->name ? "--" + name : with_dashes(name));
    return has_its_dashes ? option : nullptr;
}

// Returns "; did you mean X?", or says where the names are listed.
std::string did_you_mean(std::string_view name, const std::vector<OptionGroup>& groups, const char* prefix = "") {
    Names candidates;
    for_each_option(groups, [&](const OptionSpec& option) {
        if (option.name != "help") candidates.push_back(option.name); // a user who types a value does not mean --help
    });
    const auto meant = nearest(name, candidates);
    return meant ? fmt::format("; did you mean {}{}?", prefix, *meant) : "; --help lists those there are";
}

// Returns the end of a message about an unknown option: its remedy, or names that it may mean.
std::string help_for_unknown(std::string_view name, const std::vector<OptionGroup>& groups, const char* prefix = "") {
    const auto has_option = [&](std::string_view other) { return find_spec(groups, other) != nullptr; };
    const std::string remedy = remedy_for_foreign_option(name, has_option);
    return remedy.empty() ? did_you_mean(name, groups, prefix) : ": " + remedy;
}

[[noreturn]] void refuse_unknown(const std::vector<OptionGroup>& groups, const std::string& argument) {
    const std::string named = argument.substr(0, argument.find('=')), name = strip_dashes(named);
    throw BadOption("unknown option " + named + help_for_unknown(name, groups, "--"));
}

void refuse_repeats(const std::vector<OptionGroup>& groups, const ParsedOptions& parsed) {
    for_each_option(groups, [&](const OptionSpec& option) {
        const std::size_t times = parsed.values(option.name).size();
        refuse_if(times > 1 && !option.repeatable,
                  fmt::format("--{} is given {} times; give it once", option.name, times));
    });
}

// Returns whether `part` is the beginning of a name, or consists of words of it.
bool is_part_of(std::string_view part, const std::string& name) {
    constexpr std::size_t kShortest = 3;
    if (part.size() < kShortest) return false;
    const Names words = split_list(name, '-'), parts = split_list(std::string(part), '-');
    return name.starts_with(part) || std::all_of(parts.begin(), parts.end(), [&](const std::string& word) {
               return std::find(words.begin(), words.end(), word) != words.end();
           });
}

// ---- values ----

// Parses a whole number that takes all of the text. "-0" is no number, for signed numbers either.
template <typename Number> bool parse_whole(const std::string& text, Number& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc{} && end == text.data() + text.size() && (value != 0 || text.front() != '-');
}

} // namespace

std::string GivenValue::spelled() const {
    return whole.empty() ? fmt::format("--{} {}{}:", name, text, place) : fmt::format("{}: '{}'", whole, text);
}

GivenValue GivenValue::meant(const std::map<std::string, std::string>& others) const {
    const auto other = others.find(text);
    return {name, other == others.end() ? text : other->second, place, whole};
}

void ParsedOptions::refuse_without_effect(const std::string& name, bool has_effect, const std::string& why) const {
    refuse_if(given(name) && !has_effect, "--" + name + " has no effect " + why);
}

const std::vector<GivenValue>& ParsedOptions::values(const std::string& name) const {
    static const std::vector<GivenValue> none;
    const auto found = values_.find(name);
    return found == values_.end() ? none : found->second;
}

std::string ParsedOptions::text(const std::string& name, const std::string& default_value) const {
    return given(name) ? values(name).front().text : default_value;
}

Names ParsedOptions::texts(const std::string& name) const {
    Names texts;
    for (const GivenValue& value : values(name))
        texts.push_back(value.text);
    return texts;
}

std::string ParsedOptions::with_places(const std::string& message) const {
    std::string places;
    for (const auto& [name, values] : values_) {
        const std::string& place = values.front().place;
        const std::regex option("--" + name + "(?![-a-zA-Z0-9])"); // not as the beginning of a longer name
        if (place.empty() || !std::regex_search(message, option) || message.find(place) != std::string::npos) continue;
        places += fmt::format("; --{} is in {}", name, place.substr(2, place.size() - 3));
    }
    return message + places;
}

std::string ParsedOptions::canonical_text() const {
    std::string text;
    for (const auto& [name, values] : values_)
        for (const GivenValue& value : values)
            text += name + '=' + value.text + '\n';
    return text;
}

void read_value(const GivenValue& value, Range range, int& field) {
    const int max = static_cast<int>(std::min<double>(range.max, INT_MAX));
    const bool is_held = parse_whole(value.text, field);
    if (is_held && field >= range.min && field <= max) return;
    const bool is_of_digits = !value.text.empty() && value.text.find_first_not_of("0123456789") == std::string::npos;
    throw BadOption(value.spelled() + " must be a whole number " +
                    (max == INT_MAX && (is_held || !is_of_digits) ? fmt::format("of at least {:.0f}", range.min)
                                                                  : fmt::format("from {:.0f} to {}", range.min, max)));
}

void read_value(const GivenValue& value, Range, std::uint64_t& field) {
    if (!parse_whole(value.text, field))
        throw BadOption(value.spelled() + " must be a whole number from 0 to 2^64 - 1");
}

void read_value(const GivenValue& value, Range range, double& field) {
    const bool is_held = parse_whole(value.text, field) && std::isfinite(field);
    if (is_held && field >= range.min && field <= range.max) return;
    throw BadOption(value.spelled() + " must be a number " +
                    (range.max >= kNoLimit ? fmt::format("of at least {:g}", range.min)
                                           : fmt::format("from {:g} to {:g}", range.min, range.max)));
}

std::size_t index_among(const Names& choices, const GivenValue& value) {
    const auto found = std::find(choices.begin(), choices.end(), value.text);
    if (found == choices.end()) throw BadOption(value.spelled() + " " + must_be_one_of(choices, value.text));
    return static_cast<std::size_t>(found - choices.begin());
}

// ---- values with keys ----

void read_keys(const GivenValue& given, const std::vector<ValueKey>& keys) {
    const std::string whole = fmt::format("--{} {}", given.name, given.text);
    Names names, seen;
    for (const ValueKey& key : keys)
        names.push_back(key.name);
    std::size_t place = 0; // where the key of the next number without a name is sought
    const Names parts = split_list(given.text, ':');
    refuse_if(names.empty() && parts.size() > 1, fmt::format("{}: {} takes no values", whole, parts[0]));
    for (std::size_t i = 1; i < parts.size(); ++i) {
        const std::size_t equals = parts[i].find('=');
        const bool has_value = equals != std::string::npos;
        const bool is_number =
            !has_value && !parts[i].empty() && std::string_view("+-.0123456789").find(parts[i][0]) != std::string::npos;
        const std::string name = parts[i].substr(0, equals);
        auto key = std::ranges::find(keys, name, &ValueKey::name);
        if (is_number) {
            key = std::find_if(keys.begin() + static_cast<std::ptrdiff_t>(place), keys.end(),
                               [](const ValueKey& each) { return each.by_place; });
            refuse_if(key == keys.end(),
                      fmt::format("{}: what is {}? {} takes {}", whole, parts[i], parts[0], listed(names, "and")));
            place = static_cast<std::size_t>(key - keys.begin()) + 1;
        } else {
            refuse_if(key == keys.end(), fmt::format("{}: {} {}", whole, name, must_be_one_of(names, name)));
            refuse_if(has_value && key->is_switch, fmt::format("{}: {} takes no value", whole, name));
            refuse_if(!has_value && !key->is_switch, fmt::format("{0}: {1} needs a value: {1}=...", whole, name));
        }
        refuse_if(std::ranges::count(seen, key->name) > 0, fmt::format("{}: {} is given twice", whole, key->name));
        seen.push_back(key->name);
        key->read(given.part(has_value ? parts[i].substr(equals + 1) : parts[i]));
    }
}

// ---- declarations ----

OptionSpec& OptionSpec::also(const std::string& names) {
    aliases = split_list(names, ' ');
    return *this;
}

OptionSpec& OptionSpec::required(const char* what) {
    missing = what;
    return *this;
}

OptionSpec& OptionSpec::choosing(const Names& names, std::string of_several) {
    choices = names;
    separators = std::move(of_several);
    if (const std::size_t place = help.find("{}"); place != std::string::npos)
        help.replace(place, 2, fmt::format("{}", fmt::join(names, ", ")));
    return *this;
}

OptionSpec& OptionSpec::detailed(const std::string& text) {
    details = text;
    return *this;
}

std::string field_of_option(std::string name) {
    std::ranges::replace(name, '-', '_');
    return name;
}

std::string help_of(const OptionSpec& option, bool all) {
    Names others;
    for (const std::string& alias : option.aliases)
        others.push_back(with_dashes(alias));
    return option.help + (option.is_positional ? "; the name may be left out" : "") +
           (others.empty() ? "" : fmt::format("; also {}", fmt::join(others, ", "))) +
           (all && !option.details.empty() ? ". " + option.details : "");
}

OptionSet::OptionSet() {
    group("General");
    add("help", "", "show this and exit; -h likewise; --help=all: every option");
    add("config", "FILE", "read 'option = value' lines; the command line goes first");
}

OptionSpec& OptionSet::add(const char* name, const char* value, const std::string& help, ReadValue read) {
    if (read)
        check([name = std::string(name), read = std::move(read)](const ParsedOptions& given) {
            std::ranges::for_each(given.values(name), read);
        });
    return groups_.back().options.emplace_back(OptionSpec{name, value, help});
}

OptionSpec& OptionSet::add_output(const char* name, std::string& field, const std::string& help,
                                  const std::string& refusal_of_stdout) {
    OptionSpec& option = add(name, "FILE", help, [&field, refusal_of_stdout](const GivenValue& given) {
        refuse_if(given.text == "-", "--" + given.name + refusal_of_stdout);
        field = given.text;
    });
    option.is_written = true;
    return option;
}

void OptionSet::show_first(const Names& common) {
    std::size_t found = 0;
    for (OptionGroup& group : groups_)
        for (OptionSpec& option : group.options) {
            option.is_common = std::ranges::count(common, option.name) > 0;
            found += option.is_common ? 1 : 0;
        }
    if (found != common.size()) throw std::logic_error("a common option is not declared");
}

void OptionSet::read(const ParsedOptions& given) const {
    for_each_option(groups_, [&](const OptionSpec& option) {
        if (!option.missing.empty() && !given.given(option.name))
            throw BadOption(fmt::format("--{} {} is missing: {}", option.name,
                                        option.value.substr(0, option.value.find('|')), option.missing));
        if (!option.is_directory() && !option.is_file()) return;
        for (const GivenValue& value : given.values(option.name))
            if (value.text.empty())
                throw BadOption(fmt::format("--{} is empty; name a {}", option.name,
                                            option.is_directory()      ? "directory"
                                            : option.value == "FILE|-" ? "file or -"
                                                                       : "file"));
    });
    for (const auto& step : steps_)
        step(given);
}

std::string OptionSet::with_default(std::string help, const std::string& text) {
    if (const std::size_t place = help.find("{}"); place != std::string::npos) return help.replace(place, 2, text);
    return help.ends_with(']') || text.empty() ? help : fmt::format("{} [{}]", help, text);
}

std::string OptionSet::default_text(double value) {
    return fmt::format("{:g}", value);
}

std::string OptionSet::default_text(const std::vector<double>& values) {
    return fmt::format("{:g}", fmt::join(values, ","));
}

// ---- command line ----

namespace {

const std::string kNoText(1, '\0'); // the value of "--seed="; no argument can have it

// Returns the declarations for Boost's parser. It takes a name with one dash only as one letter with its value after
// it; see short_option().
po::options_description described(const std::vector<OptionGroup>& groups) {
    po::options_description all;
    for_each_option(groups, [&](const OptionSpec& option) {
        std::string names = option.name;
        for (const std::string& alias : option.aliases)
            if (with_dashes(alias).starts_with("--")) names += "," + alias;
        all.add(boost::make_shared<po::option_description>(names.c_str(), new po::untyped_value(option.is_switch())));
    });
    return all;
}

// Returns name and value of "-n" and "-n=5". Also handles "--seed=": it is an option without a value, or, if no option
// has that name, perhaps the value of another option.
std::pair<std::string, std::string> short_option(const std::vector<OptionGroup>& groups, const std::string& argument) {
    const std::size_t equals = argument.find('=');
    const bool is_long = argument.starts_with("--"), has_value = equals != std::string::npos;
    const std::string value = has_value ? argument.substr(equals + 1) : "";
    if (is_long && (!has_value || !value.empty())) return {};
    if (const OptionSpec* option = find_option(groups, argument))
        return {option->name, has_value && value.empty() ? kNoText : value};
    return {is_long ? argument : "", ""};
}

po::parsed_options run_parser(const std::vector<OptionGroup>& groups, const Names& arguments) {
    const po::options_description options = described(groups);
    po::positional_options_description positional;
    for_each_option(groups, [&](const OptionSpec& option) {
        if (option.is_positional) positional.add(option.name.c_str(), -1);
    });
    po::command_line_parser parser(arguments);
    parser.options(options).style(po::command_line_style::allow_long | po::command_line_style::long_allow_adjacent |
                                  po::command_line_style::long_allow_next); // abbreviations are not allowed
    parser.extra_parser([&](const std::string& argument) { return short_option(groups, argument); });
    if (positional.max_total_count() > 0) parser.positional(positional);
    return parser.run();
}

// Refuses "--target --prompt x": an option must not be taken for a value.
void refuse_option_as_value(const std::vector<OptionGroup>& groups, const Names& arguments, const OptionSpec& option,
                            const std::string& value) {
    if (find_option(groups, value) == nullptr) return;
    for (std::size_t i = 0; i + 1 < arguments.size(); ++i)
        if (arguments[i + 1] == value && find_option(groups, arguments[i]) == &option)
            throw BadOption(fmt::format("{0} needs a value: {1}; write {0}={2} if {2} is meant as one", arguments[i],
                                        option.value, value));
}

// Takes the options that Boost found, and refuses errors that Boost accepts.
ParsedOptions taken(const std::vector<OptionGroup>& groups, const Names& arguments) {
    ParsedOptions parsed;
    for (const po::option& found : run_parser(groups, arguments).options) {
        const bool is_named = found.position_key == -1 && !found.string_key.empty();
        const std::string& argument = is_named ? found.string_key : found.original_tokens.front();
        if (!is_named && argument.size() > 1 && argument.front() == '-') refuse_unknown(groups, argument);
        refuse_if(found.string_key.empty(),
                  "unexpected argument '" + argument + "'; options begin with --, and --help lists them");
        const OptionSpec& option = *find_spec(groups, found.string_key);
        const std::string text = option.is_switch() ? "true" : found.value.front();
        refuse_if(text == kNoText, fmt::format("--{} needs a value: {}", option.name, option.value));
        const bool is_next_argument = !found.original_tokens.empty() && found.original_tokens.back() == text;
        if (is_named && is_next_argument) refuse_option_as_value(groups, arguments, option, text);
        parsed.add({option.name, text});
    }
    return parsed;
}

// Reports the first of several mistakes, in our words.
ParsedOptions parse_arguments(const std::vector<OptionGroup>& groups, const Names& arguments) {
    try {
        return taken(groups, arguments);
    } catch (const po::error_with_option_name&) {
        Names before = arguments;
        while (!before.empty()) { // arguments that Boost accepts may hold an earlier mistake
            before.pop_back();
            try {
                taken(groups, before);
                break;
            } catch (const po::error_with_option_name&) {
                continue;
            }
        }
        const std::string& wrong = arguments[before.size()];
        const OptionSpec* option = find_option(groups, wrong);
        if (option == nullptr) refuse_unknown(groups, wrong);
        refuse_if(option->is_switch(), "--" + option->name + " takes no value");
        throw BadOption(fmt::format("--{} needs a value: {}", option->name, option->value));
    }
}

} // namespace

// The file may be a pipe, or a device that never ends.
std::string read_named_file(const GivenValue& given) {
    constexpr std::size_t kMaxBytes = std::size_t{1} << 20;
    const std::string name = "--" + given.name + " " + given.text;
    std::ifstream stream(given.text, std::ios::binary);
    refuse_if(!stream, name + ": cannot be read; check the path");
    std::string text(kMaxBytes + 1, '\0');
    stream.read(text.data(), static_cast<std::streamsize>(text.size()));
    refuse_if(stream.bad(), name + ": cannot be read; it must be a file");
    text.resize(static_cast<std::size_t>(stream.gcount()));
    refuse_if(text.size() > kMaxBytes, name + ": is larger than 1 MiB; name a smaller file");
    return text;
}

constexpr const char* kHelpOnAll = "--help=all";

bool asks_for_help(const std::string& argument) {
    return argument == "--help" || argument == "-h" || argument == kHelpOnAll;
}

ParsedOptions parse_options(const std::vector<OptionGroup>& groups, const Names& arguments) {
    ParsedOptions parsed;
    if (std::any_of(arguments.begin(), arguments.end(), asks_for_help)) {
        parsed.add({"help", std::ranges::count(arguments, kHelpOnAll) > 0 ? "all" : "true"});
        return parsed;
    }
    parsed = parse_arguments(groups, arguments);
    refuse_repeats(groups, parsed);
    if (parsed.given("config")) parsed.add_missing(parse_config(groups, parsed.text("config")));
    return parsed;
}

ParsedOptions parse_config(const std::vector<OptionGroup>& groups, const std::string& file) {
    refuse_if(file.empty(), "--config is empty; name a file");
    std::istringstream stream(read_named_file({"config", file}));
    ParsedOptions parsed;
    std::string line;
    for (int number = 1; std::getline(stream, line); ++number) {
        if (number == 1 && line.starts_with("\xef\xbb\xbf")) line.erase(0, 3); // some editors write this mark
        line = trim(line);
        if (line.empty() || line.front() == '#') continue;
        const std::string where = fmt::format("{} line {}", file, number);
        const std::size_t equals = line.find('=');
        refuse_if(equals == std::string::npos, where + ": must read 'option = value'");
        const std::string name = trim(line.substr(0, equals));
        std::string value = trim(line.substr(equals + 1));
        const OptionSpec* spec = find_spec(groups, name);
        refuse_if(name == "config" || name == "help", where + ": " + name + " belongs on the command line");
        refuse_if(spec == nullptr, where + ": unknown option '" + name + "'" + help_for_unknown(name, groups));
        if (value.starts_with('"')) {
            const auto json = nlohmann::json::parse(value, nullptr, false);
            refuse_if(!json.is_string(), where + ": the value in quotes must be a JSON string");
            value = json.get<std::string>();
        }
        if (spec->is_switch()) {
            refuse_if(value != "true" && value != "false",
                      where + ": " + name + " is a switch; it takes true or false");
            if (value == "false") continue;
        }
        parsed.add({spec->name, value, " (" + where + ")"});
    }
    refuse_repeats(groups, parsed);
    return parsed;
}

// ---- --help ----

namespace {

bool has_common_options(const std::vector<OptionGroup>& groups) {
    bool has_any = false;
    for_each_option(groups, [&](const OptionSpec& option) { has_any |= option.is_common; });
    return has_any;
}

// Returns the groups with their common options alone.
std::vector<OptionGroup> common_of(std::vector<OptionGroup> groups) {
    for (OptionGroup& group : groups)
        std::erase_if(group.options, [](const OptionSpec& option) { return !option.is_common; });
    std::erase_if(groups, [](const OptionGroup& group) { return group.options.empty(); });
    return groups;
}

} // namespace

std::string options_text(const std::vector<OptionGroup>& groups, bool all) {
    constexpr std::size_t kLine = 109, kMaxHead = 49;
    std::string text;
    all = all || !has_common_options(groups);
    for (const OptionGroup& group : all ? groups : common_of(groups)) {
        std::size_t column = 23; // column of the help, without the blank before it
        for (const OptionSpec& option : group.options)
            column = std::max(column, option.name.size() + option.value.size() + 5);
        column = std::min(column, kMaxHead) + 1;
        text += "\n" + group.title + ":\n";
        for (const OptionSpec& option : group.options) {
            const std::string head = fmt::format("  --{} {}", option.name, option.value);
            text += fmt::format("{:<{}}{}", head, column, head.size() >= column ? "\n" + std::string(column, ' ') : "");
            std::string help = help_of(option, all);
            while (help.size() > kLine - column) { // breaks after the last blank, or where the line is full
                std::size_t end = kLine - column;
                if (help[end - 1] != ' ' && help[end] != ' ') end = help.rfind(' ', end - 1) + 1;
                text += help.substr(0, end) + "\n" + std::string(column, ' ');
                help.erase(0, help[end] == ' ' ? end + 1 : end);
            }
            text += help + "\n";
        }
    }
    return text;
}

// ---- words ----

// Counts letters that are added, left out, replaced or exchanged with the next one.
std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> before(b.size() + 1), previous(b.size() + 1), row(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j)
        previous[j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            row[j] = std::min({previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (a[i - 1] == b[j - 1] ? 0u : 1u)});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = std::min(row[j], before[j - 2] + 1);
        }
        std::swap(before, previous);
        std::swap(previous, row);
    }
    return previous.back();
}

std::optional<std::string> nearest(std::string_view name, const Names& candidates) {
    const std::size_t most = name.size() <= 4 ? 1 : std::max<std::size_t>(2, name.size() / 3);
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

std::string must_be_one_of(const Names& choices, std::string_view given) {
    const auto meant = nearest(given, choices);
    return fmt::format("must be one of {}{}", fmt::join(choices, ", "), meant ? "; did you mean " + *meant + "?" : "");
}

std::string listed(Names words, const char* before_last) {
    const std::string last = words.back();
    words.pop_back();
    return words.empty() ? last : fmt::format("{} {} {}", fmt::join(words, ", "), before_last, last);
}

Names split_list(const std::string& text, char separator) {
    Names parts;
    std::istringstream list(text);
    for (std::string one; std::getline(list, one, separator);)
        parts.push_back(trim(one));
    return parts;
}

} // namespace entrodraft::launch
