// Options of drafters, stop rules and acceptance, for every command that decodes. See options.h.
#include "launch/cli/choices.h"
#include "launch/cli/options.h"
#include "launch/cli/shared_options.h"
#include "launch/counted.h"
#include "launch/failure.h"

#include <algorithm>
#include <climits>
#include <numbers>
#include <sstream>

namespace entrodraft::launch {

namespace {

using Rule = spec::StopRuleKind;

std::string joined(const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words)
        text += (text.empty() ? "" : ", ") + word;
    return text;
}

// ---- drafters ----

const std::vector<std::pair<DrafterKind, std::string>>& drafter_names() {
    static const std::vector<std::pair<DrafterKind, std::string>> names = {
        {DrafterKind::model, "model"},   {DrafterKind::ngram, "ngram"},     {DrafterKind::suffix, "suffix"},
        {DrafterKind::bigram, "bigram"}, {DrafterKind::unigram, "unigram"}, {DrafterKind::random, "random"}};
    return names;
}

std::vector<std::size_t> all_drafts(std::size_t n_drafts) {
    std::vector<std::size_t> drafts(n_drafts);
    for (std::size_t i = 0; i < n_drafts; ++i)
        drafts[i] = i;
    return drafts;
}

DrafterChoice drafter_choice(const ParsedOptions& given, std::size_t n_drafts) {
    DrafterChoice choice;
    if (given.given("drafter")) {
        choice = parse_drafter(given.text("drafter", ""), ',', n_drafts, "--drafter");
        if (n_drafts > 0 && !choice.has(DrafterKind::model))
            throw BadOption("--drafter " + given.text("drafter", "") +
                            " drafts without a model; leave out --draft, or add model to the list");
    } else if (n_drafts > 0) {
        choice.kinds = {DrafterKind::model};
        choice.drafts = all_drafts(n_drafts);
    }
    return choice;
}

// ---- stop rules ----

// Which rules an option of theirs belongs to; none: all.
struct RuleOption {
    const char* option;
    std::vector<Rule> rules;

