// Recurrent heads: EAGLE, MTP, Hydra, MLP speculators, and Medusa, whose state stays the one of the text. Each drafted
// token has a row of its own, made from the state after the token before it. So a pass reads one level of a tree,
// unless a GPU drafts on by itself.
#include "spec/draft/head_texts.h"
#include "spec/draft/rows_ahead.h"

#include <algorithm>

namespace entrodraft::spec {

namespace {

class RecurrentTexts final : public HeadTexts {
  public:
    RecurrentTexts(const HeadModules& head, int vocab, int n_slots, DeviceRound* device)
        : HeadTexts(head, vocab, n_slots), texts_(nodes_.size()) {
        if (modules_.size() == 1 && has_own_features() && !knows_others_) facts_.device = device;
    }

    SourceLogits rows_after(std::span<const TextEnd> texts, model::LogitNeeds needs) override {
        const SourceLogits* const row = chain_row(texts, needs);
        return row != nullptr ? *row : HeadTexts::rows_after(texts, needs);
    }
    SourceLogits rows_after_nodes(std::span<const NewNodes> trees, model::LogitNeeds needs) override;

  private:
    struct Text {
        std::vector<std::vector<float>> states; // [1 + nodes read]: that the rows after the text or node are made of
        // For the rows after the text that the device has read by itself:
        std::vector<float> loop_states; // [rows][hidden_size]: as `states`
        std::vector<int> asked;         // the rows that are nodes, in their order
        ChainAhead chain;
    };

    model::Decoder& module_at(std::size_t depth) const {
        return *modules_[std::min((head_.has_prefix ? 1 : 0) + depth, modules_.size() - 1)];
    }
    void drop_nodes(int slot) override {
        HeadTexts::drop_nodes(slot);
        texts_[slot] = {};
    }
    SourceLogits rows_after_texts(std::span<const TextEnd> texts, const model::LogitNeeds& needs) override;
    model::PassResult run(std::span<const TextEnd> texts, const model::LogitNeeds& needs) override;
    void run_prefix();
    const SourceLogits* chain_row(std::span<const TextEnd> texts, const model::LogitNeeds& needs);
    const SourceLogits* tree_rows(std::span<const NewNodes> trees);
    void drop_ahead(int slot);

