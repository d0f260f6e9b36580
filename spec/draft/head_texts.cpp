// See head_texts.h.
#include "spec/draft/head_texts.h"

#include "spec/draft/rows_ahead.h"
#include "spec/draft/target_states.h"

#include <algorithm>
#include <stdexcept>

namespace entrodraft::spec {

namespace {

using model::HeadState;

class HeadTexts final : public TreeSource {
  public:
    HeadTexts(const HeadModules& head, int vocab, int n_slots, DeviceVerifier* device)
        : TreeSource({.name = "head",
                      .weight_bytes = head.modules.front()->weight_bytes(),
                      .max_rows = static_cast<std::size_t>(head.modules.front()->max_rows()),
                      .shares_passes = true,
                      .needs_each_row = true, // for the states of drafted tokens
                      .hidden_layers = head.head->target_layers}),
          head_(*head.head), modules_(head.modules), tokens_(head_.config().output_tokens), vocab_(vocab),
          texts_(static_cast<std::size_t>(n_slots)), nodes_(texts_.size()), drafted_(texts_.size()) {
        knows_others_ = std::ranges::any_of(tokens_, [&](TokenId token) { return token >= vocab; });
        if (hands_state_on() && !knows_others_) facts_.device = device;
        const model::Decoder& first = *modules_.front();
        facts_.context = static_cast<std::size_t>(first.config().max_positions - (has_context() ? 1 : 0));
        // A block of a node must fit.
        limits_ = {static_cast<std::size_t>(first.tree_room()), facts_.max_rows, block()};
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

    std::size_t context_of(int slot) const override;
    void begin_sequence(int slot, const Request& request) override;
    void take_hidden(int slot, int first_position, std::span<const float> states) override;
    bool prefill(int slot, std::span<const TokenId> tokens, std::size_t most) override;
    SourceLogits rows_after(std::span<const TextEnd> texts, model::LogitNeeds needs) override;
    SourceLogits rows_after_nodes(std::span<const NewNodes> trees, model::LogitNeeds needs) override;

  private:
    struct Text {
        TargetStates target; // the cache holds keys and values of its read rows
        // For the text, and for each node after which a pass has drafted:
        std::vector<std::vector<float>> states; // [block rows]: states that the next block has instead of the target's
        std::vector<std::vector<float>> ahead;  // [n_ahead() - 1][vocab]: logits of the tokens after the next one
        std::vector<int> last_rows;             // of its block, in drafted_; -1 for the text
        // For the rows after the text that the device has read by itself:
        std::vector<float> loop_states; // [rows][hidden_size]: as `states`
        std::vector<int> asked;         // the rows that are nodes, in their order
        ChainAhead chain;
    };

    // Returns whether a row is made of its token and its parent's own state alone, in the head's only module.
    bool hands_state_on() const {
        return head_.modules.size() == 1 && head_.block == 1 &&
               (head_.state == HeadState::before_norm || head_.state == HeadState::after_norm);
    }
    bool is_masked() const { return head_.state == HeadState::masked; }
    std::size_t block() const { return static_cast<std::size_t>(head_.block); }
    // The tokens that a pass drafts after a text or node.
    std::size_t n_ahead() const { return is_masked() ? static_cast<std::size_t>(head_.max_tokens) : block(); }
    // Rows of tokens ahead are used again later. Noise may find tokens that do not count.
    model::LogitNeeds needs_of_pass(const model::LogitNeeds& needs) const {
        return n_ahead() > 1 || (!needs.noises.empty() && knows_others_) ? needs.with_rows() : needs;
    }
    // Returns whether rows of drafted tokens follow the last token's row; else they take its place.
    bool has_context() const { return head_.config().fusion.kind == model::Fusion::context; }
    bool attends() const { return head_.config().n_layers > 0; } // to the true rows, in the first module
    model::Decoder& module_at(int depth) const {
        return *modules_[std::min((head_.has_prefix ? 1 : 0) + static_cast<std::size_t>(depth), modules_.size() - 1)];
    }
    std::size_t width() const { return static_cast<std::size_t>(head_.config().fusion.width()); }
    Text& text(int slot) { return texts_[slot]; }
    std::vector<TreeNode>& nodes(int slot) { return nodes_[slot]; }
    TargetStates& target(int slot) { return text(slot).target; }

    void drop_nodes(int slot);
    void read(int slot, std::span<const TokenId> tokens, std::size_t n);
    void add_rows(int slot, std::span<const TokenId> tokens, std::size_t n);
    int depth_of(int slot, int node) const;
    void begin_pass();
    void read_early(std::span<const TextEnd> texts);
    void run_prefix();
    std::vector<float> next_features(const model::PassResult& result, std::size_t n_rows, std::size_t first) const;
    std::size_t rows_of_draft(int slot);
    void add_masked_rows(int slot);
    void run_context(std::span<const TextEnd> texts);
    SourceLogits run_texts(std::span<const TextEnd> texts, const model::LogitNeeds& needs);
    void keep_loop(const TextEnd& end, const model::LogitNeeds& needs, const model::PassResult& result);
    const SourceLogits* chain_row(std::span<const TextEnd> texts, const model::LogitNeeds& needs);
    const SourceLogits* tree_rows(std::span<const NewNodes> trees);
    void drop_ahead(int slot);
    SourceLogits rows_after_texts(std::span<const TextEnd> texts, const model::LogitNeeds& needs);
    void add_block(int slot, const TreeNode& node, std::vector<TreeNode>& blocks);
    SourceLogits run_nodes(std::span<const NewNodes> trees, const model::LogitNeeds& needs);
    SourceLogits rows_ahead(std::span<const NewNodes> trees, const model::LogitNeeds& needs);
    void keep_ahead(Text& text, const SourceLogits& rows, std::size_t first, std::size_t n);
    SourceLogits first_rows() const {
        return {first_, static_cast<std::size_t>(vocab_), static_cast<std::size_t>(vocab_), first_summaries_};
    }
    SourceLogits logits_of(const model::PassResult& result);
    int summary_vocab() const { return tokens_.empty() ? vocab_ : 0; } // 0: all tokens that the head knows

    const model::DraftHead& head_;
    std::vector<model::Decoder*> modules_;
    const std::vector<TokenId>& tokens_; // tokens that the head knows; empty: all
    bool knows_others_ = false;          // it knows tokens that do not count
    int vocab_;
    std::vector<int> state_layers_;            // their states are handed on
    std::vector<Text> texts_;                  // [slot]
    std::vector<std::vector<TreeNode>> nodes_; // [slot]: nodes drafted so far
    // [slot]: rows of these in the cache. With blocks, whose rows see one another, each node has a block of its own.
    std::vector<std::vector<TreeNode>> drafted_;
    TreeAhead tree_ahead_;
    TreeRows tree_rows_;
    std::vector<model::Row> rows_;
    std::vector<int> logit_rows_;
    std::vector<float> features_; // of a pass
    std::vector<float> logits_;   // [rows][vocab], if the head knows fewer tokens
    std::vector<float> first_;    // [rows][vocab], the rows asked for
    std::vector<model::LogitStats> first_summaries_;
};

std::size_t HeadTexts::context_of(int slot) const {
    const std::size_t known = texts_[slot].target.n_known();
    return head_context(known < block() ? 0 : known, head_.max_tokens, facts_.context);
}

void HeadTexts::begin_sequence(int slot, const Request& /*request*/) {
    text(slot) = {};
    target(slot) = {width(), block()};
    drop_nodes(slot);
}

void HeadTexts::take_hidden(int slot, int first_position, std::span<const float> states) {
    target(slot).take(static_cast<std::size_t>(first_position), states);
}

// ---- true rows ----

void HeadTexts::drop_nodes(int slot) {
    for (model::Decoder* module : modules_)
        module->cache().truncate(slot, module->config().n_layers > 0 ? static_cast<int>(target(slot).n_read()) : 0);
    nodes(slot).clear();
    drafted_[slot].clear();
    text(slot).last_rows.assign(1, -1);
    text(slot).loop_states.clear();
    text(slot).asked.clear();
    text(slot).chain = {};
}

void HeadTexts::begin_pass() {
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

// Reads the next n rows, only for their keys and values.
void HeadTexts::read(int slot, std::span<const TokenId> tokens, std::size_t n) {
    if (attends()) {
        begin_pass();
        add_rows(slot, tokens, n);
        modules_.front()->forward({.rows = rows_,
                                   .logit_rows = {},
                                   .hidden_layers = {},
                                   .mask = model::Mask::causal,
                                   .block_rows = head_.block,
                                   .features = features_});
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

// Replaces the rows of the pass by those with logits, made of the prefix's states.
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
        last.push_back(rows_[row]);
        last.back().parent = -1;
        row = static_cast<int>(last.size()) - 1;
    }
    rows_ = std::move(last);
}

// Reads the rows of the texts that do not fit into one pass with the rows that give drafts.
void HeadTexts::read_early(std::span<const TextEnd> texts) {
    std::size_t rows = 0;
    for (const TextEnd& end : texts) {
        target(end.slot).read_again();
        drop_nodes(end.slot);
        rows += (attends() ? target(end.slot).n_unread() : 1) + rows_of_draft(end.slot) - 1;
    }
    for (const TextEnd& end : texts)
        while (rows > facts_.max_rows || !attends()) {
            const std::size_t n = target(end.slot).n_early(end.tokens.size(), facts_.max_rows);
            if (n == 0) break;
            read(end.slot, end.tokens, n);
            if (attends()) rows -= n;
        }
}

// Runs one pass over the unread rows of these texts and the rows that give their drafts.
SourceLogits HeadTexts::run_texts(std::span<const TextEnd> texts, const model::LogitNeeds& needs) {
    tree_ahead_ = {};
    read_early(texts);
    begin_pass();
    for (const TextEnd& end : texts) {
        add_rows(end.slot, end.tokens, target(end.slot).n_unread());
        if (has_context()) continue;
        for (int back = head_.block; back > 0; --back)
            logit_rows_.push_back(static_cast<int>(rows_.size()) - back);
        add_masked_rows(end.slot);
    }
    if (has_context()) run_context(texts);
    if (head_.has_prefix) run_prefix();
    const model::PassResult result =
        module_at(0).forward({.rows = rows_,
                              .logit_rows = logit_rows_,
                              .hidden_layers = state_layers_,
                              .mask = model::Mask::causal,
                              .block_rows = has_context() ? model::Decoder::kMaxRows : head_.block,
                              .needs = needs_of_pass(needs),
                              .summary_vocab = summary_vocab(),
                              .features = features_});
    for (std::size_t i = 0; i < texts.size(); ++i) {
        Text& own = text(texts[i].slot);
        own.states.clear();
        if (!is_masked())
            own.states.push_back(
                next_features(result, rows_.size(), static_cast<std::size_t>(logit_rows_[i * block()])));
        own.target.mark_drafted();
    }
    if (facts_.device != nullptr && needs.extension != nullptr) keep_loop(texts[0], needs, result);
    SourceLogits rows = logits_of(result);
    rows.ranked = tree_ahead_.text_row();
    return rows;
}

SourceLogits HeadTexts::rows_after_texts(std::span<const TextEnd> texts, const model::LogitNeeds& needs) {
    if (n_ahead() == 1) return run_texts(texts, needs);
    first_.clear();
    first_summaries_.clear();
    for (std::size_t begin = 0, end = 0; begin < texts.size(); begin = end) {
        for (std::size_t rows = 0; end < texts.size(); ++end) {
            rows += is_masked() ? rows_of_draft(texts[end].slot) + (has_context() ? 1 : 0) : 2 * block() - 1;
            if (end > begin && rows > facts_.max_rows) break;
        }
        const SourceLogits rows = run_texts(texts.subspan(begin, end - begin), needs);
        std::size_t at = 0;
        for (const TextEnd& each : texts.subspan(begin, end - begin)) {
            const std::size_t n = is_masked() ? rows_of_draft(each.slot) : block();
            text(each.slot).ahead.clear();
            keep_ahead(text(each.slot), rows, at, n);
            at += n;
        }
    }
    return first_rows();
}

// Keeps the first of these rows, which is asked for now, and the others, which will be.
void HeadTexts::keep_ahead(Text& own, const SourceLogits& rows, std::size_t first, std::size_t n) {
    const std::span<const float> now = rows.row(first);
    first_.insert(first_.end(), now.begin(), now.end());
    if (!rows.summaries.empty()) first_summaries_.push_back(rows.summaries[first]);
    std::vector<float>& ahead = own.ahead.emplace_back();
    for (std::size_t i = 1; i < n; ++i) {
        const std::span<const float> row = rows.row(first + i);
        ahead.insert(ahead.end(), row.begin(), row.end());
    }
}

// ---- masked rows: all tokens drafted after a text come from its pass ----

// The number of rows in a text's first pass whose logits are drafts.
std::size_t HeadTexts::rows_of_draft(int slot) {
    if (!is_masked()) return 1;
    return std::min(static_cast<std::size_t>(head_.max_tokens), facts_.context - target(slot).n_known());
}

// Adds the draft's rows after the text's last row. The first draft comes from that row itself, or after a context from
// a masked row.
void HeadTexts::add_masked_rows(int slot) {
    if (!is_masked()) return;
    for (std::size_t i = has_context() ? 0 : 1; i < rows_of_draft(slot); ++i) {
        logit_rows_.push_back(static_cast<int>(rows_.size()));
        rows_.push_back({head_.mask_token, slot, rows_.back().position + 1, static_cast<int>(rows_.size()) - 1});
        features_.insert(features_.end(), head_.mask_features.begin(), head_.mask_features.end());
    }
}

// Reads the rows of the pass, and replaces them by the rows of the texts' last tokens, whose states are not known.
void HeadTexts::run_context(std::span<const TextEnd> texts) {
    modules_.front()->forward(
        {.rows = rows_, .logit_rows = {}, .hidden_layers = {}, .mask = model::Mask::causal, .features = features_});
    begin_pass();
    for (const TextEnd& end : texts) {
        const std::size_t position = target(end.slot).n_known();
        rows_.push_back({end.tokens[position], end.slot, static_cast<int>(position), -1});
        add_masked_rows(end.slot);
    }
}

// ---- rows that the device has read by itself ----

void HeadTexts::keep_loop(const TextEnd& end, const model::LogitNeeds& needs, const model::PassResult& result) {
    Text& own = text(end.slot);
    own.loop_states.assign(result.loop_hidden.begin(), result.loop_hidden.end());
    own.chain.keep(end.tokens.size(), needs, result);
    tree_ahead_.keep(end.slot, facts_.device->grown());
}

// The row after a chain of drafted tokens; null: the device has not read it.
const SourceLogits* HeadTexts::chain_row(std::span<const TextEnd> texts, const model::LogitNeeds& needs) {
    if (texts.size() != 1) return nullptr;
    const int slot = texts[0].slot;
    const auto drafted = texts[0].tokens.subspan(target(slot).n_known() + 1);
    const std::span<const TokenId> read = text(slot).chain.tokens();
    if (drafted.size() > read.size() || !std::ranges::equal(drafted, read.first(drafted.size()))) return nullptr;
    const SourceLogits* const row = text(slot).chain.row(texts[0].tokens.size(), needs, vocab_);
    if (row == nullptr) return nullptr;
    text(slot).asked.push_back(static_cast<int>(drafted.size()) - 1);
    nodes(slot).push_back({drafted.back(), static_cast<int>(drafted.size()) - 2});
    return row;
}

// The rows of a level of a tree; null: the device has not read all of it.
const SourceLogits* HeadTexts::tree_rows(std::span<const NewNodes> trees) {
    const SourceLogits* const rows = tree_ahead_.rows_of(trees, vocab_);
    if (rows == nullptr) return nullptr;
    const int slot = trees[0].slot;
    text(slot).asked.assign(tree_ahead_.asked().begin(), tree_ahead_.asked().end());
    nodes(slot).insert(nodes(slot).end(), trees[0].nodes.begin(), trees[0].nodes.end());
    return rows;
}

// Keeps only the nodes that the caller asked for, as if passes had read them.
void HeadTexts::drop_ahead(int slot) {
    Text& own = text(slot);
    tree_ahead_ = {};
    if (own.loop_states.empty()) return;
    modules_.front()->keep(slot, static_cast<int>(own.target.n_read()), own.asked);
    drafted_[slot] = nodes(slot);
    const auto size = static_cast<std::size_t>(head_.config().hidden_size);
    for (std::size_t i = 0; i < own.asked.size(); ++i) {
        const auto state = std::span(own.loop_states).subspan(static_cast<std::size_t>(own.asked[i]) * size, size);
        own.states.emplace_back(state.begin(), state.end());
        own.last_rows.push_back(static_cast<int>(i));
    }
    own.loop_states.clear();
    own.chain = {};
}

// ---- drafted rows ----

// The texts end where the target has read them, or each has a chain of drafted tokens after that.
SourceLogits HeadTexts::rows_after(std::span<const TextEnd> texts, model::LogitNeeds needs) {
    const auto is_drafted = [&](const TextEnd& end) { return end.tokens.size() > target(end.slot).n_known() + 1; };
    if (std::ranges::none_of(texts, is_drafted)) return rows_after_texts(texts, needs);
    if (const SourceLogits* row = chain_row(texts, needs)) return *row;
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
    for (; node >= 0; node = nodes_[slot][node].parent)
        ++depth;
    return depth;
}

// The features of the rows after a block of the pass, instead of the target's states.
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

// Adds the rows of the block that ends with this node, after those in the cache and in `blocks`.
void HeadTexts::add_block(int slot, const TreeNode& node, std::vector<TreeNode>& blocks) {
    std::vector<TokenId> tokens = {node.token};
    int behind = node.parent;
    for (; tokens.size() < block(); behind = nodes(slot)[behind].parent)
        tokens.insert(tokens.begin(), nodes(slot)[behind].token);
    const auto place = static_cast<std::size_t>(behind + 1);
    const std::vector<float>& states = text(slot).states[place];
    features_.insert(features_.end(), states.begin(), states.end());
    int parent = text(slot).last_rows[place];
    auto row = static_cast<int>(drafted_[slot].size() + blocks.size());
    for (const TokenId token : tokens) {
        blocks.push_back({token, parent});
        parent = row++;
    }
}

// Runs one pass over the blocks that end with these nodes.
SourceLogits HeadTexts::run_nodes(std::span<const NewNodes> trees, const model::LogitNeeds& needs) {
    for (const NewNodes& tree : trees)
        drop_ahead(tree.slot);
    features_.clear();
    std::vector<std::vector<TreeNode>> blocks(trees.size());
    std::vector<NewNodes> rows;
    for (std::size_t i = 0; i < trees.size(); ++i) {
        for (const TreeNode& node : trees[i].nodes)
            add_block(trees[i].slot, node, blocks[i]);
        rows.push_back({trees[i].slot, blocks[i]});
    }
    // The nodes of a pass have equal depth.
    const NewNodes& first = trees.front();
    const int depth = 1 + depth_of(first.slot, first.nodes.front().parent);
    model::Decoder& module = module_at(depth);
    const bool is_apart = module.config().n_layers == 0; // reads nothing but its own row
    if (is_apart)
        for (const NewNodes& tree : trees)
            module.cache().truncate(tree.slot, 0);
    tree_rows_.set(rows, drafted_, [&](int slot) { return static_cast<int>(target(slot).n_read()); });
    model::LogitNeeds of_pass = needs_of_pass(needs);
    of_pass.extension = nullptr; // it continues a text only
    model::Pass pass = tree_rows_.pass(of_pass, summary_vocab());
    pass.block_rows = head_.block;
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
    for (std::size_t i = 0; i < trees.size(); ++i) {
        Text& own = text(trees[i].slot);
        auto last = static_cast<int>(drafted_[trees[i].slot].size() - blocks[i].size()) - 1;
        for (const TreeNode& node : trees[i].nodes) {
            own.states.push_back(next_features(result, pass.rows.size(), row));
            own.last_rows.push_back(last += head_.block);
            nodes(trees[i].slot).push_back(node);
            row += block();
        }
    }
    return logits_of(result);
}

SourceLogits HeadTexts::rows_after_nodes(std::span<const NewNodes> trees, model::LogitNeeds needs) {
    const NewNodes& front = trees.front();
    const auto depth = static_cast<std::size_t>(1 + depth_of(front.slot, front.nodes.front().parent));
    if (depth % n_ahead() != 0) return rows_ahead(trees, needs);
    if (n_ahead() == 1) {
        const SourceLogits* const rows = tree_rows(trees);
        return rows != nullptr ? *rows : run_nodes(trees, needs);
    }
    first_.clear();
    first_summaries_.clear();
    for (std::size_t begin = 0, end = 0; begin < trees.size(); begin = end) {
        for (std::size_t rows = 0; end < trees.size(); ++end) {
            rows += trees[end].nodes.size() * block();
            if (end > begin && rows > facts_.max_rows) break;
        }
        const SourceLogits rows = run_nodes(trees.subspan(begin, end - begin), needs);
        std::size_t at = 0;
        for (const NewNodes& tree : trees.subspan(begin, end - begin))
            for (std::size_t i = 0; i < tree.nodes.size(); ++i, at += block())
                keep_ahead(text(tree.slot), rows, at, block());
    }
    return first_rows();
}

// Needs no pass: the pass of the text or node above has drafted this deep, with the same rows for all nodes below.
SourceLogits HeadTexts::rows_ahead(std::span<const NewNodes> trees, const model::LogitNeeds& needs) {
    const auto vocab = static_cast<std::size_t>(vocab_);
    first_.clear();
    first_summaries_.clear();
    for (const NewNodes& tree : trees)
        for (const TreeNode& node : tree.nodes) {
            Text& own = text(tree.slot);
            const std::size_t n = static_cast<std::size_t>(1 + depth_of(tree.slot, node.parent)) % n_ahead();
            int behind = node.parent;
            for (std::size_t i = 1; i < n; ++i)
                behind = nodes(tree.slot)[behind].parent;
            const auto row = std::span(own.ahead[behind + 1]).subspan((n - 1) * vocab, vocab);
            first_.insert(first_.end(), row.begin(), row.end());
            if (needs.summary != model::LogitSummary::none)
                first_summaries_.push_back(model::kernels::best_kernels().logit_stats(row.data(), vocab_, 0));
            nodes(tree.slot).push_back(node);
            own.states.emplace_back();
            own.ahead.emplace_back();
            own.last_rows.push_back(-1);
        }
    return first_rows();
}

// Gives logits of the target's tokens. Tokens that the head does not know cannot come.
SourceLogits HeadTexts::logits_of(const model::PassResult& result) {
    const auto vocab = static_cast<std::size_t>(vocab_);
    SourceLogits all = {result.logits, result.logits_stride, vocab, result.summaries, result.noisy};
    if (!tokens_.empty()) all.take_tokens(tokens_, logits_);
    return all;
}

} // namespace

std::size_t head_context(std::size_t known, int max_tokens, std::size_t context) {
    if (known == 0) return 0;
    if (max_tokens == 0) return context;
    return std::min(context, known + static_cast<std::size_t>(max_tokens));
}

std::unique_ptr<TreeSource> make_head_source(const HeadModules& head, int vocab, int n_slots, DeviceVerifier* device) {
    return std::make_unique<HeadTexts>(head, vocab, n_slots, device);
}

} // namespace entrodraft::spec
