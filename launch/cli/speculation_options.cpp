// Options of drafters, drafting ahead and acceptance, for every command that decodes. See shared_options.h.
#include "launch/cli/shared_options.h"
#include "spec/draft/drafter.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>
#include <stdexcept>

namespace entrodraft::launch {

// ---- drafters ----

namespace {

// Returns the drafters that read the file of an option: "bigram and unigram".
std::string drafters_that_read(std::string_view option, const char* before_last) {
    Names names;
    for (const spec::DrafterType& drafter : spec::all_drafters())
        if (drafter.file == option) names.push_back(drafter.name);
    return listed(names, before_last);
}

// Reads "ngram:max=3".
spec::NamedDrafter read_drafter(const GivenValue& given) {
    spec::NamedDrafter drafter(spec::drafter_names()[index_among(spec::drafter_names(), given.head())]);
    std::vector<ValueKey> keys;
    for (const spec::DrafterParameter& parameter : drafter.type().parameters)
        keys.push_back({parameter.name, [&drafter, &parameter](const GivenValue& value) {
                            int& number = drafter.values[parameter.name];
                            if (parameter.words.empty())
                                read_value(value,
                                           {static_cast<double>(parameter.min), static_cast<double>(parameter.max)},
                                           number);
                            else
                                number = static_cast<int>(index_among(parameter.words, value));
                        }});
    read_keys(given, keys);
    return drafter;
}

// Returns "max=4", the parameter with a value.
std::string with_value(const spec::DrafterParameter& parameter, int value) {
    return parameter.words.empty() ? fmt::format("{}={}", parameter.name, value)
                                   : fmt::format("{}={}", parameter.name, parameter.words.at(value));
}

} // namespace

bool DrafterChoice::has(std::string_view kind) const {
    return std::ranges::count(kinds, kind, &spec::NamedDrafter::name) > 0;
}

int DrafterChoice::own_tree_tokens() const {
    int most = 0;
    for (const spec::NamedDrafter& drafter : kinds) {
        const spec::DrafterType& type = drafter.type();
        if (type.most_tokens)
            most = std::max(most, type.most_tokens(type.all_values(drafter.values, kinds.size() > 1)));
    }
    return most;
}

bool DrafterChoice::is_one_model() const {
    return kinds.size() == 1 && has("model") && drafts.size() == 1;
}

std::string proposals_of_drafters() {
    std::string text, last_help;
    bool last_reads = false; // it reads a directory of weights: "--draft"
    for (const spec::DrafterType& drafter : spec::all_drafters()) {
        const std::string help = *drafter.help ? std::string(": ") + drafter.help : "";
        const bool reads = std::string_view(drafter.help).starts_with("--");
        if (!help.empty() && help == last_help)
            text.insert(text.size() - help.size(), ", " + drafter.name);
        else
            text += (text.empty() ? "" : last_reads && !reads ? "; without a model " : "; ") + drafter.name + help;
        last_help = help;
        last_reads = reads;
    }
    return text;
}

bool DrafterChoice::is_head() const {
    return kinds.size() == 1 && has("head");
}

DrafterChoice parse_drafter(const GivenValue& given, char separator, const ModelOptions& models) {
    const std::size_t n_drafts = models.drafts.size();
    const std::string spelled = fmt::format("--{} {}", given.name, given.text);
    DrafterChoice choice;
    choice.drafts.resize(n_drafts);
    std::iota(choice.drafts.begin(), choice.drafts.end(), 0);
    for (const std::string& one : split_list(given.text, separator)) {
        choice.kinds.push_back(read_drafter({given.name, one, given.place}));
        const std::string& name = choice.kinds.back().name;
        refuse_if(std::ranges::count(choice.kinds, name, &spec::NamedDrafter::name) > 1,
                  spelled + " names " + name + " twice");
    }
    for (const spec::NamedDrafter& drafter : choice.kinds)
        try {
            (void)drafter.type().all_values(drafter.values, choice.kinds.size() > 1);
        } catch (const std::invalid_argument& error) {
            throw BadOption(fmt::format("{}: {}", spelled, error.what()));
        }
    refuse_if(choice.kinds.empty(), "--" + given.name + " is empty; name a drafter or leave it out");
    refuse_if(choice.has("lookahead") && choice.runs_model(), spelled + ": lookahead goes with no model and no head");
    refuse_if(choice.has("model") && n_drafts == 0, "--" + given.name + " model needs --draft DIR");
    refuse_if(choice.has("head") && models.head.empty(), "--" + given.name + " head needs --head DIR");
    return choice;
}

std::string drafter_values_help() {
    Names forms, seen, meanings;
    for (const spec::DrafterType& drafter : spec::all_drafters()) {
        if (drafter.parameters.empty()) continue;
        std::string form = drafter.name;
        for (const spec::DrafterParameter& parameter : drafter.parameters) {
            form += ":" + with_value(parameter, parameter.default_value);
            if (std::ranges::count(seen, parameter.name) > 0) continue;
            seen.emplace_back(parameter.name);
            const std::string words = parameter.words.empty() ? "" : listed(parameter.words, "or") + ", ";
            const std::string in_list =
                parameter.in_list ? fmt::format(" (of several drafters {})", *parameter.in_list) : "";
            meanings.push_back(fmt::format("Key {}: {}{}{}", parameter.name, words, parameter.help, in_list));
        }
        forms.push_back(form);
    }
    return fmt::format("Values follow a name: {}. {}", fmt::join(forms, ", "), fmt::join(meanings, ". "));
}

void declare_sources(OptionSet& set, DrafterSources& sources) {
    set.add("lookup-corpus", "FILE", sources.lookup_corpus,
            "UTF-8 text, or a file of build-corpus, in which suffix looks as well");
    set.add("draft-table", "FILE", sources.draft_table,
            "of bigram and unigram, made by build-table with the target's tokenizer");
}

void check_sources(const ParsedOptions& given, const std::vector<DrafterChoice>& drafters, DrafterSources& sources) {
    const auto is_read = [&](std::string_view option) {
        return std::ranges::any_of(drafters, [&](const DrafterChoice& one) {
            return std::ranges::any_of(one.kinds, [&](const auto& kind) { return kind.type().file == option; });
        });
    };
    for (const char* option : {"lookup-corpus", "draft-table"})
        given.refuse_without_effect(option, is_read(option), "without the drafter " + drafters_that_read(option, "or"));
    refuse_if(is_read("draft-table") && sources.draft_table.empty(),
              fmt::format("the drafters {} need --draft-table FILE; entrodraft build-table makes one",
                          drafters_that_read("draft-table", "and")));
}

std::string describe(const DrafterChoice& drafter) {
    Names parts;
    for (const spec::NamedDrafter& kind : drafter.kinds) {
        Names models;
        for (const std::size_t draft : drafter.drafts)
            models.push_back(fmt::format("draft{}", draft + 1));
        const bool is_cascade = kind.name == "model" && models != Names{"draft1"};
        parts.push_back(is_cascade ? fmt::format("{}", fmt::join(models, "<")) : kind.name);
        for (const spec::DrafterParameter& parameter : kind.type().parameters)
            if (const auto value = kind.values.find(parameter.name); value != kind.values.end())
                parts.back() += ":" + with_value(parameter, value->second);
    }
    std::string text = fmt::format("{}", fmt::join(parts, "+"));
    if (drafter.tree) text += " tree " + drafter.tree->name;
    if (drafter.ahead) text += " ahead";
    if (drafter.ahead && drafter.ahead->outcomes > 0) text += fmt::format(" of {}", drafter.ahead->outcomes);
    return text;
}

// ---- trees ----

void read_tree(const ParsedOptions& given, const spec::AcceptanceOptions& acceptance, SpeculationOptions& speculation) {
    if (!given.given("tree")) return;
    DrafterChoice& drafter = speculation.drafter;
    refuse_if(!drafter.is_one_model() && !drafter.is_head(),
              "--tree is for one --draft or --head; it goes with no other drafter and no cascade");
    refuse_if(acceptance.kind == spec::Acceptance::block, "--acceptance block is for chains, not for --tree");
    refuse_if(speculation.stop_rules.front().drop_stop_token, "drop of --stop-rule is for chains, not for --tree");
    refuse_if(speculation.stop_rules.front().entropy_of == spec::EntropyOf::adjusted,
              "of=adjusted of --stop-rule is for chains; rules see the raw entropies of a --tree");
    refuse_if(acceptance.lenience < 1 && given.given("temperature"),
              "--acceptance rejection:lenience=L goes with --tree for greedy text alone");
    drafter.tree = spec::parse_tree(given.text("tree"));
    spec::StopRuleOptions& rule = speculation.stop_rules.front();
    const bool is_fixed = drafter.tree->shape == spec::TreeOptions::Shape::fixed;
    const bool weighs = drafter.tree->shape == spec::TreeOptions::Shape::expected_gain;
    const int size = is_fixed ? static_cast<int>(drafter.tree->paths.size()) : kTreeTokens;
    const int cap = given.given("max-draft-tokens") ? rule.max_tokens : size;
    if (!given.given("stop-rule")) {
        const spec::StopRuleOptions chosen(weighs ? "expected-gain" : "constant");
        rule = with_common(chosen, speculation.every_rule);
    }
    refuse_if(weighs && !rule.is("expected-gain"), "--tree expected-gain decides by --stop-rule expected-gain alone");
    rule.max_tokens = cap;
    refuse_if(is_fixed && rule.max_tokens < size, fmt::format("--tree {} has {} tokens, and --max-draft-tokens is {}",
                                                              given.text("tree"), size, rule.max_tokens));
    if (!given.given("stop-rule") && !weighs) rule.set("tokens", rule.max_tokens); // never ends a tree
}

// ---- trees that a drafter shapes by itself ----

spec::StopRuleOptions own_tree_rule(const std::string& rule, int max_tokens) {
    spec::StopRuleOptions options(rule);
    options.max_tokens = max_tokens;
    if (options.takes("tokens")) options.set("tokens", options.max_tokens); // never ends a tree
    return options;
}

void read_own_trees(const ParsedOptions& given, const spec::AcceptanceOptions& acceptance,
                    SpeculationOptions& speculation) {
    const int size = speculation.drafter.own_tree_tokens();
    if (size == 0) return;
    const bool is_alone = speculation.drafter.kinds.size() == 1; // else the other drafters draft chains
    refuse_if(acceptance.kind == spec::Acceptance::block,
              "--acceptance block is for chains, and --drafter lookahead drafts trees");
    refuse_if(acceptance.lenience < 1 && given.given("temperature"),
              "--acceptance rejection:lenience=L goes with --drafter lookahead for greedy text alone");
    spec::StopRuleOptions& rule = speculation.stop_rules.front();
    refuse_if(!rule.is("expected-gain") && !rule.is("constant"),
              fmt::format("--stop-rule {} stops chains; --drafter lookahead drafts where that pays with expected-gain, "
                          "always with constant",
                          rule.name()));
    refuse_if(is_alone && given.text("stop-rule").find(':') != std::string::npos,
              fmt::format("--stop-rule {}: its values have no effect with --drafter lookahead, whose own values shape "
                          "drafts",
                          given.text("stop-rule")));
    refuse_if(
        given.given("max-draft-tokens") && rule.max_tokens < size,
        fmt::format("--drafter lookahead drafts up to {} tokens, and --max-draft-tokens is {}", size, rule.max_tokens));
    if (is_alone)
        rule = own_tree_rule(rule.name(), size);
    else
        rule.max_tokens = std::max(rule.max_tokens, size);
}

void declare_trees(OptionSet& set, std::vector<spec::TreeOptions>& trees, const std::string& help) {
    set.add("tree", "SHAPE", fmt::format("{}: {}; given once for each", help, spec::kTreeNames),
            [&trees](const GivenValue& given) { trees.push_back(spec::parse_tree(given.text)); })
        .repeatable = true;
}

// ---- drafting ahead ----

int outcomes_ahead(const DrafterChoice& drafter) {
    if (!drafter.ahead) return 0;
    return drafter.ahead->outcomes > 0 ? drafter.ahead->outcomes : spec::AheadOptions::kMaxOutcomes;
}

const char* const kAheadHelp =
    "Value 0: none; auto: as many as fit. With :passes=N hidden draft passes of a round, exactly, "
    "however long the target takes: for study";

std::optional<spec::AheadOptions> read_ahead(const GivenValue& given) {
    spec::AheadOptions options;
    const GivenValue outcomes = given.head();
    if (outcomes.text != "auto") read_value(outcomes, {0, spec::AheadOptions::kMaxOutcomes}, options.outcomes);
    // The first pass looks for the ends of the round; the next one drafts for them.
    read_keys(given, {number_key("passes", options.passes, at_least(2))});
    if (outcomes.text == "auto" || options.outcomes > 0) return options;
    refuse_if(options.passes > 0, fmt::format("--{} {}: passes has no effect with 0", given.name, given.text));
    return std::nullopt;
}

std::vector<DrafterChoice> with_ahead(const std::vector<DrafterChoice>& drafters, const ParsedOptions& given,
                                      dist::DraftPlacement placement, int batch_size, const AheadList& ahead,
                                      const char* needs) {
    // Drafting ahead needs one draft model on its own rank, for one sequence at a time. Drafters before the model
    // replace it if the round ended in an unforeseen way.
    const auto may = [&](const DrafterChoice& drafter) {
        return placement == dist::DraftPlacement::dedicated && batch_size == 1 && drafter.drafts.size() == 1 &&
               !drafter.tree && !given.given("draft-window") && !drafter.kinds.empty() &&
               drafter.kinds.back().name == "model";
    };
    refuse_if(given.given("draft-ahead") && std::ranges::none_of(drafters, may),
              fmt::format("--draft-ahead needs {}", needs));
    const AheadList settings = ahead.empty() ? AheadList{spec::AheadOptions{}} : ahead;
    std::vector<DrafterChoice> all;
    for (const DrafterChoice& drafter : drafters) {
        refuse_sharded_head(placement, drafter.has("head"));
        refuse_if(placement == dist::DraftPlacement::sharded && !drafter.is_one_model(),
                  "--draft-placement sharded is for one --draft; it goes with no other drafter");
        if (!may(drafter)) {
            all.push_back(drafter);
            continue;
        }
        for (const auto& setting : settings)
            all.emplace_back(drafter).ahead = setting;
    }
    return all;
}

// ---- acceptance ----

namespace {

std::vector<ValueKey> keys_of(spec::AcceptanceOptions& acceptance) {
    switch (acceptance.kind) {
    case spec::Acceptance::rejection:
        return {number_key("lenience", acceptance.lenience, {0, 1})};
    case spec::Acceptance::typical:
        return {number_key("epsilon", acceptance.typical.epsilon, {0, 1}),
                number_key("delta", acceptance.typical.delta, {0, 1})};
    case spec::Acceptance::bild:
        return {number_key("distance", acceptance.distance, at_least(0))};
    default:
        return {};
    }
}

} // namespace

std::string acceptance_values_help() {
    const spec::AcceptanceOptions usual;
    return fmt::format("Values follow a name: rejection:lenience={}, typical:epsilon={}:delta={}, bild:distance={}. "
                       "Key lenience: above 0, at most 1. Key epsilon: most probability that is asked of a token. Key "
                       "delta: that share of exp(-entropy). Key distance: how far -log of the target's probability of "
                       "a token may go, unless it is the target's first",
                       usual.lenience, usual.typical.epsilon, usual.typical.delta, usual.distance);
}

spec::AcceptanceOptions read_acceptance(const GivenValue& given) {
    spec::AcceptanceOptions acceptance;
    const Names names = names_up_to(spec::Acceptance::bild);
    acceptance.kind = static_cast<spec::Acceptance>(index_among(names, given.head()));
    read_keys(given, keys_of(acceptance));
    refuse_if(acceptance.lenience == 0,
              fmt::format("--{} {}: lenience must be above 0, at most 1", given.name, given.text));
    return acceptance;
}

} // namespace entrodraft::launch
