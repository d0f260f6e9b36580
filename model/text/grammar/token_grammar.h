// Finds the tokens of a vocabulary that may come next in a text with a grammar. It walks through the grammar over bytes
// (recognizer.h) and the vocabulary's trie of bytes at the same time. It keeps one mask for each state.
//
// A text may end only where the grammar is complete. Other special tokens, which have no text, are never legal. Called
// by logit processing and by drafters, by one thread.
#pragma once

#include "model/text/grammar/recognizer.h"
#include "model/text/token_id.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace entrodraft::model {
class Tokenizer;
}

namespace entrodraft::model::grammar {

enum class Language : std::uint8_t { none, json_schema, regex, grammar };
std::string to_string(Language language); // the name in input lines

// A grammar as given.
struct Source {
    Language language = Language::none;
    std::string text;
    static constexpr std::size_t kMaxBytes = std::size_t{1} << 18;
    bool is_on() const { return language != Language::none; }
    auto operator<=>(const Source&) const = default;
};

// Throws BadGrammar.
std::shared_ptr<const Automaton> compile(const Source& source);

// The bytes of tokens, as a trie.
class Vocabulary {
  public:
    // Takes the first `n_tokens` tokens of the tokenizer.
    static Vocabulary of(const Tokenizer& tokenizer, int n_tokens, std::span<const TokenId> ends);
    // Tokens without bytes are special; `ends` end a text. `drops_first_space`: the first token of a text loses a space
    // at its beginning.
    Vocabulary(std::vector<std::string> bytes, std::span<const TokenId> ends, bool drops_first_space = false);

    struct Node {
        std::uint8_t byte = 0;
        int depth = 0;              // 1 for the first bytes
        std::size_t after = 0;      // index into nodes() after its subtree
        std::size_t tokens_end = 0; // index into tokens(): this node's tokens begin where the previous node's end
    };
    std::span<const Node> nodes() const { return nodes_; } // depth first
    std::span<const TokenId> tokens() const { return tokens_; }
    const std::string& bytes(TokenId token) const { return bytes_[token]; }
    std::span<const TokenId> ends() const { return ends_; }
    bool drops_first_space() const { return drops_first_space_; }
    std::size_t size() const { return bytes_.size(); }

  private:
    std::vector<std::string> bytes_;
    std::vector<TokenId> ends_;
    bool drops_first_space_;
    std::vector<Node> nodes_;
    std::vector<TokenId> tokens_;
};

// The legal tokens of a state.
class TokenMask {
  public:
    explicit TokenMask(std::size_t n_tokens) : bits_((n_tokens + 63) / 64) {}
    void allow(TokenId token);
    bool allows(TokenId token) const {
        const auto at = static_cast<std::size_t>(token);
        return token >= 0 && at / 64 < bits_.size() && ((bits_[at / 64] >> (at % 64)) & 1U) != 0;
    }
    // Sets the logits of tokens that are not legal to minus infinity. `logits` begins with the logit of `first_token`.
    void ban_others(std::span<float> logits, TokenId first_token) const;
    int count() const { return count_; }
    // Returns the legal token if there is only one.
    std::optional<TokenId> only() const { return count_ == 1 ? std::optional(last_) : std::nullopt; }
    std::size_t bytes() const { return bits_.size() * sizeof(std::uint64_t); }

  private:
    std::vector<std::uint64_t> bits_;
    int count_ = 0;
    TokenId last_ = -1;
};

// A grammar over a vocabulary, for any number of texts.
class TokenGrammar {
  public:
    TokenGrammar(std::shared_ptr<const Automaton> automaton, std::shared_ptr<const Vocabulary> vocabulary);

    // Names the limit for which tokens were made illegal; empty: no limit was met.
    std::string limit_met() const;

  private:
    friend class TokenMatcher;
    StateId after(StateId state, TokenId token, bool is_first);
    const TokenMask& mask(StateId state, bool is_first);
    void make_room();

    std::shared_ptr<const Automaton> automaton_;
    std::shared_ptr<const Vocabulary> vocabulary_;
    std::optional<Recognizer> recognizer_;
    bool is_walk_cut_ = false;
    int generation_ = 0;                           // of states: ids of an earlier generation are not valid
    std::unordered_map<StateId, TokenMask> masks_; // of states after a text's first token
    std::optional<TokenMask> first_mask_;
    std::vector<StateId> walk_; // [depth]
};

// One text. Tokens are pushed and popped.
class TokenMatcher {
  public:
    explicit TokenMatcher(std::shared_ptr<TokenGrammar> grammar);

    void push(TokenId token);
    void pop() { tokens_.pop_back(), states_.resize(std::min(states_.size(), tokens_.size() + 1)); }
    // Returns the tokens that may come next; valid until the next call on any text of the grammar.
    const TokenMask& mask();

  private:
    void catch_up();

    std::shared_ptr<TokenGrammar> grammar_;
    std::vector<TokenId> tokens_;
    std::vector<StateId> states_; // before the first token, and after each token looked at
    int generation_ = -1;
};

// Grammars over one vocabulary. Recently used ones are kept.
class TokenGrammars {
  public:
    explicit TokenGrammars(std::shared_ptr<const Vocabulary> vocabulary) : vocabulary_(std::move(vocabulary)) {}
    // Throws BadGrammar.
    std::shared_ptr<TokenGrammar> get(const Source& source);

  private:
    std::shared_ptr<const Vocabulary> vocabulary_;
    std::map<Source, std::shared_ptr<TokenGrammar>> kept_;
};

} // namespace entrodraft::model::grammar
