// Makes options of stop rules from their declarations: see shared_options.h.
#include "launch/cli/shared_options.h"

#include "launch/start/counted.h"

#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <numbers>

namespace entrodraft::launch {

namespace {

using Parameter = spec::StopRuleParameter;
using RuleType = spec::StopRuleType;
static_assert(Parameter::kUnlimited == kNoLimit, "ranges of parameters are those of their options");
using IsMeant = std::function<bool(const RuleType&)>; // or a member of RuleType

Names names_of_rules(const IsMeant& is_meant) {
    Names names;
    for (const RuleType& rule : spec::all_stop_rules())
        if (is_meant(rule)) names.push_back(rule.name);
    return names;
}

// Returns each option once.
Names options_of_parameters(const std::function<bool(const Parameter&)>& is_meant) {
    Names options;
    for (const RuleType& rule : spec::all_stop_rules())
        for (const Parameter& parameter : rule.parameters)
            if (is_meant(parameter) && std::ranges::count(options, parameter.option) == 0)
                options.emplace_back(parameter.option);
    return options;
}

// Returns the parameters of all rules, in their order.
const Names& stop_rule_parameter_names() {
    static const Names names = options_of_parameters([](const Parameter&) { return true; });
    return names;
}

bool looks_at_distributions(const RuleType& rule) {
    return rule.looks_at != spec::LooksAt::nothing;
}

bool is_entropy(const Parameter& parameter) {
    return parameter.kind == Parameter::Kind::entropy || parameter.kind == Parameter::Kind::squared_entropy;
}

bool is_switch(const Parameter& parameter) {
    return parameter.kind == Parameter::Kind::on_off;
}

// ---- help ----

// The help of an option for rules that describe it in the same words, with their defaults. A default follows each rule.
// If the rules share one default and words follow the rules, it stands at the end.
struct HelpOfRules {
    std::string words;
    Names rules, defaults;

    std::string text() const {
        const std::size_t place = words.find("{}");
        const bool one_default = place + 2 != words.size() &&
                                 std::ranges::adjacent_find(defaults, std::ranges::not_equal_to()) == defaults.end();
        Names shown = rules;
        for (std::size_t i = 0; i < defaults.size() && !one_default; ++i)
            shown[i] += " [" + defaults[i] + "]";
        const std::string help = std::string(words).replace(place, 2, listed(shown, "and"));
        return one_default && !defaults.empty() ? help + " [" + defaults[0] + "]" : help;
    }
};

void declare_parameter(OptionSet& set, const std::string& option) {
    std::vector<HelpOfRules> parts;
    const Parameter* parameter = nullptr; // of any rule: they differ only in their help
    for (const RuleType& rule : spec::all_stop_rules()) {
        const int index = rule.index_of(option);
        if (index < 0) continue;
        parameter = &rule.parameters[index];
        auto part = std::ranges::find(parts, parameter->help, &HelpOfRules::words);
        if (part == parts.end()) part = parts.insert(part, {parameter->help, {}, {}});
        part->rules.push_back(rule.name);
        if (!is_switch(*parameter)) part->defaults.push_back(fmt::format("{:g}", parameter->default_value));
    }
    Names texts;
    for (const HelpOfRules& part : parts)
        texts.push_back(part.text());
    set.add(option.c_str(), is_switch(*parameter) ? "" : parameter->symbol, fmt::format("{}", fmt::join(texts, "; ")))
        .also(parameter->aliases)
        .repeatable = !is_switch(*parameter);
}

// ---- names ----

// Returns the rule that a name of other programs and papers means: "entropy" is static. Returns other names unchanged.
std::string meant_rule(const std::string& name) {
    for (const RuleType& rule : spec::all_stop_rules()) {
        if (std::ranges::count(split_list(rule.other_names, ' '), name) > 0) return rule.name;
    }
    return name;
}

[[noreturn]] void refuse_unknown_listed_rule(const std::string& text, const std::string& name, const Names& beside) {
    refuse_if(text == "oracle",
              "--rules oracle: no run knows which token will be rejected; each table shows the oracle's figure, and "
              "entrodraft simulate replays it");
    refuse_if(text == "grid", "--rules grid is for entrodraft simulate; bench compare has --tune");
    Names names = with_stop_rules({"all", "none"});
    names.insert(names.end(), beside.begin(), beside.end());
    const auto meant = nearest(meant_rule(name), names);
    throw BadOption(fmt::format("--rules {}: a rule is {}, all{} or none{}", text, stop_rule_forms(" or "),
                                beside.empty() ? "" : fmt::format(", {}", fmt::join(beside, ", ")),
                                meant ? "; did you mean " + *meant + "?" : ""));
}

// ---- values ----

// Factor from the unit to nats: ln 2 for an entropy in bits, its square for a squared entropy.
double nats_of(const Parameter& parameter, EntropyUnit unit) {
    if (unit == EntropyUnit::nats || !is_entropy(parameter)) return 1;
    return parameter.kind == Parameter::Kind::squared_entropy ? std::numbers::ln2 * std::numbers::ln2
                                                              : std::numbers::ln2;
}

// A level of drafting: its rule, and the options for this level alone.
struct Level {
    const RuleType* rule = nullptr;
    std::map<std::string, GivenValue> own = {};

