// Changes logits as a request asks, before temperature and filters. The changes depend on the tokens before. There are
// bans (a token cannot be emitted) and weights (a token becomes more or less likely). The only state is these tokens.
//
// The results are those of transformers' processors, in their order:
//   logit_bias            SequenceBiasLogitsProcessor for single tokens: logit + bias
//   sequence_bias         the same for several tokens: changes the last one's logit if the text ends with the others
//   encoder_repetition_penalty r  EncoderRepetitionPenaltyLogitsProcessor: repetition penalty 1 / r on source tokens
//   repetition_penalty r  RepetitionPenaltyLogitsProcessor, prompt and text: logit > 0 ? logit / r : logit * r
//   frequency_penalty f   as in vLLM: logit - f * (how often the token is in the text)
//   presence_penalty a    as in vLLM: logit - a * (whether it is in the text)
//   no_repeat_ngram_size  NoRepeatNGramLogitsProcessor: bans tokens that would repeat an n-gram of prompt or text
//   encoder_no_repeat_ngram_size  EncoderNoRepeatNGramLogitsProcessor: bans tokens that repeat an n-gram of the source
//   bad words             NoBadWordsLogitsProcessor: sequence_bias of -infinity;
//                         a bad word that is a single end of text is ignored
//   min_new_tokens        MinNewTokensLengthLogitsProcessor: bans ends of text before that many new tokens
//   forced_bos_token      ForcedBOSTokenLogitsProcessor: after a prompt of one token, only this token, with logit 0
//   forced_eos_tokens     ForcedEOSTokenLogitsProcessor: after forced_eos_at new tokens, only these, with logit 0
//   decay                 ExponentialDecayLengthPenalty: an end of text gains |logit| (factor^(tokens past start) - 1)
//   banned_tokens         SuppressTokensLogitsProcessor, like suppress_tokens
//   begin_suppress_tokens SuppressTokensAtBeginLogitsProcessor: bans these as the first token that is not forced
//   constraint            not in transformers: only tokens after which the text can still satisfy the grammar
// The source is the encoder's input; without an encoder it is the prompt. Temperature, top-k, top-p and min-p
// (sampling.h) come after these changes. The order of bans and weights does not matter: -inf stays -inf.
//
// Called by the drafter, and by every rank on its slice of the vocabulary, with each row's own prefix. With a
// constraint only the coordinator calls it.
#pragma once

#include "model/text/grammar/token_grammar.h"
#include "spec/verify/sampling.h"
#include "spec/verify/token_tree.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace entrodraft::spec {

// A bias of the last token, which counts if the text ends with the other tokens; -infinity: a bad word.
struct BiasedTokens {
    std::vector<TokenId> tokens;
    float bias = 0;
    friend bool operator==(const BiasedTokens&, const BiasedTokens&) = default;
};

// After `start` new tokens each further one makes an end of text more likely (factor above 1); 1: off.
struct LengthDecay {
    double factor = 1;
    int start = 0;
    friend bool operator==(const LengthDecay&, const LengthDecay&) = default;
};

struct LogitProcessing {
    double repetition_penalty = 1; // 1: off
    double presence_penalty = 0;
    double frequency_penalty = 0;
    int no_repeat_ngram_size = 0; // 0: off
    int min_new_tokens = 0;
    std::vector<std::pair<TokenId, float>> logit_bias; // each token once
    std::vector<TokenId> banned_tokens;
    model::grammar::Source constraint;
    std::shared_ptr<model::grammar::TokenGrammar> grammar; // of the constraint, on coordinators; null: not compiled yet

    // Only generation_config.json asks for these, under similar names.
    double encoder_repetition_penalty = 1; // 1: off
    int encoder_no_repeat_ngram_size = 0;  // 0: off
    std::vector<BiasedTokens> sequence_bias;
    std::vector<TokenId> suppress_tokens, begin_suppress_tokens;
    TokenId forced_bos_token = -1; // -1: none
    std::vector<TokenId> forced_eos_tokens;
    int forced_eos_at = 0; // new tokens before them
    LengthDecay decay;

    bool is_off() const { return !bans() && !weighs(); }
    bool bans() const;
    bool weighs() const;
    bool bans_beside_constraint() const;
    bool forces() const { return forced_bos_token >= 0 || !forced_eos_tokens.empty(); }
};

