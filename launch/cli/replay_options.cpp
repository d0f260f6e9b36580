// Options of record, simulate and tune: see options.h.
#include "launch/cli/shared_options.h"
#include "launch/start/counted.h"
#include "spec/protocol/stats.h"
#include "spec/replay/tune.h"

#include <cmath>
#include <fmt/format.h>
#include <regex>

namespace entrodraft::launch {

namespace {

constexpr double kMaxMs = 1e9;
constexpr const char* kRawOnly = "a recording holds raw entropies; generate and bench compare take it";

void declare_raw_entropies(OptionSet& set) {
    set.add("entropy-of", "raw", "what recordings hold; adjusted is for generate and bench compare");
    set.check([](const ParsedOptions& given) {
        refuse_if(given.given("entropy-of") && index_among(kEntropyNames, given.values("entropy-of").front()) == 1,
                  fmt::format("--entropy-of adjusted: {}", kRawOnly));
    });
}

void require_costs_for_each(const Names& costs, std::size_t n_drafts) {
    refuse_if(!costs.empty() && costs.size() != n_drafts,
              fmt::format("--costs is given {} for {}; name a file for each, in their order, or none",
                          counted(costs.size(), "time"), counted(n_drafts, "draft")));
}

// Expands "2..7..0.5" in a rule's numbers: from 2 to 7 in steps of 0.5.
Names with_ranges(const std::string& rule) {
    if (rule.find("..") == std::string::npos) return {rule};
    static const std::regex range(R"(([^:]*?)\.\.([^:]*?)\.\.([^:]*))");
    std::smatch found;
    refuse_if(!std::regex_search(rule, found, range),
              "--rules " + rule + ": a range is FROM..TO..STEP, such as static:2..7..0.5");
    const auto number = [&](std::size_t part) {
        double value = 0;
        read_value(GivenValue{"rules", rule}.part(found[part]), {-1e9, 1e9}, value);
        return value;
    };
    const double from = number(1), to = number(2), step = number(3);
    constexpr double kMaxSteps = 100'000;
    refuse_if(!(step > 0) || !(to >= from) || (to - from) / step > kMaxSteps,
              "--rules " + rule + ": a range goes up, in steps above 0, at most 100000 of them");
    Names all;
    const auto steps = static_cast<int>(std::floor((to - from) / step + 1e-9));
    for (int i = 0; i <= steps; ++i) {
        std::string value = fmt::format("{:.6f}", from + i * step);
        value.erase(value.find_last_not_of('0') + 1);
        if (value.back() == '.') value.pop_back();
        const Names rest = with_ranges(found.prefix().str() + value + found.suffix().str());
        all.insert(all.end(), rest.begin(), rest.end());
    }
    return all;
}

void read_rules(const ParsedOptions& given, const spec::StopRuleOptions& common, SimulateOptions& options) {
    std::string listed;
    for (const std::string& one : split_list(given.text("rules", "all,oracle"))) {
        if (one == "none" && !options.trees.empty()) continue; // only trees
        if (one == "oracle") {
            options.oracle = true;
        } else if (one == "grid") { // the grid's settings, with the common settings of all rules
            for (const spec::StopRuleOptions& rule : spec::tuning_grid(common.max_tokens))
                options.rules.push_back(with_common(rule, common));
        } else {
            for (const std::string& rule : with_ranges(one))
                listed += (listed.empty() ? "" : ",") + rule;
        }
    }
    refuse_if(listed.empty() && options.rules.empty() && options.trees.empty() && !options.oracle,
              "--rules is empty; name rules, separated by commas");
    if (listed.empty()) return;
    for (const auto& levels : compared_rules(listed, common, 1, {"oracle", "grid"})) {
        refuse_if(levels.front().entropy_of == spec::EntropyOf::adjusted,
                  fmt::format("--rules {}: {}", describe(levels.front()), kRawOnly));
        options.rules.push_back(levels.front());
    }
}

void declare_what_if(OptionSet& set, SimulateOptions& options) {
    CostsInstead& costs = options.costs;
    set.group("What if");
    set.add("costs", "FILE", costs.file, "other costs than the recording's, as bench latency writes them");
    set.add("t-draft", "MS", costs.t_draft_ms, {0, kMaxMs}, "of a draft pass");
    set.add("t-first-draft", "MS", costs.t_first_draft_ms, {0, kMaxMs},
            "of a round's first [with --t-draft: the same]");
    set.add("t-draft-row", "MS", costs.t_draft_row_ms, {0, kMaxMs},
            "of a further row of a draft pass, in trees [with --t-draft: 0]");
    set.add("t-target", "MS,MS", costs.t_target_ms, at_least(0),
            "of target passes of 1, 2, ... rows; wider ones as the last");
    set.add("t-round", "MS", costs.t_round_ms, {0, kMaxMs}, "of a round beside its passes: messages, verification");
    set.add("draft-placement", "WHERE", options.placement, names_up_to(dist::DraftPlacement::dedicated),
            "{}: with dedicated the draft drafts ahead on a rank of its own, an estimate");
    set.add("draft-ahead", "F", options.outcomes_ahead, {0, spec::AheadOptions::kMaxOutcomes},
            fmt::format("with dedicated, outcomes of a round that are drafted for, up to {}; 0: none",
                        spec::AheadOptions::kMaxOutcomes));
    set.check([&options](const ParsedOptions& given) {
        for (const double ms : options.costs.t_target_ms)
            refuse_if(!(ms >= spec::kMinPassMs && ms <= kMaxMs),
                      fmt::format("--t-target must list milliseconds from {} to 1e9", spec::kMinPassMsInWords));
        const bool dedicated = options.placement == dist::DraftPlacement::dedicated;
        refuse_if(given.given("draft-ahead") && !dedicated, "--draft-ahead needs --draft-placement dedicated");
        if (dedicated && options.outcomes_ahead > 0) options.ahead = options.outcomes_ahead;
    });
}

} // namespace

void declare(OptionSet& set, RecordOptions& options) {
    declare_measured_models(set, options.models,
                            "checkpoint of what would draft; several are recorded beside each other, the first is what "
                            "texts are decoded with");
    declare_head(set, options.models);
    set.group("Record");
    set.check([&options](const ParsedOptions&) {
        refuse_self_draft(options.models, "record");
        refuse_if(options.models.draft_directories().empty(),
                  "--draft DIR or --head DIR is missing: what would draft is what is recorded");
    });
    set.add("input", "FILE|-", options.input, "JSON lines of prompts, as for generate")
        .required("the prompts, JSON lines as for generate, or -");
    set.add_output("output", options.output, "the recording", " -: a recording goes to a file; name one")
        .required("the file that the recording goes to");
    set.add("resume", options.resume, kResumeHelp);
    set.add("prompts", "N", options.max_prompts, at_least(1), "only the first N of them [all]");
    declare_new_tokens(set, options.requests.max_new_tokens);
    declare_ends(set, options.requests);
    set.add("max-draft-tokens", "N", options.max_draft_tokens, kDraftTokens,
            fmt::format("longest draft that can be replayed, 1 to {}", kDraftTokens.max));
    declare_trees(set, options.trees, "trees of this shape, and narrower ones of its kind, can be replayed as well");
    declare_raw_entropies(set);
    set.add("costs", "FILE", options.costs,
            "costs of passes, as bench latency writes them; of each --draft [measured first]");
    set.add("quiet", options.quiet, kQuietHelp);
    set.check([&options](const ParsedOptions&) {
        require_costs_for_each(options.costs, options.models.draft_directories().size());
    });
    declare_sampling(set, options.requests);
    declare_chat(set, options.models, options.requests);
}

void declare(OptionSet& set, SimulateOptions& options) {
    set.group("Simulate");
    set.add("recording", "FILE", options.recordings,
            "made by record; several: their texts together, of the same models")
        .required("what entrodraft record has made")
        .is_positional = true;
    set.add("rules", "RULE,RULE",
            stop_rule_forms() + ", all of these, none, oracle, grid (many settings of each); a number may be a range "
                                "FROM..TO..STEP [all,oracle]")
        .choosing(with_stop_rules({"all", "none", "oracle", "grid"}), ",");
    declare_trees(set, options.trees, "a tree of the recording, beside the rules, which are of chains");
    set.add("method", "METHOD", options.method, {"exact", "imputed"},
            "{}: what runs would count; imputed: what Kluser (2024) simulates, from the entropies of one run");
    set.add("imputed-from", "K", options.imputed_from, kDraftTokens,
            "of imputed: tokens that each round of that run drafts [as many as were recorded]");
    set.add("best", options.best_of_each, "show only the fastest setting of each rule");
    set.add("draft", "D", options.draft, at_least(1), "only the D-th draft of the recording, from 1 [each]");
    set.add("max-draft-tokens", "N", options.max_draft_tokens, kDraftTokens,
            fmt::format("most drafted tokens a round, up to what was recorded [{}; of trees that grow {}]",
                        options.every_rule.max_tokens, spec::TreeOptions::kDefaultTokens));
    declare_min_draft_tokens(set, options.every_rule.min_tokens);
    declare_drop_stop_token(set, options.every_rule.drop_stop_token);
    declare_raw_entropies(set);
    set.add("threads", "N", options.threads, kThreads, "[OMP_NUM_THREADS or SLURM_CPUS_PER_TASK, else all cores]");
    set.add_output("output", options.output, "write the results as JSON", kStdoutIsForJson);
    set.add_output("trace", options.trace,
                   "the rounds of one setting, a JSON line each, as generate --trace writes them", kStdoutIsForText);
    set.add("json", options.json, kJsonHelp);
    set.check([&options](const ParsedOptions& given) {
        options.every_rule.max_tokens = options.max_draft_tokens.value_or(options.every_rule.max_tokens);
        read_rules(given, options.every_rule, options);
        const std::size_t n_settings = options.rules.size() + options.trees.size() + (options.oracle ? 1 : 0);
        refuse_if(!options.trace.empty() && n_settings != 1,
                  fmt::format("--trace shows the rounds of one setting; --rules and --tree name {}", n_settings));
    });
    declare_what_if(set, options);
    set.check([&options](const ParsedOptions& given) {
        const bool imputes = options.method == ReplayMethod::imputed;
        given.refuse_without_effect("imputed-from", imputes, "without --method imputed");
        refuse_if(imputes && (!options.trees.empty() || options.ahead),
                  "--method imputed is for chains that wait for the verification, not for --tree or --draft-placement "
                  "dedicated");
        refuse_if(options.ahead && options.oracle && given.given("rules"),
                  "--rules oracle: it drafts nothing ahead, so it bounds no rule that does; leave it out, or give "
                  "--draft-ahead 0");
        if (options.ahead) options.oracle = false; // of the default
    });
}

void declare(OptionSet& set, TuneOptions& options) {
    declare_measured_models(set, options.models, "checkpoint of the draft to tune for");
    declare_head(set, options.models);
    set.group("Tune");
    set.check([&options](const ParsedOptions&) {
        refuse_self_draft(options.models, "tune");
        const std::size_t n_drafts = options.models.draft_directories().size();
        refuse_if(n_drafts != 1, n_drafts == 0 ? "--draft DIR or --head DIR is missing: what is to be tuned"
                                               : "--draft is given more than once; tune one pair at a time");
    });
    set.add("input", "FILE|-", options.input,
            "JSON lines of prompts, as for generate: settings are chosen on one half of them, every other line, and "
            "confirmed on the other")
        .required("the prompts, JSON lines as for generate");
    set.add("recording", "FILE", options.recording, "choose on this recording instead, and confirm on all of --input");
    constexpr const char* kToAFile = " -: it is written at the end, to a file; name one";
    set.add_output("output", options.output, "the best setting, as a file for --config", kToAFile)
        .required("the file that the best setting goes to, for --config");
    set.add_output("report", options.report, "all that was tried and measured, as JSON", kToAFile);
    set.add("prompts", "N", options.max_prompts, at_least(2), "only the first N prompts [all]");
    set.add("repetitions", "N", options.repetitions, {1, 1000}, "real runs of the best setting of each rule");
    declare_new_tokens(set, options.requests.max_new_tokens);
    declare_ends(set, options.requests);
    set.add("max-draft-tokens", "N", options.max_draft_tokens, kDraftTokens,
            "most drafted tokens a round, of all settings but trees");
    declare_trees(set, options.trees, "a tree to try beside the rules, with narrower ones of its kind");
    declare_raw_entropies(set);
    set.add("costs", "FILE", options.costs, "costs of passes, as bench latency writes them [measured first]");
    set.add("quiet", options.quiet, "no progress");
    set.check([&options](const ParsedOptions&) { require_costs_for_each(options.costs, 1); });
    declare_sampling(set, options.requests);
    set.check([&options](const ParsedOptions&) { // no line may have its own temperature
        refuse_no_sampling(options.requests);
    });
}

} // namespace entrodraft::launch
