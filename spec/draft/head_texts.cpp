// See head_texts.h.
#include "spec/draft/head_texts.h"

#include <algorithm>
#include <stdexcept>

namespace entrodraft::spec {

using model::HeadState;

namespace {

// The layers of the head whose states are handed on to the rows of drafted tokens.
std::vector<int> state_layers(const model::DraftHead& head) {
    const int n_layers = head.config().n_layers;
    switch (head.state) {
    case HeadState::before_norm:
        return {n_layers};
    case HeadState::after_norm:
    case HeadState::projected:
        return {n_layers + 1};
    case HeadState::with_cell:
        return {n_layers + 1, 0};
    case HeadState::grown:
        return {0}; // the embedding
    case HeadState::features:
    case HeadState::masked:
        break;
    }
    return {};
}

} // namespace

HeadTexts::HeadTexts(const HeadModules& head, int vocab, int n_slots)
    : TreeSource({.name = "head",
                  .weight_bytes = head.modules.front()->weight_bytes(),
                  .context = static_cast<std::size_t>(head.modules.front()->config().max_positions),
                  .max_rows = static_cast<std::size_t>(head.modules.front()->max_rows()),
                  .shares_passes = true,
                  .needs_each_row = true, // for the states of drafted tokens
                  .hidden_layers = head.head->target_layers}),
      head_(*head.head), modules_(head.modules), vocab_(vocab),
      knows_others_(std::ranges::any_of(head_.config().output_tokens, [&](TokenId token) { return token >= vocab; })),
      nodes_(static_cast<std::size_t>(n_slots)), targets_(nodes_.size()), state_layers_(state_layers(head_)) {
    limits_ = {modules_.front()->tree_room(), facts_.max_rows, block()}; // a block of a node must fit
}

std::size_t HeadTexts::context_of(int slot) const {
    const std::size_t known = targets_[slot].n_known();
    return head_context(known < block() ? 0 : known, head_.max_tokens, facts_.context);
}

void HeadTexts::begin_sequence(int slot, const Request& /*request*/) {
    target(slot) = {static_cast<std::size_t>(head_.config().fusion.width()), block()};
    drop_nodes(slot);
}

void HeadTexts::take_hidden(int slot, int first_position, std::span<const float> states) {
    target(slot).take(static_cast<std::size_t>(first_position), states);
}

void HeadTexts::drop_nodes(int slot) {
    for (model::Decoder* module : modules_)
        module->cache().truncate(slot, module->config().n_layers > 0 ? static_cast<int>(target(slot).n_read()) : 0);
    nodes_[slot].clear();
}

// ---- true rows ----

void HeadTexts::clear_pass() {
    rows_.clear();
    logit_rows_.clear();
    features_.clear();
}

// Adds the next n rows of the text, whose features are known.
void HeadTexts::add_rows(int slot, std::span<const TokenId> tokens, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
        const std::size_t position = target(slot).n_read() + i;
        rows_.push_back(
            {tokens[position + 1], slot, static_cast<int>(position), i == 0 ? -1 : static_cast<int>(rows_.size()) - 1});
    }
    const std::span<const float> features = target(slot).unread(n);
    features_.insert(features_.end(), features.begin(), features.end());
}

void HeadTexts::add_text(const TextEnd& end) {
    add_rows(end.slot, end.tokens, target(end.slot).n_unread());
    for (int back = head_.block; back > 0; --back)
        logit_rows_.push_back(static_cast<int>(rows_.size()) - back);
}

// Reads the next n rows, only for their keys and values.
void HeadTexts::read(int slot, std::span<const TokenId> tokens, std::size_t n) {
    if (attends()) {
        clear_pass();
        add_rows(slot, tokens, n);
        modules_.front()->forward(pass_of_keys());
    }
    target(slot).mark_early(n);
}

bool HeadTexts::prefill(int slot, std::span<const TokenId> prompt, std::size_t /*most*/) {
    if (prompt.empty()) return true;
    drop_nodes(slot);
    // The last rows are read with the first draft, which wants their logits.
    while (const std::size_t n = target(slot).n_early(std::min(prompt.size() - 1, facts_.context), facts_.max_rows))
        read(slot, prompt, n);
    return true;
}

model::PassResult HeadTexts::run_texts(std::span<const TextEnd> texts, const model::LogitNeeds& needs) {
    std::size_t rows = 0;
    for (const TextEnd& end : texts) {
        target(end.slot).read_again();
        drop_nodes(end.slot);
        rows += (attends() ? target(end.slot).n_unread() : 1) + rows_of_draft(end.slot);
    }
    for (const TextEnd& end : texts)
        while (rows > facts_.max_rows || !attends()) {
            const std::size_t n = target(end.slot).n_early(end.tokens.size(), facts_.max_rows);
            if (n == 0) break;
            read(end.slot, end.tokens, n);
            if (attends()) rows -= n;
        }
    clear_pass();
    const model::PassResult result = run(texts, needs);
    for (const TextEnd& end : texts)
        target(end.slot).mark_drafted();
    return result;
}

