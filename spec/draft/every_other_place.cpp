// Drafting at even places: see every_other_place.h.
#include "spec/draft/every_other_place.h"

#include <stdexcept>
#include <utility>
#include <vector>

namespace entrodraft::spec {

namespace {

class EveryOtherPlaceDrafter final : public BatchDrafter {
  public:
    EveryOtherPlaceDrafter(std::unique_ptr<BatchDrafter> inner, PlaceCounts& counts)
        : inner_(std::move(inner)), counts_(counts) {
        if (!inner_) throw std::invalid_argument("no drafter for every other place");
    }

    std::string name() const override { return inner_->name(); }
    std::vector<int> hidden_layers() const override { return inner_->hidden_layers(); }
    std::size_t weight_bytes() const override { return inner_->weight_bytes(); }
    void begin_sequence(int slot, const Request& request) override { inner_->begin_sequence(slot, request); }
    void prefill(int slot, std::span<const TokenId> prompt) override { inner_->prefill(slot, prompt); }
    void end_sequence(int slot) override { inner_->end_sequence(slot); }
    void draft(std::span<const DraftTask> tasks) override;

  private:
    std::unique_ptr<BatchDrafter> inner_;
    PlaceCounts& counts_;
    std::vector<DraftTask> asked_;
};

void EveryOtherPlaceDrafter::draft(std::span<const DraftTask> tasks) {
    asked_.clear();
    for (const DraftTask& task : tasks) {
        if (task.rule->options().max_tokens != 1)
            throw std::invalid_argument("every other place is drafted for by rules of one token");
        if (task.request.tokens.size() % 2 == 0) { // the place of the token to come
            asked_.push_back(task);
            continue;
        }
        task.rule->begin_round();
        task.draft->clear();
        task.draft->end = DraftEnd::no_match;
    }
    if (asked_.empty()) return;
    inner_->draft(asked_);
    for (const DraftTask& task : asked_) {
        if (task.request.most_tokens < 1) continue;
        ++counts_.asked;
        counts_.proposed += task.draft->tokens.empty() ? 0 : 1;
    }
}

} // namespace

std::unique_ptr<BatchDrafter> make_every_other_place_drafter(std::unique_ptr<BatchDrafter> inner, PlaceCounts& counts) {
    return std::make_unique<EveryOtherPlaceDrafter>(std::move(inner), counts);
}

} // namespace entrodraft::spec
