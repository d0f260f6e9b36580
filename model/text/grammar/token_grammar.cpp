// Tries, masks and texts: see token_grammar.h.
#include "model/text/grammar/token_grammar.h"

#include "model/files/utf8.h"
#include "model/text/tokenizer/tokenizer.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>

namespace entrodraft::model::grammar {

std::string to_string(Language language) {
    switch (language) {
    case Language::none:
        return "";
    case Language::json_schema:
        return "json_schema";
    case Language::regex:
        return "regex";
    case Language::grammar:
        return "grammar";
    }
    return "";
}

std::shared_ptr<const Automaton> compile(const Source& source) {
    if (source.text.size() > Source::kMaxBytes)
        throw BadGrammar(fmt::format("it has {} bytes, more than {}", source.text.size(), Source::kMaxBytes));
    if (const std::size_t bad = first_invalid_utf8(source.text); bad != std::string::npos)
        throw BadGrammar(fmt::format("it is not UTF-8 from byte {} on", bad));
    switch (source.language) {
    case Language::none:
        break;
    case Language::json_schema:
        return std::make_shared<Automaton>(parse_json_schema(source.text));
    case Language::regex:
        return std::make_shared<Automaton>(parse_regex(source.text));
    case Language::grammar:
        return std::make_shared<Automaton>(parse_gbnf(source.text));
    }
    throw std::invalid_argument("there is no grammar");
}

// ---- the vocabulary ----

namespace {

// A walk with more ways than this finds no legal token, so that its time is limited for any grammar.
constexpr std::size_t kMaxWaysOfWalk = std::size_t{1} << 22;
constexpr std::size_t kMaxKeptBytes = std::size_t{64} << 20; // of a grammar, before it drops them all
constexpr std::size_t kMaxKeptGrammars = 32;

std::vector<std::string> bytes_of(const Tokenizer& tokenizer, int n_tokens) {
    std::vector<std::string> bytes(static_cast<std::size_t>(n_tokens));
    for (TokenId token = 0; token < std::min(n_tokens, tokenizer.size()); ++token)
        if (!tokenizer.is_special(token)) bytes[token] = tokenizer.token_bytes(token);
    return bytes;
}

// Returns whether a token that begins with a space loses it at the beginning of a text.
bool drops_space(const Tokenizer& tokenizer, std::span<const std::string> bytes) {
    for (std::size_t token = 0; token < bytes.size(); ++token) {
        const std::string& own = bytes[token];
        if (own.size() < 2 || own[0] != ' ' || first_invalid_utf8(own) != std::string::npos) continue;
        const auto id = static_cast<TokenId>(token);
        return tokenizer.decode(std::span(&id, 1), true) != own;
    }
    return false;
}

} // namespace

Vocabulary Vocabulary::of(const Tokenizer& tokenizer, int n_tokens, std::span<const TokenId> ends) {
    std::vector<std::string> bytes = bytes_of(tokenizer, n_tokens);
    const bool drops_first_space = drops_space(tokenizer, bytes);
    return {std::move(bytes), ends, drops_first_space};
}

Vocabulary::Vocabulary(std::vector<std::string> bytes, std::span<const TokenId> ends, bool drops_first_space)
    : bytes_(std::move(bytes)), drops_first_space_(drops_first_space) {
    for (const TokenId end : ends) {
        if (end < 0 || static_cast<std::size_t>(end) >= bytes_.size()) continue;
        ends_.push_back(end);
        bytes_[end].clear();
    }
    std::vector<TokenId> sorted;
    for (std::size_t token = 0; token < bytes_.size(); ++token)
        if (!bytes_[token].empty()) sorted.push_back(static_cast<TokenId>(token));
    std::ranges::sort(sorted, [&](TokenId a, TokenId b) { return bytes_[a] < bytes_[b]; });
    std::vector<std::size_t> path; // nodes from the root on to the last token
    const auto leave = [&](std::size_t depth) {
        for (; path.size() > depth; path.pop_back())
            nodes_[path.back()].after = nodes_.size();
    };
    std::string_view before;
    for (const TokenId token : sorted) {
        const std::string_view own = bytes_[token];
        const auto common = static_cast<std::size_t>(std::ranges::mismatch(own, before).in1 - own.begin());
        leave(common);
        while (path.size() < own.size()) {
            const auto byte = static_cast<std::uint8_t>(own[path.size()]);
            path.push_back(nodes_.size());
            nodes_.push_back({byte, static_cast<int>(path.size()), 0, tokens_.size()});
        }
        tokens_.push_back(token);
        nodes_.back().tokens_end = tokens_.size();
        before = own;
    }
    leave(0);
}

void TokenMask::allow(TokenId token) {
    std::uint64_t& word = bits_[static_cast<std::size_t>(token) / 64];
    const std::uint64_t bit = std::uint64_t{1} << (static_cast<std::size_t>(token) % 64);
    if ((word & bit) == 0) ++count_;
    word |= bit;
    last_ = token;
}

void TokenMask::ban_others(std::span<float> logits, TokenId first_token) const {
    for (std::size_t i = 0; i < logits.size(); ++i)
        if (!allows(first_token + static_cast<TokenId>(i))) logits[i] = -std::numeric_limits<float>::infinity();
}

// ---- a grammar over it ----

TokenGrammar::TokenGrammar(std::shared_ptr<const Automaton> automaton, std::shared_ptr<const Vocabulary> vocabulary)
    : automaton_(std::move(automaton)), vocabulary_(std::move(vocabulary)) {
    recognizer_.emplace(*automaton_);
}

// Drops all states and masks when they have become large.
void TokenGrammar::make_room() {
    const std::size_t mask_bytes = masks_.empty() ? 0 : masks_.size() * masks_.begin()->second.bytes();
    if (recognizer_->bytes() + mask_bytes < kMaxKeptBytes) return;
    recognizer_.emplace(*automaton_);
    masks_.clear();
    first_mask_.reset();
    ++generation_;
}

StateId TokenGrammar::after(StateId state, TokenId token, bool is_first) {
    if (token < 0 || static_cast<std::size_t>(token) >= vocabulary_->size()) return Recognizer::kDead;
    if (std::ranges::find(vocabulary_->ends(), token) != vocabulary_->ends().end())
        return recognizer_->accepts(state) ? state : Recognizer::kDead; // text after an end is never looked at
    std::string_view bytes = vocabulary_->bytes(token);
    if (is_first && vocabulary_->drops_first_space() && bytes.starts_with(' ')) bytes.remove_prefix(1);
    if (bytes.empty()) return Recognizer::kDead; // special
    for (const char byte : bytes)
        state = recognizer_->next(state, static_cast<std::uint8_t>(byte));
    return state;
}

const TokenMask& TokenGrammar::mask(StateId state, bool is_first) {
    if (is_first && first_mask_) return *first_mask_;
    if (const auto found = masks_.find(state); !is_first && found != masks_.end()) return found->second;
    TokenMask made(vocabulary_->size());
    if (recognizer_->accepts(state))
        for (const TokenId end : vocabulary_->ends())
            made.allow(end);
    const std::span<const Vocabulary::Node> nodes = vocabulary_->nodes();
    const bool drops_space = is_first && vocabulary_->drops_first_space();
    walk_.assign(1, state);
    std::size_t ways = 0;
    for (std::size_t i = 0; i < nodes.size();) {
        const Vocabulary::Node& node = nodes[i];
        const auto depth = static_cast<std::size_t>(node.depth);
        const bool is_dropped = drops_space && depth == 1 && node.byte == ' ';
        const StateId reached = is_dropped ? state : recognizer_->next(walk_[depth - 1], node.byte);
        ways += recognizer_->n_ways(reached);
        if (ways > kMaxWaysOfWalk) {
            made = TokenMask(vocabulary_->size());
            is_walk_cut_ = true;
            break;
        }
        if (reached == Recognizer::kDead) {
            i = node.after;
            continue;
        }
        walk_.resize(std::max(walk_.size(), depth + 1));
        walk_[depth] = reached;
        const std::size_t begin = i == 0 ? 0 : nodes[i - 1].tokens_end;
        for (std::size_t k = begin; k < node.tokens_end && !is_dropped; ++k)
            made.allow(vocabulary_->tokens()[k]);
        ++i;
    }
    if (is_first) return first_mask_.emplace(std::move(made));
    return masks_.insert_or_assign(state, std::move(made)).first->second;
}

std::string TokenGrammar::limit_met() const {
    if (is_walk_cut_) return fmt::format("{} ways to understand the tokens of a vocabulary", kMaxWaysOfWalk);
    switch (recognizer_->limit_met()) {
    case Recognizer::Limit::none:
        break;
    case Recognizer::Limit::ways:
        return fmt::format("{} ways to understand one text", Recognizer::kMaxWays);
    case Recognizer::Limit::open_rules:
        return fmt::format("{} rules in one another", Recognizer::kMaxOpenRules);
    }
    return "";
}

// ---- a text ----

TokenMatcher::TokenMatcher(std::shared_ptr<TokenGrammar> grammar) : grammar_(std::move(grammar)) {}

void TokenMatcher::push(TokenId token) {
    tokens_.push_back(token);
}

void TokenMatcher::catch_up() {
    if (generation_ != grammar_->generation_) states_.clear();
    generation_ = grammar_->generation_;
    if (states_.empty()) states_.push_back(grammar_->recognizer_->start());
    while (states_.size() <= tokens_.size()) {
        const std::size_t i = states_.size() - 1;
        states_.push_back(grammar_->after(states_.back(), tokens_[i], i == 0));
    }
}

const TokenMask& TokenMatcher::mask() {
    grammar_->make_room();
    catch_up();
    return grammar_->mask(states_.back(), tokens_.empty());
}

std::shared_ptr<TokenGrammar> TokenGrammars::get(const Source& source) {
    if (const auto found = kept_.find(source); found != kept_.end()) return found->second;
    auto made = std::make_shared<TokenGrammar>(compile(source), vocabulary_);
    if (kept_.size() == kMaxKeptGrammars) kept_.clear();
    kept_.emplace(source, made);
    return made;
}

} // namespace entrodraft::model::grammar
