// What bench compare, bench alpha and simulate put side by side: lists of drafters, rules and acceptances.
// See options.h.
#include "launch/cli/shared_options.h"
#include "launch/counted.h"
#include "launch/failure.h"

#include <optional>

namespace entrodraft::launch {

namespace {

using Rule = spec::StopRuleKind;

// The option that a rule's first number in a list sets; nullptr: it has none.
const char* first_parameter(Rule kind) {
    switch (kind) {
    case Rule::static_threshold:
    case Rule::cumulative:
        return "entropy-threshold";
    case Rule::moving_average:
        return "entropy-factor";
    case Rule::constant:
    case Rule::heuristic:
    case Rule::adaptive:
        return "num-draft-tokens";
    case Rule::confidence:
        return "confidence-threshold";
    case Rule::svip:
        return "svip-threshold";
    case Rule::adaedl:
        return "adaedl-gamma";
    case Rule::expected_gain:
        return nullptr;
    }
    throw BadOption("unknown stop rule");
}

[[noreturn]] void refuse_rule(const std::string& text, const std::string& name,
                              const std::vector<std::string>& beside) {
    if (text == "oracle")
        throw BadOption("--rules oracle: no run knows which token will fall; each table shows the oracle's figure, and "
                        "entrodraft simulate replays it");
    if (text == "grid") throw BadOption("--rules grid is for entrodraft simulate; bench compare has --tune");
    std::vector<std::string> names = {"all", "none"};
    for (const Rule rule : spec::all_stop_rules())
        names.push_back(to_string(rule));
    std::string others;
    for (const std::string& other : beside) {
        names.push_back(other);
        others += ", " + other;
    }
    const auto meant = nearest(meant_rule(name), names);
    throw BadOption("--rules " + text +
                    ": a rule is static:TAU, moving-average:LAMBDA:N, cumulative:TAU:N, constant:K, heuristic:K "
                    "or heuristic:K:persistent, adaptive:K, confidence:C, svip:H, adaedl:GAMMA, expected-gain, all" +
                    others + " or none" + (meant ? "; did you mean " + *meant + "?" : ""));
}

// "static:2.25", "moving-average:0.5:7", "cumulative:10:7", "constant:5", "expected-gain", ...
spec::StopRuleOptions parse_rule(const std::string& text, const ParsedOptions& given,
                                 const std::vector<std::string>& beside) {
    const std::vector<std::string> parts = split_list(text, ':');
    const auto kind = parts.empty() ? std::nullopt : spec::parse_stop_rule(parts[0]);
    if (!kind) refuse_rule(text, parts.empty() ? "" : parts[0], beside);
    if (text.find("..") != std::string::npos)
        throw BadOption("--rules " + text + ": ranges are for entrodraft simulate; name each setting here");
    const char* first = first_parameter(*kind);
    const bool has_window = *kind == Rule::moving_average || *kind == Rule::cumulative;
    const bool is_persistent = *kind == Rule::heuristic && parts.size() == 3 && parts[2] == "persistent";
    if (parts.size() > (has_window || is_persistent ? 3u : first ? 2u : 1u))
        throw BadOption("--rules " + text + ": too many numbers for this rule");
    ParsedOptions own;
    for (const char* option : {"max-draft-tokens", "min-draft-tokens", "drop-stop-token"})
        if (given.given(option)) own.add_nth(given, option, 0);
    if (parts.size() > 1) own.add_part(first, parts[1], "--rules " + text);
    if (has_window && parts.size() > 2) own.add_part("entropy-window", parts[2], "--rules " + text);
    if (is_persistent) own.add("heuristic-persistent", "true", "");
    spec::StopRuleOptions rule = rule_of_level(own, *kind, EntropyUnit::nats);
    rule.drop_stop_token = own.on("drop-stop-token") && may_drop_stop_token(*kind);
    rule.entropy_of = entropy_of(given, *kind);
    if (const std::string why = spec::why_invalid(rule); !why.empty()) throw BadOption(why);
    return rule;
}

} // namespace

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
            levels.push_back(parse_rule(rule, given, beside));
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
        for (const Rule rule : spec::all_stop_rules())
            add(to_string(rule));
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
