// One model that drafts for several sequences in step: a pass has a row of each that goes on, so that its weights are
// read once for all of them. Each sequence has its own rule, and drops out of the passes when that fires.
#include "spec/draft/batch_drafter.h"
#include "spec/draft/chain_phase.h"
#include "spec/draft/model_texts.h"

#include <algorithm>

namespace entrodraft::spec {

namespace {

class SharedPassesDrafter final : public BatchDrafter {
  public:
    SharedPassesDrafter(DraftModel& model, int n_slots, const DraftLimits& limits, const dist::Clock& clock)
        : texts_(model, n_slots, limits.vocab_size), limits_(limits), clock_(clock),
          choosers_(static_cast<std::size_t>(n_slots)), phases_(static_cast<std::size_t>(n_slots)) {}

    std::string name() const override { return "model"; }
    std::size_t weight_bytes() const override { return texts_.model().weight_bytes(); }
    bool keeps_logits_on_device() const override {
        return phases_.size() == 1 && texts_.model().keeps_logits_on_device();
    }
    void begin_sequence(int slot, const Request& request) override {
        texts_.begin_sequence(slot);
        choosers_[static_cast<std::size_t>(slot)].begin_sequence(request, limits_.eos_tokens);
    }
    void prefill(int slot, std::span<const TokenId> prompt) override { texts_.prefill(slot, prompt); }
    void draft(std::span<const DraftTask> tasks) override;

  private:
    ChainPhase& phase(const DraftTask& task) { return phases_[static_cast<std::size_t>(task.slot)]; }
    void ask_rules(std::span<const DraftTask> tasks);
    void pass();

    ModelTexts texts_;
    DraftLimits limits_;
    const dist::Clock& clock_;
    std::vector<TokenChooser> choosers_;  // [slot]
    std::vector<ChainPhase> phases_;      // [slot]
    std::vector<double> shares_;          // [slot]: of this round's passes
    std::vector<const DraftTask*> going_; // those that want another row
    std::vector<TextEnd> ends_;
    std::vector<model::RowNoise> noises_; // of their rows
};

void SharedPassesDrafter::draft(std::span<const DraftTask> tasks) {
    const double began = clock_.now_seconds();
    going_.clear();
    for (const DraftTask& task : tasks) {
        phase(task).begin(task.request, texts_.context(), limits_, choosers_[static_cast<std::size_t>(task.slot)],
                          *task.rule, *task.draft);
        going_.push_back(&task);
    }
    shares_.assign(phases_.size(), 0);
    int passes = 0;
    for (ask_rules(tasks); !going_.empty(); ask_rules(tasks), ++passes)
        pass();
    const double seconds = clock_.now_seconds() - began;
    for (const DraftTask& task : tasks) { // each bears what it had of the passes
        phase(task).finish();
        const double part =
            passes > 0 ? shares_[static_cast<std::size_t>(task.slot)] / passes : 1 / static_cast<double>(tasks.size());
        task.draft->seconds = seconds * part - task.draft->entropy_seconds;
    }
}

// Keeps those in going_ whose rules want another row, given what the others have drafted so far.
void SharedPassesDrafter::ask_rules(std::span<const DraftTask> tasks) {
    int rows = 0; // of the target's pass
    for (const DraftTask& task : tasks)
        rows += static_cast<int>(task.draft->tokens.size()) + 1;
    const double share = 1 / static_cast<double>(std::max<std::size_t>(going_.size(), 1));
    std::erase_if(going_, [&](const DraftTask* task) {
        const int own = static_cast<int>(task->draft->tokens.size()) + 1;
        task->rule->set_batch_load({rows - own, static_cast<int>(tasks.size())});
        return !phase(*task).wants_row({share, share});
    });
    const double borne = 1 / static_cast<double>(std::max<std::size_t>(going_.size(), 1));
    for (const DraftTask* task : going_) {
        phase(*task).charge(borne - share);
        shares_[static_cast<std::size_t>(task->slot)] += borne;
    }
}

// A row of every phase that goes on; of one alone maybe more than a row, kept for later.
void SharedPassesDrafter::pass() {
    const bool is_alone = going_.size() == 1;
    ends_.clear();
    noises_.clear();
    model::LogitNeeds needs(model::LogitSummary::none, false);
    for (const DraftTask* task : going_) {
        ends_.push_back({task->slot, phase(*task).text(), 1});
        const model::LogitNeeds own = phase(*task).needs_alone(is_alone && texts_.model().has_device_draft_loop());
        noises_.push_back(own.noises.empty() ? model::RowNoise{} : own.noises.front());
        needs = is_alone ? own : needs.and_those_of(own);
    }
    const auto has_noise = [](const model::RowNoise& noise) { return noise.temperature > 0; };
    if (std::any_of(noises_.begin(), noises_.end(), has_noise)) needs.noises = noises_;
    const SourceRows rows = texts_.rows_after(ends_, needs);
    for (std::size_t i = 0; i < going_.size(); ++i)
        phase(*going_[i])
            .take(rows.row(i), rows.summary(i), clock_, has_noise(noises_[i]) ? rows.noisy_token(i) : nullptr,
                  rows.kept_row(i));
}

} // namespace

std::unique_ptr<BatchDrafter> make_shared_passes_drafter(DraftModel& model, int n_slots, const DraftLimits& limits,
                                                         const dist::Clock& clock) {
    return std::make_unique<SharedPassesDrafter>(model, n_slots, limits, clock);
}

} // namespace entrodraft::spec
