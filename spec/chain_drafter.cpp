// The draft loop: one pass over a source of logits a token, until the stop rule has had enough.
#include "entrodraft/spec/drafter.h"

namespace entrodraft::spec {

namespace {

class ChainDrafter final : public Drafter {
  public:
    ChainDrafter(std::unique_ptr<LogitSource> source, const DraftLimits& limits, const dist::Clock& clock)
        : source_(std::move(source)), limits_(limits), clock_(clock) {}

    std::string name() const override { return source_->name(); }
    std::size_t weight_bytes() const override { return source_->weight_bytes(); }
    void begin_sequence(const Request& request) override {
        source_->begin_sequence();
        chooser_.begin_sequence(request, limits_.eos_tokens);
    }
    void prefill(std::span<const TokenId> prompt) override { source_->prefill(prompt); }
    void draft(const DraftRequest& request, StopRule& rule, Draft& draft) override;

  private:
    void draft_up_to(int most, const DraftRequest& request, StopRule& rule, Draft& draft);
    TokenId choose(const SeenRow& row, const DraftRequest& request, std::size_t step);

    std::unique_ptr<LogitSource> source_;
    DraftLimits limits_;
    const dist::Clock& clock_;
    TokenChooser chooser_;
    std::vector<TokenId> text_; // the text with what is drafted so far
    std::vector<float> q_;      // [drafted][vocab]
};

void ChainDrafter::draft(const DraftRequest& request, StopRule& rule, Draft& draft) {
    const double began = clock_.now_seconds();
    draft.clear();
    rule.begin_round();
    if (const int most = most_drafted(request, rule, source_->context(), draft.end); most > 0)
        draft_up_to(most, request, rule, draft);
    draft.seconds = clock_.now_seconds() - began - draft.entropy_seconds;
}

void ChainDrafter::draft_up_to(int most, const DraftRequest& request, StopRule& rule, Draft& draft) {
    const auto vocab = static_cast<std::size_t>(limits_.vocab_size);
    const Acceptance acceptance = request.choice.acceptance;
    const bool draws = chooser_.draws(acceptance), whole = rule.needs_distribution();
    if (draws) q_.resize(static_cast<std::size_t>(most) * vocab);
    text_.assign(request.tokens.begin(), request.tokens.end());
    while (draft.end == DraftEnd::none) {
        if (!rule.wants_another()) {
            draft.end = rule.end();
            break;
        }
        const SourceRows rows = source_->rows_after(text_, 1, chooser_.summary(whole, acceptance));
        ++draft.passes;
        const SeenRow row = chooser_.see(rows.row(0), rows.summary(0), text_, whole);
        if (row.is_dead) {
            draft.end = DraftEnd::no_match;
            break;
        }
        const TokenId token = choose(row, request, draft.tokens.size());
        const double before = clock_.now_seconds();
        DraftedToken seen;
        if (whole)
            seen = {row.stats.entropy_nats(), row.stats.probability(rows.row(0)[static_cast<std::size_t>(token)])};
        const Judgement judgement = rule.judge(seen);
        draft.entropy_seconds += clock_.now_seconds() - before;
        if (judgement == Judgement::drop) {
            draft.end = rule.end();
            break;
        }
        text_.push_back(token);
        draft.add(token, seen);
        draft.end = limits_.why_end(request, draft, most, rule.end());
    }
    if (draws) draft.q = std::span<const float>(q_).first(draft.tokens.size() * vocab);
}

TokenId ChainDrafter::choose(const SeenRow& row, const DraftRequest& request, std::size_t step) {
    const std::uint64_t position = request.tokens.size() + step;
    if (!chooser_.draws(request.choice.acceptance)) return chooser_.best(row, position, request.choice.acceptance);
    const std::span<float> q(q_.data() + step * row.logits.size(), row.logits.size());
    chooser_.distribution(row, q);
    return chooser_.sample_of(q, position, request.tokens.size(), request.choice);
}

} // namespace

std::unique_ptr<Drafter> make_chain_drafter(std::unique_ptr<LogitSource> source, const DraftLimits& limits,
                                            const dist::Clock& clock) {
    return std::make_unique<ChainDrafter>(std::move(source), limits, clock);
}

} // namespace entrodraft::spec
