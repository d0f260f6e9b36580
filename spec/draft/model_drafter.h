// The texts that a draft model follows, one a slot, forwards and back: which of their tokens its cache holds, and
// passes over what it does not hold yet.
//
// Called by the drafters that have a model, and by the recorder.
#pragma once

#include "spec/draft/rows_ahead.h"
#include "spec/draft/tree.h"

#include <span>
#include <vector>

namespace entrodraft::spec {

class ModelTexts final : public TreeSource {
  public:
    // Slots [0, n_slots) of `model`, whose passes give logits of the whole vocabulary; `vocab` is how many tokens
    // count. `device`: see SourceFacts. Both outlive this. `window`: not with a device, nor with share() and
    // move(); slots then have max_kept() positions or more, and the model has the window's chunks.
    ModelTexts(model::Decoder& model, int n_slots, int vocab, DeviceVerifier* device = nullptr,
               const DraftWindow& window = {});
    ModelTexts(const ModelTexts&) = delete;
    ModelTexts& operator=(const ModelTexts&) = delete;

    // An encoder's source is read before the first pass over the slot, while other ranks that hold a shard follow.
    void begin_sequence(int slot, const Request& request) override;
    // Where a window is all that is read of a text, the prompt is read when all of it is there.
    bool prefill(int slot, std::span<const TokenId> tokens, std::size_t most) override;
    using LogitSource::prefill;
    bool begin_within(int slot, std::span<const TokenId> tokens, std::size_t n) override;
    std::size_t unread(int slot, std::span<const TokenId> tokens) const override;
    void begin_round(int slot, std::size_t n_tokens) override;
    // Empties the slot.
    void clear(int slot);
    // Slot `to` becomes the first `length` tokens of slot `from`, which must have read them; see KvCache::share.
    void share(int from, int to, std::size_t length);
    // What is in slot `from` moves to slot `to`, at the cost of what `from` does not share with it.
    void move(int from, int to);
    // One pass; none where the model went on with a chain before, and the text is that chain.
    SourceLogits rows_after(std::span<const TextEnd> texts, model::LogitNeeds needs) override;

    // What of a tree becomes text is not read again.
    SourceLogits rows_after_nodes(std::span<const NewNodes> trees, model::LogitNeeds needs) override;

  private:
    struct Retrieved { // chunks of a text, for the last time
        int end = 0;   // see model::Retrieval
        std::size_t n_tokens = 0;
    };

    // What the slot's cache holds of its text: cached(), less what has left the window.
    int n_kept(int slot) const {
        const auto i = static_cast<std::size_t>(slot);
        return static_cast<int>(cached_[i].size() - dropped_[i]);
    }
    // Whether only what the window has of a text is read.
    bool skips() const { return window_.is_on() && !model_.retrieves_own(); }
    void slide(int slot, std::span<const TokenId> text);
    void read_on(int slot, std::span<const TokenId> text, std::size_t of_prompt = 0);
    void retrieve(int slot);
    void keep_ahead(const TextEnd& text, const model::LogitNeeds& needs, const model::PassResult& result);
    void drop_tree_ahead();
    const SourceLogits* row_ahead(std::span<const TextEnd> texts, const model::LogitNeeds& needs);
    std::vector<TokenId>& cached(int slot) { return cached_[slot]; }
    void forget(const TextEnd& text);
    void keep_branch(const TextEnd& text);
    void read(int slot, std::span<const TokenId> tokens, bool is_prompt);
    void encode(int slot);
    void read_all(int slot, std::span<const TokenId> tokens);
    void make_room(std::span<const TextEnd> texts);
    void add_rows(int slot, std::span<const TokenId> tokens);
    SourceLogits logits_of(const model::PassResult& result, const model::LogitNeeds& needs);
    int summary_vocab() const;

    model::Decoder& model_;
    DeviceVerifier* device_;
    int vocab_;
    DraftWindow window_;
    std::vector<std::vector<TokenId>> cached_; // [slot]: tokens that the cache has read, dropped ones too
    std::vector<std::size_t> dropped_;         // [slot]: how many of them, behind the window's head, it has not
    std::vector<std::size_t> settled_;         // [slot]: tokens that no round takes back
    std::vector<std::size_t> verified_;        // [slot]: of them, those that the target's cache holds as well
    std::vector<Retrieved> retrieved_;         // [slot]
    std::vector<std::size_t> prompt_ends_;     // [slot]: tokens that are read as a prompt; not the last one
    std::vector<std::span<const TokenId>> unread_sources_; // [slot]
    std::vector<ChainAhead> ahead_;                        // [slot]
    std::vector<std::vector<TreeNode>> nodes_;             // [slot]: behind these, of a tree
    TreeRows tree_rows_;
    TreeAhead tree_ahead_;
    std::vector<model::Row> rows_;
    std::vector<int> logit_rows_;
    std::vector<model::Retrieval> retrievals_; // of the pass
    std::vector<float> logits_;                // of all tokens, where the model knows some
};

} // namespace entrodraft::spec