// Returns why the options are invalid for this vocabulary, with the option's name; empty if they are valid.
std::string why_invalid(const LogitProcessing& options, int vocab_size);

// The error of a text for which no token is left. It says if a limit of the grammar was met.
std::string why_nothing(const LogitProcessing& options);

// The prefix of a sequence, which changes the logits of the token after it. Drafted tokens are pushed one by one, and
// popped when they are rejected. push and pop take constant time a token.
class LogitProcessor {
  public:
    // Throws std::invalid_argument if penalties, sizes or biases are invalid for any vocabulary, or if a constraint is
    // not compiled. `source` is what an encoder reads; if it is empty, the prompt takes its place.
    LogitProcessor(const LogitProcessing& options, std::span<const TokenId> prompt, std::span<const TokenId> eos_tokens,
                   std::span<const TokenId> source = {});

    void push(TokenId token);
    void pop(int count = 1); // throws std::out_of_range where it would reach into the prompt
    // Pops and pushes until tokens() equals `tokens`, which begin with the prompt.
    void follow(std::span<const TokenId> tokens);
    std::span<const TokenId> tokens() const { return tokens_; }
    int new_tokens() const { return static_cast<int>(tokens_.size() - prompt_size_); }

    // Returns whether the constraint allows the token after tokens(); true without a constraint.
    bool allows(TokenId token) const;
    // The token after tokens(), if the constraint allows a single one, and no other ban forbids it.
    std::optional<TokenId> only_token() const;

    // Change the logits of the token after tokens(): those of ids [first_token, first_token + logits.size()).
    void ban(std::span<float> logits, TokenId first_token = 0) const;
    void weigh(std::span<float> logits, TokenId first_token = 0) const;
    void apply(std::span<float> logits, TokenId first_token = 0) const;

    // Calls apply() on rows [drafted.size() + 1][row_size]. Row 0 follows tokens(); row i + 1 follows these and the
    // path of the tree to drafted token i. tokens() are the same afterwards.
    void apply_to_rows(std::span<const TokenId> drafted, Parents parents, std::span<float> logits,
                       TokenId first_token = 0);

  private:
    struct Count {
        int in_all = 0;
        int in_text = 0;
    };

    std::uint64_t context_hash(std::size_t end) const;
    bool same_context(std::size_t a, std::size_t b) const;
    void ban_repeats(std::span<float> logits, TokenId first_token) const;
    void ban_repeats_of_source(std::span<float> logits, TokenId first_token) const;
    void ban_words(std::span<float> logits, TokenId first_token) const;
    void add_sequence_biases(std::span<float> logits, TokenId first_token) const;
    void decay(std::span<float> logits, TokenId first_token) const;
    void read_source(std::span<const TokenId> source);
    bool is_end(TokenId token) const;
    // True if the sequence's last token, as the next one, would complete it.
    bool completes(const BiasedTokens& sequence) const;
    // The only tokens that may come next; empty: none is forced here.
    std::span<const TokenId> forced() const;

    LogitProcessing options_;
    std::vector<TokenId> eos_tokens_;
    std::vector<TokenId> tokens_;
    std::size_t prompt_size_ = 0;

    std::unordered_map<TokenId, Count> counts_;
    std::vector<TokenId> distinct_;         // tokens of prompt and text, in the order of their first place
    std::vector<TokenId> distinct_in_text_; // the same of the text alone

    mutable std::optional<model::grammar::TokenMatcher> matcher_; // reads tokens once it is asked

    // For n-grams. hash_[i] is the hash of the first i tokens; two of these give the hash of any window. last_ maps the
    // hash of n - 1 tokens to the latest place after such tokens, same_hash_before_[i] place i to the one before it.
    std::vector<std::uint64_t> hash_;
    std::uint64_t window_factor_ = 1;
    std::unordered_map<std::uint64_t, std::int64_t> last_;
    std::vector<std::int64_t> same_hash_before_;

    std::vector<TokenId> source_tokens_;                                 // distinct
    std::map<std::vector<TokenId>, std::vector<TokenId>> source_ngrams_; // the last token by those before it
};

} // namespace entrodraft::spec
