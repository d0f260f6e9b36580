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
        const int n_layers = head_.config().n_layers;
        switch (head_.state) {
        case HeadState::before_norm:
            state_layers_ = {n_layers};
            break;
        case HeadState::after_norm:
        case HeadState::projected:
            state_layers_ = {n_layers + 1};
            break;
        case HeadState::with_cell:
            state_layers_ = {n_layers + 1, 0};
            break;
        case HeadState::grown:
            state_layers_ = {0}; // the embedding
            break;
        case HeadState::features:
        case HeadState::masked:
            break;
        }
    }

    std::string name() const override { return "head"; }
    std::size_t weight_bytes() const override { return modules_.front()->weight_bytes(); }
    std::size_t context() const override {
        return static_cast<std::size_t>(modules_.front()->config().max_positions - (has_context() ? 1 : 0));
    }
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
    // Noise is of the target's tokens; masked rows are looked at again.
    model::LogitNeeds needs_of_pass(const model::LogitNeeds& needs) const {
        return is_masked() || (!needs.noises.empty() && !head_.tokens.empty()) ? needs.with_rows() : needs;
    }
    // Its rows of drafted tokens stand behind the last token's, else in its place.
    bool has_context() const { return head_.config().fusion.kind == model::Fusion::context; }
    bool attends() const { return head_.config().n_layers > 0; } // to the true rows: the first module
    model::Decoder& module_at(int depth) const {
        return *modules_[std::min((head_.has_prefix ? 1 : 0) + static_cast<std::size_t>(depth), modules_.size() - 1)];
    }
    std::size_t width() const { return static_cast<std::size_t>(head_.config().fusion.width()); }
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
    void begin_pass();
    void read_early(std::span<const TextEnd> texts);
    void run_prefix();
    SourceLogits rows_after_texts(std::span<const TextEnd> texts, const model::LogitNeeds& needs);
    std::vector<float> next_features(const model::PassResult& result, std::size_t n_rows, std::size_t row) const;
    std::size_t rows_of_draft(int slot);
    void mark_read(int slot);
    void add_masked_rows(int slot);
    void run_context(std::span<const TextEnd> texts);
    void run_masked(std::span<const TextEnd> texts, const model::LogitNeeds& needs);
    SourceLogits masked_rows_after_texts(std::span<const TextEnd> texts, const model::LogitNeeds& needs);
    SourceLogits masked_rows_after(std::span<const NewNodes> trees, const model::LogitNeeds& needs);
    SourceLogits logits_of(const model::PassResult& result, const model::LogitNeeds& needs);
    int summary_vocab() const { return head_.tokens.empty() ? vocab_ : 0; } // 0: all that the head knows

    const model::DraftHead& head_;
    std::vector<model::Decoder*> modules_;
    int vocab_;
    std::vector<int> state_layers_;            // whose states are handed on
    std::vector<Text> texts_;                  // [slot]
    std::vector<std::vector<TreeNode>> nodes_; // [slot]: drafted so far
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
        module->cache().truncate(slot, module->config().n_layers > 0 ? static_cast<int>(text(slot).n_read) : 0);
    nodes(slot).clear();
}

// The text is asked about again as it is: its last row is made once more.
void HeadTexts::read_last_again(int slot) {
    Text& own = text(slot);
    if (n_known(slot) > own.n_read) return;
    --own.n_read;
    own.features = own.last;
}

