// Options of drafters and acceptance, for every command that decodes. See options.h.
#include "launch/cli/choices.h"
#include "launch/cli/options.h"
#include "launch/cli/shared_options.h"
#include "launch/cli/stop_rule_options.h"
#include "launch/failure.h"
#include "spec/draft/drafter_type.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>

namespace entrodraft::launch {

namespace {

// ---- drafters ----

// Drafters that take the option: "bigram and unigram".
std::string drafters_that_take(std::string_view option, const char* between) {
    std::string names;
    for (const spec::DrafterType& drafter : spec::all_drafters())
        if (drafter.takes(option)) names += (names.empty() ? "" : between) + drafter.name;
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
        if (n_drafts > 0 && !choice.has("model"))
            throw BadOption("--drafter " + given.text("drafter", "") +
                            " drafts without a model; leave out --draft, or add model to the list");
    } else if (n_drafts > 0) {
        choice.kinds = {"model"};
        choice.drafts = all_drafts(n_drafts);
    }
    return choice;
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
    std::vector<std::string> options = {"stop-rule"};
    const std::vector<std::string>& parameters = stop_rule_parameter_names();
    options.insert(options.end(), parameters.begin(), parameters.end());
    options.insert(options.end(),
                   {"entropy-unit", "max-draft-tokens", "min-draft-tokens", "drop-stop-token", "costs", "draft-dtype",
                    "entropy-of", "acceptance", "typical-epsilon", "typical-delta", "lenience", "draft-placement"});
    for (const std::string& option : options) {
        const bool is_plain = option == "acceptance" && given.text(option, "") == "gumbel";
        // The widest pass of a run is also that of a run that it is compared with, so the cap may be given alone.
        const bool may_stand = is_plain || option == "max-draft-tokens";
        if (given.given(option) && !may_stand)
            throw BadOption("--" + option + " has no effect without --draft DIR or --drafter NAME");
    }
}

} // namespace

DrafterChoice parse_drafter(const std::string& text, char separator, std::size_t n_drafts, const std::string& option) {
    DrafterChoice choice;
    choice.drafts = all_drafts(n_drafts);
    for (const std::string& name : split_list(text, separator)) {
        const Names& known = drafter_choices();
        if (std::find(known.begin(), known.end(), name) == known.end())
            throw BadOption(option + " " + text + ": '" + name + "' " + must_be_one_of(known, name));
        if (choice.has(name)) throw BadOption(option + " " + text + " names " + name + " twice");
        choice.kinds.push_back(name);
    }
    if (choice.kinds.empty()) throw BadOption(option + " is empty; name a drafter or leave it out");
    if (choice.has("model") && n_drafts == 0) throw BadOption(option + " model needs --draft DIR");
    return choice;
}

spec::Acceptance acceptance_of(const std::string& name, const char* option) {
    if (const auto acceptance = spec::parse_acceptance(name)) return *acceptance;
    throw BadOption(std::string(option) + " " + name + ": " + must_be_one_of(acceptance_choices(), name));
}

bool DrafterChoice::has(std::string_view kind) const {
    return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

bool DrafterChoice::is_one_model() const {
    return kinds.size() == 1 && has("model") && drafts.size() == 1;
}

DrafterSources drafter_sources(const ParsedOptions& given, const std::vector<DrafterChoice>& choices) {
    const auto is_taken = [&](std::string_view option) {
        return std::any_of(choices.begin(), choices.end(), [&](const DrafterChoice& choice) {
            return std::any_of(choice.kinds.begin(), choice.kinds.end(),
                               [&](const std::string& kind) { return spec::drafter_type(kind).takes(option); });
        });
    };
    for (const spec::DrafterType& drafter : spec::all_drafters())
        for (const char* option : drafter.options)
            if (given.given(option) && !is_taken(option))
                throw BadOption(fmt::format("--{} has no effect without the drafter {}", option,
                                            drafters_that_take(option, " or ")));
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
    if (is_taken("draft-table") && sources.draft_table.empty())
        throw BadOption("the drafters " + drafters_that_take("draft-table", " and ") +
                        " need --draft-table FILE; entrodraft build-table makes one");
    return sources;
}

SpeculationOptions speculation_options(const ParsedOptions& given, std::size_t n_drafts) {
    SpeculationOptions speculation;
    speculation.drafter = drafter_choice(given, n_drafts);
    speculation.sources = drafter_sources(given, {speculation.drafter});
    if (speculation.drafter.kinds.empty()) refuse_without_drafter(given);
    if (given.given("draft-dtype") && n_drafts == 0) throw BadOption("--draft-dtype has no effect without --draft DIR");
    const bool drafts_with_models = speculation.drafter.has("model");
    read_stop_rules(given, drafts_with_models ? n_drafts : 1, speculation);
    speculation.acceptance = acceptance_options(given);
    return speculation;
}

int outcomes_ahead(const DrafterChoice& drafter) {
    if (!drafter.ahead) return 0;
    return drafter.ahead->outcomes > 0 ? drafter.ahead->outcomes : spec::AheadOptions::kMaxOutcomes;
}

std::string describe(const DrafterChoice& drafter) {
    std::string text;
    for (const std::string& kind : drafter.kinds) {
        text += text.empty() ? "" : "+";
        if (kind != "model") {
            text += kind;
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

} // namespace entrodraft::launch
