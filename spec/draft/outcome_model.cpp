// Chances of a round's outcomes: see outcome_model.h.
#include "spec/draft/outcome_model.h"

#include <algorithm>

namespace entrodraft::spec {

namespace {

constexpr double kDecay = 0.998;    // per round
constexpr double kPriorSeen = 20;   // rejections that the prior is worth
constexpr double kPriorFirst = 0.4; // share of the first candidate; kPriorRatio: of each further one to the one before
constexpr double kPriorRatio = 0.55;

} // namespace

OutcomeModel::OutcomeModel(int max_candidates) : seen_(kPriorSeen) {
    double prior = kPriorFirst * kPriorSeen;
    for (int rank = 0; rank < max_candidates; ++rank) {
        seen_at_.push_back(prior);
        prior *= kPriorRatio;
    }
}

std::vector<Outcome> OutcomeModel::most_likely(std::span<const Place> places, int most) const {
    std::vector<Outcome> outcomes;
    double reached = 1; // chance that all tokens before this place are accepted
    for (std::size_t place = 0; place < places.size(); ++place) {
        const bool is_last = place + 1 == places.size();
        const std::vector<TokenId>& candidates = places[place].candidates;
        const double first = chances_.of(places[place].first, 0);
        for (std::size_t i = 0; i < candidates.size(); ++i) {
            const std::size_t rank = is_last ? i - 1 : i; // among those after the first
            if (!(is_last && i == 0) && rank >= seen_at_.size()) break;
            const double chance = is_last && i == 0 ? first : (1 - first) * share(rank);
            outcomes.push_back({static_cast<int>(place), candidates[i], reached * chance});
        }
        reached *= first;
    }
    const auto likelier = [](const Outcome& a, const Outcome& b) { return a.chance > b.chance; };
    std::stable_sort(outcomes.begin(), outcomes.end(), likelier);
    outcomes.resize(std::min(outcomes.size(), static_cast<std::size_t>(most)));
    return outcomes;
}

void OutcomeModel::learn(std::span<const Place> places, const Outcome& outcome) {
    const auto accepted = static_cast<std::size_t>(outcome.accepted);
    const bool is_last = accepted + 1 == places.size();
    const std::vector<TokenId>& candidates = places[accepted].candidates;
    const auto rank =
        static_cast<std::size_t>(std::find(candidates.begin(), candidates.end(), outcome.next) - candidates.begin());
    // After the last token the first candidate takes the place of a drafted token.
    std::vector<DraftedToken> tokens;
    for (const Place& place : places)
        tokens.push_back(place.first);
    const bool emits_first = is_last && rank == 0;
    chances_.learn({{.accepted = outcome.accepted + (emits_first ? 1 : 0)}, tokens});
    if (emits_first) return;
    for (double& seen : seen_at_)
        seen *= kDecay;
    seen_ = kDecay * seen_ + 1;
    const std::size_t other = is_last ? rank - 1 : rank;
    if (rank < candidates.size() && other < seen_at_.size()) seen_at_[other] += 1;
}

} // namespace entrodraft::spec
