// Drafts with a draft model (model_drafter.h), in passes that sequences share. Several models are a cascade: each
// drafts for the next larger one, and the largest for the target.
#include "spec/draft/model_drafter.h"

#include "spec/draft/retokenized_drafts.h"
#include "spec/draft/translated_texts.h"

#include <algorithm>
#include <numeric>

namespace entrodraft::spec {

ModelTexts::ModelTexts(model::Decoder& model, int n_slots, int vocab, DeviceRound* device, const DraftWindow& window)
    : TreeSource({.name = "model",
                  .weight_bytes = model.weight_bytes(),
                  .context = static_cast<std::size_t>(model.config().max_positions),
                  .max_rows = static_cast<std::size_t>(model.max_rows()),
                  .shares_passes = true,
                  .reads_late = true,
                  .device = device},
                 {.room = static_cast<std::size_t>(model.tree_room())}),
      model_(model), device_(device), vocab_(vocab), window_(window.is_on() ? window : DraftWindow{0, 0}),
      cached_(static_cast<std::size_t>(n_slots)), dropped_(cached_.size()), settled_(cached_.size()),
      verified_(cached_.size()), retrieved_(cached_.size()), prompt_ends_(cached_.size(), kNoContext),
      unread_sources_(cached_.size()), ahead_(cached_.size()), nodes_(cached_.size()) {}

void ModelTexts::begin_sequence(int slot, const Request& request) {
    clear(slot);
    prompt_ends_[slot] = request.prompt.empty() ? kNoContext : request.prompt.size() - 1;
    if (model_.max_source() > 0) unread_sources_[slot] = request.source;
}

void ModelTexts::clear(int slot) {
    ahead_[slot] = {};
    nodes_[slot].clear();
    model_.cache().truncate(slot, 0);
    cached(slot).clear();
    dropped_[slot] = settled_[slot] = 0;
    verified_[slot] = 0;
    retrieved_[slot] = {};
}

// The target has read the prompt without its last token, or the text of the round before. Its rows of that round may
// still be in the order in which they were drafted.
void ModelTexts::begin_round(int slot, std::size_t n_tokens) {
    std::size_t& settled = settled_[slot];
    verified_[slot] = settled > 0 ? settled : prompt_ends_[slot];
    settled = n_tokens;
}

void ModelTexts::encode(int slot) {
    std::span<const TokenId>& source = unread_sources_[slot];
    if (!source.empty()) model_.encode(slot, source);
    source = {};
}

bool ModelTexts::prefill(int slot, std::span<const TokenId> tokens, std::size_t most) {
    const std::size_t left = unread(slot, tokens);
    const bool is_all = skips() || left <= most;
    read_all(slot, is_all ? tokens : tokens.first(tokens.size() - left + most));
    return is_all;
}

void ModelTexts::read_all(int slot, std::span<const TokenId> prompt) {
    encode(slot);
    if (prompt.empty() || (skips() && prompt.size() <= prompt_ends_[slot])) return;
    forget({slot, prompt, 1});
    if (skips()) slide(slot, prompt);
    // Emitted tokens and tokens after a gap are not a prompt: such rows are read as those of rounds are.
    const std::size_t end = std::min(prompt.size() - 1, facts_.context);
    const std::size_t of_prompt = window_.is_on() ? 0 : prompt_ends_[slot];
    read_on(slot, prompt.first(end), std::min(end, of_prompt));
}

// Reads all of these tokens, the first `of_prompt` as a prompt.
void ModelTexts::read_on(int slot, std::span<const TokenId> text, std::size_t of_prompt) {
    const auto chunk = static_cast<std::size_t>(model_.max_prompt_rows());
    const auto max_rows = static_cast<std::size_t>(model_.max_rows());
    for (std::size_t from = cached(slot).size(); from < text.size(); from = cached(slot).size()) {
        slide(slot, text.first(from));
        if (from < of_prompt)
            read(slot, text.first(std::min(of_prompt, (from / chunk + 1) * chunk)), true);
        else
            read(slot, text.first(std::min(text.size(), from + max_rows)), false);
    }
}

// A chain that a GPU drafts by itself must have no gaps.
bool ModelTexts::begin_within(int slot, std::span<const TokenId> tokens, std::size_t n) {
    if (!model_.reads_from_within() || device_ != nullptr || window_.is_on() || n_kept(slot) > 0) return false;
    std::size_t& dropped = dropped_[slot];
    dropped = tokens.size() - std::min(n, tokens.size());
    cached(slot).assign(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(dropped));
    return true;
}

std::size_t ModelTexts::unread(int slot, std::span<const TokenId> tokens) const {
    const std::size_t held = cached_[slot].size();
    const std::size_t end = std::max<std::size_t>(tokens.size(), 1) - 1, unread = end - std::min(held, end);
    return skips() ? std::min(unread, static_cast<std::size_t>(window_.head() + window_.positions)) : unread;
}

void ModelTexts::share(int from, int to, std::size_t length) {
    encode(from);
    ahead_[to] = {};
    length = static_cast<std::size_t>(model_.cache().reach(from, static_cast<int>(length)));
    model_.cache().share(from, to, static_cast<int>(length));
    const std::vector<TokenId>& source = cached(from);
    cached(to).assign(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(length));
}

void ModelTexts::move(int from, int to) {
    encode(from);
    ahead_[to] = {};
    model_.cache().fork(from, to);
    cached(to) = cached(from);
    clear(from);
}

// The branch of a tree with which the text continues becomes a part of the text. The other branches are dropped.
void ModelTexts::keep_branch(const TextEnd& text) {
    std::vector<TokenId>& held = cached(text.slot);
    std::vector<TreeNode>& nodes = nodes_[text.slot];
    if (nodes.empty()) return;
    const int length = n_kept(text.slot);
    std::vector<int> path;
    const bool reads_again = window_.chunks > 0 && model_.retrieves_own(); // a tree's rows are in no whole text
    if (!reads_again && text.tokens.size() >= held.size() && std::equal(held.begin(), held.end(), text.tokens.begin()))
        for (int i = 0, parent = -1; i < static_cast<int>(nodes.size()) && held.size() < text.tokens.size(); ++i) {
            const TreeNode& node = nodes[i];
            if (node.parent != parent || node.token != text.tokens[held.size()]) continue;
            path.push_back(parent = i);
            held.push_back(node.token);
        }
    model_.keep(text.slot, length, path);
    nodes.clear();
}

// Cuts the cache back to the tokens that agree with the text, and leaves at least the last n tokens to be read.
void ModelTexts::forget(const TextEnd& text) {
    keep_branch(text);
    std::vector<TokenId>& held = cached(text.slot);
    ahead_[text.slot] = {};
    const std::size_t before = held.size();
    held.resize(std::min(held.size(), text.tokens.size() - text.n));
    if (!std::equal(held.begin(), held.end(),
                    text.tokens.begin())) // compares as bytes: quick if nothing was rejected
        held.erase(std::mismatch(held.begin(), held.end(), text.tokens.begin()).first, held.end());
    if (held.size() == before) return;
    std::size_t& dropped = dropped_[text.slot];
    if (dropped > 0 && held.size() < static_cast<std::size_t>(window_.head()) + dropped) { // never so in a run
        held.resize(std::min(held.size(), static_cast<std::size_t>(window_.sinks)));
        dropped = 0;
        retrieved_[text.slot] = {};
    }
    if (dropped == 0)
        held.resize(static_cast<std::size_t>(model_.cache().reach(text.slot, static_cast<int>(held.size()))));
    model_.cache().truncate(text.slot, n_kept(text.slot));
}

// Drops tokens older than the window at the end of this text, if there are more of them than its slack. If the whole
// window is after the cache's end, only the head stays, or is read, and the text continues at the window. That is not
// so if the whole text must be read.
void ModelTexts::slide(int slot, std::span<const TokenId> text) {
    const auto head = static_cast<std::size_t>(window_.head()), size = static_cast<std::size_t>(window_.positions);
    std::size_t& dropped = dropped_[slot];
    if (!window_.is_on() || text.size() <= head + dropped + size + static_cast<std::size_t>(window_.slack())) return;
    std::vector<TokenId>& held = cached(slot);
    const std::size_t first = text.size() - size; // of the window
    if (!skips() && held.size() < first) read_on(slot, text.first(first));
    if (held.size() >= first) {
        std::vector<int> path(held.size() - first);
        std::iota(path.begin(), path.end(), static_cast<int>(first - dropped - head));
        model_.keep(slot, window_.head(), path);
    } else {
        held.resize(std::min(held.size(), head));
        dropped = 0;
        model_.cache().truncate(slot, n_kept(slot));
        read_on(slot, text.first(head));
        held.assign(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(first));
    }
    dropped = first - head;
}

// Lets the next pass choose the head's chunks among those before the window, if the text has grown by a chunk.
void ModelTexts::retrieve(int slot) {
    const model::RetrievalOptions options = window_.retrieval();
    const std::size_t n_tokens = settled_[slot];
    Retrieved& last = retrieved_[slot];
    if (window_.chunks == 0 || dropped_[slot] == 0 || n_tokens < last.n_tokens + model::RetrievalOptions::kChunk)
        return;
    const std::size_t window = dropped_[slot] + static_cast<std::size_t>(window_.head());
    const std::size_t held = model_.retrieves_own() ? window : verified_[slot];
    const int n_chunks = static_cast<int>(std::min(window, held)) / model::RetrievalOptions::kChunk;
    if (n_chunks < options.first_chunk() + options.chunks) return;
    const int end = n_chunks * model::RetrievalOptions::kChunk;
    retrievals_.push_back({slot, last.end, end});
    last = {end, n_tokens};
}

// Adds rows to the pass: the tokens after the end of the slot's cache, up to the last.
void ModelTexts::add_rows(int slot, std::span<const TokenId> tokens) {
    std::vector<TokenId>& held = cached(slot);
    for (std::size_t i = held.size(), first = i; i < tokens.size(); ++i)
        rows_.push_back({tokens[i], slot, static_cast<int>(i), i == first ? -1 : static_cast<int>(rows_.size()) - 1});
    held.insert(held.end(), tokens.begin() + static_cast<std::ptrdiff_t>(held.size()), tokens.end());
}

// Runs one pass that brings the slot's cache up to `tokens`, without logits.
void ModelTexts::read(int slot, std::span<const TokenId> tokens, bool is_prompt) {
    rows_.clear();
    add_rows(slot, tokens);
    model_.forward({.rows = rows_, .mask = model::Mask::causal, .is_prompt = is_prompt});
}

// Reads texts ahead if their unread tokens do not fit into one pass.
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

// The row that a chain has left for the end of this text; null: there is none.
const SourceLogits* ModelTexts::row_ahead(std::span<const TextEnd> texts, const model::LogitNeeds& needs) {
    if (texts.size() != 1 || texts[0].n != 1) return nullptr;
    const std::span<const TokenId> tokens = texts[0].tokens;
    const std::vector<TokenId>& held = cached(texts[0].slot);
    if (held.size() < tokens.size() || !std::equal(tokens.begin(), tokens.end(), held.begin())) return nullptr;
    return ahead_[texts[0].slot].row(tokens.size(), needs, vocab_);
}

SourceLogits ModelTexts::rows_after(std::span<const TextEnd> texts, model::LogitNeeds needs) {
    if (const SourceLogits* row = row_ahead(texts, needs)) return *row;
    tree_ahead_ = {};
    for (const TextEnd& text : texts) {
        encode(text.slot);
        forget(text);
        slide(text.slot, text.tokens.first(std::min(text.tokens.size(), settled_[text.slot])));
    }
    make_room(texts);
    rows_.clear();
    logit_rows_.clear();
    retrievals_.clear();
    for (const TextEnd& text : texts) {
        retrieve(text.slot);
        add_rows(text.slot, text.tokens);
        for (std::size_t i = text.n; i > 0; --i)
            logit_rows_.push_back(static_cast<int>(rows_.size() - i));
    }
    const model::PassResult result = model_.forward({.rows = rows_,
                                                     .logit_rows = logit_rows_,
                                                     .mask = model::Mask::causal,
                                                     .needs = needs,
                                                     .summary_vocab = summary_vocab(),
                                                     .retrievals = retrievals_});
    if (needs.extension != nullptr) keep_ahead(texts[0], needs, result);
    SourceLogits rows = logits_of(result, needs);
    rows.ranked = tree_ahead_.text_row();
    return rows;
}

SourceLogits ModelTexts::logits_of(const model::PassResult& result, const model::LogitNeeds& needs) {
    const auto vocab = static_cast<std::size_t>(vocab_);
    SourceLogits rows = {result.logits, result.logits_stride, vocab, result.summaries, result.noisy};
    const std::vector<TokenId>& known = model_.config().output_tokens;
    if (known.empty()) return rows;
    const bool are_to_be_noisy = !needs.noises.empty() && result.noisy.empty();
    if (needs.rows || are_to_be_noisy)
        rows.take_tokens(known, logits_);
    else
        rows.logits = {};
    return rows;
}

// The number of logits that count in summaries; 0: all.
int ModelTexts::summary_vocab() const {
    return model_.config().output_tokens.empty() ? vocab_ : 0;
}

// Keeps the rows after tokens that the device has read: all tokens of a chain but the last, and all nodes of a tree.
void ModelTexts::keep_ahead(const TextEnd& text, const model::LogitNeeds& needs, const model::PassResult& result) {
    ChainAhead& chain = ahead_[text.slot];
    chain.keep(text.tokens.size(), needs, result);
    cached(text.slot).insert(cached(text.slot).end(), chain.tokens().begin(), chain.tokens().end());
    if (device_ != nullptr) tree_ahead_.keep(text.slot, device_->grown());
    nodes_[text.slot].assign(tree_ahead_.nodes().begin(), tree_ahead_.nodes().end());
}

// Leaves in the cache the nodes that were asked for, as if each level had been read by a pass.
void ModelTexts::drop_tree_ahead() {
    const int slot = tree_ahead_.slot();
    if (slot < 0) return;
    model_.keep(slot, n_kept(slot), tree_ahead_.asked());
    nodes_[slot] = tree_ahead_.asked_nodes();
    tree_ahead_ = {};
}

SourceLogits ModelTexts::rows_after_nodes(std::span<const NewNodes> trees, model::LogitNeeds needs) {
    if (const SourceLogits* rows = tree_ahead_.rows_of(trees, vocab_)) return *rows;
    drop_tree_ahead();
    tree_rows_.set(trees, nodes_, [&](int slot) { return static_cast<int>(cached(slot).size()); });
    return logits_of(model_.forward(tree_rows_.pass(needs, summary_vocab())), needs);
}

std::unique_ptr<LogitSource> make_model_source(model::Decoder& decoder, int vocab, int n_slots, DeviceRound* device) {
    return std::make_unique<ModelTexts>(decoder, n_slots, vocab, device);
}

namespace {

// Returns whether passes should also read guessed tokens: a few more rows must take little more time than one. The
// weights alone decide. A translated text has no further rows.
bool may_guess(const DrafterParts& parts, const model::Decoder& model) {
    constexpr double kMostBits = 9; // of a weight, with its part of scales
    return parts.device == nullptr && !parts.vocabulary &&
           8 * static_cast<double>(model.weight_bytes()) < kMostBits * model.operations_per_row() / 2;
}

std::unique_ptr<Drafter> make_model_drafter(const DrafterParts& parts, const DrafterValues& values) {
    const std::size_t last = parts.models.size() - 1;
    // The last model, in tokens of its own.
    const auto own_source = [&] {
        model::Decoder& model = *parts.models.at(last);
        const int n_tokens = std::min(model.config().vocab_size, parts.vocabulary->map->draft().size());
        return std::make_unique<ModelTexts>(model, parts.n_slots, n_tokens);
    };
    if (parts.vocabulary && parts.vocabulary->use == OtherVocabulary::Use::retokenize)
        return make_retokenizing_drafter(own_source(), *parts.vocabulary, parts);
    const auto source = [&](std::size_t of) -> std::unique_ptr<TreeSource> {
        model::Decoder& model = *parts.models.at(of);
        if (of == last && parts.vocabulary)
            return make_translated_source(own_source(), *parts.vocabulary, parts.limits.vocab_size, parts.n_slots);
        return std::make_unique<ModelTexts>(model, parts.n_slots, parts.limits.vocab_size, parts.device, parts.window);
    };
    if (parts.tree) return make_tree_drafter(source(0), *parts.tree, parts);
    std::size_t level = last;
    auto of_smallest = static_cast<const DraftSetting&>(parts);
    of_smallest.takes_turns = parts.takes_turns || level > 0;
    const bool guesses = values.at("guess") == 0 && may_guess(parts, *parts.models[level]);
    std::unique_ptr<Drafter> drafter = make_chain_drafter(source(level), of_smallest, guesses);
    for (; level > 0; --level)
        drafter = make_cascade_drafter({source(level - 1), std::move(drafter), parts.rules[level], parts.costs[level]},
                                       parts);
    return drafter;
}

} // namespace

DrafterType model_drafter() {
    return {
        .name = "model",
        .position = 10,
        .help = "--draft",
        .parameters = {{.name = "guess",
                        .help = "auto: passes of a draft with weights of 8 bits or fewer, on CPUs, also read up to 3 "
                                "tokens that followed the same tokens before, which saves passes and changes no "
                                "draft; off: each token has a pass",
                        .max = 1,
                        .words = {"auto", "off"}}},
        .make_of = make_model_drafter};
}

} // namespace entrodraft::spec
