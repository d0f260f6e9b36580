// The draft loop's body: see chain_phase.h.
#include "spec/draft/chain_phase.h"

#include <algorithm>

namespace entrodraft::spec {

void ChainPhase::begin(const DraftRequest& request, std::size_t context, const DraftLimits& limits,
                       TokenChooser& chooser, StopRule& rule, Draft& draft) {
    request_ = request;
    limits_ = &limits;
    chooser_ = &chooser;
    rule_ = &rule;
    draft_ = &draft;
    draft.clear();
    rule.begin_round();
    max_ = max_drafted(request, rule, context, draft.end);
    adjusted_ = rule.needs_adjusted();
    whole_ = looks_at_all_ || rule.needs_distribution();
    draws_ = chooser.draws(request.choice.acceptance) && !request.verified_on_device;
    text_.assign(request.tokens.begin(), request.tokens.end());
}

bool ChainPhase::wants_row(const PassCost& cost) {
    if (draft_->end != DraftEnd::none) return false;
    if (rule_->wants_another(cost)) return true;
    draft_->end = rule_->end();
    return false;
}

model::LogitNeeds ChainPhase::needs() const {
    const model::LogitNeeds all = chooser_->needs(whole_ && !adjusted_, request_.choice.acceptance);
    return adjusted_ ? all.with_rows() : all;
}

model::LogitNeeds ChainPhase::needs_alone(bool has_device_draft_loop) {
    model::LogitNeeds all = needs();
    if (adjusted_) return all; // a device that goes on by itself knows raw distributions alone
    if (request_.verified_on_device) {
        noise_ = chooser_->device_noise(text_.size(), request_.tokens.size(), request_.choice);
        all.summary = std::max(all.summary, model::LogitSummary::max); // which chains go by
        all.keep_from = static_cast<int>(draft_->tokens.size());
    } else {
        noise_ = chooser_->noise(text_.size(), request_.choice.acceptance);
    }
    if (noise_.temperature > 0) {
        all.noises = std::span(&noise_, 1);
        all.rows = false;
    }
    if (all.rows || !has_device_draft_loop) return all;
    const int left = max_ - static_cast<int>(draft_->tokens.size());
    chain_ = rule_->forecast(left);
    all.chain = &chain_;
    return all;
}

void ChainPhase::take(std::span<const float> logits, const model::kernels::LogitStats& summary,
                      const dist::Clock& clock, const model::NoisyToken* noisy, const float* kept) {
    ++draft_->passes;
    const SeenRow row = chooser_->see(logits, summary, text_, whole_);
    if (row.is_dead) {
        draft_->end = DraftEnd::no_match;
        return;
    }
    const TokenId token = choose(row, noisy);
    const double before = clock.now_seconds();
    DraftedToken seen;
    if (adjusted_)
        seen = seen_adjusted(row, token);
    else if (whole_)
        seen = drafted_token(row.stats, noisy            ? noisy->logit
                                        : logits.empty() ? row.stats.max
                                                         : logits[static_cast<std::size_t>(token)]);
    const StopDecision decision = rule_->decide(seen);
    draft_->entropy_seconds += clock.now_seconds() - before;
    if (decision == StopDecision::drop) {
        draft_->end = rule_->end();
        return;
    }
    text_.push_back(token);
    draft_->add(token, seen);
    if (request_.verified_on_device) draft_->kept.push_back(kept);
    draft_->end = limits_->why_end(request_, *draft_, max_, rule_->end());
}

TokenId ChainPhase::choose(const SeenRow& row, const model::NoisyToken* noisy) {
    const std::size_t step = draft_->tokens.size();
    const std::uint64_t position = request_.tokens.size() + step;
    if (!draws_) return chooser_->best(row, position, request_.choice.acceptance, noisy);
    q_.resize((step + 1) * row.logits.size());
    const std::span<float> q(q_.data() + step * row.logits.size(), row.logits.size());
    chooser_->distribution(row, q);
    return chooser_->sample_of(q, position, request_.tokens.size(), request_.choice);
}

DraftedToken ChainPhase::seen_adjusted(const SeenRow& row, TokenId token) {
    if (draws_) return drafted_token(std::span<const float>(q_).last(row.logits.size()), token);
    row_.resize(row.logits.size());
    chooser_->adjusted(row, row_);
    return drafted_token(row_, token);
}

void ChainPhase::adopt() {
    text_.assign(request_.tokens.begin(), request_.tokens.end());
    text_.insert(text_.end(), draft_->tokens.begin(), draft_->tokens.end());
}

void ChainPhase::finish() {
    if (draws_)
        draft_->q =
            std::span<const float>(q_).first(draft_->tokens.size() * static_cast<std::size_t>(limits_->vocab_size));
}

} // namespace entrodraft::spec
