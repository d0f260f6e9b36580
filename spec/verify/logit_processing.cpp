// Penalties, biases and bans. logit_processing.h defines each of them.
#include "spec/verify/logit_processing.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <set>
#include <stdexcept>

namespace entrodraft::spec {

namespace {

constexpr float kBanned = -std::numeric_limits<float>::infinity();
constexpr int kMaxNGramSize = 1 << 20;                    // more than any context
constexpr std::uint64_t kHashFactor = 0x9E3779B97F4A7C15; // odd: its powers never become 0

// The logit of a token; null if the token is outside the slice.
float* logit_of(std::span<float> logits, TokenId first_token, TokenId token) {
    const std::int64_t i = std::int64_t{token} - first_token;
    return i >= 0 && i < static_cast<std::int64_t>(logits.size()) ? &logits[i] : nullptr;
}

void ban_token(std::span<float> logits, TokenId first_token, TokenId token) {
    if (float* logit = logit_of(logits, first_token, token)) *logit = kBanned;
}

// Computes as torch does.
void penalise(std::span<const TokenId> tokens, float penalty, std::span<float> logits, TokenId first_token) {
    for (const TokenId token : tokens)
        if (float* logit = logit_of(logits, first_token, token))
            *logit = *logit < 0 ? *logit * penalty : *logit / penalty;
}

// Puts the biases into the order in which transformers adds them: single tokens first, then by length. Lengths come in
// the order in which they first occur.
void order_as_added(std::vector<BiasedTokens>& sequences) {
    std::vector<std::size_t> lengths = {1};
    for (const BiasedTokens& each : sequences)
        if (std::ranges::find(lengths, each.tokens.size()) == lengths.end()) lengths.push_back(each.tokens.size());
    std::ranges::stable_sort(sequences, {}, [&](const BiasedTokens& each) {
        return std::ranges::find(lengths, each.tokens.size()) - lengths.begin();
    });
}

// Returns what is invalid for every vocabulary; empty if nothing is.
std::string why_never_valid(const LogitProcessing& options) {
    const auto is_penalty = [](double value) { return value >= -2 && value <= 2; };
    if (!(options.repetition_penalty >= 0.001 && options.repetition_penalty <= 1000))
        return fmt::format("--repetition-penalty must be a number from 0.001 to 1000, not {:f}",
                           options.repetition_penalty);
    if (!(options.encoder_repetition_penalty >= 0.001 && options.encoder_repetition_penalty <= 1000))
        return fmt::format("encoder_repetition_penalty must be a number from 0.001 to 1000, not {:f}",
                           options.encoder_repetition_penalty);
    if (!is_penalty(options.presence_penalty)) return "--presence-penalty must be a number from -2 to 2";
    if (!is_penalty(options.frequency_penalty)) return "--frequency-penalty must be a number from -2 to 2";
    if (options.no_repeat_ngram_size < 0 || options.no_repeat_ngram_size > kMaxNGramSize)
        return fmt::format("--no-repeat-ngram-size must be from 0 (off) to {}", kMaxNGramSize);
    if (options.min_new_tokens < 0) return "--min-new-tokens must be 0 or more";
    for (const auto& [token, bias] : options.logit_bias)
        if (!std::isfinite(bias))
            return fmt::format(
                "--logit-bias of token {} must be a finite number: to ban a token, name it in --banned-tokens", token);
    return {};
}

bool is_bad_word(const BiasedTokens& sequence) {
    return sequence.bias == kBanned;
}

} // namespace

bool LogitProcessing::bans() const {
    return constraint.is_on() || bans_beside_constraint();
}

bool LogitProcessing::bans_beside_constraint() const {
    return no_repeat_ngram_size > 0 || encoder_no_repeat_ngram_size > 0 || min_new_tokens > 0 ||
           !banned_tokens.empty() || !suppress_tokens.empty() || !begin_suppress_tokens.empty() || forces() ||
           std::ranges::any_of(sequence_bias, is_bad_word);
}

bool LogitProcessing::weighs() const {
    return repetition_penalty != 1 || encoder_repetition_penalty != 1 || presence_penalty != 0 ||
           frequency_penalty != 0 || !logit_bias.empty() || forces() || decay.factor != 1 ||
           !std::ranges::all_of(sequence_bias, is_bad_word);
}

std::string why_invalid(const LogitProcessing& options, int vocab_size) {
    if (std::string reason = why_never_valid(options); !reason.empty()) return reason;
    const auto why_outside = [&](const char* option, TokenId token) {
        return fmt::format("{} names token {}, which is outside the vocabulary of {}", option, token, vocab_size);
    };
    std::set<TokenId> biased;
    for (const auto& [token, bias] : options.logit_bias) {
        if (token < 0 || token >= vocab_size) return why_outside("--logit-bias", token);
        if (!biased.insert(token).second) return fmt::format("--logit-bias names token {} twice", token);
    }
    for (const TokenId token : options.banned_tokens)
        if (token < 0 || token >= vocab_size) return why_outside("--banned-tokens", token);
    if (std::set(options.banned_tokens.begin(), options.banned_tokens.end()).size() >=
        static_cast<std::size_t>(vocab_size))
        return "--banned-tokens names the whole vocabulary";
    return {};
}

std::string why_nothing(const LogitProcessing& options) {
    std::string why = NothingToSay().what();
    if (!options.constraint.is_on()) return why;
    const std::string language = to_string(options.constraint.language);
    why += ", or goes against its " + language;
    const std::string limit = options.grammar->limit_met();
    if (limit.empty()) return why;
    return why + fmt::format("; the {} met a limit of this program, {}: give a simpler one", language, limit);
}

LogitProcessor::LogitProcessor(const LogitProcessing& options, std::span<const TokenId> prompt,
                               std::span<const TokenId> eos_tokens, std::span<const TokenId> source)
    : options_(options), hash_(1) {
    for (const TokenId token : eos_tokens)
        if (!is_end(token)) eos_tokens_.push_back(token);
    if (const std::string reason = why_never_valid(options); !reason.empty()) throw std::invalid_argument(reason);
    order_as_added(options_.sequence_bias);
    read_source(source.empty() ? prompt : source);
    for (int i = 1; i < options.no_repeat_ngram_size; ++i)
        window_factor_ *= kHashFactor;
    prompt_size_ = std::numeric_limits<std::size_t>::max(); // all that comes now is prompt
    for (const TokenId token : prompt)
        push(token);
    prompt_size_ = prompt.size();
    if (options.constraint.is_on() && !options.grammar) throw std::invalid_argument("a constraint is not compiled");
    if (options.grammar) matcher_.emplace(options.grammar);
}

void LogitProcessor::read_source(std::span<const TokenId> source) {
    if (options_.encoder_repetition_penalty != 1) {
        const std::set<TokenId> distinct(source.begin(), source.end());
        source_tokens_.assign(distinct.begin(), distinct.end());
    }
    const auto n = static_cast<std::size_t>(options_.encoder_no_repeat_ngram_size);
    for (std::size_t end = n; n > 0 && end <= source.size(); ++end) {
        const auto context = source.subspan(end - n, n - 1);
        source_ngrams_[{context.begin(), context.end()}].push_back(source[end - 1]);
    }
}

// Hash of the n - 1 tokens before place `end`. All of them must be there.
std::uint64_t LogitProcessor::context_hash(std::size_t end) const {
    const auto context = static_cast<std::size_t>(options_.no_repeat_ngram_size - 1);
    return hash_[end] - hash_[end - context] * window_factor_;
}

bool LogitProcessor::same_context(std::size_t a, std::size_t b) const {
    const auto context = static_cast<std::ptrdiff_t>(options_.no_repeat_ngram_size - 1);
    const auto end_a = tokens_.begin() + static_cast<std::ptrdiff_t>(a);
    const auto end_b = tokens_.begin() + static_cast<std::ptrdiff_t>(b);
    return std::equal(end_a - context, end_a, end_b - context);
}

void LogitProcessor::push(TokenId token) {
    const std::size_t place = tokens_.size();
    Count& count = counts_[token];
    if (count.in_all++ == 0) distinct_.push_back(token);
    if (place >= prompt_size_ && count.in_text++ == 0) distinct_in_text_.push_back(token);
    tokens_.push_back(token);
    if (matcher_) matcher_->push(token);
    if (options_.no_repeat_ngram_size < 2) return; // distinct_ serves for single tokens
    std::int64_t before = -1;
    if (place + 1 >= static_cast<std::size_t>(options_.no_repeat_ngram_size)) {
        const auto [entry, is_new] = last_.try_emplace(context_hash(place), -1);
        before = std::exchange(entry->second, static_cast<std::int64_t>(place));
    }
    same_hash_before_.push_back(before);
    hash_.push_back(hash_.back() * kHashFactor + static_cast<std::uint32_t>(token) + 1);
}

void LogitProcessor::pop(int count) {
    if (count < 0 || count > new_tokens()) throw std::out_of_range("more tokens popped than pushed after the prompt");
    for (; count > 0; --count) {
        const TokenId token = tokens_.back();
        tokens_.pop_back();
        if (matcher_) matcher_->pop();
        const auto counted = counts_.find(token);
        if (--counted->second.in_text == 0) distinct_in_text_.pop_back();
        if (--counted->second.in_all == 0) {
            distinct_.pop_back();
            counts_.erase(counted);
        }
        if (options_.no_repeat_ngram_size < 2) continue;
        hash_.pop_back();
        const std::size_t place = tokens_.size();
        if (place + 1 >= static_cast<std::size_t>(options_.no_repeat_ngram_size)) {
            const auto entry = last_.find(context_hash(place));
            entry->second = same_hash_before_.back();
            if (entry->second < 0) last_.erase(entry);
        }
        same_hash_before_.pop_back();
    }
}

void LogitProcessor::follow(std::span<const TokenId> tokens) {
    const auto same = std::mismatch(tokens_.begin(), tokens_.end(), tokens.begin(), tokens.end()).first;
    pop(static_cast<int>(tokens_.end() - same));
    for (const TokenId token : tokens.subspan(tokens_.size()))
        push(token);
}

void LogitProcessor::ban_repeats(std::span<float> logits, TokenId first_token) const {
    if (options_.no_repeat_ngram_size == 1)
        for (const TokenId token : distinct_)
            ban_token(logits, first_token, token);
    if (options_.no_repeat_ngram_size < 2 ||
        tokens_.size() + 1 < static_cast<std::size_t>(options_.no_repeat_ngram_size))
        return;
    const auto latest = last_.find(context_hash(tokens_.size()));
    if (latest == last_.end()) return;
    for (std::int64_t place = latest->second; place >= 0; place = same_hash_before_[place])
        if (same_context(static_cast<std::size_t>(place), tokens_.size()))
            ban_token(logits, first_token, tokens_[place]);
}

void LogitProcessor::ban_repeats_of_source(std::span<float> logits, TokenId first_token) const {
    const auto n = static_cast<std::size_t>(options_.encoder_no_repeat_ngram_size);
    if (n == 0 || tokens_.size() + 1 < n) return;
    const auto found = source_ngrams_.find({tokens_.end() - static_cast<std::ptrdiff_t>(n - 1), tokens_.end()});
    if (found == source_ngrams_.end()) return;
    for (const TokenId token : found->second)
        ban_token(logits, first_token, token);
}

bool LogitProcessor::is_end(TokenId token) const {
    return std::ranges::find(eos_tokens_, token) != eos_tokens_.end();
}

bool LogitProcessor::completes(const BiasedTokens& sequence) const {
    const auto n = static_cast<std::ptrdiff_t>(sequence.tokens.size() - 1);
    return std::ssize(tokens_) >= n && std::equal(tokens_.end() - n, tokens_.end(), sequence.tokens.begin());
}

void LogitProcessor::ban_words(std::span<float> logits, TokenId first_token) const {
    for (const BiasedTokens& word : options_.sequence_bias) {
        const bool is_an_end = word.tokens.size() == 1 && is_end(word.tokens.front());
        if (is_bad_word(word) && !is_an_end && completes(word)) ban_token(logits, first_token, word.tokens.back());
    }
}

// Where both are forced, the end of text wins over the first token, as in transformers.
std::span<const TokenId> LogitProcessor::forced() const {
    if (!options_.forced_eos_tokens.empty() && new_tokens() == options_.forced_eos_at)
        return options_.forced_eos_tokens;
    if (options_.forced_bos_token >= 0 && tokens_.size() == 1) return {&options_.forced_bos_token, 1};
    return {};
}

bool LogitProcessor::allows(TokenId token) const {
    return !matcher_ || matcher_->mask().allows(token);
}

std::optional<TokenId> LogitProcessor::only_token() const {
    if (!matcher_) return std::nullopt;
    const std::optional<TokenId> token = matcher_->mask().only();
    if (!token || !options_.bans_beside_constraint()) return token;
    float logit = 0;
    ban({&logit, 1}, *token);
    return logit == kBanned ? std::nullopt : token;
}

void LogitProcessor::ban(std::span<float> logits, TokenId first_token) const {
    if (matcher_) matcher_->mask().ban_others(logits, first_token);
    if (const auto only = forced(); !only.empty()) {
        for (std::size_t i = 0; i < logits.size(); ++i)
            if (std::ranges::find(only, first_token + static_cast<TokenId>(i)) == only.end()) logits[i] = kBanned;
    } else {
        ban_repeats(logits, first_token);
        ban_repeats_of_source(logits, first_token);
        ban_words(logits, first_token);
        for (const TokenId token : eos_tokens_)
            if (new_tokens() < options_.min_new_tokens) ban_token(logits, first_token, token);
    }
    for (const auto* tokens : {&options_.banned_tokens, &options_.suppress_tokens})
        for (const TokenId token : *tokens)
            ban_token(logits, first_token, token);
    const int begin = prompt_size_ == 1 && options_.forced_bos_token >= 0 ? 1 : 0;
    for (const TokenId token : options_.begin_suppress_tokens)
        if (new_tokens() == begin) ban_token(logits, first_token, token);
}

// Computes in float, operation by operation, as torch does.
void LogitProcessor::weigh(std::span<float> logits, TokenId first_token) const {
    if (const auto only = forced(); !only.empty()) {
        for (const TokenId token : only)
            if (float* logit = logit_of(logits, first_token, token); logit && *logit != kBanned) *logit = 0;
        return;
    }
    for (const auto& [token, bias] : options_.logit_bias)
        if (float* logit = logit_of(logits, first_token, token)) *logit += bias;
    add_sequence_biases(logits, first_token);
    penalise(source_tokens_, static_cast<float>(1 / options_.encoder_repetition_penalty), logits, first_token);
    if (options_.repetition_penalty != 1)
        penalise(distinct_, static_cast<float>(options_.repetition_penalty), logits, first_token);
    if (options_.frequency_penalty != 0 || options_.presence_penalty != 0) {
        const auto frequency = static_cast<float>(options_.frequency_penalty);
        const auto presence = static_cast<float>(options_.presence_penalty);
        for (const TokenId token : distinct_in_text_)
            if (float* logit = logit_of(logits, first_token, token)) {
                *logit -= frequency * static_cast<float>(counts_.at(token).in_text);
                *logit -= presence;
            }
    }
    decay(logits, first_token);
}

// The biases of a token are summed first.
void LogitProcessor::add_sequence_biases(std::span<float> logits, TokenId first_token) const {
    std::map<TokenId, float> sums;
    for (const BiasedTokens& each : options_.sequence_bias)
        if (!is_bad_word(each) && completes(each)) sums[each.tokens.back()] += each.bias;
    for (const auto& [token, sum] : sums)
        if (float* logit = logit_of(logits, first_token, token)) *logit += sum;
}

void LogitProcessor::decay(std::span<float> logits, TokenId first_token) const {
    const int past = new_tokens() - options_.decay.start;
    if (options_.decay.factor == 1 || past <= 0) return;
    constexpr float kMost = std::numeric_limits<float>::max();
    const auto gain = static_cast<float>(std::min<double>(std::pow(options_.decay.factor, past) - 1, kMost));
    for (const TokenId token : eos_tokens_)
        if (float* logit = logit_of(logits, first_token, token); logit && std::isfinite(*logit))
            *logit = std::min(*logit + std::abs(*logit) * gain, kMost);
}

void LogitProcessor::apply(std::span<float> logits, TokenId first_token) const {
    weigh(logits, first_token);
    ban(logits, first_token);
}

void LogitProcessor::apply_to_rows(std::span<const TokenId> drafted, Parents parents, std::span<float> logits,
                                   TokenId first_token) {
    const std::size_t rows = drafted.size() + 1;
    if (logits.size() % rows != 0) throw std::invalid_argument("logits are not one row more than drafted tokens");
    const std::size_t row_size = logits.size() / rows;
    int at = -1; // tokens() end with this drafted token
    for (int node = -1; node < static_cast<int>(drafted.size()); ++node) {
        const int parent = node < 0 ? -1 : parent_of(parents, node);
        if (at != parent) { // another branch
            pop(depth_of(parents, at));
            for (const int ancestor : path_to(parents, parent))
                push(drafted[ancestor]);
        }
        if (node >= 0) push(drafted[at = node]);
        apply(logits.subspan(static_cast<std::size_t>(node + 1) * row_size, row_size), first_token);
    }
    pop(depth_of(parents, at));
}

} // namespace entrodraft::spec
