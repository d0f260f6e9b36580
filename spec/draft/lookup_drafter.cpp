// The look-up drafter: what came last time after the same few tokens. No model and no distribution of its own, so that
// q is one at each token.
#include "spec/draft/drafter.h"

namespace entrodraft::spec {

namespace {

constexpr std::size_t kNoContext = std::size_t{1} << 40; // it reads any number of tokens

class LookupDrafter final : public Drafter {
  public:
    LookupDrafter(std::string name, std::unique_ptr<LookupIndex> index, const DraftLimits& limits,
                  const dist::Clock& clock)
        : name_(std::move(name)), index_(std::move(index)), limits_(limits), clock_(clock) {}

    std::string name() const override { return name_; }
    void begin_sequence(const Request&) override { index_->clear(); }
    void prefill(std::span<const TokenId> prompt) override { index_->follow(prompt); }
    void draft(const DraftRequest& request, StopRule& rule, Draft& draft) override;

  private:
    void propose(const LookupMatch& match, const DraftRequest& request, int most, StopRule& rule, Draft& draft);
    void fill_q(Draft& draft);

    std::string name_;
    std::unique_ptr<LookupIndex> index_;
    DraftLimits limits_;
    const dist::Clock& clock_;
    std::vector<float> q_; // [most drafted so far][vocab], zero but for the last draft's tokens
    std::vector<std::size_t> ones_;
};

void LookupDrafter::draft(const DraftRequest& request, StopRule& rule, Draft& draft) {
    const double began = clock_.now_seconds();
    draft.clear();
    rule.begin_round();
    index_->follow(request.tokens);
    if (const int most = max_drafted(request, rule, kNoContext, draft.end); most > 0) {
        draft.end = DraftEnd::no_match;
        if (const std::optional<LookupMatch> match = index_->find()) propose(*match, request, most, rule, draft);
    }
    const bool draws = !request.request->sampling.greedy() && request.choice.acceptance != Acceptance::gumbel;
    if (draws) fill_q(draft);
    draft.seconds = clock_.now_seconds() - began;
}

void LookupDrafter::propose(const LookupMatch& match, const DraftRequest& request, int most, StopRule& rule,
                            Draft& draft) {
    constexpr PassCost kFree = {0, 0};
    while (rule.wants_another(kFree)) {
        const std::optional<TokenId> token = match.token(draft.tokens.size());
        if (!token || *token >= limits_.vocab_size) return; // the corpus has ended
        DraftedToken seen;
        seen.match_length = match.length + static_cast<int>(draft.tokens.size());
        if (rule.decide(seen) == StopDecision::drop) break;
        draft.add(*token, seen);
        draft.end = limits_.why_end(request, draft, most, rule.end());
        if (draft.end != DraftEnd::none) return;
        draft.end = DraftEnd::no_match;
    }
    draft.end = rule.end();
}

void LookupDrafter::fill_q(Draft& draft) {
    const auto vocab = static_cast<std::size_t>(limits_.vocab_size);
    for (const std::size_t one : ones_)
        q_[one] = 0;
    ones_.clear();
    q_.resize(std::max(q_.size(), draft.tokens.size() * vocab));
    for (std::size_t i = 0; i < draft.tokens.size(); ++i) {
        ones_.push_back(i * vocab + static_cast<std::size_t>(draft.tokens[i]));
        q_[ones_.back()] = 1;
    }
    draft.q = std::span<const float>(q_).first(draft.tokens.size() * vocab);
}

} // namespace

std::unique_ptr<Drafter> make_lookup_drafter(std::string name, std::unique_ptr<LookupIndex> index,
                                             const DraftLimits& limits, const dist::Clock& clock) {
    return std::make_unique<LookupDrafter>(std::move(name), std::move(index), limits, clock);
}

} // namespace entrodraft::spec
