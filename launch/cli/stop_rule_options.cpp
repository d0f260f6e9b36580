// Options of stop rules, out of their declarations: see stop_rule_options.h.
#include "launch/cli/stop_rule_options.h"

#include "launch/cli/choices.h"
#include "launch/counted.h"
#include "launch/failure.h"

#include <algorithm>
#include <functional>
#include <numbers>
#include <sstream>

namespace entrodraft::launch {

namespace {

using Parameter = spec::StopRuleParameter;
using RuleType = spec::StopRuleType;

Names names_of_rules(const std::function<bool(const RuleType&)>& is_meant) {
    Names names;
    for (const RuleType& rule : spec::all_stop_rules())
        if (is_meant(rule)) names.push_back(rule.name);
    return names;
}

Names options_of_parameters(const std::function<bool(const Parameter&)>& is_meant) {
    Names options;
    for (const RuleType& rule : spec::all_stop_rules())
        for (const Parameter& parameter : rule.parameters)
            if (is_meant(parameter) && std::find(options.begin(), options.end(), parameter.option) == options.end())
                options.emplace_back(parameter.option);
    return options;
}

std::string listed(const Names& words, const std::string& between = ", ", const std::string& before_last = ", ") {
    std::string text;
    for (std::size_t i = 0; i < words.size(); ++i)
        text += (i == 0 ? "" : i + 1 == words.size() ? before_last : between) + words[i];
    return text;
}

std::string with_dashes_listed(Names options) {
    for (std::string& option : options)
        option = "--" + option;
    return listed(options);
}

bool looks_at_distributions(const RuleType& rule) {
    return rule.looks_at != spec::LooksAt::nothing;
}

bool may_drop_stop_token(const RuleType& rule) {
    return rule.looks_at == spec::LooksAt::distribution;
}

bool is_entropy(const Parameter& parameter) {
    return parameter.kind == Parameter::Kind::entropy || parameter.kind == Parameter::Kind::squared_entropy;
}

bool is_switch(const Parameter& parameter) {
    return parameter.kind == Parameter::Kind::on_off;
}

// ---- help ----

std::string text_of(double number) {
    std::ostringstream text;
    text << number;
    return text.str();
}

// What --help says of an option to the rules that say it in the same words, with their defaults.
struct HelpOfRules {
    std::string words;
    Names rules, defaults;

