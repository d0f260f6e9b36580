// A draft model, in passes that sequences share, and what it has read (model_drafter.h); of several, a cascade: the
// smallest drafts for the one above it, and so on up to the first, which drafts for the target.
#include "spec/draft/model_drafter.h"

#include <algorithm>
#include <numeric>

namespace entrodraft::spec {

namespace {

// Whether `noise` is that of a row `steps` behind `of_row`'s.
bool is_further(const model::RowNoise& noise, const model::RowNoise& of_row, std::size_t steps) {
    return noise.key == of_row.key && noise.position == of_row.position + steps &&
           noise.temperature == of_row.temperature;
}

} // namespace

ModelTexts::ModelTexts(model::Decoder& model, int n_slots, int vocab, DeviceVerifier* device, const DraftWindow& window)
    : model_(model), device_(device), vocab_(vocab), window_(window), cached_(static_cast<std::size_t>(n_slots)),
      dropped_(cached_.size()), settled_(cached_.size()), prompt_sizes_(cached_.size()),
      unread_sources_(cached_.size()), ahead_(cached_.size()), nodes_(cached_.size()) {}

void ModelTexts::begin_sequence(int slot) {
    ahead_[static_cast<std::size_t>(slot)] = {};
    nodes_[static_cast<std::size_t>(slot)].clear();
    model_.cache().truncate(slot, 0);
    cached(slot).clear();
    dropped_[static_cast<std::size_t>(slot)] = settled_[static_cast<std::size_t>(slot)] = 0;
}

void ModelTexts::take_request(int slot, const Request& request) {
    prompt_sizes_[static_cast<std::size_t>(slot)] = request.prompt.size();
    if (model_.max_source() > 0) unread_sources_[static_cast<std::size_t>(slot)] = request.source;
}

void ModelTexts::encode(int slot) {
    std::span<const TokenId>& source = unread_sources_[static_cast<std::size_t>(slot)];
    if (!source.empty()) model_.encode(slot, source);
    source = {};
}

void ModelTexts::prefill(int slot, std::span<const TokenId> prompt) {
    encode(slot);
    if (prompt.empty() || (window_.is_on() && prompt.size() < prompt_sizes_[static_cast<std::size_t>(slot)])) return;
    forget({slot, prompt, 1});
    slide(slot, prompt);
    const std::size_t end = std::min(prompt.size() - 1, context());
    const auto chunk = static_cast<std::size_t>(model_.max_prompt_rows());
    const auto max_rows = static_cast<std::size_t>(model_.max_rows());
    for (std::size_t from = cached(slot).size(); from < end; from = cached(slot).size()) {
        const bool is_chunk =
            from % chunk == 0 && !window_.is_on(); // where a text goes on elsewhere, up to the next one
        const std::size_t to = std::min(end, (from / chunk + 1) * chunk);
        read(slot, prompt.first(is_chunk ? to : std::min(to, from + max_rows)), is_chunk);
    }
}

bool ModelTexts::catch_up(int slot, std::span<const TokenId> tokens) {
    constexpr std::size_t kAtOnce = 2048;
    const std::size_t left = unread(slot, tokens);
    const bool is_all = window_.is_on() || left <= kAtOnce;
    prefill(slot, is_all ? tokens : tokens.first(tokens.size() - left + kAtOnce));
    return is_all;
}

std::size_t ModelTexts::unread(int slot, std::span<const TokenId> tokens) const {
    const std::size_t held = cached_[static_cast<std::size_t>(slot)].size();
    const std::size_t unread = tokens.size() - 1 - std::min(held, tokens.size() - 1);
    return window_.is_on() ? std::min(unread, static_cast<std::size_t>(window_.sinks + window_.positions)) : unread;
}

void ModelTexts::share(int from, int to, std::size_t length) {
    encode(from);
    ahead_[static_cast<std::size_t>(to)] = {};
    length = static_cast<std::size_t>(model_.cache().reach(from, static_cast<int>(length)));
    model_.cache().share(from, to, static_cast<int>(length));
    const std::vector<TokenId>& source = cached(from);
    cached(to).assign(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(length));
}

void ModelTexts::move(int from, int to) {
    encode(from);
    ahead_[static_cast<std::size_t>(to)] = {};
    model_.cache().fork(from, to);
    cached(to) = cached(from);
    begin_sequence(from);
}

// The branch of a tree that the text goes on with becomes a part of it, the others go.
void ModelTexts::keep_branch(const TextEnd& text) {
    std::vector<TokenId>& held = cached(text.slot);
    std::vector<TreeNode>& nodes = nodes_[static_cast<std::size_t>(text.slot)];
    if (nodes.empty()) return;
    const int length = n_kept(text.slot);
    std::vector<int> path;
    if (text.tokens.size() >= held.size() && std::equal(held.begin(), held.end(), text.tokens.begin()))
        for (int i = 0, parent = -1; i < static_cast<int>(nodes.size()) && held.size() < text.tokens.size(); ++i) {
            const TreeNode& node = nodes[static_cast<std::size_t>(i)];
            if (node.parent != parent || node.token != text.tokens[held.size()]) continue;
            path.push_back(parent = i);
            held.push_back(node.token);
        }
    model_.keep(text.slot, length, path);
    nodes.clear();
}

// Cuts the cache back to where it agrees with the text, leaving at least the last n tokens to be read.
void ModelTexts::forget(const TextEnd& text) {
    keep_branch(text);
    std::vector<TokenId>& held = cached(text.slot);
    ahead_[static_cast<std::size_t>(text.slot)] = {};
    const std::size_t before = held.size();
    held.resize(std::min(held.size(), text.tokens.size() - text.n));
    if (!std::equal(held.begin(), held.end(),
                    text.tokens.begin())) // compares as bytes: quick where nothing was rejected
        held.erase(std::mismatch(held.begin(), held.end(), text.tokens.begin()).first, held.end());
    if (held.size() == before) return;
    std::size_t& dropped = dropped_[static_cast<std::size_t>(text.slot)];
    if (dropped > 0 && held.size() < static_cast<std::size_t>(window_.sinks) + dropped) { // it never is, in a run
        held.resize(std::min(held.size(), static_cast<std::size_t>(window_.sinks)));
        dropped = 0;
    }
    if (dropped == 0)
        held.resize(static_cast<std::size_t>(model_.cache().reach(text.slot, static_cast<int>(held.size()))));
    model_.cache().truncate(text.slot, n_kept(text.slot));
}

// Drops what is older than the window behind this text, if that is more than its slack. Where it has all passed the
// cache's end, only the sinks stay, or are read, and the text goes on at the window.
void ModelTexts::slide(int slot, std::span<const TokenId> text) {
    const auto sinks = static_cast<std::size_t>(window_.sinks), size = static_cast<std::size_t>(window_.positions);
    std::size_t& dropped = dropped_[static_cast<std::size_t>(slot)];
    if (!window_.is_on() || text.size() <= sinks + dropped + size + static_cast<std::size_t>(window_.slack())) return;
    std::vector<TokenId>& held = cached(slot);
    const std::size_t first = text.size() - size; // of the window
    if (held.size() > first) {
        std::vector<int> path(held.size() - first);
        std::iota(path.begin(), path.end(), static_cast<int>(first - dropped - sinks));
        model_.keep(slot, window_.sinks, path);
    } else {
        held.resize(std::min(held.size(), sinks));
        dropped = 0;
        model_.cache().truncate(slot, n_kept(slot));
        if (held.size() < sinks) read(slot, text.first(sinks), false);
        held.assign(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(first));
    }
    dropped = first - sinks;
}

// Rows of the pass: tokens from the end of the slot's cache to the last.
void ModelTexts::add_rows(int slot, std::span<const TokenId> tokens) {
    std::vector<TokenId>& held = cached(slot);
    for (std::size_t i = held.size(), first = i; i < tokens.size(); ++i)
        rows_.push_back({tokens[i], slot, static_cast<int>(i), i == first ? -1 : static_cast<int>(rows_.size()) - 1});
    held.insert(held.end(), tokens.begin() + static_cast<std::ptrdiff_t>(held.size()), tokens.end());
}

// One pass that brings the slot's cache up to `tokens`, asking for no logits.
void ModelTexts::read(int slot, std::span<const TokenId> tokens, bool is_prompt) {
    rows_.clear();
    add_rows(slot, tokens);
    model_.forward(
        {.rows = rows_, .logit_rows = {}, .hidden_layers = {}, .mask = model::Mask::causal, .is_prompt = is_prompt});
}

// Texts that have more to be read than fits into one pass are read ahead.
void ModelTexts::make_room(std::span<const TextEnd> texts) {
    std::size_t rows = 0;
    for (const TextEnd& text : texts)
        rows += text.tokens.size() - cached(text.slot).size();
    const auto max = static_cast<std::size_t>(model_.max_rows());
    for (const TextEnd& text : texts) {
        if (rows <= max) return;
        const std::size_t end = text.tokens.size() - text.n;
        rows -= end - cached(text.slot).size();
        while (cached(text.slot).size() < end)
            read(text.slot, text.tokens.first(std::min(end, cached(text.slot).size() + max)), false);
    }
}

// The row that a chain has left for the end of this text; null: none has.
const SourceLogits* ModelTexts::row_ahead(std::span<const TextEnd> texts, const model::LogitNeeds& needs) {
    if (texts.size() != 1 || texts[0].n != 1 || needs.rows) return nullptr;
    const std::span<const TokenId> tokens = texts[0].tokens;
    const Ahead& ahead = ahead_[static_cast<std::size_t>(texts[0].slot)];
    const std::vector<TokenId>& held = cached(texts[0].slot);
    if (tokens.size() < ahead.first || tokens.size() >= ahead.first + ahead.summaries.size()) return nullptr;
    if (held.size() < tokens.size() || !std::equal(tokens.begin(), tokens.end(), held.begin())) return nullptr;
    const std::size_t i = tokens.size() - ahead.first;
    if (!ahead.noisy.empty() && !needs.noises.empty() && !is_further(needs.noises[0], ahead.noise, i + 1))
        return nullptr;
    row_ahead_ = {{}, 0, static_cast<std::size_t>(vocab_), std::span(ahead.summaries).subspan(i, 1), {}};
    if (!ahead.noisy.empty()) row_ahead_.noisy = std::span(ahead.noisy).subspan(i, 1);
    return &row_ahead_;
}

// The tokens of a chain, all but the last, have been read; what follows them is kept.
void ModelTexts::keep_chain(const TextEnd& text, const model::LogitNeeds& needs, const model::PassResult& result) {
    const std::size_t n = result.summaries.size();
    if (n < 2) return;
    std::vector<TokenId>& held = cached(text.slot);
    for (std::size_t i = 0; i + 1 < n; ++i)
        held.push_back(result.noisy.empty() ? result.summaries[i].arg_max : result.noisy[i].token);
    Ahead& ahead = ahead_[static_cast<std::size_t>(text.slot)];
    ahead.first = text.tokens.size() + 1;
    ahead.summaries.assign(result.summaries.begin() + 1, result.summaries.end());
    if (result.noisy.empty()) return;
    ahead.noisy.assign(result.noisy.begin() + 1, result.noisy.end());
    ahead.noise = needs.noises[0];
}

SourceLogits ModelTexts::rows_after(std::span<const TextEnd> texts, model::LogitNeeds needs) {
    if (const SourceLogits* row = row_ahead(texts, needs)) return *row;
    tree_ahead_ = {};
    ranked_.clear();
    for (const TextEnd& text : texts) {
        encode(text.slot);
        forget(text);
        slide(text.slot,
              text.tokens.first(std::min(text.tokens.size(), settled_[static_cast<std::size_t>(text.slot)])));
    }
    make_room(texts);
    rows_.clear();
    logit_rows_.clear();
    for (const TextEnd& text : texts) {
        add_rows(text.slot, text.tokens);
        for (std::size_t i = text.n; i > 0; --i)
            logit_rows_.push_back(static_cast<int>(rows_.size() - i));
    }
    const model::PassResult result = model_.forward({.rows = rows_,
                                                     .logit_rows = logit_rows_,
                                                     .hidden_layers = {},
                                                     .mask = model::Mask::causal,
                                                     .needs = needs,
                                                     .summary_vocab = vocab_});
    if (needs.extension != nullptr) {
        keep_chain(texts[0], needs, result);
        if (device_ != nullptr) keep_tree(texts[0].slot);
    }
    return {result.logits,    result.logits_stride, static_cast<std::size_t>(vocab_),
            result.summaries, result.noisy,         ranked_};
}

// What the device has read of a tree is what would have been asked for level by level, and maybe more.
void ModelTexts::keep_tree(int slot) {
    const std::span<const GrownRow> grown = device_->grown();
    if (grown.empty()) return;
    ranked_.push_back(grown[0].row);
    tree_ahead_.slot = slot;
    for (const GrownRow& each : grown.subspan(1)) {
        nodes_[static_cast<std::size_t>(slot)].push_back({each.token, each.parent});
        tree_ahead_.rows.push_back(each.row);
    }
}

// Rows of these nodes, if all have been read; null: they have not.
const SourceLogits* ModelTexts::nodes_ahead(std::span<const NewNodes> trees) {
    if (trees.size() != 1 || trees[0].slot != tree_ahead_.slot) return nullptr;
    const std::vector<TreeNode>& read = nodes_[static_cast<std::size_t>(tree_ahead_.slot)];
    std::vector<int> asked = tree_ahead_.asked;
    ranked_.clear();
    for (const TreeNode& node : trees[0].nodes) { // which were read in the order in which they are asked for
        const int parent = node.parent < 0 ? -1 : asked[static_cast<std::size_t>(node.parent)];
        auto i = static_cast<std::size_t>(asked.empty() ? 0 : asked.back() + 1);
        while (i < read.size() && (read[i].parent != parent || read[i].token != node.token))
            ++i;
        if (i == read.size()) return nullptr;
        asked.push_back(static_cast<int>(i));
        ranked_.push_back(tree_ahead_.rows[i]);
    }
    tree_ahead_.asked = std::move(asked);
    row_ahead_ = {{}, 0, static_cast<std::size_t>(vocab_), {}, {}, ranked_};
    return &row_ahead_;
}

// The cache has the nodes that were asked for, as if each level had been read by a pass.
void ModelTexts::drop_tree_ahead() {
    if (tree_ahead_.slot < 0) return;
    std::vector<TreeNode>& nodes = nodes_[static_cast<std::size_t>(tree_ahead_.slot)];
    std::vector<TreeNode> asked;
    for (const int i : tree_ahead_.asked) {
        const TreeNode& node = nodes[static_cast<std::size_t>(i)];
        const auto parent = std::ranges::find(tree_ahead_.asked, node.parent);
        asked.push_back({node.token, node.parent < 0 ? -1 : static_cast<int>(parent - tree_ahead_.asked.begin())});
    }
    model_.keep(tree_ahead_.slot, n_kept(tree_ahead_.slot), tree_ahead_.asked);
    nodes = std::move(asked);
    tree_ahead_ = {};
}

SourceLogits ModelTexts::rows_after_nodes(std::span<const NewNodes> trees, model::LogitNeeds needs) {
    if (const SourceLogits* rows = nodes_ahead(trees)) return *rows;
    drop_tree_ahead();
    tree_rows_.set(trees, nodes_, [&](int slot) { return static_cast<int>(cached(slot).size()); });
    const model::PassResult result = model_.forward(tree_rows_.pass(needs, vocab_));
    return {result.logits, result.logits_stride, static_cast<std::size_t>(vocab_), result.summaries, result.noisy};
}

std::unique_ptr<LogitSource> make_model_source(model::Decoder& decoder, int vocab, int n_slots,
                                               DeviceVerifier* device) {
    return std::make_unique<ModelTexts>(decoder, n_slots, vocab, device);
}

namespace {

std::unique_ptr<Drafter> make_model_drafter(const DrafterParts& parts) {
    const auto source = [&](std::size_t level) {
        return std::make_unique<ModelTexts>(*parts.models.at(level), parts.n_slots, parts.limits.vocab_size,
                                            parts.device, parts.window);
    };
    if (parts.tree) return make_tree_drafter(source(0), *parts.tree, parts);
    std::size_t level = parts.models.size() - 1;
    auto of_smallest = static_cast<const DraftSetting&>(parts);
    of_smallest.takes_turns = parts.takes_turns || level > 0;
    std::unique_ptr<Drafter> drafter = make_chain_drafter(source(level), of_smallest);
    for (; level > 0; --level)
        drafter = make_cascade_drafter({source(level - 1), std::move(drafter), parts.rules[level], parts.costs[level]},
                                       parts);
    return drafter;
}

} // namespace

DrafterType model_drafter() {
    return {.name = "model", .position = 10, .help = "--draft", .make = make_model_drafter};
}

} // namespace entrodraft::spec
