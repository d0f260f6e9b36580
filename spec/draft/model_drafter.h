// Keeps the texts that a draft model follows, one in each slot. A text may grow, and may be cut back. This class knows
// which tokens of a text are in the cache, and runs passes over the others.
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
    // Uses slots [0, n_slots) of `model`, whose passes give logits of the whole vocabulary; the first `vocab` tokens
    // count. `device`: see SourceFacts. Both must outlive this. `window`: without a device, share() and move(). Slots
    // then have max_kept() positions or more, and the model has the window's chunks.
    ModelTexts(model::Decoder& model, int n_slots, int vocab, DeviceRound* device = nullptr,
               const DraftWindow& window = {});
    ModelTexts(const ModelTexts&) = delete;
    ModelTexts& operator=(const ModelTexts&) = delete;

    // An encoder reads the source before the first pass over the slot, while other ranks with a shard follow.
    void begin_sequence(int slot, const Request& request) override;
    // If only the window of a text is read, the prompt is read when all of it is there.
    bool prefill(int slot, std::span<const TokenId> tokens, std::size_t most) override;
    using LogitSource::prefill;
    bool begin_within(int slot, std::span<const TokenId> tokens, std::size_t n) override;
    std::size_t unread(int slot, std::span<const TokenId> tokens) const override;
    void begin_round(int slot, std::size_t n_tokens) override;
    // Empties the slot.
    void clear(int slot);
    // Slot `to` becomes the first `length` tokens of slot `from`, which must have read them; see KvCache::share.
    void share(int from, int to, std::size_t length);
    // Moves the text of slot `from` to slot `to`, at the cost of the part that the slots do not share.
    void move(int from, int to);
    // Runs one pass, or none if the model went on with a chain before, and the text is that chain.
    SourceLogits rows_after(std::span<const TextEnd> texts, model::LogitNeeds needs) override;

    // Nodes of a tree that become text are not read again.
    SourceLogits rows_after_nodes(std::span<const NewNodes> trees, model::LogitNeeds needs) override;

  private:
    struct Retrieved { // the chunks of a text as last chosen
        int end = 0;   // see model::Retrieval
        std::size_t n_tokens = 0;
    };

    // The number of tokens of its text in the slot's cache: cached(), less those that have left the window.
    int n_kept(int slot) const {
        const auto i = static_cast<std::size_t>(slot);
        return static_cast<int>(cached_[i].size() - dropped_[i]);
    }
    // Returns whether only the window of a text is read.
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
    DeviceRound* device_;
    int vocab_;
    DraftWindow window_;
    std::vector<std::vector<TokenId>> cached_; // [slot]: tokens that the cache has read, dropped ones too
    std::vector<std::size_t> dropped_;         // [slot]: how many of them, after the window's head, it has dropped
    std::vector<std::size_t> settled_;         // [slot]: number of tokens that no round takes back
    std::vector<std::size_t> verified_;        // [slot]: number of these that the target's cache holds too
    std::vector<Retrieved> retrieved_;         // [slot]
    std::vector<std::size_t> prompt_ends_; // [slot]: number of tokens that are read as a prompt, without the last one
    std::vector<std::span<const TokenId>> unread_sources_; // [slot]
    std::vector<ChainAhead> ahead_;                        // [slot]
    std::vector<std::vector<TreeNode>> nodes_;             // [slot]: after these, those of a tree
    TreeRows tree_rows_;
    TreeAhead tree_ahead_;
    std::vector<model::Row> rows_;
    std::vector<int> logit_rows_;
    std::vector<model::Retrieval> retrievals_; // of the pass
    std::vector<float> logits_;                // of all tokens, if the model knows only some
};

} // namespace entrodraft::spec