    std::string text() const {
        const std::size_t place = words.find("{}");
        const bool ends_with_rules = place + 2 == words.size();
        const bool same =
            std::all_of(defaults.begin(), defaults.end(), [&](const auto& d) { return d == defaults[0]; });
        Names shown = rules;
        const bool one_default = same && !ends_with_rules;
        for (std::size_t i = 0; i < defaults.size() && !one_default; ++i)
            shown[i] += " [" + defaults[i] + "]";
        std::string help = words;
        help.replace(place, 2, listed(shown, ", ", " and "));
        return one_default && !defaults.empty() ? help + " [" + defaults[0] + "]" : help;
    }
};

std::string help_of_option(const std::string& option) {
    std::vector<HelpOfRules> parts;
    for (const RuleType& rule : spec::all_stop_rules()) {
        const int index = rule.index_of(option);
        if (index < 0) continue;
        const Parameter& parameter = rule.parameters[static_cast<std::size_t>(index)];
        auto part = std::find_if(parts.begin(), parts.end(), [&](const auto& p) { return p.words == parameter.help; });
        if (part == parts.end()) part = parts.insert(parts.end(), {parameter.help, {}, {}});
        part->rules.push_back(rule.name);
        if (!is_switch(parameter)) part->defaults.push_back(text_of(parameter.default_value));
    }
    Names texts;
    for (const HelpOfRules& part : parts)
        texts.push_back(part.text());
    return listed(texts, "; ", "; ");
}

const Parameter& first_with(const std::string& option) {
    for (const RuleType& rule : spec::all_stop_rules())
        if (const int index = rule.index_of(option); index >= 0)
            return rule.parameters[static_cast<std::size_t>(index)];
    throw std::logic_error("no stop rule has --" + option);
}

// ---- names ----

// The rule that a name of other programs and papers stands for: "entropy" is static. Other names as they are.
std::string meant_rule(const std::string& name) {
    for (const RuleType& rule : spec::all_stop_rules()) {
        const Names others = split_list(rule.other_names, ' ');
        if (std::find(others.begin(), others.end(), name) != others.end()) return rule.name;
    }
    return name;
}

[[noreturn]] void refuse_unknown_rule(const std::string& name) {
    if (name == "oracle")
        throw BadOption("--stop-rule oracle stops before the first token that would fall, which no run knows; see "
                        "entrodraft simulate --rules oracle");
    throw BadOption("--stop-rule " + name + ": " + must_be_one_of(stop_rule_choices(), meant_rule(name)));
}

[[noreturn]] void refuse_unknown_listed_rule(const std::string& text, const std::string& name, const Names& beside) {
    if (text == "oracle")
        throw BadOption("--rules oracle: no run knows which token will fall; each table shows the oracle's figure, and "
                        "entrodraft simulate replays it");
    if (text == "grid") throw BadOption("--rules grid is for entrodraft simulate; bench compare has --tune");
    Names names = {"all", "none"};
    names.insert(names.end(), spec::stop_rule_names().begin(), spec::stop_rule_names().end());
    names.insert(names.end(), beside.begin(), beside.end());
    const auto meant = nearest(meant_rule(name), names);
    throw BadOption("--rules " + text + ": a rule is " + stop_rule_forms(", ", " or ") + ", all" +
                    (beside.empty() ? "" : ", " + listed(beside)) + " or none" +
                    (meant ? "; did you mean " + *meant + "?" : ""));
}

// The numbers behind a rule's name, as if their options had been given. `whole` is "--rules static:2.25".
void add_parts(const Names& parts, const RuleType& rule, const std::string& whole, ParsedOptions& own) {
    for (std::size_t i = 1; i < parts.size(); ++i) {
        const Parameter* parameter = i <= rule.parameters.size() ? &rule.parameters[i - 1] : nullptr;
        if (parameter == nullptr || (is_switch(*parameter) && parts[i] != parameter->symbol))
            throw BadOption(whole + ": too many numbers for this rule");
        if (is_switch(*parameter))
            own.add(parameter->option, "true", "");
        else
            own.add_part(parameter->option, parts[i], whole);
    }
}

// ---- values ----

// An entropy in the unit, in nats: by ln 2 where it is in bits, squared ones by its square.
double nats_of(const Parameter& parameter, EntropyUnit unit) {
    if (unit == EntropyUnit::nats || !is_entropy(parameter)) return 1;
    return parameter.kind == Parameter::Kind::squared_entropy ? std::numbers::ln2 * std::numbers::ln2
                                                              : std::numbers::ln2;
}

double value_of(const ParsedOptions& given, const Parameter& parameter, EntropyUnit unit, int cap) {
    const std::string option = parameter.option;
    const auto whole = [](double value) { return static_cast<int>(value); };
    switch (parameter.kind) {
    case Parameter::Kind::on_off:
        return given.on(option) ? 1 : 0;
    case Parameter::Kind::whole_number:
        return given.integer(option, whole(parameter.default_value), whole(parameter.min), whole(parameter.max));
    case Parameter::Kind::draft_length: {
        if (!given.given(option)) return std::min<double>(parameter.default_value, cap);
        const int length = given.integer(option, 1, whole(parameter.min), whole(parameter.max));
        if (length > cap)
            throw BadOption(given.spelled(option) + " must be at most --max-draft-tokens " + std::to_string(cap));
        return length;
    }
    case Parameter::Kind::number:
    case Parameter::Kind::entropy:
    case Parameter::Kind::squared_entropy:
        break;
    }
    if (!given.given(option)) return parameter.default_value;
    return given.number(option, 0, parameter.min, parameter.max) * nats_of(parameter, unit);
}

spec::EntropyOf entropy_of(const ParsedOptions& given, const RuleType& rule) {
    const bool adjusted = given.choice("entropy-of", 0, entropy_of_choices()) == 1;
    return adjusted && looks_at_distributions(rule) ? spec::EntropyOf::adjusted : spec::EntropyOf::raw;
}

// The rule of one level: `own` are options of that level, `given` those of all.
spec::StopRuleOptions rule_of_level(const ParsedOptions& own, const ParsedOptions& given, const RuleType& type,
                                    EntropyUnit unit) {
    spec::StopRuleOptions rule(type.name);
    rule.max_tokens = own.integer("max-draft-tokens", rule.max_tokens, 1, spec::Packet::kMaxDraftTokens);
    rule.min_tokens = own.integer("min-draft-tokens", rule.min_tokens, 1, spec::Packet::kMaxDraftTokens);
    if (rule.min_tokens > rule.max_tokens)
        throw BadOption("--min-draft-tokens " + std::to_string(rule.min_tokens) + " is above --max-draft-tokens " +
                        std::to_string(rule.max_tokens));
    for (const Parameter& parameter : type.parameters)
        rule.set(parameter.option, value_of(own, parameter, unit, rule.max_tokens));
    rule.drop_stop_token = drop_stop_token(given, type);
    rule.entropy_of = entropy_of(given, type);
    if (const std::string why = spec::why_invalid(rule); !why.empty()) throw BadOption(why);
    return rule;
}

// ---- levels ----

struct Level {
    const RuleType* rule = nullptr;
    ParsedOptions own; // options of this level alone
};

// The rules of the levels: the last one given goes on to the levels after it.
std::vector<Level> levels_of(const ParsedOptions& given, std::size_t n_levels) {
    Names texts = given.texts("stop-rule");
    if (texts.size() > n_levels)
        throw BadOption("--stop-rule is given " + std::to_string(texts.size()) + " times, but there " +
                        (n_levels == 1 ? "is 1 level of drafting" : "are " + std::to_string(n_levels) + " levels"));
    if (texts.empty()) texts.emplace_back(kDefaultStopRule);
    std::vector<Level> levels(n_levels);
    for (std::size_t i = 0; i < n_levels; ++i) {
        const std::string& text = texts[std::min(i, texts.size() - 1)];
        const Names parts = split_list(text, ':');
        levels[i].rule = parts.empty() ? nullptr : spec::find_stop_rule(parts[0]);
        if (levels[i].rule == nullptr) refuse_unknown_rule(parts.size() > 1 ? parts[0] : text);
        add_parts(parts, *levels[i].rule, "--stop-rule " + text, levels[i].own);
    }
    return levels;
}

using BelongsTo = std::function<bool(const RuleType&)>;

void require_rule(const std::string& option, const BelongsTo& belongs_to, const std::vector<Level>& levels) {
    Names present;
    for (const Level& level : levels) {
        if (belongs_to(*level.rule)) return;
        present.push_back(level.rule->name);
    }
    throw BadOption("--" + option + " has no effect with --stop-rule " + listed(present) + "; it belongs to " +
                    listed(names_of_rules(belongs_to)));
}

// The values of one option, dealt out to the levels whose rule takes it; the last one goes on to those after it.
void deal_out(const ParsedOptions& given, const std::string& option, const BelongsTo& belongs_to,
              std::vector<Level>& levels) {
    if (!given.given(option)) return;
    require_rule(option, belongs_to, levels);
    const std::size_t n_values = given.texts(option).size();
    std::size_t taken = 0;
    for (Level& level : levels) {
        if (!belongs_to(*level.rule)) continue;
        if (level.own.given(option))
            throw BadOption("--" + option + " is a number behind --stop-rule " + level.rule->name +
                            " already; give it once");
        level.own.add_nth(given, option, std::min(taken++, n_values - 1));
    }
    if (n_values > taken)
        throw BadOption("--" + option + " is given " + std::to_string(n_values) + " times, but " +
                        std::to_string(taken) + (taken == 1 ? " level takes it" : " levels take it"));
}

// A switch is given once, for every level whose rule has it.
void turn_on(const ParsedOptions& given, const std::string& option, std::vector<Level>& levels) {
    if (!given.on(option)) return;
    require_rule(
        option, [&](const RuleType& rule) { return rule.index_of(option) >= 0; }, levels);
    for (Level& level : levels)
        if (level.rule->index_of(option) >= 0 && !level.own.given(option)) level.own.add_nth(given, option, 0);
}

void deal_out_all(const ParsedOptions& given, std::vector<Level>& levels) {
    const auto any = [](const RuleType&) { return true; };
    for (const std::string& option : stop_rule_parameter_names()) {
        const auto takes_it = [&](const RuleType& rule) { return rule.index_of(option) >= 0; };
        if (is_switch(first_with(option)))
            turn_on(given, option, levels);
        else
            deal_out(given, option, takes_it, levels);
    }
    deal_out(
        given, "costs", [](const RuleType& rule) { return rule.weighs_costs; }, levels);
    deal_out(given, "max-draft-tokens", any, levels);
    deal_out(given, "min-draft-tokens", any, levels);
    for (Level& level : levels)
        for (const Parameter& parameter : level.rule->parameters)
            if (parameter.is_persistence && level.own.given(parameter.option) && !level.own.given("max-draft-tokens"))
                level.own.add("max-draft-tokens", std::to_string(spec::Packet::kMaxDraftTokens), "");
}

} // namespace

// ---- help ----

const std::vector<std::string>& stop_rule_parameter_names() {
    static const Names names = options_of_parameters([](const Parameter&) { return true; });
    return names;
}

const std::vector<OptionSpec>& stop_rule_parameter_options() {
    static const std::vector<std::string> helps = [] {
        Names all;
        for (const std::string& option : stop_rule_parameter_names())
            all.push_back(help_of_option(option));
        return all;
    }();
    static const std::vector<OptionSpec> options = [] {
        std::vector<OptionSpec> all;
        for (const std::string& help : helps) {
            const Parameter& parameter = first_with(stop_rule_parameter_names()[all.size()]);
            const bool on_off = is_switch(parameter);
            all.push_back(with_aliases({parameter.option, on_off ? "" : parameter.symbol, help.c_str(), !on_off},
                                       parameter.aliases));
        }
        return all;
    }();
    return options;
}

std::string stop_rule_forms(const std::string& between, const std::string& between_forms) {
    Names rules;
    for (const RuleType& rule : spec::all_stop_rules()) {
        Names forms = {rule.name};
        for (const Parameter& parameter : rule.parameters)
            if (is_switch(parameter))
                forms.push_back(forms.back() + ":" + parameter.symbol);
            else
                forms.back() += std::string(":") + parameter.symbol;
        rules.push_back(listed(forms, between_forms, between_forms));
    }
    return listed(rules, between, between);
}

std::string rules_that_weigh_costs() {
    return listed(names_of_rules([](const RuleType& rule) { return rule.weighs_costs; }));
}

std::string options_in_entropy_units() {
    return with_dashes_listed(options_of_parameters(is_entropy));
}

std::string options_without_a_cap() {
    return with_dashes_listed(
        options_of_parameters([](const Parameter& parameter) { return parameter.is_persistence; }));
}

// ---- values ----

bool drop_stop_token(const ParsedOptions& given, const spec::StopRuleType& rule) {
    return given.on("drop-stop-token") && may_drop_stop_token(rule);
}

void read_stop_rules(const ParsedOptions& given, std::size_t n_levels, SpeculationOptions& speculation) {
    std::vector<Level> levels = levels_of(given, n_levels);
    deal_out_all(given, levels);
    const auto has_entropies = [](const RuleType& rule) {
        return std::any_of(rule.parameters.begin(), rule.parameters.end(), is_entropy);
    };
    if (given.given("entropy-unit")) require_rule("entropy-unit", has_entropies, levels);
    if (given.on("drop-stop-token")) require_rule("drop-stop-token", may_drop_stop_token, levels);
    if (given.given("entropy-of")) require_rule("entropy-of", looks_at_distributions, levels);
    if (given.choice("entropy-unit", 0, entropy_unit_choices()) == 1) speculation.entropy_unit = EntropyUnit::bits;
    for (const Level& level : levels) {
        speculation.stop_rules.push_back(rule_of_level(level.own, given, *level.rule, speculation.entropy_unit));
        speculation.costs.push_back(level.own.text("costs", ""));
    }
}

spec::StopRuleOptions parse_listed_rule(const std::string& text, const ParsedOptions& given,
                                        const std::vector<std::string>& beside) {
    const Names parts = split_list(text, ':');
    const RuleType* type = parts.empty() ? nullptr : spec::find_stop_rule(parts[0]);
    if (type == nullptr) refuse_unknown_listed_rule(text, parts.empty() ? "" : parts[0], beside);
    if (text.find("..") != std::string::npos)
        throw BadOption("--rules " + text + ": ranges are for entrodraft simulate; name each setting here");
    ParsedOptions own;
    for (const char* option : {"max-draft-tokens", "min-draft-tokens"})
        if (given.given(option)) own.add_nth(given, option, 0);
    add_parts(parts, *type, "--rules " + text, own);
    return rule_of_level(own, given, *type, EntropyUnit::nats);
}

std::string describe(const spec::StopRuleOptions& rule, EntropyUnit unit) {
    std::ostringstream text;
    text << rule.name();
    const std::vector<Parameter>& parameters = rule.type().parameters;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        const Parameter& parameter = parameters[i];
        const double value = rule.values()[i];
        if (is_switch(parameter) && value == 0) continue;
        text << ", " << parameter.label << (*parameter.label != '\0' && !is_switch(parameter) ? " " : "");
        if (parameter.kind == Parameter::Kind::draft_length)
            text << counted(static_cast<std::int64_t>(value), "token");
        else if (!is_switch(parameter))
            text << value / nats_of(parameter, unit);
        if (is_entropy(parameter)) text << (unit == EntropyUnit::bits ? " bits" : " nats");
        if (parameter.kind == Parameter::Kind::squared_entropy) text << "^2";
    }
    if (rule.entropy_of == spec::EntropyOf::adjusted) text << ", adjusted";
    return text.str();
}

} // namespace entrodraft::launch