model::PassResult HeadTexts::run(std::span<const TextEnd> texts, const model::LogitNeeds& needs) {
    for (const TextEnd& end : texts)
        add_text(end);
    return modules_.front()->forward(pass_of_drafts(needs));
}

model::Pass HeadTexts::pass_of_keys() const {
    model::Pass pass = {.rows = rows_, .mask = model::Mask::causal};
    pass.block_rows = head_.block;
    pass.features = features_;
    return pass;
}

model::Pass HeadTexts::pass_of_drafts(const model::LogitNeeds& needs) const {
    model::Pass pass = pass_of_keys();
    pass.logit_rows = logit_rows_;
    pass.hidden_layers = state_layers_;
    pass.needs = needs;
    pass.summary_vocab = summary_vocab();
    return pass;
}

// ---- drafted rows ----

SourceLogits HeadTexts::rows_after(std::span<const TextEnd> texts, model::LogitNeeds needs) {
    const auto has_draft = [&](const TextEnd& end) { return is_drafted(end); };
    if (std::ranges::none_of(texts, has_draft)) return rows_after_texts(texts, needs);
    if (!std::ranges::all_of(texts, has_draft)) throw std::logic_error("a head's texts begin their drafts together");
    std::vector<TreeNode> last;
    std::vector<NewNodes> chains;
    for (const TextEnd& end : texts)
        last.push_back({end.tokens.back(), static_cast<int>(nodes_[end.slot].size()) - 1});
    for (std::size_t i = 0; i < texts.size(); ++i)
        chains.push_back({texts[i].slot, {&last[i], 1}});
    return rows_after_nodes(chains, needs);
}

std::size_t HeadTexts::depth_of(int slot, const TreeNode& node) const {
    std::size_t depth = 1;
    for (int above = node.parent; above >= 0; above = nodes_[slot][above].parent)
        ++depth;
    return depth;
}

model::Pass HeadTexts::pass_of_nodes(std::span<const NewNodes> rows, std::span<std::vector<TreeNode>> drafted,
                                     const model::LogitNeeds& needs) {
    tree_rows_.set(rows, drafted, [&](int slot) { return static_cast<int>(target(slot).n_read()); });
    model::Pass pass = tree_rows_.pass(needs, summary_vocab());
    pass.block_rows = head_.block;
    pass.hidden_layers = state_layers_;
    pass.features = features_;
    pass.features_are_own = has_own_features();
    return pass;
}

std::vector<float> HeadTexts::next_features(const model::PassResult& result, std::size_t n_rows,
                                            std::size_t first) const {
    std::vector<float> next;
    const auto add = [&](std::span<const float> rows, std::size_t row) {
        const std::size_t width = rows.size() / n_rows;
        const std::span<const float> own = rows.subspan(row * width, width);
        next.insert(next.end(), own.begin(), own.end());
    };
    const std::size_t of_layer = result.hidden.size() / std::max<std::size_t>(state_layers_.size(), 1);
    for (std::size_t row = first; row < first + block(); ++row) {
        if (head_.state == HeadState::features || head_.state == HeadState::grown) add(features_, row);
        for (std::size_t layer = 0; layer < state_layers_.size(); ++layer)
            add(result.hidden.subspan(layer * of_layer, of_layer), row);
    }
    return next;
}

SourceLogits HeadTexts::logits_of(const model::PassResult& result) {
    SourceLogits all = {result.logits, result.logits_stride, static_cast<std::size_t>(vocab_), result.summaries,
                        result.noisy};
    const std::vector<TokenId>& known = head_.config().output_tokens;
    if (!known.empty()) all.take_tokens(known, logits_);
    return all;
}

std::size_t head_context(std::size_t known, int max_tokens, std::size_t context) {
    if (known == 0) return 0;
    if (max_tokens == 0) return context;
    return std::min(context, known + static_cast<std::size_t>(max_tokens));
}

std::unique_ptr<TreeSource> make_head_source(const HeadModules& head, int vocab, int n_slots, DeviceRound* device) {
    if (head.head->state == HeadState::masked) return make_masked_texts(head, vocab, n_slots);
    if (head.head->block > 1) return make_block_texts(head, vocab, n_slots);
    return make_recurrent_texts(head, vocab, n_slots, device);
}

} // namespace entrodraft::spec