    std::vector<Text> texts_; // [slot]
    TreeAhead tree_ahead_;
};

// Replaces the rows of the pass by those with logits, made of the prefix's states.
void RecurrentTexts::run_prefix() {
    const int n_layers = head_.config().n_layers;
    model::Pass pass = pass_of_keys();
    pass.hidden_layers = {&n_layers, 1};
    const model::PassResult result = modules_.front()->forward(pass);
    const std::size_t size = result.hidden.size() / rows_.size();
    std::vector<model::Row> last;
    features_.clear();
    for (int& row : logit_rows_) {
        const auto state = result.hidden.subspan(static_cast<std::size_t>(row) * size, size);
        features_.insert(features_.end(), state.begin(), state.end());
        last.push_back(rows_[row]);
        last.back().parent = -1;
        row = static_cast<int>(last.size()) - 1;
    }
    rows_ = std::move(last);
}

model::PassResult RecurrentTexts::run(std::span<const TextEnd> texts, const model::LogitNeeds& needs) {
    for (const TextEnd& end : texts)
        add_text(end);
    if (head_.has_prefix) run_prefix();
    return module_at(0).forward(pass_of_drafts(needs));
}

SourceLogits RecurrentTexts::rows_after_texts(std::span<const TextEnd> texts, const model::LogitNeeds& needs) {
    tree_ahead_ = {};
    const model::PassResult result = run_texts(texts, needs_of_pass(needs));
    for (std::size_t i = 0; i < texts.size(); ++i) {
        const auto row = static_cast<std::size_t>(logit_rows_[i]);
        texts_[texts[i].slot].states.push_back(next_features(result, rows_.size(), row));
    }
    if (facts_.device != nullptr && needs.extension != nullptr) {
        Text& own = texts_[texts[0].slot];
        own.loop_states.assign(result.loop_hidden.begin(), result.loop_hidden.end());
        own.chain.keep(texts[0].tokens.size(), needs, result);
        tree_ahead_.keep(texts[0].slot, facts_.device->grown());
    }
    SourceLogits rows = logits_of(result);
    rows.ranked = tree_ahead_.text_row();
    return rows;
}

// ---- rows that the device has read by itself ----

// The row after a chain of drafted tokens; null: the device has not read it.
const SourceLogits* RecurrentTexts::chain_row(std::span<const TextEnd> texts, const model::LogitNeeds& needs) {
    if (texts.size() != 1 || !is_drafted(texts[0])) return nullptr;
    const int slot = texts[0].slot;
    const auto drafted = texts[0].tokens.subspan(target(slot).n_known() + 1);
    const std::span<const TokenId> read = texts_[slot].chain.tokens();
    if (drafted.size() > read.size() || !std::ranges::equal(drafted, read.first(drafted.size()))) return nullptr;
    const SourceLogits* const row = texts_[slot].chain.row(texts[0].tokens.size(), needs, vocab_);
    if (row == nullptr) return nullptr;
    texts_[slot].asked.push_back(static_cast<int>(drafted.size()) - 1);
    nodes_[slot].push_back({drafted.back(), static_cast<int>(drafted.size()) - 2});
    return row;
}

// The rows of a level of a tree; null: the device has not read all of it.
const SourceLogits* RecurrentTexts::tree_rows(std::span<const NewNodes> trees) {
    const SourceLogits* const rows = tree_ahead_.rows_of(trees, vocab_);
    if (rows == nullptr) return nullptr;
    const int slot = trees[0].slot;
    texts_[slot].asked.assign(tree_ahead_.asked().begin(), tree_ahead_.asked().end());
    nodes_[slot].insert(nodes_[slot].end(), trees[0].nodes.begin(), trees[0].nodes.end());
    return rows;
}

// Keeps only the nodes that the caller asked for, as if passes had read them.
void RecurrentTexts::drop_ahead(int slot) {
    Text& own = texts_[slot];
    tree_ahead_ = {};
    if (own.loop_states.empty()) return;
    modules_.front()->keep(slot, static_cast<int>(target(slot).n_read()), own.asked);
    const auto size = static_cast<std::size_t>(head_.config().hidden_size);
    for (const int row : own.asked) {
        const auto state = std::span(own.loop_states).subspan(static_cast<std::size_t>(row) * size, size);
        own.states.emplace_back(state.begin(), state.end());
    }
    own.loop_states.clear();
    own.chain = {};
}

// ---- drafted rows ----

SourceLogits RecurrentTexts::rows_after_nodes(std::span<const NewNodes> trees, model::LogitNeeds needs) {
    if (const SourceLogits* const rows = tree_rows(trees)) return *rows;
    features_.clear();
    for (const NewNodes& tree : trees) {
        drop_ahead(tree.slot);
        for (const TreeNode& node : tree.nodes) {
            const std::vector<float>& states = texts_[tree.slot].states[static_cast<std::size_t>(node.parent + 1)];
            features_.insert(features_.end(), states.begin(), states.end());
        }
    }
    // The nodes of a pass have equal depth.
    model::Decoder& module = module_at(depth_of(trees[0].slot, trees[0].nodes[0]));
    needs = needs_of_pass(needs);
    needs.extension = nullptr; // it continues a text only
    model::Pass pass = pass_of_nodes(trees, nodes_, needs);
    if (module.config().n_layers == 0) { // it reads nothing but its own row
        for (const NewNodes& tree : trees)
            module.cache().truncate(tree.slot, 0);
        rows_.assign(pass.rows.begin(), pass.rows.end());
        for (model::Row& row : rows_)
            row.parent = -1;
        pass.rows = rows_;
        pass.cached_nodes = {};
    }
    const model::PassResult result = module.forward(pass);
    std::size_t row = 0;
    for (const NewNodes& tree : trees)
        for (std::size_t i = 0; i < tree.nodes.size(); ++i)
            texts_[tree.slot].states.push_back(next_features(result, pass.rows.size(), row++));
    return logits_of(result);
}

} // namespace

std::unique_ptr<TreeSource> make_recurrent_texts(const HeadModules& head, int vocab, int n_slots, DeviceRound* device) {
    return std::make_unique<RecurrentTexts>(head, vocab, n_slots, device);
}

} // namespace entrodraft::spec