    bool belongs_to(Rule rule) const {
        return rules.empty() || std::find(rules.begin(), rules.end(), rule) != rules.end();
    }
};

const std::vector<RuleOption>& rule_options() {
    static const std::vector<RuleOption> table = {
        {"entropy-threshold", {Rule::static_threshold, Rule::cumulative}},
        {"entropy-factor", {Rule::moving_average}},
        {"entropy-window", {Rule::moving_average, Rule::cumulative}},
        {"num-draft-tokens", {Rule::constant, Rule::heuristic, Rule::adaptive}},
        {"confidence-threshold", {Rule::confidence}},
        {"svip-threshold", {Rule::svip}},
        {"adaedl-gamma", {Rule::adaedl}},
        {"costs", {Rule::expected_gain}},
        {"max-draft-tokens", {}},
        {"min-draft-tokens", {}},
    };
    return table;
}

const std::vector<Rule> kThresholdRules = {Rule::static_threshold, Rule::cumulative, Rule::moving_average, Rule::svip,
                                           Rule::adaedl};

const std::vector<Rule> kDistributionRules = {Rule::static_threshold, Rule::moving_average, Rule::cumulative,
                                              Rule::confidence,       Rule::svip,           Rule::adaedl,
                                              Rule::expected_gain};

Rule rule_kind(const std::string& name) {
    if (const auto kind = spec::parse_stop_rule(name)) return *kind;
    if (name == "oracle")
        throw BadOption("--stop-rule oracle stops before the first token that would fall, which no run knows; see "
                        "entrodraft simulate --rules oracle");
    throw BadOption("--stop-rule " + name + ": " + must_be_one_of(stop_rule_choices(), meant_rule(name)));
}

// The rules of the levels: the last one given goes on to the levels after it.
std::vector<Rule> rules_of_levels(const ParsedOptions& given, std::size_t n_levels) {
    const std::vector<std::string> names = given.texts("stop-rule");
    if (names.size() > n_levels)
        throw BadOption("--stop-rule is given " + std::to_string(names.size()) + " times, but there " +
                        (n_levels == 1 ? "is 1 level of drafting" : "are " + std::to_string(n_levels) + " levels"));
    std::vector<Rule> kinds;
    for (std::size_t level = 0; level < n_levels; ++level)
        kinds.push_back(names.empty() ? kDefaultStopRule : rule_kind(names[std::min(level, names.size() - 1)]));
    return kinds;
}

[[noreturn]] void refuse_without_rule(const std::string& option, const std::vector<Rule>& belongs,
                                      const std::vector<Rule>& kinds) {
    std::vector<std::string> fitting, present;
    for (const Rule rule : belongs)
        fitting.push_back(to_string(rule));
    for (const Rule rule : kinds)
        present.push_back(to_string(rule));
    throw BadOption("--" + option + " has no effect with --stop-rule " + joined(present) + "; it belongs to " +
                    joined(fitting));
}

// The values of one option, dealt out to the levels whose rule takes it; the last one goes on to those after it.
void deal_out(const ParsedOptions& given, const RuleOption& row, const std::vector<Rule>& kinds,
              std::vector<ParsedOptions>& levels) {
    if (!given.given(row.option)) return;
    const std::size_t n_values = given.texts(row.option).size();
    std::size_t taken = 0;
    for (std::size_t level = 0; level < levels.size(); ++level)
        if (row.belongs_to(kinds[level])) levels[level].add_nth(given, row.option, std::min(taken++, n_values - 1));
    if (taken == 0) refuse_without_rule(row.option, row.rules, kinds);
    if (n_values > taken)
        throw BadOption(std::string("--") + row.option + " is given " + std::to_string(n_values) + " times, but " +
                        std::to_string(taken) + (taken == 1 ? " level takes it" : " levels take it"));
}

void read_rules(const ParsedOptions& given, std::size_t n_levels, SpeculationOptions& speculation) {
    const std::vector<Rule> kinds = rules_of_levels(given, n_levels);
    const auto any_of_kind = [&](const std::vector<Rule>& wanted) {
        return std::any_of(kinds.begin(), kinds.end(),
                           [&](Rule kind) { return std::find(wanted.begin(), wanted.end(), kind) != wanted.end(); });
    };
    std::vector<ParsedOptions> levels(n_levels);
    for (const RuleOption& row : rule_options())
        deal_out(given, row, kinds, levels);
    const std::vector<Rule> thresholds = {Rule::static_threshold, Rule::cumulative};
    if (given.given("entropy-unit") && !any_of_kind(thresholds)) refuse_without_rule("entropy-unit", thresholds, kinds);
    if (given.on("drop-stop-token") && !any_of_kind(kThresholdRules))
        refuse_without_rule("drop-stop-token", kThresholdRules, kinds);
    if (given.choice("entropy-unit", 0, entropy_unit_choices()) == 1) speculation.entropy_unit = EntropyUnit::bits;
    if (given.on("heuristic-persistent") && !any_of_kind({Rule::heuristic}))
        refuse_without_rule("heuristic-persistent", {Rule::heuristic}, kinds);
    if (given.given("entropy-of") && !any_of_kind(kDistributionRules))
        refuse_without_rule("entropy-of", kDistributionRules, kinds);
    for (std::size_t level = 0; level < n_levels; ++level) {
        if (given.on("heuristic-persistent") && kinds[level] == Rule::heuristic) {
            levels[level].add_nth(given, "heuristic-persistent", 0);
            if (!given.given("max-draft-tokens"))
                levels[level].add("max-draft-tokens", std::to_string(spec::Packet::kMostDraftTokens), "");
        }
        spec::StopRuleOptions rule = rule_of_level(levels[level], kinds[level], speculation.entropy_unit);
        rule.drop_stop_token = given.on("drop-stop-token") && may_drop_stop_token(kinds[level]);
        rule.entropy_of = entropy_of(given, kinds[level]);
        if (const std::string why = spec::why_invalid(rule); !why.empty()) throw BadOption(why);
        speculation.stop_rules.push_back(rule);
        speculation.costs.push_back(levels[level].text("costs", ""));
    }
}

// ---- acceptance ----

spec::AcceptanceOptions acceptance_options(const ParsedOptions& given) {
    spec::AcceptanceOptions acceptance;
    acceptance.lenience = given.number("lenience", 1, 0, 1);
    if (acceptance.lenience == 0) throw BadOption("--lenience 0: must be above 0, at most 1");
    if (acceptance.lenience < 1) acceptance.kind = spec::Acceptance::rejection; // the only one that knows lenience
    if (given.given("acceptance")) acceptance.kind = acceptance_of(given.text("acceptance", ""), "--acceptance");
    if (acceptance.lenience < 1 && acceptance.kind != spec::Acceptance::rejection)
        throw BadOption("--lenience below 1 goes with --acceptance rejection alone, not with " +
                        to_string(acceptance.kind));
    for (const char* option : {"typical-epsilon", "typical-delta"})
        if (given.given(option) && acceptance.kind != spec::Acceptance::typical)
            throw BadOption(std::string("--") + option + " has no effect without --acceptance typical");
    acceptance.typical.epsilon = given.number("typical-epsilon", acceptance.typical.epsilon, 0, 1);
    acceptance.typical.delta = given.number("typical-delta", acceptance.typical.delta, 0, 1);
    return acceptance;
}

// Plain decoding samples by Gumbel noise, so that --acceptance gumbel says what it does anyway.
void refuse_without_drafter(const ParsedOptions& given) {
    for (const char* option : {"stop-rule",       "entropy-threshold",    "entropy-factor",       "entropy-window",
                               "entropy-unit",    "num-draft-tokens",     "max-draft-tokens",     "min-draft-tokens",
                               "drop-stop-token", "confidence-threshold", "svip-threshold",       "adaedl-gamma",
                               "costs",           "draft-dtype",          "heuristic-persistent", "entropy-of",
                               "acceptance",      "typical-epsilon",      "typical-delta",        "lenience",
                               "draft-placement"}) {
        const bool is_plain = std::string(option) == "acceptance" && given.text(option, "") == "gumbel";
        // The widest pass of a run is also that of a run that it is compared with, so the cap may stand alone.
        const bool may_stand = is_plain || std::string(option) == "max-draft-tokens";
        if (given.given(option) && !may_stand)
            throw BadOption(std::string("--") + option + " has no effect without --draft DIR or --drafter NAME");
    }
}

} // namespace

