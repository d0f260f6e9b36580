// Makes options of stop rules from their declarations: see shared_options.h.
#include "launch/cli/shared_options.h"

#include "launch/start/counted.h"

#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <map>

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

bool looks_at_distributions(const RuleType& rule) {
    return rule.looks_at != spec::LooksAt::nothing;
}

bool is_switch(const Parameter& parameter) {
    return parameter.kind == Parameter::Kind::on_off;
}

// Keys that rules take beyond their own parameters.
constexpr const char *kMin = "min", *kOf = "of", *kDrop = "drop";

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

// A level of drafting: its rule, and its values by parameter, key or option.
struct Level {
    const RuleType* rule = nullptr;
    std::map<std::string, GivenValue> own = {};

    bool has(const std::string& key) const { return own.count(key) > 0; }
};

// Parses "static:2.25", "moving-average:window=3" or "heuristic:5:persistent": numbers in the order of the parameters,
// keys with values, and switches. There is no rule if its name is unknown.
Level parse_level(const GivenValue& given) {
    Level level = {spec::find_stop_rule(given.head().text)};
    if (level.rule == nullptr) return level;
    std::vector<ValueKey> keys;
    const auto add = [&](const char* name, bool is_switch, bool by_place) {
        const auto keep = [&level, name](const GivenValue& value) { level.own[name] = value; };
        keys.push_back({name, keep, is_switch, by_place});
    };
    for (const Parameter& parameter : level.rule->parameters)
        add(parameter.name, is_switch(parameter), !is_switch(parameter));
    add(kMin, false, false);
    if (looks_at_distributions(*level.rule)) add(kOf, false, false);
    if (level.rule->may_drop()) add(kDrop, true, false);
    read_keys(given, keys);
    return level;
}

double value_of(const Level& level, const Parameter& parameter, int cap) {
    const bool is_length = parameter.kind == Parameter::Kind::draft_length, is_given = level.has(parameter.name);
    if (is_switch(parameter)) return is_given ? 1 : 0;
    if (!is_given) return is_length ? std::min<double>(parameter.default_value, cap) : parameter.default_value;
    const GivenValue& given = level.own.at(parameter.name);
    const Range range = {parameter.min, parameter.max};
    double value = 0;
    if (int whole = 0; parameter.is_whole()) {
        read_value(given, range, whole);
        value = whole;
    } else {
        read_value(given, range, value);
    }
    refuse_if(is_length && value > cap, fmt::format("{} must be at most --max-draft-tokens {}", given.spelled(), cap));
    return value;
}

spec::StopRuleOptions rule_of_level(const Level& level, spec::StopRuleOptions common) {
    if (level.has("max-draft-tokens")) read_value(level.own.at("max-draft-tokens"), kDraftTokens, common.max_tokens);
    if (level.has(kMin)) read_value(level.own.at(kMin), kDraftTokens, common.min_tokens);
    if (level.has(kOf)) common.entropy_of = static_cast<spec::EntropyOf>(index_among(kEntropyNames, level.own.at(kOf)));
    common.drop_stop_token |= level.has(kDrop);
    refuse_if(common.min_tokens > common.max_tokens,
              fmt::format("--stop-rule {}: min {} is above --max-draft-tokens {}", level.rule->name, common.min_tokens,
                          common.max_tokens));
    spec::StopRuleOptions rule(level.rule->name);
    rule.max_tokens = common.max_tokens;
    for (const Parameter& parameter : level.rule->parameters)
        rule.set(parameter.name, value_of(level, parameter, rule.max_tokens));
    return with_common(rule, common);
}

// ---- levels ----

// The same, but throws if there is no such rule.
Level parse_known_level(const GivenValue& given) {
    Level level = parse_level(given);
    const std::string name = given.head().text;
    refuse_if(name == "oracle", "--stop-rule oracle stops before the first token that would be rejected, which no "
                                "run knows; see entrodraft simulate --rules oracle");
    refuse_if(level.rule == nullptr,
              "--stop-rule " + name + ": " + must_be_one_of(spec::stop_rule_names(), meant_rule(name)));
    return level;
}

