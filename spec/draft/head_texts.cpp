// See head_texts.h.
#include "spec/draft/head_texts.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace entrodraft::spec {

namespace {

using model::HeadState;

class HeadTexts final : public TreeSource {
  public:
    HeadTexts(const HeadModules& head, int vocab, int n_slots)
        : head_(*head.head), modules_(head.modules), vocab_(vocab), texts_(static_cast<std::size_t>(n_slots)),
          nodes_(texts_.size()) {
        if (head_.state == HeadState::after_norm || head_.state == HeadState::projected)
            state_layer_ = head_.config().n_layers + 1;
        if (head_.state == HeadState::grown) state_layer_ = 0; // the embedding
    }

    std::string name() const override { return "head"; }
    std::size_t weight_bytes() const override { return modules_.front()->weight_bytes(); }
    std::size_t context() const override { return static_cast<std::size_t>(head_.config().max_positions); }
    std::size_t context_of(int slot) const override;
    std::size_t max_rows() const override { return static_cast<std::size_t>(modules_.front()->max_rows()); }
    bool shares_passes() const override { return true; }
    std::vector<int> hidden_layers() const override { return head_.target_layers; }
    void begin_sequence(int slot) override;
    void take_hidden(int slot, int first_position, std::span<const float> states) override;
    void prefill(int slot, std::span<const TokenId> prompt) override;
    SourceLogits rows_after(std::span<const TextEnd> texts, model::LogitNeeds needs) override;
    SourceLogits rows_after_nodes(std::span<const NewNodes> trees, model::LogitNeeds needs) override;

  private:
    struct Text {
        std::size_t n_read = 0;      // positions whose rows the cache holds
        std::vector<float> features; // [positions from n_read on][fusion.width()]: the target's, not yet read
        std::vector<float> last;     // [fusion.width()]: of the last position that was read with a draft
        // What the row behind has in place of the target's states, of the text and of each of its nodes.
        std::vector<std::vector<float>> states;
        std::vector<float> masked; // [max_tokens][vocab]: logits of one pass over masked rows
    };

    bool is_masked() const { return head_.state == HeadState::masked; }
    bool attends() const { return head_.config().n_layers > 0; }
    std::size_t width() const { return static_cast<std::size_t>(head_.config().fusion.width()); }
    std::size_t hidden_size() const { return static_cast<std::size_t>(head_.config().hidden_size); }
    Text& text(int slot) { return texts_[static_cast<std::size_t>(slot)]; }
    std::vector<TreeNode>& nodes(int slot) { return nodes_[static_cast<std::size_t>(slot)]; }
    // Positions of the text whose hidden states are known.
    static std::size_t n_known(const Text& text, std::size_t width) {
        return text.n_read + text.features.size() / width;
    }
    std::size_t n_known(int slot) { return n_known(text(slot), width()); }

    void drop_nodes(int slot);
    void read_last_again(int slot);
    void read(int slot, std::span<const TokenId> tokens, std::size_t n);
    void add_rows(int slot, std::span<const TokenId> tokens, std::size_t n);
    int depth_of(int slot, int node) const;
    SourceLogits rows_after_texts(std::span<const TextEnd> texts, const model::LogitNeeds& needs);
    std::vector<float> next_features(const float* features, std::size_t size, const model::PassResult& result,
                                     std::size_t row) const;
    std::size_t rows_of_draft(int slot);
    void mark_read(int slot);
    void add_masked_rows(int slot);
    SourceLogits first_of_masked(std::span<const TextEnd> texts, const SourceLogits& rows);
    SourceLogits masked_rows_after(std::span<const NewNodes> trees, const model::LogitNeeds& needs);
    SourceLogits logits_of(const model::PassResult& result, const model::LogitNeeds& needs);
    int summary_vocab() const { return head_.tokens.empty() ? vocab_ : 0; } // 0: all that the head knows