std::string meant_rule(const std::string& name) {
    if (name == "entropy") return to_string(Rule::static_threshold);
    if (name == "fixed" || name == "always") return to_string(Rule::constant);
    return name;
}

DrafterChoice parse_drafter(const std::string& text, char separator, std::size_t n_drafts, const std::string& option) {
    DrafterChoice choice;
    choice.drafts = all_drafts(n_drafts);
    for (const std::string& name : split_list(text, separator)) {
        const auto known = std::find_if(drafter_names().begin(), drafter_names().end(),
                                        [&](const auto& entry) { return entry.second == name; });
        if (known == drafter_names().end())
            throw BadOption(option + " " + text + ": '" + name + "' " + must_be_one_of(drafter_choices(), name));
        if (choice.has(known->first)) throw BadOption(option + " " + text + " names " + name + " twice");
        choice.kinds.push_back(known->first);
    }
    if (choice.kinds.empty()) throw BadOption(option + " is empty; name a drafter or leave it out");
    if (choice.has(DrafterKind::model) && n_drafts == 0) throw BadOption(option + " model needs --draft DIR");
    return choice;
}

spec::StopRuleOptions rule_of_level(const ParsedOptions& given, Rule kind, EntropyUnit unit) {
    spec::StopRuleOptions rule;
    rule.kind = kind;
    if (given.given("entropy-threshold"))
        rule.threshold = threshold_in_nats(given.number("entropy-threshold", 0, 0, kNoLimit), kind, unit);
    rule.factor = given.number("entropy-factor", rule.factor, 0, kNoLimit);
    rule.window = given.integer("entropy-window", rule.window, 1, INT_MAX);
    rule.max_tokens = given.integer("max-draft-tokens", rule.max_tokens, 1, 127);
    rule.min_tokens = given.integer("min-draft-tokens", rule.min_tokens, 1, 127);
    rule.confidence = given.number("confidence-threshold", rule.confidence, 0, 1);
    rule.svip_threshold = given.number("svip-threshold", rule.svip_threshold, 0, kNoLimit);
    rule.adaedl_gamma = given.number("adaedl-gamma", rule.adaedl_gamma, 0, kNoLimit);
    rule.persistent = given.on("heuristic-persistent");
    rule.num_draft_tokens = std::min(rule.num_draft_tokens_or_default(), rule.max_tokens);
    if (given.given("num-draft-tokens")) rule.num_draft_tokens = given.integer("num-draft-tokens", 1, 1, 127);
    if (rule.min_tokens > rule.max_tokens)
        throw BadOption("--min-draft-tokens " + std::to_string(rule.min_tokens) + " is above --max-draft-tokens " +
                        std::to_string(rule.max_tokens));
    if (*rule.num_draft_tokens > rule.max_tokens)
        throw BadOption(given.said("num-draft-tokens") + " must be at most --max-draft-tokens " +
                        std::to_string(rule.max_tokens));
    return rule;
}

