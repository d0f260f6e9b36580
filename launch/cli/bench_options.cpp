// Options of the benches. See options.h; option_tables.cpp declares them.
#include "launch/cli/choices.h"
#include "launch/cli/options.h"
#include "launch/cli/shared_options.h"
#include "launch/counted.h"
#include "launch/failure.h"

#include <algorithm>
#include <climits>

namespace entrodraft::launch {

LatencyOptions latency_options(const ParsedOptions& given) {
    refuse_later_work(given);
    LatencyOptions options;
    options.models = model_options(given);
    options.placement = draft_placement(given);
    options.rows = given.integer("rows", 16, 1, 128);
    options.context = given.integer("context", 64, 1, INT_MAX);
    options.repetitions = given.integer("repetitions", 200, 1, 1000000);
    options.shards = given.integers("shards", 1, 65536);
    options.output = json_output(given);
    options.json = given.on("json");
    if (given.given("draft-placement") && options.models.drafts.empty())
        throw BadOption("--draft-placement has no effect without --draft DIR");
    if (options.models.drafts.size() > 1)
        throw BadOption("--draft is given more than once; time one pair at a time, a cascade level by level");
    if (given.given("output") && options.models.drafts.empty())
        throw BadOption("--output writes costs of target and draft; it needs --draft DIR");
    return options;
}

CompareOptions compare_options(const ParsedOptions& given) {
    for (const char* option : {"dtype", "draft-dtype"}) {
        ParsedOptions one;
        if (given.given(option)) one.add(option, given.text(option, ""), "");
        refuse_later_work(one);
    }
    CompareOptions options;
    options.models = model_options(given);
    options.placement = draft_placement(given);
    options.input = given.file("input");
    if (options.input.empty()) throw BadOption("--input FILE is missing: the prompts to decode");
    options.max_prompts = given.integer("prompts", 0, 1, INT_MAX);
    options.max_new_tokens = given.integer("max-new-tokens", options.max_new_tokens, 1, INT_MAX);
    options.temperatures = number_list(given, "temperatures", options.temperatures);
    options.seed = given.unsigned_integer("seed", 0);
    options.output = json_output(given);
    options.json = given.on("json");
    options.quiet = given.on("quiet");
    options.drafters = compared_drafters(given, options.models.drafts.size());
    const auto drafts_with_model = [](const DrafterChoice& drafter) { return drafter.has("model"); };
    if (!options.models.drafts.empty() &&
        std::none_of(options.drafters.begin(), options.drafters.end(), drafts_with_model))
        throw BadOption("--draft has no effect: --drafters " + given.text("drafters", "") + " names no model");
    options.drafters = with_ahead(options.drafters, given, options.placement);
    options.sources = drafter_sources(given, options.drafters);
    const std::size_t n_levels = std::max<std::size_t>(1, options.models.drafts.size());
    options.rules = compared_rules(given, n_levels);
    options.max_draft_tokens = given.integer("max-draft-tokens", options.max_draft_tokens, 1, 127);
    options.acceptances = compared_acceptances(given);
    options.lenience = given.number("lenience", 1, 0, 1);
    if (options.lenience == 0) throw BadOption("--lenience 0: must be above 0, at most 1");
    if (options.lenience < 1 &&
        std::count(options.acceptances.begin(), options.acceptances.end(), spec::Acceptance::rejection) == 0)
        throw BadOption("--lenience has no effect: --acceptances does not name rejection");
    options.costs = given.texts("costs");
    if (options.costs.size() > n_levels)
        throw BadOption("--costs is given " + std::to_string(options.costs.size()) + " times for " +
                        counted(static_cast<std::int64_t>(n_levels), "level") + " of drafting");
    if (!options.costs.empty() && options.costs.size() < n_levels)
        throw BadOption("--costs is needed for each of the " + std::to_string(n_levels) +
                        " levels of drafting, in the order of --draft");
    options.tune = given.on("tune");
    if (options.tune && given.given("rules")) throw BadOption("--tune tries its own grid of rules; leave --rules out");
    const auto looks = [](const std::vector<spec::StopRuleOptions>& levels) {
        return std::any_of(levels.begin(), levels.end(),
                           [](const auto& rule) { return rule.entropy_of == spec::EntropyOf::adjusted; });
    };
    if (given.text("entropy-of", "") == "adjusted" &&
        (options.tune || std::none_of(options.rules.begin(), options.rules.end(), looks)))
        throw BadOption("--entropy-of adjusted has no effect " +
                        std::string(options.tune ? "with --tune, which tries rules on raw entropies"
                                                 : "on --rules " + given.text("rules", "") +
                                                       ", none of which looks at distributions"));
    if (given.given("synthetic-acceptance"))
        options.synthetic_acceptance = given.number("synthetic-acceptance", 0, 0, 1);
    return options;
}

} // namespace entrodraft::launch
