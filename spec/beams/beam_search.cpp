// Follows GenerationMixin._beam_search of transformers 5.23. Its arrays have a fixed size: where there is no beam yet,
// they contain a beam with score -1e9. Here such beams are absent.
#include "spec/beams/beam_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

namespace entrodraft::spec {

std::vector<BeamCandidate> best_candidates(std::span<const float> row, std::size_t n) {
    std::vector<BeamCandidate> best;
    float bound = -std::numeric_limits<float>::infinity(); // the last one's log_prob once there are n
    for (std::size_t i = 0; i < row.size(); ++i) {
        if (!(row[i] > bound)) continue;
        const auto place = std::ranges::upper_bound(best, row[i], std::greater<>(), &BeamCandidate::log_prob);
        best.insert(place, {static_cast<TokenId>(i), row[i]});
        if (best.size() > n) best.pop_back();
        if (best.size() == n) bound = best.back().log_prob;
    }
    return best;
}

BeamSearch::BeamSearch(const BeamOptions& options, int max_new_tokens, std::span<const TokenId> eos_tokens)
    : options_(options), max_new_tokens_(max_new_tokens), eos_tokens_(eos_tokens.begin(), eos_tokens.end()) {}

bool BeamSearch::ends_text(TokenId token) const {
    return std::ranges::find(eos_tokens_, token) != eos_tokens_.end();
}

void BeamSearch::step(std::span<const std::vector<BeamCandidate>> rows) {
    std::vector<Extended> extended;
    for (std::size_t beam = 0; beam < running_.size(); ++beam)
        for (const BeamCandidate& candidate : rows[beam])
            extended.push_back({running_[beam].score + candidate.log_prob, static_cast<int>(beam), candidate.token});
    std::ranges::sort(extended, [](const Extended& a, const Extended& b) {
        return std::tuple(-a.score, a.beam, a.token) < std::tuple(-b.score, b.beam, b.token);
    });

    ++length_;
    const bool is_last = length_ >= max_new_tokens_;
    const bool takes_more =
        can_improve_ && !(options_.early_stopping == EarlyStopping::yes && finished_.size() == n_beams());
    for (std::size_t i = 0; i < std::min(extended.size(), n_beams()) && takes_more; ++i)
        if (is_last || ends_text(extended[i].token)) add_finished(extended[i]);

    std::vector<Beam> next;
    for (const Extended& each : extended) {
        if (next.size() == n_beams() || is_last) break;
        if (ends_text(each.token)) continue;
        Beam beam = running_[each.beam];
        beam.tokens.push_back(each.token);
        beam.score = each.score;
        beam.parent = each.beam;
        next.push_back(std::move(beam));
    }
    running_ = std::move(next);
    can_improve_ = can_improve_ && can_improve();
    const bool is_full = finished_.size() == n_beams();
    ended_ = running_.empty() || !can_improve_ || (is_full && options_.early_stopping == EarlyStopping::yes);
}

// A text with an equal score goes after the earlier one.
void BeamSearch::add_finished(const Extended& extended) {
    Finished finished;
    finished.tokens = running_[extended.beam].tokens;
    finished.tokens.push_back(extended.token);
    finished.score = penalized(extended.score, length_);
    finished.ended = ends_text(extended.token);
    const auto place = std::ranges::upper_bound(finished_, finished.score, std::greater<>(), &Finished::score);
    finished_.insert(place, std::move(finished));
    if (finished_.size() > n_beams()) finished_.pop_back();
}

// Returns whether the best running beam may still beat a finished text: with its score at its present length, or at the
// greatest length under `never` with a penalty that favours long texts.
bool BeamSearch::can_improve() const {
    if (running_.empty() || finished_.size() < n_beams()) return true;
    const bool at_longest = options_.early_stopping == EarlyStopping::never && options_.length_penalty > 0;
    return penalized(running_.front().score, at_longest ? max_new_tokens_ : length_) > finished_.back().score;
}

float BeamSearch::penalized(float score, int length) const {
    const double counted = length + options_.forced_tokens;
    return score / static_cast<float>(std::pow(counted, options_.length_penalty));
}

} // namespace entrodraft::spec