// Returns the rules of the levels. The last rule given counts for all later levels, too.
std::vector<Level> levels_of(const ParsedOptions& given, std::size_t n_levels) {
    std::vector<GivenValue> values = given.values("stop-rule");
    refuse_if(values.size() > n_levels,
              fmt::format("--stop-rule is given {} times, but there {}", values.size(),
                          n_levels == 1 ? "is 1 level of drafting" : fmt::format("are {} levels", n_levels)));
    if (values.empty()) values.push_back({"stop-rule", kDefaultStopRule});
    std::vector<Level> levels;
    for (std::size_t i = 0; i < n_levels; ++i) {
        const GivenValue& value = values[std::min(i, values.size() - 1)];
        levels.push_back(parse_known_level(value));
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
// too.
void deal_out(const ParsedOptions& given, const std::string& option, const IsMeant& belongs_to,
              std::vector<Level>& levels) {
    const std::vector<GivenValue>& values = given.values(option);
    if (values.empty()) return;
    require_rule(option, belongs_to, levels);
    std::size_t taken = 0;
    for (Level& level : levels)
        if (belongs_to(*level.rule)) level.own[option] = values[std::min(taken++, values.size() - 1)];
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
        std::string form = rule.name;
        for (const Parameter& parameter : rule.parameters)
            form += is_switch(parameter) ? fmt::format("[:{}]", parameter.name)
                                         : fmt::format(":{}={:g}", parameter.name, parameter.default_value);
        rules.push_back(form);
    }
    return fmt::format("{}", fmt::join(rules, between_forms));
}

OptionSpec& declare_min_draft_tokens(OptionSet& set, int& field) {
    return set.add("min-draft-tokens", "N", field, kDraftTokens, "drafted tokens before which no rule fires");
}

void declare_drop_stop_token(OptionSet& set, bool& field) {
    set.add("drop-stop-token", field, "drop the token that fired a threshold rule, as BiLD does (for study; slower)");
}

void declare_stop_rules(OptionSet& set, SpeculationOptions& speculation) {
    OptionSpec& option =
        set.add("stop-rule", "RULE",
                fmt::format("when drafting stops: {{}}, with values such as static:2.25 [{}]", kDefaultStopRule));
    option.choosing(spec::stop_rule_names())
        .detailed(fmt::format(
            "Values follow a rule: {}. Every rule takes min=N, drafted tokens before which it does not fire. Most take "
            "of=adjusted: they look at the distribution that tokens are drawn from; threshold rules take drop: the "
            "token that fires is left out, as in BiLD. Repeated: for each level of a cascade",
            stop_rule_forms()));
    option.repeatable = true;
    const auto keeps_on = [](const RuleType& rule) {
        return std::ranges::any_of(rule.parameters, &Parameter::is_persistence);
    };
    set.add("max-draft-tokens", "N",
            fmt::format("most drafted tokens a round, 1 to {0} [{1}; with {2}:persistent {0}]", kDraftTokens.max,
                        speculation.every_rule.max_tokens, fmt::join(names_of_rules(keeps_on), ", ")))
        .also("draft-max")
        .repeatable = true;
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
    std::vector<Level> levels = levels_of(given, n_levels);
    deal_out(given, "costs", &RuleType::weighs_costs, levels);
    deal_out(
        given, "max-draft-tokens", [](const RuleType&) { return true; }, levels);
    for (Level& level : levels) {
        for (const Parameter& parameter : level.rule->parameters)
            if (parameter.is_persistence && level.has(parameter.name) && !level.has("max-draft-tokens"))
                level.own["max-draft-tokens"] = {"max-draft-tokens", fmt::format("{}", kDraftTokens.max)};
        speculation.stop_rules.push_back(rule_of_level(level, speculation.every_rule));
        speculation.costs.push_back(level.has("costs") ? level.own["costs"].text : "");
    }
}

spec::StopRuleOptions rule_of_line(const std::string& text, const RulesOfLines& of_run) {
    spec::StopRuleOptions common;
    common.max_tokens = of_run.max_draft_tokens;
    const spec::StopRuleOptions rule = rule_of_level(parse_known_level({"stop-rule", text}), common);
    if (const std::string why = why_biased(rule, of_run.acceptance); !why.empty()) throw BadOption(why);
    refuse_if(rule.is_persistent(),
              fmt::format("--stop-rule {}: a text's own rule does not continue from text to text", text));
    refuse_if(rule.type().weighs_costs && of_run.acceptance != spec::Acceptance::gumbel,
              fmt::format("--stop-rule {}: it measures costs, so the text of a seed could not be repeated with "
                          "--acceptance {}; give it for the whole run",
                          text, to_string(of_run.acceptance)));
    return rule;
}

std::vector<std::vector<spec::StopRuleOptions>> compared_rules(const std::string& rules,
                                                               const spec::StopRuleOptions& common,
                                                               std::size_t n_levels, const Names& beside) {
    std::vector<std::vector<spec::StopRuleOptions>> settings;
    const auto add = [&](const std::string& text) {
        std::vector<spec::StopRuleOptions> levels;
        for (const std::string& rule : split_list(text, '/')) {
            const GivenValue given = {"rules", rule};
            const Level level = parse_level(given);
            if (level.rule == nullptr) refuse_unknown_listed_rule(rule, given.head().text, beside);
            refuse_if(rule.find("..") != std::string::npos,
                      "--rules " + rule + ": ranges are for entrodraft simulate; name each setting here");
            levels.push_back(rule_of_level(level, common));
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

std::string describe(const spec::StopRuleOptions& rule) {
    std::string text = rule.name();
    const std::vector<Parameter>& parameters = rule.type().parameters;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        const double value = rule.values()[i];
        if (!is_switch(parameters[i]))
            text += fmt::format(":{}={:g}", parameters[i].name, value);
        else if (value != 0)
            text += fmt::format(":{}", parameters[i].name);
    }
    if (rule.min_tokens > 1) text += fmt::format(":{}={}", kMin, rule.min_tokens);
    if (rule.entropy_of == spec::EntropyOf::adjusted) text += fmt::format(":{}=adjusted", kOf);
    return rule.drop_stop_token ? fmt::format("{}:{}", text, kDrop) : text;
}

} // namespace entrodraft::launch
