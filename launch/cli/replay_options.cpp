// Options of record, simulate and tune: see replay_options.h.
#include "launch/cli/replay_options.h"
#include "launch/cli/choices.h"

#include "launch/cli/option_groups.h"
#include "launch/cli/shared_options.h"
#include "launch/cli/stop_rule_options.h"
#include "launch/counted.h"
#include "launch/failure.h"
#include "spec/replay/tune.h"
#include "spec/stats.h"

#include <algorithm>
#include <climits>
#include <cmath>

namespace entrodraft::launch {

namespace {

constexpr double kMaxMs = 1e9;
constexpr int kDefaultDraftTokens = 15;

std::string required(const ParsedOptions& given, const char* name, const char* what) {
    std::string value = given.text(name, "");
    if (value.empty())
        throw BadOption(std::string("--") + name + (given.given(name) ? " is empty: " : " is missing: ") + what);
    return value;
}

void refuse_adjusted_entropies(const ParsedOptions& given) {
    if (given.choice("entropy-of", 0, entropy_of_choices()) == 1)
        throw BadOption("--entropy-of adjusted: a recording holds raw entropies; generate and bench compare take it");
}

void require_costs_for_each(const std::vector<std::string>& costs, std::size_t n_drafts) {
    if (!costs.empty() && costs.size() != n_drafts)
        throw BadOption("--costs is given " + counted(static_cast<std::int64_t>(costs.size()), "time") + " for " +
                        std::to_string(n_drafts) + " of --draft; name a file for each, in their order, or none");
}

// "2..7..0.5" in a rule's numbers: each from 2 to 7 in steps of 0.5.
std::vector<std::string> with_ranges(const std::string& rule) {
    const std::size_t dots = rule.find("..");
    if (dots == std::string::npos) return {rule};
    const std::size_t colon = rule.rfind(':', dots);
    const std::size_t begin = colon == std::string::npos ? 0 : colon + 1;
    const std::size_t end = std::min(rule.find(':', dots), rule.size());
    const std::string range = rule.substr(begin, end - begin);
    const std::size_t second = range.find("..", dots - begin + 2);
    if (second == std::string::npos)
        throw BadOption("--rules " + rule + ": a range is FROM..TO..STEP, such as static:2..7..0.5");
    const auto number = [&](const std::string& text) {
        ParsedOptions one;
        one.add_part("number", text, "--rules " + rule);
        return one.number("number", 0, -1e9, 1e9);
    };
    const double from = number(range.substr(0, dots - begin));
    const double to = number(range.substr(dots - begin + 2, second - (dots - begin + 2)));
    const double step = number(range.substr(second + 2));
    constexpr double kMaxSteps = 100'000;
    if (!(step > 0) || !(to >= from) || (to - from) / step > kMaxSteps)
        throw BadOption("--rules " + rule + ": a range goes up, in steps above 0, at most 100000 of them");
    std::vector<std::string> all;
    const auto steps = static_cast<int>(std::floor((to - from) / step + 1e-9));
    for (int i = 0; i <= steps; ++i) {
        std::string value = std::to_string(std::round((from + i * step) * 1e6) / 1e6);
        value.erase(value.find_last_not_of('0') + 1);
        if (value.back() == '.') value.pop_back();
        for (const std::string& rest : with_ranges(rule.substr(0, begin) + value + rule.substr(end)))
            all.push_back(rest);
    }
    return all;
}

// The grid's settings, with what is given for all rules.
void add_grid(const ParsedOptions& given, SimulateOptions& options) {
    const int most = given.integer("max-draft-tokens", kDefaultDraftTokens, 1, 127);
    for (spec::StopRuleOptions rule : spec::tuning_grid(most)) {
        rule.min_tokens = given.integer("min-draft-tokens", rule.min_tokens, 1, 127);
        rule.drop_stop_token = drop_stop_token(given, rule.type());
        if (const std::string why = spec::why_invalid(rule); !why.empty()) throw BadOption(why);
        options.rules.push_back(rule);
    }
}

void read_rules(const ParsedOptions& given, SimulateOptions& options) {
    if (given.given("max-draft-tokens"))
        options.max_draft_tokens = given.integer("max-draft-tokens", kDefaultDraftTokens, 1, 127);
    std::string listed;
    for (const std::string& one : split_list(given.text("rules", "all,oracle"))) {
        if (one == "oracle") {
            options.oracle = true;
        } else if (one == "grid") {
            add_grid(given, options);
        } else {
            for (const std::string& rule : with_ranges(one))
                listed += (listed.empty() ? "" : ",") + rule;
        }
    }
    if (listed.empty() && options.rules.empty() && !options.oracle)
        throw BadOption("--rules is empty; name rules, separated by commas");
    if (listed.empty()) return;
    ParsedOptions rules;
    for (const char* option : {"max-draft-tokens", "min-draft-tokens", "drop-stop-token"})
        if (given.given(option)) rules.add_nth(given, option, 0);
    rules.add("rules", listed, "");
    for (const auto& levels : compared_rules(rules, 1, {"oracle", "grid"}))
        options.rules.push_back(levels.front());
}

CostsInstead costs_instead(const ParsedOptions& given) {
    CostsInstead costs;
    costs.file = given.file("costs");
    const auto ms = [&](const char* name) -> std::optional<double> {
        if (!given.given(name)) return std::nullopt;
        return given.number(name, 0, 0, kMaxMs);
    };
    costs.t_draft_ms = ms("t-draft");
    costs.t_first_draft_ms = ms("t-first-draft");
    costs.t_round_ms = ms("t-round");
    costs.t_target_ms = number_list(given, "t-target", {});
    for (const double value : costs.t_target_ms)
        if (!(value >= spec::kMinPassMs && value <= kMaxMs))
            throw BadOption("--t-target must list milliseconds from " + std::string(spec::kMinPassMsInWords) +
                            " to 1e9");
    return costs;
}

std::optional<int> ahead(const ParsedOptions& given) {
    const bool dedicated = given.choice("draft-placement", 0, replayed_placement_choices()) == 1;
    if (given.given("draft-ahead") && !dedicated) throw BadOption("--draft-ahead needs --draft-placement dedicated");
    const int outcomes = given.integer("draft-ahead", 8, 0, spec::AheadOptions::kMaxOutcomes);
    return dedicated && outcomes > 0 ? std::optional(outcomes) : std::nullopt;
}

} // namespace

RecordOptions record_options(const ParsedOptions& given) {
    refuse_later_work(given);
    refuse_adjusted_entropies(given);
    RecordOptions options;
    options.models = model_options(given);
    options.requests = request_defaults(given);
    read_chat(given, false, options.models, options.requests);
    if (options.models.drafts.empty()) throw BadOption("--draft DIR is missing: what would draft is what is recorded");
    options.input = required(given, "input", "the prompts, JSON lines as for generate, or -");
    options.output = required(given, "output", "the file that the recording goes to");
    if (options.output == "-") throw BadOption("--output -: a recording goes to a file; name one");
    options.resume = given.on("resume");
    options.max_prompts = given.integer("prompts", 0, 1, INT_MAX);
    options.max_draft_tokens = given.integer("max-draft-tokens", 15, 1, 127);
    options.costs = given.texts("costs");
    require_costs_for_each(options.costs, options.models.drafts.size());
    options.quiet = given.on("quiet");
    return options;
}

SimulateOptions simulate_options(const ParsedOptions& given) {
    refuse_adjusted_entropies(given);
    SimulateOptions options;
    options.recordings = given.texts("recording");
    if (options.recordings.empty()) throw BadOption("--recording FILE is missing: what entrodraft record has made");
    read_rules(given, options);
    options.best_of_each = given.on("best");
    if (given.given("draft")) options.draft = given.integer("draft", 1, 1, INT_MAX);
    options.costs = costs_instead(given);
    options.ahead = ahead(given);
    options.threads = given.integer("threads", 0, 1, 1024);
    options.output = json_output(given);
    options.trace = beside_stdout(given, "trace");
    if (!options.trace.empty() && options.rules.size() + (options.oracle ? 1 : 0) != 1)
        throw BadOption("--trace shows the rounds of one setting; --rules names " +
                        std::to_string(options.rules.size() + (options.oracle ? 1 : 0)));
    options.json = given.on("json");
    return options;
}

TuneOptions tune_options(const ParsedOptions& given) {
    refuse_later_work(given);
    refuse_adjusted_entropies(given);
    TuneOptions options;
    options.models = model_options(given);
    options.requests = request_defaults(given);
    if (options.models.drafts.size() != 1)
        throw BadOption(options.models.drafts.empty() ? "--draft DIR is missing: what is to be tuned"
                                                      : "--draft is given more than once; tune one pair at a time");
    options.input = required(given, "input", "the prompts, JSON lines as for generate");
    options.recording = given.file("recording");
    options.output = required(given, "output", "the file that the best setting goes to, for --config");
    options.report = given.file("report");
    for (const char* option : {"output", "report"})
        if (given.text(option, "") == "-")
            throw BadOption(std::string("--") + option + " -: it is written at the end, to a file; name one");
    options.max_prompts = given.integer("prompts", 0, 2, INT_MAX);
    options.max_draft_tokens = given.integer("max-draft-tokens", 15, 1, 127);
    options.repetitions = given.integer("repetitions", 3, 1, 1000);
    options.costs = given.texts("costs");
    require_costs_for_each(options.costs, 1);
    options.quiet = given.on("quiet");
    return options;
}

} // namespace entrodraft::launch
