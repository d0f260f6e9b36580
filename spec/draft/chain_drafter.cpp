// The draft loop for one text: one pass over a source of logits a token, until the stop rule has had enough.
#include "spec/draft/chain_phase.h"
#include "spec/draft/drafter.h"

namespace entrodraft::spec {

namespace {

class ChainDrafter final : public Drafter {
  public:
    ChainDrafter(std::unique_ptr<LogitSource> source, const DraftLimits& limits, const dist::Clock& clock)
        : source_(std::move(source)), limits_(limits), clock_(clock) {}

    std::string name() const override { return source_->name(); }
    std::size_t weight_bytes() const override { return source_->weight_bytes(); }
    bool keeps_logits_on_device() const override { return source_->keeps_logits_on_device(); }
    void begin_sequence(const Request& request) override {
        source_->begin_sequence();
        chooser_.begin_sequence(request, limits_.eos_tokens);
    }
    void prefill(std::span<const TokenId> prompt) override { source_->prefill(prompt); }
    void draft(const DraftRequest& request, StopRule& rule, Draft& draft) override;

  private:
    std::unique_ptr<LogitSource> source_;
    DraftLimits limits_;
    const dist::Clock& clock_;
    TokenChooser chooser_;
    ChainPhase phase_;
};

void ChainDrafter::draft(const DraftRequest& request, StopRule& rule, Draft& draft) {
    const double began = clock_.now_seconds();
    phase_.begin(request, source_->context(), limits_, chooser_, rule, draft);
    while (phase_.wants_row()) {
        const SourceRows rows =
            source_->rows_after(phase_.text(), 1, phase_.needs_alone(source_->has_device_draft_loop()));
        phase_.take(rows.row(0), rows.summary(0), clock_, rows.noisy_token(0), rows.kept_row(0));
    }
    phase_.finish();
    draft.seconds = clock_.now_seconds() - began - draft.entropy_seconds;
}

} // namespace

std::unique_ptr<Drafter> make_chain_drafter(std::unique_ptr<LogitSource> source, const DraftLimits& limits,
                                            const dist::Clock& clock) {
    return std::make_unique<ChainDrafter>(std::move(source), limits, clock);
}

} // namespace entrodraft::spec
