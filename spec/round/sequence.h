// One text in progress, as the coordinator knows it: its tokens, whether it has ended, and why.
//
// Only the coordinator has it. The other ranks have only the committed tokens (see replica_state.h).
#pragma once

#include "model/text/tokenizer/tokenizer.h"
#include "spec/beams/beam_round.h"
#include "spec/protocol/request.h"
#include "spec/stop/stop_rule.h"
#include "spec/verify/verify.h"

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::spec {

class Sequence {
  public:
    using OnText = std::function<void(const Request&, const TextPiece&)>;

    // `gain` is what the replica has learnt so far, for rules that use it; null: none. Without a tokenizer (null) there
    // are only tokens: the text is empty, and stop strings are not found.
    Sequence(Request request, const StopRuleOptions& rule_options, GainModel* gain, const model::Tokenizer* tokenizer,
             OnText on_text);

    const Request& request() const { return request_; }
    std::span<const TokenId> tokens() const { return tokens_; } // prompt and text; the last one is the next token
    bool ended() const { return ended_; }
    int remaining_tokens() const; // of the budget
    // The tokens of Request::given that are not taken yet, and the end of a round that has read up to the last of
    // `tokens`, the first of them.
    std::span<const TokenId> given_left() const { return std::span(request_.given).subspan(n_given_); }
    void take_given(std::span<const TokenId> tokens);

    // Adds tokens to the text until one ends it: an EOS in `eos_tokens`, a stop string, the budget, or the
    // model's context of `max_positions`.
    void emit(std::span<const TokenId> tokens, std::span<const std::int64_t> eos_tokens, int max_positions);
    // For a request that asks for a beam search, in place of emit(). begin_beams() starts the search. end_beams() takes
    // the texts that the ended search has found; the best one becomes the text.
    void begin_beams(std::span<const std::int64_t> eos_tokens, int max_positions);
    void end_beams();
    // Ends the text here, whatever its budget.
    void cut() { end(FinishReason::length); }
    // Ends a text that cannot go on.
    void fail(const std::string& why);
    // Returns the finished text. The sequence must not be used afterwards.
    Completion finish();

    std::optional<BeamSearch> beams; // for beam searches only
    BeamEnds beam_ends;              // for beam searches only
    StopRule rule;
    Verification verification; // of the last round
    int last_accepted = -1;    // of the last round's drafted tokens; the next broadcast carries it
    std::vector<double> logit_margins;
    std::vector<TokenLogProbs> logprobs, logprobs_of_given;
    Stats stats;
    double admitted_at = 0;          // seconds on the round's clock
    bool verified_on_device = false; // see packet.h

  private:
    void end(FinishReason reason);
    void take_text(std::string_view piece);
    void hand_out(std::size_t end); // the text before this byte

    Request request_;
    std::vector<TokenId> tokens_;
    std::size_t n_given_ = 0;                     // tokens of Request::given in tokens_
    const model::Tokenizer* tokenizer_;           // null: there is none
    std::optional<model::StreamDecoder> decoder_; // none: there is no tokenizer
    OnText on_text_;
    std::string text_;
    std::size_t handed_out_ = 0;           // bytes of text_
    std::vector<std::size_t> text_begins_; // bytes of text_ before each new token, if log-probabilities are asked for
    std::ptrdiff_t n_logprobs_handed_out_ = 0;
    bool ended_ = false;
    std::vector<FoundText> found_;
    std::string failure_;
    FinishReason reason_ = FinishReason::length;
};

} // namespace entrodraft::spec
