// Masked heads: the pass over a text also drafts all tokens after the text, in rows that have a mask in place of a
// token. Nodes then need no pass, because all nodes of a level have the same row of logits. P-EAGLE puts masks after
// the rows of the text. DFlash reads the text first. Then it reads a block of the last token and masks, whose rows see
// one another.
#include "spec/draft/head_texts.h"
#include "spec/draft/rows_ahead.h"

#include <algorithm>

namespace entrodraft::spec {

namespace {

class MaskedTexts : public HeadTexts {
  public:
    // `idle_rows`: rows of a text in the pass that drafts, of which no draft comes.
    MaskedTexts(const HeadModules& head, int vocab, int n_slots, std::size_t idle_rows = 0)
        : HeadTexts(head, vocab, n_slots), idle_rows_(idle_rows), ahead_(nodes_.size()), answer_(vocab) {}

    SourceLogits rows_after_nodes(std::span<const NewNodes> trees, model::LogitNeeds needs) override {
        answer_.clear();
        for (const NewNodes& tree : trees)
            for (const TreeNode& node : tree.nodes) {
                answer_.add(ahead_[tree.slot], depth_of(tree.slot, node) - 1, needs);
                nodes_[tree.slot].push_back(node);
            }
        return answer_.logits();
    }

  protected:
    // The number of tokens that the pass drafts after the slot's text.
    std::size_t n_drafts(int slot) {
        return std::min(static_cast<std::size_t>(head_.max_tokens), facts_.context - target(slot).n_known());
    }
    // Adds masks after the last row of the pass.
    void add_masks(int slot, std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) {
            logit_rows_.push_back(static_cast<int>(rows_.size()));
            rows_.push_back({head_.mask_token, slot, rows_.back().position + 1, static_cast<int>(rows_.size()) - 1});
            features_.insert(features_.end(), head_.mask_features.begin(), head_.mask_features.end());
        }
    }

  private:
    std::size_t rows_of_draft(int slot) override { return n_drafts(slot) - 1; }
    // The first draft comes from the text's last row itself.
    model::PassResult run(std::span<const TextEnd> texts, const model::LogitNeeds& needs) override {
        for (const TextEnd& end : texts) {
            add_text(end);
            add_masks(end.slot, n_drafts(end.slot) - 1);
        }
        return modules_.front()->forward(pass_of_drafts(needs));
    }
    SourceLogits rows_after_texts(std::span<const TextEnd> texts, const model::LogitNeeds& needs) override {
        if (head_.max_tokens == 1) return logits_of(run_texts(texts, needs_of_pass(needs))); // nothing to keep
        return answer_.gather(
            texts, facts_.max_rows, [&](const TextEnd& end) { return n_drafts(end.slot) + idle_rows_; },
            [&](std::span<const TextEnd> together) {
                const SourceLogits rows = logits_of(run_texts(together, needs.with_rows()));
                std::size_t row = 0;
                for (const TextEnd& end : together) {
                    ahead_[end.slot] = answer_.take(rows, row, n_drafts(end.slot));
                    row += n_drafts(end.slot);
                }
            });
    }

    std::size_t idle_rows_;
    std::vector<std::vector<float>> ahead_; // [slot][n_drafts() - 1][vocab]: logits of the tokens after the next one
    GatheredRows answer_;
};

// DFlash (Fusion::context).
class ContextTexts final : public MaskedTexts {
  public:
    ContextTexts(const HeadModules& head, int vocab, int n_slots) : MaskedTexts(head, vocab, n_slots, 1) {
        --facts_.context; // the last token has a row too
    }

  private:
    // The states of the last tokens are not known. All drafts come from masks.
    model::PassResult run(std::span<const TextEnd> texts, const model::LogitNeeds& needs) override {
        for (const TextEnd& end : texts)
            add_text(end);
        modules_.front()->forward(pass_of_keys());
        clear_pass();
        for (const TextEnd& end : texts) {
            const std::size_t position = target(end.slot).n_known();
            rows_.push_back({end.tokens[position], end.slot, static_cast<int>(position), -1});
            add_masks(end.slot, n_drafts(end.slot));
        }
        model::Pass pass = pass_of_drafts(needs);
        pass.block_rows = model::Decoder::kMaxRows;
        return modules_.front()->forward(pass);
    }
};

} // namespace

std::unique_ptr<TreeSource> make_masked_texts(const HeadModules& head, int vocab, int n_slots) {
    if (head.head->config().fusion.kind == model::Fusion::context)
        return std::make_unique<ContextTexts>(head, vocab, n_slots);
    return std::make_unique<MaskedTexts>(head, vocab, n_slots);
}

} // namespace entrodraft::spec
