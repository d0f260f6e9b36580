// What bench compare and simulate put side by side: lists of drafters, rules and acceptances.
// See options.h.
#include "launch/cli/shared_options.h"
#include "launch/cli/stop_rule_options.h"
#include "launch/counted.h"
#include "launch/failure.h"

namespace entrodraft::launch {

std::vector<DrafterChoice> compared_drafters(const ParsedOptions& given, std::size_t n_drafts) {
    std::vector<DrafterChoice> choices;
    for (const std::string& name : split_list(given.text("drafters", n_drafts > 0 ? "model" : ""), ',')) {
        std::size_t number = 0; // "draft2": the second --draft alone
        for (std::size_t draft = 1; draft <= n_drafts; ++draft)
            if (name == "draft" + std::to_string(draft)) number = draft;
        if (number == 0 && name.starts_with("draft"))
            throw BadOption("--drafters " + name + ": --draft is given " +
                            counted(static_cast<std::int64_t>(n_drafts), "time") + "; draft1 is the first of them");
        choices.push_back(parse_drafter(number > 0 ? "model" : name, '+', n_drafts, "--drafters"));
        if (number > 0) choices.back().drafts = {number - 1};
    }
    if (choices.empty() && given.text("rules", "") != "none")
        throw BadOption("nothing to compare: give --draft DIR, or --drafters NAME,NAME");
    return choices;
}

std::vector<std::vector<spec::StopRuleOptions>> compared_rules(const ParsedOptions& given, std::size_t n_levels,
                                                               const std::vector<std::string>& beside) {
    std::vector<std::vector<spec::StopRuleOptions>> settings;
    const auto add = [&](const std::string& text) {
        std::vector<spec::StopRuleOptions> levels;
        for (const std::string& rule : split_list(text, '/'))
            levels.push_back(parse_listed_rule(rule, given, beside));
        if (levels.empty() || levels.size() > n_levels)
            throw BadOption("--rules " + text + ": rules of " +
                            counted(static_cast<std::int64_t>(levels.size()), "level") + ", but there " +
                            (n_levels == 1 ? "is 1" : "are " + std::to_string(n_levels)));
        levels.resize(n_levels, levels.back());
        settings.push_back(levels);
    };
    for (const std::string& one : split_list(given.text("rules", "all"), ',')) {
        if (one == "none") continue; // plain decoding always runs
        if (one != "all") {
            add(one);
            continue;
        }
        for (const std::string& rule : spec::stop_rule_names())
            add(rule);
    }
    if (settings.empty() && given.text("rules", "") != "none")
        throw BadOption("--rules is empty; name some, or none for plain decoding alone");
    return settings;
}

std::vector<spec::Acceptance> compared_acceptances(const ParsedOptions& given) {
    std::vector<spec::Acceptance> acceptances;
    for (const std::string& name : split_list(given.text("acceptances", "gumbel"), ','))
        acceptances.push_back(acceptance_of(name, "--acceptances"));
    if (acceptances.empty()) throw BadOption("--acceptances is empty; name one or leave it out");
    return acceptances;
}

} // namespace entrodraft::launch
