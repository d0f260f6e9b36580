// What a request asks to be done to logits before temperature and filters, because of the tokens before them: banned
// tokens (a token cannot be emitted) and weights (a token becomes more or less likely). Pure but for the tokens it has
// been told.
//
// Same results as transformers' processors, in their order:
//   logit_bias            SequenceBiasLogitsProcessor for single tokens: logit + bias
//   sequence_bias         the same for several tokens: the last one's logit, where the others are there already
//   encoder_repetition_penalty r  EncoderRepetitionPenaltyLogitsProcessor: a repetition penalty of 1 / r, of the source
//   repetition_penalty r  RepetitionPenaltyLogitsProcessor, prompt and text: logit > 0 ? logit / r : logit * r
//   frequency_penalty f   as vLLM has it: logit - f * (how often the token is in the text)
//   presence_penalty a    as vLLM has it: logit - a * (whether it is in the text)
//   no_repeat_ngram_size  NoRepeatNGramLogitsProcessor: no token that completes n tokens which are there already
//   encoder_no_repeat_ngram_size  EncoderNoRepeatNGramLogitsProcessor: nor n tokens which are in the source
//   bad words             NoBadWordsLogitsProcessor: sequence_bias of -infinity, but for an end of text alone
//   min_new_tokens        MinNewTokensLengthLogitsProcessor: no end of text before the text has that many tokens
//   forced_bos_token      ForcedBOSTokenLogitsProcessor: this token alone, with logit 0, after a prompt of one token
//   forced_eos_tokens     ForcedEOSTokenLogitsProcessor: these alone, with logit 0, after forced_eos_at new tokens
//   decay                 ExponentialDecayLengthPenalty: an end of text gains |logit| (factor^(tokens past start) - 1)
//   banned_tokens         SuppressTokensLogitsProcessor, as suppress_tokens
//   begin_suppress_tokens SuppressTokensAtBeginLogitsProcessor: before the first new token that is not forced
//   constraint            none of theirs: only tokens with which the text can still become what a grammar asks
// The source is what an encoder reads; without an encoder it is the prompt.
// Then come temperature, top-k, top-p and min-p (sampling.h). Bans may come first: -inf stays what it is.
//
// Called by the drafter and by every rank on its slice of the vocabulary, both with the row's own prefix; where there
// is a constraint, by the coordinator alone.
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

// A bias of the last token, where the others are what the text ends with; -infinity: a bad word.
struct BiasedTokens {
    std::vector<TokenId> tokens;
    float bias = 0;
    friend bool operator==(const BiasedTokens&, const BiasedTokens&) = default;
};

// From `start` new tokens on an end of text becomes more likely with each (factor above 1); 1: off.
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
    std::vector<std::pair<TokenId, float>> logit_bias; // a token once
    std::vector<TokenId> banned_tokens;
    model::grammar::Source constraint;
    std::shared_ptr<model::grammar::TokenGrammar> grammar; // of the constraint, on coordinators; null: not compiled yet

    // Only generation_config.json asks for these, under names like those.
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

// Empty when the options make sense for this vocabulary; else what is wrong, naming the option.
std::string why_invalid(const LogitProcessing& options, int vocab_size);

// Why a text ends in an error line where no token is left, and whether a limit of its grammar was met.
std::string why_nothing(const LogitProcessing& options);

// The prefix of a sequence, and what it does to the logits of the token after it. Drafted tokens are pushed one by one
// and popped when they are rejected. push and pop take constant time a token.
class LogitProcessor {
  public:
    // Throws std::invalid_argument where penalties, sizes or biases make no sense for any vocabulary, or where a
    // constraint is not compiled.
    // `source`: what an encoder reads; empty: there is none, and the prompt stands for it.
    LogitProcessor(const LogitProcessing& options, std::span<const TokenId> prompt, std::span<const TokenId> eos_tokens,
                   std::span<const TokenId> source = {});

    void push(TokenId token);
    void pop(int count = 1); // throws std::out_of_range where it would reach into the prompt
    // Pops and pushes until tokens() are these, which begin with the prompt.
    void follow(std::span<const TokenId> tokens);
    std::span<const TokenId> tokens() const { return tokens_; }
    int new_tokens() const { return static_cast<int>(tokens_.size() - prompt_size_); }

    // Whether the constraint, if there is one, allows the token after tokens(); and the one that it allows, where that
    // is one, and may be emitted.
    bool allows(TokenId token) const;
    std::optional<TokenId> only_token() const;

    // On the logits of tokens [first_token, first_token + logits.size()), those that follow tokens().
    void ban(std::span<float> logits, TokenId first_token = 0) const;
    void weigh(std::span<float> logits, TokenId first_token = 0) const;
    void apply(std::span<float> logits, TokenId first_token = 0) const;

    // apply() to rows [drafted.size() + 1][row_size]: row 0 follows tokens(), row i + 1 these and the drafted tokens up
    // to i in their tree. Leaves tokens() as they were.
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
    // True where the sequence's last token would complete it.
    bool completes(const BiasedTokens& sequence) const;
    // The only tokens that may come next; empty: nothing is forced here.
    std::span<const TokenId> forced() const;

    LogitProcessing options_;
    std::vector<TokenId> eos_tokens_;
    std::vector<TokenId> tokens_;
    std::size_t prompt_size_ = 0;

    std::unordered_map<TokenId, Count> counts_;
    std::vector<TokenId> distinct_;         // tokens of prompt and text, in the order of their first place
    std::vector<TokenId> distinct_in_text_; // the same of the text alone

    mutable std::optional<model::grammar::TokenMatcher> matcher_; // reads tokens once it is asked

    // For n-grams: hash_[i] is of the first i tokens, so that any window's follows from two of them; last_ holds the
    // latest place whose n - 1 tokens before have a hash, same_hash_before_[i] the place before place i with its hash.
    std::vector<std::uint64_t> hash_;
    std::uint64_t window_factor_ = 1;
    std::unordered_map<std::uint64_t, std::int64_t> last_;
    std::vector<std::int64_t> same_hash_before_;

    std::vector<TokenId> source_tokens_;                                 // distinct
    std::map<std::vector<TokenId>, std::vector<TokenId>> source_ngrams_; // the last token by those before it
};

} // namespace entrodraft::spec