    const model::DraftHead& head_;
    std::vector<model::Decoder*> modules_;
    int vocab_;
    int state_layer_ = head_.config().n_layers; // whose states are handed on
    std::vector<Text> texts_;                   // [slot]
    std::vector<std::vector<TreeNode>> nodes_;  // [slot]: drafted so far
    TreeRows tree_rows_;
    std::vector<model::Row> rows_;
    std::vector<int> logit_rows_;
    std::vector<float> features_; // of a pass
    std::vector<float> logits_;   // [rows][vocab], of a head that knows fewer tokens
    std::vector<model::kernels::LogitStats> summaries_;
    std::vector<float> first_; // [rows][vocab], of masked rows those that are asked for
    std::vector<model::kernels::LogitStats> first_summaries_;
};

std::size_t HeadTexts::context_of(int slot) const {
    return head_context(n_known(texts_[static_cast<std::size_t>(slot)], width()), head_.max_tokens, context());
}

void HeadTexts::begin_sequence(int slot) {
    for (model::Decoder* module : modules_)
        module->cache().truncate(slot, 0);
    text(slot) = {};
    nodes(slot).clear();
}

void HeadTexts::take_hidden(int slot, int first_position, std::span<const float> states) {
    if (static_cast<std::size_t>(first_position) != n_known(slot))
        throw std::logic_error("take_hidden: hidden states must follow those that are known");
    text(slot).features.insert(text(slot).features.end(), states.begin(), states.end());
}

// ---- true rows ----

void HeadTexts::drop_nodes(int slot) {
    for (model::Decoder* module : modules_)
        module->cache().truncate(slot, attends() ? static_cast<int>(text(slot).n_read) : 0);
    nodes(slot).clear();
}

// The text is asked about again as it is: its last row is made once more.
void HeadTexts::read_last_again(int slot) {
    Text& own = text(slot);
    if (n_known(slot) > own.n_read) return;
    --own.n_read;
    own.features = own.last;
}

// The next n rows of the text, whose features are known.
void HeadTexts::add_rows(int slot, std::span<const TokenId> tokens, std::size_t n) {
    const Text& own = text(slot);
    for (std::size_t i = 0; i < n; ++i) {
        const std::size_t position = own.n_read + i;
        rows_.push_back(
            {tokens[position + 1], slot, static_cast<int>(position), i == 0 ? -1 : static_cast<int>(rows_.size()) - 1});
    }
    features_.insert(features_.end(), own.features.begin(),
                     own.features.begin() + static_cast<std::ptrdiff_t>(n * width()));
}

// The next n rows, of which nothing is wanted but their keys and values.
void HeadTexts::read(int slot, std::span<const TokenId> tokens, std::size_t n) {
    if (attends()) {
        rows_.clear();
        features_.clear();
        add_rows(slot, tokens, n);
        modules_.front()->forward(
            {.rows = rows_, .logit_rows = {}, .hidden_layers = {}, .mask = model::Mask::causal, .features = features_});
    }
    std::vector<float>& features = text(slot).features;
    features.erase(features.begin(), features.begin() + static_cast<std::ptrdiff_t>(n * width()));
    text(slot).n_read += n;
}

void HeadTexts::prefill(int slot, std::span<const TokenId> prompt) {
    if (prompt.empty()) return;
    drop_nodes(slot);
    const std::size_t end = std::min({n_known(slot), prompt.size() - 1, context()});
    // The last row is read with the first draft, which wants what follows it.
    while (text(slot).n_read + 1 < end)
        read(slot, prompt, std::min(end - 1 - text(slot).n_read, max_rows()));
}

SourceLogits HeadTexts::rows_after_texts(std::span<const TextEnd> texts, const model::LogitNeeds& needs) {
    std::size_t rows = 0;
    for (const TextEnd& end : texts) {
        read_last_again(end.slot);
        drop_nodes(end.slot);
        rows += (attends() ? n_known(end.slot) - text(end.slot).n_read : 1) + rows_of_draft(end.slot) - 1;
    }
    for (const TextEnd& end : texts) // what does not fit into one pass is read before
        while (n_known(end.slot) - text(end.slot).n_read > 1 && (rows > max_rows() || !attends())) {
            const std::size_t n = std::min(n_known(end.slot) - text(end.slot).n_read - 1, max_rows());
            read(end.slot, end.tokens, n);
            if (attends()) rows -= n;
        }
    rows_.clear();
    logit_rows_.clear();
    features_.clear();
    for (const TextEnd& end : texts) {
        add_rows(end.slot, end.tokens, n_known(end.slot) - text(end.slot).n_read);
        logit_rows_.push_back(static_cast<int>(rows_.size()) - 1);
        add_masked_rows(end.slot);
    }
    const model::PassResult result = modules_.front()->forward({.rows = rows_,
                                                                .logit_rows = logit_rows_,
                                                                .hidden_layers = {&state_layer_, 1},
                                                                .mask = model::Mask::causal,
                                                                .needs = needs,
                                                                .summary_vocab = summary_vocab(),
                                                                .features = features_});
    const SourceLogits rows_of_all = logits_of(result, needs);
    if (is_masked()) return first_of_masked(texts, rows_of_all);
    for (std::size_t i = 0; i < texts.size(); ++i) {
        const auto row = static_cast<std::size_t>(logit_rows_[i]);
        text(texts[i].slot).states.assign(1, next_features(&features_[row * width()], width(), result, row));
        mark_read(texts[i].slot);
    }
    return rows_of_all;
}

// ---- masked rows: all that is drafted behind a text comes of its first pass ----

// Of a text's first pass, those whose logits are drafts; masked ones end where the context does.
std::size_t HeadTexts::rows_of_draft(int slot) {
    if (!is_masked()) return 1;
    return std::min(static_cast<std::size_t>(head_.max_tokens), context() + 1 - n_known(slot));
}

void HeadTexts::mark_read(int slot) {
    Text& own = text(slot);
    own.n_read = n_known(slot);
    own.last.assign(own.features.end() - static_cast<std::ptrdiff_t>(width()), own.features.end());
    own.features.clear();
}

void HeadTexts::add_masked_rows(int slot) {
    for (std::size_t i = 1; i < rows_of_draft(slot); ++i) {
        logit_rows_.push_back(static_cast<int>(rows_.size()));
        rows_.push_back({head_.mask_token, slot, rows_.back().position + 1, static_cast<int>(rows_.size()) - 1});
        features_.insert(features_.end(), head_.mask_features.begin(), head_.mask_features.end());
    }
}

// Of the rows of all texts keeps those behind the first, which is what follows each text.
SourceLogits HeadTexts::first_of_masked(std::span<const TextEnd> texts, const SourceLogits& rows) {
    first_.clear();
    first_summaries_.clear();
    std::size_t at = 0;
    for (const TextEnd& end : texts) {
        std::vector<float>& masked = text(end.slot).masked;
        masked.clear();
        const std::size_t n = rows_of_draft(end.slot);
        for (std::size_t depth = 0; depth < n; ++depth) {
            const std::span<const float> row = rows.row(at + depth);
            masked.insert(masked.end(), row.begin(), row.end());
        }
        first_.insert(first_.end(), masked.begin(), masked.begin() + static_cast<std::ptrdiff_t>(rows.vocab));
        if (!rows.summaries.empty()) first_summaries_.push_back(rows.summaries[at]);
        mark_read(end.slot);
        at += n;
    }
    return {first_, rows.vocab, rows.vocab, first_summaries_};
}

// The same row for all nodes of a depth.
SourceLogits HeadTexts::masked_rows_after(std::span<const NewNodes> trees, const model::LogitNeeds& needs) {
    const auto vocab = static_cast<std::size_t>(vocab_);
    first_.clear();
    first_summaries_.clear();
    for (const NewNodes& tree : trees)
        for (const TreeNode& node : tree.nodes) {
            const int depth = 1 + depth_of(tree.slot, node.parent);
            const auto row = std::span(text(tree.slot).masked).subspan(static_cast<std::size_t>(depth) * vocab, vocab);
            first_.insert(first_.end(), row.begin(), row.end());
            if (needs.summary != model::LogitSummary::none)
                first_summaries_.push_back(model::kernels::best_kernels().logit_stats(row.data(), vocab_, 0));
            nodes(tree.slot).push_back(node);
        }
    return {first_, vocab, vocab, first_summaries_};
}

// ---- drafted rows ----

// The text as the target has read it, or that with a chain of drafted tokens behind it.
SourceLogits HeadTexts::rows_after(std::span<const TextEnd> texts, model::LogitNeeds needs) {
    const auto is_drafted = [&](const TextEnd& end) { return end.tokens.size() > n_known(end.slot) + 1; };
    if (std::ranges::none_of(texts, is_drafted)) return rows_after_texts(texts, needs);
    if (!std::ranges::all_of(texts, is_drafted)) throw std::logic_error("a head's texts begin their drafts together");
    std::vector<TreeNode> last;
    std::vector<NewNodes> chains;
    for (const TextEnd& end : texts)
        last.push_back({end.tokens.back(), static_cast<int>(nodes(end.slot).size()) - 1});
    for (std::size_t i = 0; i < texts.size(); ++i)
        chains.push_back({texts[i].slot, {&last[i], 1}});
    return rows_after_nodes(chains, needs);
}

int HeadTexts::depth_of(int slot, int node) const {
    int depth = 0;
    for (; node >= 0; node = nodes_[static_cast<std::size_t>(slot)][static_cast<std::size_t>(node)].parent)
        ++depth;
    return depth;
}

// What a row behind this one of the pass gets in place of the target's states.
std::vector<float> HeadTexts::next_features(const float* features, std::size_t size, const model::PassResult& result,
                                            std::size_t row) const {
    const auto state = result.hidden.subspan(row * hidden_size(), hidden_size());
    std::vector<float> next;
    if (head_.state == HeadState::features || head_.state == HeadState::grown) next.assign(features, features + size);
    if (head_.state != HeadState::features) next.insert(next.end(), state.begin(), state.end());
    return next;
}

SourceLogits HeadTexts::rows_after_nodes(std::span<const NewNodes> trees, model::LogitNeeds needs) {
    if (is_masked()) return masked_rows_after(trees, needs);
    features_.clear();
    for (const NewNodes& tree : trees)
        for (const TreeNode& node : tree.nodes) {
            const std::vector<float>& state = text(tree.slot).states[static_cast<std::size_t>(node.parent + 1)];
            features_.insert(features_.end(), state.begin(), state.end());
        }
    // Nodes of a pass lie equally deep.
    const NewNodes& first = trees.front();
    const int depth = 1 + depth_of(first.slot, first.nodes.front().parent);
    model::Decoder& module = *modules_[modules_.size() == 1 ? 0 : static_cast<std::size_t>(depth)];
    if (!attends())
        for (const NewNodes& tree : trees)
            module.cache().truncate(tree.slot, 0);
    tree_rows_.set(trees, nodes_, [&](int slot) { return static_cast<int>(text(slot).n_read); });
    model::Pass pass = tree_rows_.pass(needs, summary_vocab());
    pass.hidden_layers = {&state_layer_, 1};
    pass.features = features_;
    pass.features_are_own = head_.state == HeadState::before_norm || head_.state == HeadState::after_norm;
    if (!attends()) { // rows by themselves
        rows_.assign(pass.rows.begin(), pass.rows.end());
        for (model::Row& row : rows_)
            row.parent = -1;
        pass.rows = rows_;
        pass.cached_nodes = {};
    }
    const model::PassResult result = module.forward(pass);
    const std::size_t size = features_.size() / pass.rows.size();
    std::size_t row = 0;
    for (const NewNodes& tree : trees)
        for (std::size_t i = 0; i < tree.nodes.size(); ++i, ++row)
            text(tree.slot).states.push_back(next_features(&features_[row * size], size, result, row));
    return logits_of(result, needs);
}

// Of the target's tokens: those that the head does not know cannot come.
SourceLogits HeadTexts::logits_of(const model::PassResult& result, const model::LogitNeeds& needs) {
    const auto vocab = static_cast<std::size_t>(vocab_);
    if (head_.tokens.empty()) return {result.logits, result.logits_stride, vocab, result.summaries};
    const std::size_t n_rows = result.logits.size() / result.logits_stride;
    logits_.assign(n_rows * vocab, -std::numeric_limits<float>::infinity());
    summaries_.assign(result.summaries.begin(), result.summaries.end());
    for (std::size_t row = 0; row < n_rows; ++row)
        for (std::size_t i = 0; i < head_.tokens.size(); ++i)
            if (const auto token = static_cast<std::size_t>(head_.tokens[i]); token < vocab)
                logits_[row * vocab + token] = result.logits[row * result.logits_stride + i];
    if (needs.summary != model::LogitSummary::none)
        for (model::kernels::LogitStats& summary : summaries_)
            summary.arg_max = head_.tokens[static_cast<std::size_t>(summary.arg_max)];
    return {logits_, vocab, vocab, summaries_};
}

} // namespace

std::size_t head_context(std::size_t known, int max_tokens, std::size_t context) {
    if (known == 0) return 0;
    if (max_tokens == 0) return context;
    return std::min(context, known + static_cast<std::size_t>(max_tokens));
}

std::unique_ptr<TreeSource> make_head_source(const HeadModules& head, int vocab, int n_slots) {
    return std::make_unique<HeadTexts>(head, vocab, n_slots);
}

} // namespace entrodraft::spec
