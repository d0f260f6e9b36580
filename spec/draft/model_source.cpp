// Logits of a small decoder on this rank, as a source for one text.
#include "spec/logit_source.h"

#include "spec/draft/model_texts.h"

namespace entrodraft::spec {

namespace {

class ModelSource final : public LogitSource {
  public:
    ModelSource(model::Decoder& decoder, int vocab, int slot)
        : model_(decoder), texts_(model_, slot + 1, vocab), slot_(slot) {}

    std::string name() const override { return "model"; }
    std::size_t weight_bytes() const override { return model_.weight_bytes(); }
    std::size_t context() const override { return texts_.context(); }
    std::size_t max_rows() const override { return static_cast<std::size_t>(model_.max_rows()); }
    bool has_device_draft_loop() const override { return model_.has_device_draft_loop(); }
    bool keeps_logits_on_device() const override { return model_.keeps_logits_on_device(); }
    void begin_sequence() override { texts_.begin_sequence(slot_); }
    void prefill(std::span<const TokenId> prompt) override { texts_.prefill(slot_, prompt); }
    SourceRows rows_after(std::span<const TokenId> tokens, std::size_t n, model::LogitNeeds needs) override {
        const TextEnd text = {slot_, tokens, n};
        return texts_.rows_after(std::span(&text, 1), needs);
    }

  private:
    LocalDraftModel model_;
    ModelTexts texts_;
    int slot_;
};

} // namespace

std::unique_ptr<LogitSource> make_model_source(model::Decoder& decoder, int vocab, int slot) {
    return std::make_unique<ModelSource>(decoder, vocab, slot);
}

} // namespace entrodraft::spec
