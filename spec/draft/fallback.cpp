// Several drafters, of which the first that drafts anything in a round has it: the free ones go first.
#include "spec/draft/drafter.h"

#include <algorithm>
#include <stdexcept>

namespace entrodraft::spec {

namespace {

class FallbackDrafter final : public Drafter {
  public:
    explicit FallbackDrafter(std::vector<std::unique_ptr<Drafter>> drafters) : drafters_(std::move(drafters)) {
        if (drafters_.empty()) throw std::invalid_argument("no drafter to choose from");
    }

    std::string name() const override {
        std::string names;
        for (const auto& drafter : drafters_)
            names += (names.empty() ? "" : ",") + drafter->name();
        return names;
    }
    std::size_t weight_bytes() const override {
        std::size_t most = 0;
        for (const auto& drafter : drafters_)
            most = std::max(most, drafter->weight_bytes());
        return most;
    }
    void begin_sequence(int slot, const Request& request) override {
        for (const auto& drafter : drafters_)
            drafter->begin_sequence(slot, request);
    }
    void prefill(int slot, std::span<const TokenId> prompt) override {
        for (const auto& drafter : drafters_)
            drafter->prefill(slot, prompt);
    }
    void end_sequence(int slot) override {
        for (const auto& drafter : drafters_)
            drafter->end_sequence(slot);
    }
    void propose(std::span<const DraftTask> tasks) override {
        for (const DraftTask& task : tasks)
            propose_first(task);
    }

  private:
    void propose_first(const DraftTask& task) {
        int passes = 0;
        double seconds = 0, entropy_seconds = 0;
        for (const auto& drafter : drafters_) {
            Draft& draft = *task.draft;
            drafter->propose(task);
            draft.passes = passes += draft.passes;
            draft.seconds = seconds += draft.seconds;
            draft.entropy_seconds = entropy_seconds += draft.entropy_seconds;
            if (!draft.tokens.empty()) return;
        }
    }

    std::vector<std::unique_ptr<Drafter>> drafters_;
};

} // namespace

std::unique_ptr<Drafter> make_fallback_drafter(std::vector<std::unique_ptr<Drafter>> drafters) {
    return std::make_unique<FallbackDrafter>(std::move(drafters));
}

} // namespace entrodraft::spec
