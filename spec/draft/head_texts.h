// Keeps the texts that a draft head follows, one in each slot: the target's hidden states for their tokens, which of
// these states the head has read, and the nodes of the draft. Three kinds of heads draft in different ways, each in its
// own file: head_texts_recurrent.cpp, head_texts_masked.cpp and head_texts_block.cpp.
//
// The head's row of position p has the token at p + 1. Its cache keeps only rows made from the target's states. Rows of
// drafted tokens, made from the head's own states, leave the cache when the round has ended. model/heads/head.h has the
// formats of heads.
#pragma once

#include "model/heads/head.h"
#include "spec/draft/target_states.h"
#include "spec/draft/tree.h"

#include <memory>
#include <vector>

namespace entrodraft::spec {

// A head with its modules loaded, for the drafter `head`. All must outlive the drafter.
struct HeadModules {
    const model::DraftHead* head = nullptr;
    std::vector<model::Decoder*> modules; // as head->modules
};

// The number of tokens of a text and its draft that a head may read, if the target's states of the first `known` are
// known (LogitSource::context_of). `max_tokens`: as in DraftHead. `context`: positions.
std::size_t head_context(std::size_t known, int max_tokens, std::size_t context);

// Has slots [0, n_slots). The first `vocab` tokens of the target count. A text of one token has no hidden states yet,
// so nothing is drafted after it. `device`: of the modules' GPU. It drafts on by itself (see SourceFacts::device) if
// the head's one module makes every token, of a chain or tree, of its own state of the one before. It does not if one
// pass gives several tokens anyway (masked rows, blocks), or if each depth has its own module and pass (Medusa, Hydra,
// MLP speculators).
std::unique_ptr<TreeSource> make_head_source(const HeadModules& head, int vocab, int n_slots,
                                             DeviceRound* device = nullptr);

// ---- the kinds of heads ----

// As make_head_source(), for a head of this kind.
std::unique_ptr<TreeSource> make_recurrent_texts(const HeadModules& head, int vocab, int n_slots, DeviceRound* device);
std::unique_ptr<TreeSource> make_masked_texts(const HeadModules& head, int vocab, int n_slots);
std::unique_ptr<TreeSource> make_block_texts(const HeadModules& head, int vocab, int n_slots);

// The part that all kinds share. True rows are rows made of the target's states.
class HeadTexts : public TreeSource {
  public:
    std::size_t context_of(int slot) const override;
    void begin_sequence(int slot, const Request& request) override;
    void take_hidden(int slot, int first_position, std::span<const float> states) override;
    bool prefill(int slot, std::span<const TokenId> tokens, std::size_t most) override;
    // The texts end where the target has read them, or each has a chain of drafted tokens after that.
    SourceLogits rows_after(std::span<const TextEnd> texts, model::LogitNeeds needs) override;

  protected:
    HeadTexts(const HeadModules& head, int vocab, int n_slots);

    // The row after each of these texts, which have no drafted tokens.
    virtual SourceLogits rows_after_texts(std::span<const TextEnd> texts, const model::LogitNeeds& needs) = 0;
    // The number of rows that a draft adds to the rows of its text, in the pass that drafts.
    virtual std::size_t rows_of_draft(int /*slot*/) { return 0; }
    // Forgets the nodes of the slot's draft. Only true rows stay in the caches.
    virtual void drop_nodes(int slot);

    std::size_t block() const { return static_cast<std::size_t>(head_.block); }
    TargetStates& target(int slot) { return targets_[slot]; }
    // Returns whether the features of drafted rows are the head's own states: see Pass::features_are_own.
    bool has_own_features() const {
        return head_.state == model::HeadState::before_norm || head_.state == model::HeadState::after_norm;
    }
    // Returns whether drafted tokens follow the tokens that the target has read.
    bool is_drafted(const TextEnd& end) { return end.tokens.size() > target(end.slot).n_known() + 1; }
    std::size_t depth_of(int slot, const TreeNode& node) const; // 1: right after the text
    // Runs the pass that drafts after these texts, by run(). Earlier passes read the rows that do not fit into it.
    model::PassResult run_texts(std::span<const TextEnd> texts, const model::LogitNeeds& needs);
    // Adds the unread rows of these texts to the pass, and runs it.
    virtual model::PassResult run(std::span<const TextEnd> texts, const model::LogitNeeds& needs);
    void clear_pass();
    // Adds the unread rows of the text. The rows of its last block have logits.
    void add_text(const TextEnd& end);
    // Passes over the rows that were added: for their keys and values only, and for drafts.
    model::Pass pass_of_keys() const;
    model::Pass pass_of_drafts(const model::LogitNeeds& needs) const;
    // The pass over drafted rows with features_. They are added to `drafted`, [slot], the drafted rows in the caches.
    model::Pass pass_of_nodes(std::span<const NewNodes> rows, std::span<std::vector<TreeNode>> drafted,
                              const model::LogitNeeds& needs);
    // The features of the rows that follow a block, which begins with row `first` of the pass's `n_rows`.
    std::vector<float> next_features(const model::PassResult& result, std::size_t n_rows, std::size_t first) const;
    // Logits of the target's tokens. Tokens that the head does not know cannot come.
    SourceLogits logits_of(const model::PassResult& result);
    // The pass does not add noise itself if the noise could find tokens that do not count.
    model::LogitNeeds needs_of_pass(const model::LogitNeeds& needs) const {
        return !needs.noises.empty() && knows_others_ ? needs.with_rows() : needs;
    }

    const model::DraftHead& head_;
    std::vector<model::Decoder*> modules_;
    int vocab_;
    bool knows_others_;                        // it knows tokens that do not count
    std::vector<std::vector<TreeNode>> nodes_; // [slot]: nodes drafted so far
    std::vector<model::Row> rows_;             // of a pass, like the next two
    std::vector<int> logit_rows_;
    std::vector<float> features_;

  private:
    bool attends() const { return head_.config().n_layers > 0; } // to the true rows, in the first module
    int summary_vocab() const { return head_.config().output_tokens.empty() ? vocab_ : 0; } // 0: all that it knows
    void read(int slot, std::span<const TokenId> tokens, std::size_t n);
    void add_rows(int slot, std::span<const TokenId> tokens, std::size_t n);

    std::vector<TargetStates> targets_; // [slot]: the cache holds keys and values of its read rows
    std::vector<int> state_layers_;     // their states are handed on
    TreeRows tree_rows_;
    std::vector<float> logits_; // [rows][vocab], if the head knows fewer tokens
};

} // namespace entrodraft::spec
