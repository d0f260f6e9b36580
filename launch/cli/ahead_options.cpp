// Options of drafting ahead, and what a placement of the draft asks of drafters. See options.h.
#include "launch/cli/shared_options.h"
#include "launch/failure.h"

#include <algorithm>
#include <climits>
#include <cmath>

namespace entrodraft::launch {

namespace {

using Placement = dist::DraftPlacement;

// One draft model on a rank of its own, for one sequence at a time; drafters that go before it stand in for it where
// the round ended as nobody foresaw.
bool may_draft_ahead(const DrafterChoice& drafter, Placement placement, int batch_size) {
    return placement == Placement::dedicated && batch_size == 1 && drafter.drafts.size() == 1 &&
           !drafter.kinds.empty() && drafter.kinds.back() == "model";
}

void refuse_ahead(const ParsedOptions& given, bool may, const char* needs) {
    for (const char* option : {"draft-ahead", "draft-ahead-passes"})
        if (given.given(option) && !may) throw BadOption(std::string("--") + option + " needs " + needs);
}

// --draft-ahead-passes; 0 without.
int ahead_passes(const ParsedOptions& given, bool is_wanted) {
    constexpr int kMin = 2; // the first looks for the ends of the round, the next drafts for them
    const int passes = given.integer("draft-ahead-passes", 0, kMin, INT_MAX);
    if (passes > 0 && !is_wanted) throw BadOption("--draft-ahead-passes has no effect with --draft-ahead 0");
    return passes;
}

// What --draft-ahead lists: none and 0 alike where drafting ahead is off; without it, as many outcomes as fit.
std::vector<std::optional<spec::AheadOptions>> listed_ahead(const ParsedOptions& given) {
    if (!given.given("draft-ahead")) return {spec::AheadOptions{0, ahead_passes(given, true)}};
    const std::vector<int> outcomes = given.integers("draft-ahead", 0, spec::AheadOptions::kMaxOutcomes);
    const auto is_on = [](int of) { return of > 0; };
    const int passes = ahead_passes(given, std::any_of(outcomes.begin(), outcomes.end(), is_on));
    std::vector<std::optional<spec::AheadOptions>> listed;
    for (const int of : outcomes) {
        listed.emplace_back();
        if (is_on(of)) listed.back() = spec::AheadOptions{of, passes};
    }
    return listed;
}

} // namespace

void require_one_model(const DrafterChoice& drafter, dist::DraftPlacement placement) {
    if (placement == Placement::sharded && !drafter.is_one_model())
        throw BadOption("--draft-placement sharded cuts one --draft over the ranks; it goes with no other drafter");
}

void read_ahead(const ParsedOptions& given, GenerateOptions& options) {
    DrafterChoice& drafter = options.speculation.drafter;
    require_one_model(drafter, options.placement);
    const bool may = may_draft_ahead(drafter, options.placement, options.batch_size);
    refuse_ahead(given, may, "--draft-placement dedicated, --batch-size 1 and one --draft, which drafts last");
    const int outcomes = given.integer("draft-ahead", 0, 0, spec::AheadOptions::kMaxOutcomes);
    const bool is_wanted = may && (!given.given("draft-ahead") || outcomes > 0);
    const int passes = ahead_passes(given, is_wanted);
    if (is_wanted) drafter.ahead = {outcomes, passes};
}

std::vector<DrafterChoice> with_ahead(const std::vector<DrafterChoice>& drafters, const ParsedOptions& given,
                                      Placement placement) {
    for (const DrafterChoice& drafter : drafters)
        require_one_model(drafter, placement);
    const auto may = [&](const DrafterChoice& drafter) { return may_draft_ahead(drafter, placement, 1); };
    refuse_ahead(given, std::any_of(drafters.begin(), drafters.end(), may),
                 "--draft-placement dedicated and one --draft, which drafts last");
    std::vector<DrafterChoice> choices;
    for (const DrafterChoice& drafter : drafters) {
        if (!may(drafter)) {
            choices.push_back(drafter);
            continue;
        }
        for (const std::optional<spec::AheadOptions>& ahead : listed_ahead(given)) {
            choices.push_back(drafter);
            choices.back().ahead = ahead;
        }
    }
    return choices;
}

} // namespace entrodraft::launch
