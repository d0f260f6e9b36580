// The n-gram drafter: what came last time after the same few tokens. No model, no distribution: q is one at each token.
#include "entrodraft/spec/drafter.h"

#include "entrodraft/spec/ngram_index.h"

#include <algorithm>
#include <limits>

namespace entrodraft::spec {

namespace {

constexpr float kNotComputed = std::numeric_limits<float>::quiet_NaN();

class NgramDrafter final : public Drafter {
  public:
    NgramDrafter(const NgramOptions& ngram, const DraftLimits& limits, const dist::Clock& clock)
        : index_(ngram), limits_(limits), clock_(clock) {}

    std::string name() const override { return "ngram"; }
    void begin_sequence() override { index_.clear(); }
    void prefill(std::span<const TokenId> prompt) override { index_.follow(prompt); }
    void draft(const DraftRequest& request, StopRule& rule, Draft& draft) override;

  private:
    void propose(const DraftRequest& request, StopRule& rule, Draft& draft, int most);
    void fill_q(const DraftRequest& request, Draft& draft);

    NgramIndex index_;
    DraftLimits limits_;
    const dist::Clock& clock_;
    std::vector<float> q_; // [most drafted so far][vocab], zero but for the last draft's tokens
    std::vector<std::size_t> ones_;
};

void NgramDrafter::draft(const DraftRequest& request, StopRule& rule, Draft& draft) {
    const double began = clock_.now_seconds();
    draft.clear();
    rule.begin_round();
    const int most = std::min(request.most_tokens, rule.options().max_tokens);
    index_.follow(request.tokens);
    if (most <= 0)
        draft.end = DraftEnd::budget;
    else
        propose(request, rule, draft, most);
    fill_q(request, draft);
    draft.seconds = clock_.now_seconds() - began;
}

// Copies what followed the match; behind the end of the text it goes on with what it has copied, so that a text that
// repeats itself is continued however short its period.
void NgramDrafter::propose(const DraftRequest& request, StopRule& rule, Draft& draft, int most) {
    const std::optional<NgramIndex::Match> match = index_.find();
    draft.end = DraftEnd::no_match;
    if (!match) return;
    const std::size_t size = request.tokens.size();
    for (std::size_t at = match->next; rule.wants_another(); ++at) {
        const TokenId token = at < size ? request.tokens[at] : draft.tokens[at - size];
        const int length = match->length + static_cast<int>(draft.tokens.size());
        const Judgement judgement = rule.judge({kNotComputed, kNotComputed, length});
        if (judgement == Judgement::drop) break;
        draft.parents.push_back(static_cast<int>(draft.tokens.size()) - 1);
        draft.tokens.push_back(token);
        draft.entropies_nats.push_back(kNotComputed);
        draft.probabilities.push_back(kNotComputed);
        draft.end = limits_.why_end(request, draft, most, rule.end());
        if (draft.end != DraftEnd::none) return;
    }
    draft.end = rule.end();
}

void NgramDrafter::fill_q(const DraftRequest& request, Draft& draft) {
    if (request.request->sampling.greedy()) return;
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

std::unique_ptr<Drafter> make_ngram_drafter(const NgramOptions& ngram, const DraftLimits& limits,
                                            const dist::Clock& clock) {
    return std::make_unique<NgramDrafter>(ngram, limits, clock);
}

} // namespace entrodraft::spec