void HeadTexts::begin_pass() {
    rows_.clear();
    logit_rows_.clear();
    features_.clear();
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
        begin_pass();
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

// In place of the pass's rows those with logits, of the prefix's states.
void HeadTexts::run_prefix() {
    const int n_layers = head_.config().n_layers;
    const model::PassResult result = modules_.front()->forward({.rows = rows_,
                                                                .logit_rows = {},
                                                                .hidden_layers = {&n_layers, 1},
                                                                .mask = model::Mask::causal,
                                                                .features = features_});
    const std::size_t size = result.hidden.size() / rows_.size();
    std::vector<model::Row> last;
    features_.clear();
    for (int& row : logit_rows_) {
        const auto state = result.hidden.subspan(static_cast<std::size_t>(row) * size, size);
        features_.insert(features_.end(), state.begin(), state.end());
        last.push_back(rows_[static_cast<std::size_t>(row)]);
        last.back().parent = -1;
        row = static_cast<int>(last.size()) - 1;
    }
    rows_ = std::move(last);
}

// Of the texts what does not fit into one pass with the rows that drafts come of.
void HeadTexts::read_early(std::span<const TextEnd> texts) {
    std::size_t rows = 0;
    for (const TextEnd& end : texts) {
        read_last_again(end.slot);
        drop_nodes(end.slot);
        rows += (attends() ? n_known(end.slot) - text(end.slot).n_read : 1) + rows_of_draft(end.slot) - 1;
    }
    for (const TextEnd& end : texts)
        while (n_known(end.slot) - text(end.slot).n_read > 1 && (rows > max_rows() || !attends())) {
            const std::size_t n = std::min(n_known(end.slot) - text(end.slot).n_read - 1, max_rows());
            read(end.slot, end.tokens, n);
            if (attends()) rows -= n;
        }
}

SourceLogits HeadTexts::rows_after_texts(std::span<const TextEnd> texts, const model::LogitNeeds& needs) {
    if (is_masked()) return masked_rows_after_texts(texts, needs);
    read_early(texts);
    begin_pass();
    for (const TextEnd& end : texts) {
        add_rows(end.slot, end.tokens, n_known(end.slot) - text(end.slot).n_read);
        logit_rows_.push_back(static_cast<int>(rows_.size()) - 1);
    }
    if (head_.has_prefix) run_prefix();
    const model::PassResult result = module_at(0).forward({.rows = rows_,
                                                           .logit_rows = logit_rows_,
                                                           .hidden_layers = state_layers_,
                                                           .mask = model::Mask::causal,
                                                           .needs = needs_of_pass(needs),
                                                           .summary_vocab = summary_vocab(),
                                                           .features = features_});
    for (std::size_t i = 0; i < texts.size(); ++i) {
        const auto row = static_cast<std::size_t>(logit_rows_[i]);
        text(texts[i].slot).states.assign(1, next_features(result, rows_.size(), row));
        mark_read(texts[i].slot);
    }
    return logits_of(result, needs);
}

void HeadTexts::mark_read(int slot) {
    Text& own = text(slot);
    own.n_read = n_known(slot);
    own.last.assign(own.features.end() - static_cast<std::ptrdiff_t>(width()), own.features.end());
    own.features.clear();
}

// ---- masked rows: all that is drafted behind a text comes of its first pass ----

// Of a text's first pass, those whose logits are drafts.
std::size_t HeadTexts::rows_of_draft(int slot) {
    if (!is_masked()) return 1;
    return std::min(static_cast<std::size_t>(head_.max_tokens), context() - n_known(slot));
}

// Behind the text's last row those of its draft but for the first, which is that row's or, behind a context, masked
// too.
void HeadTexts::add_masked_rows(int slot) {
    for (std::size_t i = has_context() ? 0 : 1; i < rows_of_draft(slot); ++i) {
        logit_rows_.push_back(static_cast<int>(rows_.size()));
        rows_.push_back({head_.mask_token, slot, rows_.back().position + 1, static_cast<int>(rows_.size()) - 1});
        features_.insert(features_.end(), head_.mask_features.begin(), head_.mask_features.end());
    }
}

// In place of the pass's rows, which the cache holds then, those of the texts' last tokens, whose states are not known.
void HeadTexts::run_context(std::span<const TextEnd> texts) {
    modules_.front()->forward(
        {.rows = rows_, .logit_rows = {}, .hidden_layers = {}, .mask = model::Mask::causal, .features = features_});
    begin_pass();
    for (const TextEnd& end : texts) {
        const std::size_t position = n_known(end.slot);
        rows_.push_back({end.tokens[position], end.slot, static_cast<int>(position), -1});
        add_masked_rows(end.slot);
    }
}

// Of these texts, one pass over whose masked rows has room.
void HeadTexts::run_masked(std::span<const TextEnd> texts, const model::LogitNeeds& needs) {
    read_early(texts);
    begin_pass();
    for (const TextEnd& end : texts) {
        add_rows(end.slot, end.tokens, n_known(end.slot) - text(end.slot).n_read);
        if (has_context()) continue;
        logit_rows_.push_back(static_cast<int>(rows_.size()) - 1);
        add_masked_rows(end.slot);
    }
    if (has_context()) run_context(texts);
    const model::PassResult result =
        modules_.front()->forward({.rows = rows_,
                                   .logit_rows = logit_rows_,
                                   .hidden_layers = {},
                                   .mask = has_context() ? model::Mask::block : model::Mask::causal,
                                   .needs = needs_of_pass(needs),
                                   .summary_vocab = summary_vocab(),
                                   .features = features_});
    const SourceLogits rows = logits_of(result, needs);
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
}

// Keeps the rows of all depths, and returns what follows each text.
SourceLogits HeadTexts::masked_rows_after_texts(std::span<const TextEnd> texts, const model::LogitNeeds& needs) {
    first_.clear();
    first_summaries_.clear();
    for (std::size_t begin = 0; begin < texts.size();) {
        std::size_t end = begin;
        for (std::size_t rows = 0; end < texts.size(); ++end) {
            rows += rows_of_draft(texts[end].slot) + (has_context() ? 1 : 0);
            if (end > begin && rows > max_rows()) break;
        }
        run_masked(texts.subspan(begin, end - begin), needs);
        begin = end;
    }
    const auto vocab = static_cast<std::size_t>(vocab_);
    return {first_, vocab, vocab, first_summaries_};
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
std::vector<float> HeadTexts::next_features(const model::PassResult& result, std::size_t n_rows,
                                            std::size_t row) const {
    std::vector<float> next;
    const auto add = [&](std::span<const float> rows) {
        const std::size_t width = rows.size() / n_rows;
        const std::span<const float> own = rows.subspan(row * width, width);
        next.insert(next.end(), own.begin(), own.end());
    };
    if (head_.state == HeadState::features || head_.state == HeadState::grown) add(features_);
    const std::size_t of_layer = result.hidden.size() / std::max<std::size_t>(state_layers_.size(), 1);
    for (std::size_t layer = 0; layer < state_layers_.size(); ++layer)
        add(result.hidden.subspan(layer * of_layer, of_layer));
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
    model::Decoder& module = module_at(depth);
    const bool is_apart = module.config().n_layers == 0; // reads nothing but its own row
    if (is_apart)
        for (const NewNodes& tree : trees)
            module.cache().truncate(tree.slot, 0);
    tree_rows_.set(trees, nodes_, [&](int slot) { return static_cast<int>(text(slot).n_read); });
    model::Pass pass = tree_rows_.pass(needs_of_pass(needs), summary_vocab());
    pass.hidden_layers = state_layers_;
    pass.features = features_;
    pass.features_are_own = head_.state == HeadState::before_norm || head_.state == HeadState::after_norm;
    if (is_apart) {
        rows_.assign(pass.rows.begin(), pass.rows.end());
        for (model::Row& row : rows_)
            row.parent = -1;
        pass.rows = rows_;
        pass.cached_nodes = {};
    }
    const model::PassResult result = module.forward(pass);
    std::size_t row = 0;
    for (const NewNodes& tree : trees)
        for (std::size_t i = 0; i < tree.nodes.size(); ++i, ++row)
            text(tree.slot).states.push_back(next_features(result, pass.rows.size(), row));
    return logits_of(result, needs);
}

// Of the target's tokens: those that the head does not know cannot come.
SourceLogits HeadTexts::logits_of(const model::PassResult& result, const model::LogitNeeds& needs) {
    const auto vocab = static_cast<std::size_t>(vocab_);
    if (head_.tokens.empty()) return {result.logits, result.logits_stride, vocab, result.summaries, result.noisy};
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
