// Options of drafters, drafting ahead and acceptance, for every command that decodes. See shared_options.h.
#include "launch/cli/shared_options.h"
#include "spec/draft/drafter.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>

namespace entrodraft::launch {

// ---- drafters ----

namespace {

// Returns the drafters that take the option: "bigram and unigram".
std::string drafters_that_take(std::string_view option, const char* before_last) {
    Names names;
    for (const spec::DrafterType& drafter : spec::all_drafters())
        if (drafter.takes(option)) names.push_back(drafter.name);
    return listed(names, before_last);
}

} // namespace

bool DrafterChoice::has(std::string_view kind) const {
    return std::ranges::count(kinds, kind) > 0;
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
    for (const std::string& name : split_list(given.text, separator)) {
        index_among(spec::drafter_names(), given.part(name));
        refuse_if(choice.has(name), spelled + " names " + name + " twice");
        choice.kinds.push_back(name);
    }
    refuse_if(choice.kinds.empty(), "--" + given.name + " is empty; name a drafter or leave it out");
    refuse_if(choice.has("lookahead") && choice.runs_model(), spelled + ": lookahead goes with no model and no head");
    refuse_if(choice.has("model") && n_drafts == 0, "--" + given.name + " model needs --draft DIR");
    refuse_if(choice.has("head") && models.head.empty(), "--" + given.name + " head needs --head DIR");
    return choice;
}

void declare_sources(OptionSet& set, DrafterSources& sources) {
    set.add("ngram-max", "N", sources.ngram.longest, at_least(1), "most tokens that ngram matches");
    set.add(
        "ngram-min", "N", sources.ngram.shortest, at_least(1),
        fmt::format("least tokens that ngram and suffix match [{{}}; of several drafters {}]", kShortestOfCombination));
    set.add("ngram-match", "WHICH", sources.ngram.match, {"latest", "first"}, "{}: of several matches of ngram");
    set.add("ngram-full", "N", sources.ngram.full, kDraftTokens,
            "only matches of ngram that N tokens follow; at most these N are drafted [any]");
    set.add("lookup-corpus", "FILE", sources.lookup_corpus,
            "UTF-8 text, or a file of build-corpus, in which suffix looks as well");
    set.add(
        "lookup-texts", "WHICH", sources.lookup_texts, {"own", "run"},
        "{}: where ngram and suffix look: in the text itself, or in all texts of the run, under way and ended, that "
        "the replica decodes");
    spec::LookaheadOptions& lookahead = sources.lookahead;
    set.add("lookahead-window", "W", lookahead.window, at_least(1),
            "of lookahead: positions ahead for which the target guesses tokens in its passes");
    set.add("lookahead-ngram", "N", lookahead.ngram, at_least(2),
            "of lookahead: tokens of an n-gram; the window has W(N - 1) - 1 rows");
    set.add("lookahead-candidates", "G", lookahead.candidates, at_least(1),
            "of lookahead: n-grams verified a round, at most, of N - 1 rows each");
    set.add("draft-table", "FILE", sources.draft_table,
            "of bigram and unigram, made by build-table with the target's tokenizer");
}

void check_sources(const ParsedOptions& given, const std::vector<DrafterChoice>& drafters, DrafterSources& sources) {
    const auto is_taken = [&](std::string_view option) {
        return std::ranges::any_of(drafters, [&](const DrafterChoice& one) {
            return std::ranges::any_of(one.kinds,
                                       [&](const auto& kind) { return spec::drafter_type(kind).takes(option); });
        });
    };
    for (const spec::DrafterType& drafter : spec::all_drafters())
        for (const char* option : drafter.options)
            given.refuse_without_effect(option, is_taken(option),
                                        "without the drafter " + drafters_that_take(option, "or"));
    const bool combined = std::ranges::any_of(drafters, [](const DrafterChoice& one) { return one.kinds.size() > 1; });
    spec::NgramOptions& ngram = sources.ngram;
    if (combined && !given.given("ngram-min")) ngram.shortest = kShortestOfCombination;
    if (!given.given("ngram-max")) ngram.longest = std::max(ngram.longest, ngram.shortest);
    if (const std::string why = spec::why_invalid(ngram); !why.empty()) throw BadOption(why);
    if (const std::string why = spec::why_invalid(sources.lookahead); !why.empty()) throw BadOption(why);
    refuse_if(is_taken("draft-table") && sources.draft_table.empty(),
              fmt::format("the drafters {} need --draft-table FILE; entrodraft build-table makes one",
                          drafters_that_take("draft-table", "and")));
}

std::string describe(const DrafterChoice& drafter) {
    Names parts;
    for (const std::string& kind : drafter.kinds) {
        Names models;
        for (const std::size_t draft : drafter.drafts)
            models.push_back(fmt::format("draft{}", draft + 1));
        const bool is_cascade = kind == "model" && models != Names{"draft1"};
        parts.push_back(is_cascade ? fmt::format("{}", fmt::join(models, "<")) : kind);
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
    refuse_if(acceptance.lenience < 1 && acceptance.kind == spec::Acceptance::rejection && given.given("temperature"),
              "--lenience below 1 goes with --tree for greedy text alone");
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

// ---- lookahead ----

spec::StopRuleOptions lookahead_rule(const spec::LookaheadOptions& lookahead, const std::string& rule, int max_chain) {
    spec::StopRuleOptions options(rule);
    options.max_tokens = std::max(lookahead.max_tokens(), max_chain);
    if (options.takes("tokens")) options.set("tokens", options.max_tokens); // never ends a tree
    return options;
}

void read_lookahead(const ParsedOptions& given, const spec::AcceptanceOptions& acceptance,
                    SpeculationOptions& speculation) {
    if (!speculation.drafter.has("lookahead")) return;
    constexpr const char* kWhy = "with --drafter lookahead, whose drafts W, N and G shape";
    const bool is_alone = speculation.drafter.kinds.size() == 1; // else the other drafters draft chains
    refuse_if(acceptance.kind == spec::Acceptance::block,
              "--acceptance block is for chains, and --drafter lookahead drafts trees");
    refuse_if(acceptance.lenience < 1 && acceptance.kind == spec::Acceptance::rejection && given.given("temperature"),
              "--lenience below 1 goes with --drafter lookahead for greedy text alone");
    spec::StopRuleOptions& rule = speculation.stop_rules.front();
    refuse_if(!rule.is("expected-gain") && !rule.is("constant"),
              fmt::format("--stop-rule {} stops chains; --drafter lookahead drafts where that pays with expected-gain, "
                          "always with constant",
                          rule.name()));
    refuse_if(is_alone && given.text("stop-rule").find(':') != std::string::npos,
              fmt::format("--stop-rule {}: its values have no effect {}", given.text("stop-rule"), kWhy));
    const int size = speculation.sources.lookahead.max_tokens();
    refuse_if(
        given.given("max-draft-tokens") && rule.max_tokens < size,
        fmt::format("--drafter lookahead drafts up to {} tokens, and --max-draft-tokens is {}", size, rule.max_tokens));
    if (is_alone)
        rule = lookahead_rule(speculation.sources.lookahead, rule.name());
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

void declare_ahead_passes(OptionSet& set, AheadLists& ahead, const char* help) {
    // The first pass looks for the ends of the round; the next one drafts for them.
    set.add("draft-ahead-passes", "N", ahead.passes, at_least(2), help);
}

std::vector<DrafterChoice> with_ahead(const std::vector<DrafterChoice>& drafters, const ParsedOptions& given,
                                      dist::DraftPlacement placement, int batch_size, const AheadLists& ahead,
                                      const char* needs) {
    // Drafting ahead needs one draft model on its own rank, for one sequence at a time. Drafters before the model
    // replace it if the round ended in an unforeseen way.
    const auto may = [&](const DrafterChoice& drafter) {
        return placement == dist::DraftPlacement::dedicated && batch_size == 1 && drafter.drafts.size() == 1 &&
               !drafter.tree && !given.given("draft-window") && !drafter.kinds.empty() &&
               drafter.kinds.back() == "model";
    };
    const bool any_may = std::ranges::any_of(drafters, may);
    for (const char* option : {"draft-ahead", "draft-ahead-passes"})
        refuse_if(given.given(option) && !any_may, fmt::format("--{} needs {}", option, needs));
    const auto is_on = [](int outcomes) { return outcomes > 0; };
    given.refuse_without_effect("draft-ahead-passes",
                                ahead.outcomes.empty() || std::ranges::any_of(ahead.outcomes, is_on),
                                "with --draft-ahead 0");
    std::vector<std::optional<spec::AheadOptions>> settings;
    for (const int outcomes : ahead.outcomes)
        settings.push_back(is_on(outcomes) ? std::optional(spec::AheadOptions{outcomes, ahead.passes}) : std::nullopt);
    if (ahead.outcomes.empty()) settings.push_back(spec::AheadOptions{0, ahead.passes});
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

void declare_lenience(OptionSet& set, double& lenience) {
    set.add("lenience", "L", lenience, {0, 1}, "of rejection, in (0, 1]; below 1 the text is no longer the target's");
    set.check(
        [&lenience](const ParsedOptions&) { refuse_if(lenience == 0, "--lenience 0: must be above 0, at most 1"); });
}

} // namespace entrodraft::launch