spec::Acceptance acceptance_of(const std::string& name, const char* option) {
    if (const auto acceptance = spec::parse_acceptance(name)) return *acceptance;
    throw BadOption(std::string(option) + " " + name + ": " + must_be_one_of(acceptance_choices(), name));
}

spec::EntropyOf entropy_of(const ParsedOptions& given, Rule rule) {
    const bool looks =
        std::find(kDistributionRules.begin(), kDistributionRules.end(), rule) != kDistributionRules.end();
    const bool adjusted = given.choice("entropy-of", 0, entropy_of_choices()) == 1;
    return adjusted && looks ? spec::EntropyOf::adjusted : spec::EntropyOf::raw;
}

bool may_drop_stop_token(Rule rule) {
    return std::find(kThresholdRules.begin(), kThresholdRules.end(), rule) != kThresholdRules.end();
}

bool DrafterChoice::has(DrafterKind kind) const {
    return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

std::string to_string(DrafterKind kind) {
    for (const auto& [known, name] : drafter_names())
        if (known == kind) return name;
    throw std::invalid_argument("unknown drafter");
}

DrafterSources drafter_sources(const ParsedOptions& given, const std::vector<DrafterChoice>& choices) {
    const auto any_has = [&](DrafterKind kind) {
        return std::any_of(choices.begin(), choices.end(),
                           [&](const DrafterChoice& choice) { return choice.has(kind); });
    };
    const bool has_ngram = any_has(DrafterKind::ngram), has_suffix = any_has(DrafterKind::suffix);
    const bool has_table = any_has(DrafterKind::bigram) || any_has(DrafterKind::unigram);
    const auto refuse = [&](const char* option, bool fits, const char* drafters) {
        if (given.given(option) && !fits)
            throw BadOption(std::string("--") + option + " has no effect without the drafter " + drafters);
    };
    refuse("ngram-max", has_ngram, "ngram");
    refuse("ngram-match", has_ngram, "ngram");
    refuse("ngram-full", has_ngram, "ngram");
    refuse("ngram-min", has_ngram || has_suffix, "ngram or suffix");
    refuse("lookup-corpus", has_suffix, "suffix");
    refuse("draft-table", has_table, "bigram or unigram");
    DrafterSources sources;
    const bool combined = std::any_of(choices.begin(), choices.end(),
                                      [](const DrafterChoice& choice) { return choice.kinds.size() > 1; });
    sources.ngram.shortest = given.integer("ngram-min", combined ? kShortestOfCombination : 1, 1, INT_MAX);
    sources.ngram.longest =
        given.integer("ngram-max", std::max(sources.ngram.longest, sources.ngram.shortest), 1, INT_MAX);
    if (given.choice("ngram-match", 0, ngram_match_choices()) == 1) sources.ngram.match = spec::NgramMatch::first;
    sources.ngram.full = given.integer("ngram-full", 0, 1, 127);
    if (const std::string why = spec::why_invalid(sources.ngram); !why.empty()) throw BadOption(why);
    sources.lookup_corpus = given.file("lookup-corpus");
    sources.draft_table = given.file("draft-table");
    if (has_table && sources.draft_table.empty())
        throw BadOption("the drafters bigram and unigram need --draft-table FILE; entrodraft build-table makes one");
    return sources;
}

SpeculationOptions speculation_options(const ParsedOptions& given, std::size_t n_drafts) {
    SpeculationOptions speculation;
    speculation.drafter = drafter_choice(given, n_drafts);
    speculation.sources = drafter_sources(given, {speculation.drafter});
    if (speculation.drafter.kinds.empty()) refuse_without_drafter(given);
    if (given.given("draft-dtype") && n_drafts == 0) throw BadOption("--draft-dtype has no effect without --draft DIR");
    const bool drafts_with_models = speculation.drafter.has(DrafterKind::model);
    read_rules(given, drafts_with_models ? n_drafts : 1, speculation);
    speculation.acceptance = acceptance_options(given);
    return speculation;
}

double threshold_in_nats(double threshold, Rule kind, EntropyUnit unit) {
    if (unit == EntropyUnit::nats) return threshold;
    return threshold * (kind == Rule::cumulative ? std::numbers::ln2 * std::numbers::ln2 : std::numbers::ln2);
}

double threshold_in_unit(double threshold_nats, Rule kind, EntropyUnit unit) {
    return threshold_nats / threshold_in_nats(1, kind, unit);
}

int outcomes_ahead(const DrafterChoice& drafter) {
    if (!drafter.ahead) return 0;
    return drafter.ahead->outcomes > 0 ? drafter.ahead->outcomes : spec::AheadOptions::kMostOutcomes;
}

std::string describe(const DrafterChoice& drafter) {
    std::string text;
    for (const DrafterKind kind : drafter.kinds) {
        text += text.empty() ? "" : "+";
        if (kind != DrafterKind::model) {
            text += to_string(kind);
            continue;
        }
        std::string models;
        for (const std::size_t draft : drafter.drafts)
            models += (models.empty() ? "draft" : "<draft") + std::to_string(draft + 1);
        text += drafter.drafts.size() == 1 && drafter.drafts[0] == 0 ? "model" : models;
    }
    if (drafter.ahead) text += " ahead";
    if (drafter.ahead && drafter.ahead->outcomes > 0) text += " of " + std::to_string(drafter.ahead->outcomes);
    return text;
}

std::string describe(const spec::StopRuleOptions& rule, EntropyUnit unit) {
    std::ostringstream text;
    text << to_string(rule.kind);
    const char* name = unit == EntropyUnit::bits ? "bits" : "nats";
    switch (rule.kind) {
    case Rule::static_threshold:
        text << ", threshold " << threshold_in_unit(rule.threshold_or_default(), rule.kind, unit) << ' ' << name;
        break;
    case Rule::moving_average:
        text << ", factor " << rule.factor << ", window " << rule.window;
        break;
    case Rule::cumulative:
        text << ", threshold " << threshold_in_unit(rule.threshold_or_default(), rule.kind, unit) << ' ' << name
             << "^2, window " << rule.window;
        break;
    case Rule::constant:
        text << ", " << counted(rule.num_draft_tokens_or_default(), "token");
        break;
    case Rule::heuristic:
    case Rule::adaptive:
        text << ", from " << counted(rule.num_draft_tokens_or_default(), "token");
        if (rule.persistent) text << ", persistent";
        break;
    case Rule::confidence:
        text << ", threshold " << rule.confidence;
        break;
    case Rule::svip:
        text << ", threshold " << rule.svip_threshold;
        break;
    case Rule::adaedl:
        text << ", gamma " << rule.adaedl_gamma;
        break;
    case Rule::expected_gain:
        break;
    }
    if (rule.entropy_of == spec::EntropyOf::adjusted) text << ", adjusted";
    return text.str();
}

} // namespace entrodraft::launch
