// Options of the benches. See options.h.
#include "launch/cli/shared_options.h"
#include "launch/start/counted.h"
#include "spec/draft/drafter.h"

#include <algorithm>
#include <fmt/format.h>

namespace entrodraft::launch {

namespace {

void read_drafters(const ParsedOptions& given, CompareOptions& options) {
    const std::size_t n_drafts = options.models.drafts.size();
    for (const std::string& name : split_list(given.text("drafters", default_drafter(options.models)))) {
        std::size_t number = 0; // "draft2": the second --draft alone
        for (std::size_t draft = 1; draft <= n_drafts; ++draft)
            if (name == fmt::format("draft{}", draft)) number = draft;
        refuse_if(number == 0 && name.starts_with("draft"),
                  fmt::format("--drafters {}: --draft is given {}; draft1 is the first of them", name,
                              counted(n_drafts, "time")));
        options.drafters.push_back(parse_drafter({"drafters", number > 0 ? "model" : name}, '+', options.models));
        if (number > 0) options.drafters.back().drafts = {number - 1};
    }
    refuse_if(options.drafters.empty() && given.text("rules") != "none",
              "nothing to compare: give --draft DIR, --head DIR or --drafters NAME,NAME");
    const auto has_model = [](const DrafterChoice& one) { return one.has("model"); };
    refuse_if(n_drafts > 0 && std::ranges::none_of(options.drafters, has_model),
              "--draft has no effect: --drafters " + given.text("drafters") + " names no model");
    const auto has_head = [](const DrafterChoice& one) { return one.has("head"); };
    refuse_if(!options.models.head.empty() && std::ranges::none_of(options.drafters, has_head),
              "--head has no effect: --drafters " + given.text("drafters") + " names no head");
    options.drafters = with_ahead(options.drafters, given, options.placement, 1, options.ahead,
                                  "--draft-placement dedicated and one --draft, which drafts last");
    check_sources(given, options.drafters, options.sources);
}

void check_compare(const ParsedOptions& given, CompareOptions& options) {
    read_drafters(given, options);
    const std::size_t n_levels = std::max<std::size_t>(1, options.models.drafts.size());
    options.every_rule.max_tokens = options.max_draft_tokens;
    options.rules = compared_rules(given.text("rules", "all"), options.every_rule, n_levels);
    refuse_if(options.acceptances.empty(), "--acceptances is empty; name one or leave it out");
    const auto shapes_trees = [](const DrafterChoice& one) { return one.own_tree_tokens() > 0; };
    const auto is_of_chains = [](const spec::AcceptanceOptions& one) {
        return one.kind == spec::Acceptance::block || one.lenience < 1;
    };
    const bool any_of_chains = std::ranges::any_of(options.acceptances, is_of_chains);
    refuse_if(std::ranges::any_of(options.drafters, shapes_trees) && any_of_chains,
              "--drafters lookahead, which drafts trees, goes without block and lenience of --acceptances");
    const bool samples = std::ranges::any_of(options.temperatures, [](double each) { return each > 0; });
    given.refuse_without_effect("seed", samples || options.synthetic_acceptance, "at --temperatures 0");
    given.refuse_without_effect("acceptances",
                                samples || std::ranges::any_of(options.acceptances, &spec::AcceptanceOptions::is_lossy),
                                "at --temperatures 0, where all but typical, bild and lenience are alike");
    if (samples)
        for (const spec::AcceptanceOptions& acceptance : options.acceptances)
            for (const auto& levels : options.rules)
                for (const spec::StopRuleOptions& rule : levels)
                    if (const std::string why = why_biased(rule, acceptance.kind); !why.empty()) throw BadOption(why);
    if (!options.trees.empty()) {
        refuse_if(options.models.draft_directories().size() != 1 || options.placement == dist::DraftPlacement::sharded,
                  "--tree is for one --draft, colocated or dedicated, or a --head");
        refuse_if(any_of_chains || options.synthetic_acceptance,
                  "--tree goes without --synthetic-acceptance, and without block and lenience of --acceptances");
    }
    const std::size_t n_costs = options.costs.size();
    refuse_if(n_costs > n_levels,
              fmt::format("--costs is given {} times for {} of drafting", n_costs, counted(n_levels, "level")));
    refuse_if(
        n_costs > 0 && n_costs < n_levels,
        fmt::format("--costs is needed for each of the {} levels of drafting, in the order of --draft", n_levels));
    refuse_if(options.tune && given.given("rules"), "--tune tries its own grid of rules; leave --rules out");
    const auto looks = [](const std::vector<spec::StopRuleOptions>& levels) {
        return std::ranges::count(levels, spec::EntropyOf::adjusted, &spec::StopRuleOptions::entropy_of) > 0;
    };
    refuse_if(options.every_rule.entropy_of == spec::EntropyOf::adjusted &&
                  (options.tune || std::ranges::none_of(options.rules, looks)),
              "--entropy-of adjusted has no effect " +
                  (options.tune ? "with --tune, which tries rules on raw entropies"
                                : "on --rules " + given.text("rules") + ", none of which looks at distributions"));
}

} // namespace

void declare(OptionSet& set, LatencyOptions& options) {
    declare_measured_models(set, options.models, "checkpoint of the draft");
    declare_head(set, options.models);
    declare_draft_window(set, options.models);
    declare_draft_vocab(set, options.models);
    declare_placement(set, options.placement);
    set.group("Latency");
    set.add("rows", "R,R", options.plan.rows, {1, spec::kMaxSlots},
            fmt::format("time passes of 1 to R rows, up to {}; several numbers: of these rows alone, 1 among them [{}]",
                        spec::kMaxSlots, options.plan.rows.front()));
    set.add("context", "N,N", options.plan.contexts, at_least(1),
            "tokens in the cache before each pass; all passes are timed behind each, and the costs that simulate and "
            "tune take are those of the first [1000 on GPUs, 64 on CPUs, or as many as fit]");
    set.add(
        "repetitions", "N", options.plan.repetitions, {1, 1000000},
        fmt::format("passes of each kind, however long they take; collectives are timed five times as often [{}, or "
                    "as many as {:g} s a context allow]",
                    options.plan.repetitions, options.plan.max_seconds));
    set.add("tree", "SHAPE",
            "time target passes of a tree's first rows as well, beside chains of as many, and a further row of the "
            "draft's: medusa-63, eagle-25, N,N,... (children by level) or a JSON file of paths",
            [&options](const GivenValue& given) {
                options.plan.tree = spec::parse_tree(given.text);
                options.plan.draft_levels = true;
            });
    set.add("shards", "N,N", options.shards, {1, 65536},
            "on one rank: time a shard of each N ranks by itself too, for bench/scaling_model.py [none]");
    set.add_output("output", options.output, "write the costs file", kStdoutIsForJson);
    set.add("json", options.json, kJsonHelp);
    set.check([&options](const ParsedOptions& given) {
        if (given.given("repetitions")) options.plan.max_seconds = 0;
        refuse_if(!options.plan.times(1),
                  "--rows " + given.text("rows") + " lacks 1, with which the others are compared");
        if (options.plan.tree) {
            refuse_if(options.plan.tree->shape != spec::TreeOptions::Shape::fixed,
                      fmt::format("--tree {} has no rows of its own: a fixed tree is timed", options.plan.tree->name));
        }
        const std::size_t n_drafts = options.models.draft_directories().size();
        given.refuse_without_effect("draft-placement", n_drafts > 0, "without --draft DIR or --head DIR");
        refuse_sharded_head(options.placement, !options.models.head.empty());
        refuse_if(n_drafts > 1, "--draft is given more than once; time one pair at a time, a cascade level by level");
        refuse_if(given.given("output") && n_drafts == 0,
                  "--output writes costs of target and draft; it needs --draft DIR or --head DIR");
    });
}

void declare(OptionSet& set, CompareOptions& options) {
    declare_measured_models(set, options.models,
                            "checkpoint of the draft; several: a cascade, the largest first, unless --drafters names "
                            "one alone");
    declare_head(set, options.models);
    declare_draft_window(set, options.models);
    declare_draft_vocab(set, options.models);
    declare_placement(set, options.placement);
    set.group("Compare");
    set.add("input", "FILE|-", options.input, "JSON lines of prompts, as for generate")
        .required("the prompts to decode");
    set.add("prompts", "N", options.max_prompts, at_least(1), "only the first N of them [all]");
    declare_new_tokens(set, options.requests.max_new_tokens);
    set.add("temperatures", "T,T", options.temperatures, at_least(0), "each measured by itself");
    options.requests.given.insert("temperature");
    declare_seed(set, options.requests.sampling.seed);
    declare_generation_config(set, options.requests);
    Names drafters = spec::drafter_names();
    drafters.insert(std::ranges::find(drafters, "model") + 1, "draft2 (the second --draft alone)");
    set.add("drafters", "LIST",
            fmt::format("{}, or several in turn as in ngram+model [model]", fmt::join(drafters, ", ")))
        .choosing(spec::drafter_names(), ",+")
        .detailed(drafter_values_help());
    set.add("rules", "RULE,RULE",
            stop_rule_forms() + ", all of these, none; of a cascade RULE/RULE; plain decoding always runs [all]")
        .choosing(with_stop_rules({"all", "none"}), ",/");
    declare_trees(
        set, options.trees,
        fmt::format("a tree of one --draft, beside the rules, which are of chains; one that grows has at most "
                    "{} tokens",
                    spec::TreeOptions::kDefaultTokens));
    set.add("acceptances", "LIST",
            std::string(kAcceptanceHelp) + ". Greedy text is the same with all that are not lossy [gumbel]",
            [&options](const GivenValue& given) {
                options.acceptances.clear();
                for (const std::string& one : split_list(given.text))
                    options.acceptances.push_back(read_acceptance({given.name, one, given.place}));
            })
        .choosing(names_up_to(spec::Acceptance::bild), ",")
        .detailed(acceptance_values_help());
    set.add("entropy-of", "WHICH", options.every_rule.entropy_of, kEntropyNames,
            "{}: the distribution that rules look at");
    set.add("max-draft-tokens", "N", options.max_draft_tokens, kDraftTokens,
            fmt::format("most drafted tokens a round, 1 to {}", kDraftTokens.max));
    declare_min_draft_tokens(set, options.every_rule.min_tokens);
    declare_drop_stop_token(set, options.every_rule.drop_stop_token);
    set.add("draft-ahead", "F,F",
            fmt::format("with dedicated: each number of outcomes drafted for [auto]. {}", kAheadHelp),
            [&options](const GivenValue& given) {
                for (const std::string& one : split_list(given.text))
                    options.ahead.push_back(read_ahead({given.name, one, given.place}));
            });
    set.add("tune", options.tune, "try a grid of settings of every rule and show the best of each");
    set.add("synthetic-acceptance", "A", options.synthetic_acceptance, {0, 1},
            "drafted tokens are accepted with this probability, whatever they are: whole rounds of random weights");
    set.add("costs", "FILE", options.costs,
            "costs of passes, as bench latency writes them; of each level [measured first]");
    declare_sources(set, options.sources);
    set.add_output("output", options.output, "write the results as JSON", kStdoutIsForJson);
    set.add("json", options.json, kJsonHelp);
    set.add("quiet", options.quiet, "no progress");
    set.check([&options](const ParsedOptions& given) { check_compare(given, options); });
}

} // namespace entrodraft::launch
