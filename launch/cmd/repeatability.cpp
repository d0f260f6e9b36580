// Causes that change a text between runs: see repeatability.h.
#include "launch/cmd/repeatability.h"

#include <fmt/format.h>
#include <vector>

namespace entrodraft::launch {

namespace {

// Names the texts that other drafted tokens would change; empty: none.
std::string texts_that_drafts_decide(const GenerateOptions& options) {
    const spec::AcceptanceOptions& acceptance = options.speculation.acceptance;
    if (options.speculation.drafter.kinds.empty()) return "";
    if (acceptance.is_lossy()) return "this text";
    if (acceptance.kind == spec::Acceptance::gumbel) return "";
    if (!options.requests.sampling.greedy()) return "this text";
    return options.prompt ? "" : "the texts of lines that set a temperature";
}

struct Cause {
    std::string what;
    const char* remedy;
};

std::vector<Cause> causes_of(const GenerateOptions& options) {
    const SpeculationOptions& speculation = options.speculation;
    bool has_gain = false, learns = false;
    std::string measuring;
    for (std::size_t level = 0; level < speculation.stop_rules.size(); ++level) {
        const spec::StopRuleOptions& rule = speculation.stop_rules[level];
        const bool is_gain = rule.type().weighs_costs;
        has_gain = has_gain || is_gain;
        if (is_gain && speculation.costs[level].empty()) measuring = rule.name();
        learns = learns || is_gain || rule.is_persistent();
    }
    std::vector<Cause> causes;
    if (!measuring.empty()) causes.push_back({measuring + " uses measured times", "--costs FILE"});
    // With the model alone, the other rules draft the same tokens at any time.
    const auto& ahead = speculation.drafter.ahead;
    const bool is_fixed = ahead && ahead->outcomes > 0 && ahead->passes > 0;
    if (ahead && !is_fixed && (has_gain || speculation.drafter.kinds.size() > 1))
        causes.push_back({"what is drafted ahead depends on time", "--draft-ahead 0"});
    if (options.replicas > 1 && learns)
        causes.push_back({"the rule learns from the prompts that its replica gets", "--replicas 1"});
    return causes;
}

} // namespace

std::string why_text_varies(const GenerateOptions& options) {
    const std::string texts = texts_that_drafts_decide(options);
    if (texts.empty()) return "";
    const std::vector<Cause> causes = causes_of(options);
    if (causes.empty()) return "";
    std::vector<std::string> whats, remedies;
    for (const Cause& cause : causes) {
        whats.push_back(cause.what);
        remedies.emplace_back(cause.remedy);
    }
    return fmt::format("note: the same seed will not repeat {}: {}; to repeat {}, use {}{}", texts,
                       fmt::join(whats, ", "), texts == "this text" ? "it" : "them",
                       options.speculation.acceptance.is_lossy() ? "" : "--acceptance gumbel, or ",
                       fmt::join(remedies, " and "));
}

} // namespace entrodraft::launch
