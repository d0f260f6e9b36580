// A drafter for each slot; they take turns.
#include "spec/draft/batch_drafter.h"

#include <stdexcept>

namespace entrodraft::spec {

namespace {

class TurnsDrafter final : public BatchDrafter {
  public:
    explicit TurnsDrafter(std::vector<std::unique_ptr<Drafter>> drafters) : drafters_(std::move(drafters)) {
        if (drafters_.empty()) throw std::invalid_argument("no drafter to take a turn");
    }

    std::string name() const override { return drafters_.front()->name(); }
    std::vector<int> hidden_layers() const override { return drafters_.front()->hidden_layers(); }
    std::size_t weight_bytes() const override { return drafters_.front()->weight_bytes(); }
    bool keeps_logits_on_device() const override {
        return drafters_.size() == 1 && drafters_.front()->keeps_logits_on_device();
    }
    void begin_sequence(int slot, const Request& request) override { of(slot).begin_sequence(request); }
    void prefill(int slot, std::span<const TokenId> prompt) override { of(slot).prefill(prompt); }
    void draft(std::span<const DraftTask> tasks) override {
        for (const DraftTask& task : tasks)
            of(task.slot).draft(task.request, *task.rule, *task.draft);
    }

  private:
    Drafter& of(int slot) { return *drafters_.at(static_cast<std::size_t>(slot)); }

    std::vector<std::unique_ptr<Drafter>> drafters_;
};

} // namespace

void BatchDrafter::end_sequence(int) {}
void BatchDrafter::draft_ahead(const std::function<bool()>&) {}

std::unique_ptr<BatchDrafter> make_turns_drafter(std::vector<std::unique_ptr<Drafter>> drafters) {
    return std::make_unique<TurnsDrafter>(std::move(drafters));
}

} // namespace entrodraft::spec
