// Grows a text: applies budgets, ends and stop strings, and decides how much of the text can be shown already.
#include "spec/round/sequence.h"

#include <algorithm>

namespace entrodraft::spec {

namespace {

// The length of the longest end of `text` that could be the beginning of `stop`.
std::size_t possible_beginning(std::string_view text, std::string_view stop) {
    for (std::size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length)
        if (text.substr(text.size() - length) == stop.substr(0, length)) return length;
    return 0;
}

} // namespace

Sequence::Sequence(Request request, const StopRuleOptions& rule_options, GainModel* gain,
                   const model::Tokenizer* tokenizer, OnText on_text)
    : rule(rule_options, gain), request_(std::move(request)), tokens_(request_.prompt), tokenizer_(tokenizer),
      on_text_(std::move(on_text)) {
    if (tokenizer != nullptr) decoder_.emplace(*tokenizer, true);
    stats.sequences = 1;
    stats.prompt_tokens = static_cast<std::int64_t>(tokens_.size() + request_.given.size());
}

int Sequence::remaining_tokens() const {
    return request_.max_new_tokens - static_cast<int>(tokens_.size() - request_.prompt.size() - n_given_);
}

void Sequence::take_given(std::span<const TokenId> tokens) {
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    n_given_ += tokens.size();
}

void Sequence::emit(std::span<const TokenId> tokens, std::span<const std::int64_t> eos_tokens, int max_positions) {
    for (const TokenId token : tokens) {
        if (ended_) return;
        tokens_.push_back(token);
        if (request_.logprobs) text_begins_.push_back(text_.size());
        ++stats.new_tokens;
        if (decoder_) take_text(decoder_->push(token));
        if (ended_) return; // a stop string is complete
        if (!request_.ignore_eos && std::find(eos_tokens.begin(), eos_tokens.end(), token) != eos_tokens.end())
            end(FinishReason::eos);
        else if (remaining_tokens() <= 0 || static_cast<int>(tokens_.size()) >= max_positions)
            end(FinishReason::length);
    }
}

void Sequence::take_text(std::string_view piece) {
    if (piece.empty()) return;
    const std::size_t before = text_.size();
    text_ += piece;
    std::size_t held_back = 0, found = std::string::npos;
    for (const std::string& stop : request_.stop_strings) {
        const std::size_t from = before >= stop.size() ? before - (stop.size() - 1) : 0;
        found = std::min(found, text_.find(stop, from));
        held_back = std::max(held_back, possible_beginning(text_, stop));
    }
    if (found != std::string::npos) {
        text_.resize(found);
        held_back = 0;
    }
    hand_out(text_.size() - held_back);
    if (found != std::string::npos) end(FinishReason::stop);
}

void Sequence::hand_out(std::size_t end) {
    if (end <= handed_out_) return;
    TextPiece piece = {.text = std::string_view(text_).substr(handed_out_, end - handed_out_)};
    if (handed_out_ == 0) piece.logprobs_of_given = logprobs_of_given;
    const auto begun = std::ranges::lower_bound(text_begins_, end) - text_begins_.begin();
    piece.logprobs = {logprobs.begin() + n_logprobs_handed_out_, logprobs.begin() + begun};
    n_logprobs_handed_out_ = begun;
    handed_out_ = end;
    if (on_text_) on_text_(request_, piece);
}

void Sequence::end(FinishReason reason) {
    ended_ = true;
    reason_ = reason;
    if (reason == FinishReason::stop) return;
    if (decoder_) text_ += decoder_->finish();
    hand_out(text_.size());
}

void Sequence::begin_beams(std::span<const std::int64_t> eos_tokens, int max_positions) {
    std::vector<TokenId> ends;
    if (!request_.ignore_eos) ends.assign(eos_tokens.begin(), eos_tokens.end());
    const int left = max_positions - static_cast<int>(tokens_.size());
    beams.emplace(request_.beams, std::min(request_.max_new_tokens, left), ends);
    beam_ends = {{tokens_.back()}, {-1}};
}

// The best text is shown only now, as it was not known before.
void Sequence::end_beams() {
    for (const BeamSearch::Finished& each : beams->finished()) {
        if (static_cast<int>(found_.size()) == request_.beams.num_return_sequences) break;
        FoundText found = {each.tokens, {}, each.ended ? FinishReason::eos : FinishReason::length, each.score};
        if (tokenizer_) {
            model::StreamDecoder decoder(*tokenizer_, true);
            for (const TokenId token : each.tokens)
                found.text += decoder.push(token);
            found.text += decoder.finish();
        }
        found_.push_back(std::move(found));
    }
    if (found_.empty()) return fail(why_nothing(request_.processing));
    const FoundText& best = found_.front();
    tokens_.insert(tokens_.end(), best.tokens.begin(), best.tokens.end());
    stats.new_tokens += static_cast<std::int64_t>(best.tokens.size());
    if (decoder_) take_text(best.text);
    end(best.finish_reason);
}

void Sequence::fail(const std::string& why) {
    failure_ = why;
    end(FinishReason::length);
}

Completion Sequence::finish() {
    Completion completion;
    completion.failure = std::move(failure_);
    const auto first_new = static_cast<std::ptrdiff_t>(request_.prompt.size() + n_given_);
    completion.tokens.assign(tokens_.begin() + first_new, tokens_.end());
    completion.has_text = decoder_.has_value();
    completion.text = std::move(text_);
    completion.finish_reason = reason_;
    completion.found = std::move(found_);
    logit_margins.resize(std::min(logit_margins.size(), completion.tokens.size()));
    completion.logit_margins = std::move(logit_margins);
    logprobs.resize(std::min(logprobs.size(), completion.tokens.size()));
    completion.logprobs = std::move(logprobs);
    completion.logprobs_of_given = std::move(logprobs_of_given);
    completion.stats = std::move(stats);
    return completion;
}

} // namespace entrodraft::spec