    bool has(const std::string& option) const { return own.count(option) > 0; }
};

// Parses "static:2.25"; the numbers count as given options. There is no rule if the name is unknown.
Level parse_level(const std::string& option, const std::string& text) {
    const Names parts = split_list(text, ':');
    const std::string whole = fmt::format("--{} {}", option, text);
    Level level = {parts.empty() ? nullptr : spec::find_stop_rule(parts[0])};
    for (std::size_t i = 1; level.rule != nullptr && i < parts.size(); ++i) {
        const auto& parameters = level.rule->parameters;
        refuse_if(i > parameters.size() || (is_switch(parameters[i - 1]) && parts[i] != parameters[i - 1].symbol),
                  whole + ": too many numbers for this rule");
        level.own[parameters[i - 1].option] = {parameters[i - 1].option, parts[i], "", whole};
    }
    return level;
}

double value_of(const Level& level, const Parameter& parameter, EntropyUnit unit, int cap) {
    const bool is_length = parameter.kind == Parameter::Kind::draft_length, is_given = level.has(parameter.option);
    if (is_switch(parameter)) return is_given ? 1 : 0;
    if (!is_given) return is_length ? std::min<double>(parameter.default_value, cap) : parameter.default_value;
    const GivenValue& given = level.own.at(parameter.option);
    const Range range = {parameter.min, parameter.max};
    double value = 0;
    if (int whole = 0; parameter.is_whole()) {
        read_value(given, range, whole);
        value = whole;
    } else {
        read_value(given, range, value);
    }
    refuse_if(is_length && value > cap, fmt::format("{} must be at most --max-draft-tokens {}", given.spelled(), cap));
    return value * nats_of(parameter, unit);
}

spec::StopRuleOptions rule_of_level(const Level& level, spec::StopRuleOptions common, EntropyUnit unit) {
    if (level.has("max-draft-tokens")) read_value(level.own.at("max-draft-tokens"), kDraftTokens, common.max_tokens);
    if (level.has("min-draft-tokens")) read_value(level.own.at("min-draft-tokens"), kDraftTokens, common.min_tokens);
    refuse_if(common.min_tokens > common.max_tokens, fmt::format("--min-draft-tokens {} is above --max-draft-tokens {}",
                                                                 common.min_tokens, common.max_tokens));
    spec::StopRuleOptions rule(level.rule->name);
    rule.max_tokens = common.max_tokens;
    for (const Parameter& parameter : level.rule->parameters)
        rule.set(parameter.option, value_of(level, parameter, unit, rule.max_tokens));
    return with_common(rule, common);
}

// ---- levels ----

// Returns the rules of the levels. The last rule given counts for all later levels, too.
std::vector<Level> levels_of(const ParsedOptions& given, std::size_t n_levels) {
    Names texts = given.texts("stop-rule");
    refuse_if(texts.size() > n_levels,
              fmt::format("--stop-rule is given {} times, but there {}", texts.size(),
                          n_levels == 1 ? "is 1 level of drafting" : fmt::format("are {} levels", n_levels)));
    if (texts.empty()) texts.emplace_back(kDefaultStopRule);
    std::vector<Level> levels;
    for (std::size_t i = 0; i < n_levels; ++i) {
        const std::string& text = texts[std::min(i, texts.size() - 1)];
        levels.push_back(parse_level("stop-rule", text));
        const std::string name = text.substr(0, text.find(':'));
        refuse_if(name == "oracle", "--stop-rule oracle stops before the first token that would be rejected, which no "
                                    "run knows; see entrodraft simulate --rules oracle");
        refuse_if(levels.back().rule == nullptr,
                  "--stop-rule " + name + ": " + must_be_one_of(spec::stop_rule_names(), meant_rule(name)));
    }
    return levels;
}

void require_rule(const std::string& option, const IsMeant& belongs_to, const std::vector<Level>& levels) {
    Names present;
    for (const Level& level : levels) {
        if (belongs_to(*level.rule)) return;
        present.push_back(level.rule->name);
    }
    throw BadOption(fmt::format("--{} has no effect with --stop-rule {}; it belongs to {}", option,
                                fmt::join(present, ", "), fmt::join(names_of_rules(belongs_to), ", ")));
}

// Distributes the values of one option among the levels whose rule takes it. The last value counts for later levels,
// too. A switch is given once, for all levels.
void deal_out(const ParsedOptions& given, const std::string& option, const IsMeant& belongs_to,
              std::vector<Level>& levels) {
    const std::vector<GivenValue>& values = given.values(option);
    if (values.empty()) return;
    require_rule(option, belongs_to, levels);
    std::size_t taken = 0;
    for (Level& level : levels) {
        if (!belongs_to(*level.rule)) continue;
        const int index = level.rule->index_of(option);
        const bool on_off = index >= 0 && is_switch(level.rule->parameters[index]);
        refuse_if(
            level.has(option) && !on_off,
            fmt::format("--{} is a number behind --stop-rule {} already; give it once", option, level.rule->name));
        level.own[option] = values[std::min(taken++, values.size() - 1)];
    }
    refuse_if(values.size() > taken, fmt::format("--{} is given {} times, but {} it", option, values.size(),
                                                 taken == 1 ? "1 level takes" : fmt::format("{} levels take", taken)));
}

} // namespace

// ---- declarations ----

const Names kEntropyNames = {"raw", "adjusted"};

Names with_stop_rules(Names names) {
    names.insert(names.end(), spec::stop_rule_names().begin(), spec::stop_rule_names().end());
    return names;
}

std::string stop_rule_forms(const char* between_forms) {
    Names rules;
    for (const RuleType& rule : spec::all_stop_rules()) {
        Names forms = {rule.name};
        for (const Parameter& parameter : rule.parameters)
            if (is_switch(parameter))
                forms.push_back(forms.back() + ":" + parameter.symbol);
            else
                forms.back() += std::string(":") + parameter.symbol;
        rules.push_back(fmt::format("{}", fmt::join(forms, between_forms)));
    }
    return fmt::format("{}", fmt::join(rules, ", "));
}

OptionSpec& declare_min_draft_tokens(OptionSet& set, int& field) {
    return set.add("min-draft-tokens", "N", field, kDraftTokens, "drafted tokens before which no rule fires");
}

void declare_drop_stop_token(OptionSet& set, bool& field) {
    set.add("drop-stop-token", field, "drop the token that fired a threshold rule, as BiLD does (for study; slower)");
}

void declare_stop_rules(OptionSet& set, SpeculationOptions& speculation) {
    spec::StopRuleOptions& every = speculation.every_rule;
    const auto with_dashes = [](const Names& options) { return fmt::format("--{}", fmt::join(options, ", --")); };
    set.add("stop-rule", "RULE",
            fmt::format("when drafting stops: {{}}; with values as in static:2.25; repeated, as its options below: of "
                        "each level of a cascade [{}]",
                        kDefaultStopRule))
        .choosing(spec::stop_rule_names())
        .repeatable = true;
    for (const std::string& option : stop_rule_parameter_names())
        declare_parameter(set, option);
    set.add("entropy-unit", "UNIT", speculation.entropy_unit, {"nats", "bits"},
            "{}: of " + with_dashes(options_of_parameters(is_entropy)));
    set.add("entropy-of", "WHICH", every.entropy_of, kEntropyNames,
            "raw, adjusted (by penalties, temperature and filters): the distribution that rules look at");
    set.add("max-draft-tokens", "N",
            fmt::format("most drafted tokens a round, 1 to {0} [{1}; with {2} {0}]", kDraftTokens.max, every.max_tokens,
                        with_dashes(options_of_parameters(&Parameter::is_persistence))))
        .also("draft-max")
        .repeatable = true;
    declare_min_draft_tokens(set, every.min_tokens).also("draft-min").repeatable = true;
    declare_drop_stop_token(set, every.drop_stop_token);
    set.add("costs", "FILE",
            fmt::format("of {}: costs of passes from bench latency, for repeatable runs [measured in the run]",
                        fmt::join(names_of_rules(&RuleType::weighs_costs), ", ")))
        .repeatable = true;
}

// ---- values ----

spec::StopRuleOptions with_common(spec::StopRuleOptions rule, const spec::StopRuleOptions& common) {
    rule.min_tokens = common.min_tokens;
    rule.drop_stop_token = common.drop_stop_token && rule.type().may_drop();
    rule.entropy_of = looks_at_distributions(rule.type()) ? common.entropy_of : spec::EntropyOf::raw;
    if (const std::string why = spec::why_invalid(rule); !why.empty()) throw BadOption(why);
    return rule;
}

void read_stop_rules(const ParsedOptions& given, std::size_t n_levels, SpeculationOptions& speculation) {
    const auto has_entropies = [](const RuleType& rule) { return std::ranges::any_of(rule.parameters, is_entropy); };
    std::vector<Level> levels = levels_of(given, n_levels);
    for (const std::string& option : stop_rule_parameter_names())
        deal_out(
            given, option, [&](const RuleType& rule) { return rule.index_of(option) >= 0; }, levels);
    deal_out(given, "costs", &RuleType::weighs_costs, levels);
    for (const char* option : {"max-draft-tokens", "min-draft-tokens"})
        deal_out(
            given, option, [](const RuleType&) { return true; }, levels);
    if (given.given("entropy-unit")) require_rule("entropy-unit", has_entropies, levels);
    if (given.given("drop-stop-token")) require_rule("drop-stop-token", &RuleType::may_drop, levels);
    if (given.given("entropy-of")) require_rule("entropy-of", looks_at_distributions, levels);
    for (Level& level : levels) {
        for (const Parameter& parameter : level.rule->parameters)
            if (parameter.is_persistence && level.has(parameter.option) && !level.has("max-draft-tokens"))
                level.own["max-draft-tokens"] = {"max-draft-tokens", fmt::format("{}", kDraftTokens.max)};
        speculation.stop_rules.push_back(rule_of_level(level, speculation.every_rule, speculation.entropy_unit));
        speculation.costs.push_back(level.has("costs") ? level.own["costs"].text : "");
    }
}

std::vector<std::vector<spec::StopRuleOptions>> compared_rules(const std::string& rules,
                                                               const spec::StopRuleOptions& common,
                                                               std::size_t n_levels, const Names& beside) {
    std::vector<std::vector<spec::StopRuleOptions>> settings;
    const auto add = [&](const std::string& text) {
        std::vector<spec::StopRuleOptions> levels;
        for (const std::string& rule : split_list(text, '/')) {
            const Level level = parse_level("rules", rule);
            if (level.rule == nullptr) refuse_unknown_listed_rule(rule, rule.substr(0, rule.find(':')), beside);
            refuse_if(rule.find("..") != std::string::npos,
                      "--rules " + rule + ": ranges are for entrodraft simulate; name each setting here");
            levels.push_back(rule_of_level(level, common, EntropyUnit::nats));
        }
        refuse_if(levels.empty() || levels.size() > n_levels,
                  fmt::format("--rules {}: rules of {}, but there {}", text, counted(levels.size(), "level"),
                              n_levels == 1 ? "is 1" : fmt::format("are {}", n_levels)));
        levels.resize(n_levels, levels.back());
        settings.push_back(levels);
    };
    for (const std::string& one : split_list(rules))
        if (one == "all")
            std::ranges::for_each(spec::stop_rule_names(), add);
        else if (one != "none") // plain decoding always runs
            add(one);
    refuse_if(settings.empty() && rules != "none", "--rules is empty; name some, or none for plain decoding alone");
    return settings;
}

std::string describe(const spec::StopRuleOptions& rule, EntropyUnit unit) {
    std::string text = rule.name();
    const std::vector<Parameter>& parameters = rule.type().parameters;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        const Parameter& parameter = parameters[i];
        const double value = rule.values()[i];
        if (is_switch(parameter) && value == 0) continue;
        text += fmt::format(", {}", parameter.label);
        if (is_switch(parameter)) continue;
        if (*parameter.label != '\0') text += " ";
        text += parameter.kind == Parameter::Kind::draft_length ? counted(static_cast<int>(value), "token")
                                                                : fmt::format("{:g}", value / nats_of(parameter, unit));
        if (is_entropy(parameter)) text += unit == EntropyUnit::bits ? " bits" : " nats";
        if (parameter.kind == Parameter::Kind::squared_entropy) text += "^2";
    }
    return text + (rule.entropy_of == spec::EntropyOf::adjusted ? ", adjusted" : "");
}

} // namespace entrodraft::launch
