// How one model chooses its next token: what a request asks to be done to a row of logits, and then arg max, Gumbel-max
// sample or a sample. A draft and the middle models of a cascade choose this way; the target's rows, sharded across
// ranks, come together in row_gather.h.
//
// Holds the prefix that penalties and banned tokens look at, one sequence at a time. Called by drafters only.
#pragma once

#include "model/decoder.h"
#include "spec/request.h"
#include "spec/stop/gain_model.h"
#include "spec/verify/verify.h"

#include <optional>
#include <span>
#include <vector>

namespace entrodraft::spec {

// What all of a round's choices have in common, beside the request.
struct ChoiceSetting {
    Acceptance acceptance = Acceptance::rejection;
    // Of all numbers but gumbel's: seed and sequence key, or a key of its own below a cascade's first level.
    std::uint64_t seed = 0;
    std::uint64_t random_key = 0;
    std::uint32_t level = 0; // of a cascade: 0 drafts for the target
};

// A row of logits as the request wants it seen.
struct SeenLogits {
    std::span<const float> logits;    // [vocab], penalties and banned tokens applied
    model::kernels::LogitStats stats; // of the row with bans alone; what was asked for of it
    bool is_dead = false;             // every token is banned
};

// What rules see of a token of a row: `logit` is its own, with bans alone. Local.
DraftedToken drafted_token(const model::kernels::LogitStats& stats, float logit);
// The same by the adjusted distribution. Local.
DraftedToken drafted_token(std::span<const float> adjusted, TokenId token);

class TokenChooser {
  public:
    void begin_sequence(const Request& request, std::span<const TokenId> eos_tokens);
    // Whether tokens are drawn from distributions, so that verification needs these.
    bool draws(Acceptance acceptance) const { return !request_->sampling.greedy() && acceptance != Acceptance::gumbel; }
    // What to ask of the pass that makes the rows: its own summary serves where nothing is done to logits.
    model::LogitNeeds needs(bool whole_distribution, Acceptance acceptance) const;

    // The row that follows `prefix`. `head` is the summary that the pass has made of it; valid until the next call.
    // Local.
    SeenLogits see(std::span<const float> logits, const model::kernels::LogitStats& head,
                   std::span<const TokenId> prefix, bool whole_distribution);
    // The noise that the pass may add to the row that follows `position` tokens, so that it finds the best itself; of
    // temperature 0 where there is none, or where it takes the logits. Local.
    model::RowNoise noise(std::uint64_t position, Acceptance acceptance) const;
    // The same where the row stays on a GPU, so that the pass draws the token itself in the round that began at
    // `round_start`. Local.
    model::RowNoise device_noise(std::uint64_t position, std::uint64_t round_start, const ChoiceSetting& setting) const;
    // The token emitted at `position` (the prefix's length): arg max or Gumbel-max sample; `noisy` is what the pass
    // found, if it did. Local.
    TokenId best(const SeenLogits& row, std::uint64_t position, Acceptance acceptance,
                 const model::NoisyToken* noisy = nullptr) const;
    // The adjusted distribution of a row, and a sample of it with the draft's number at this position in the round that
    // began at `round_start`: rejected tokens have a say in how much is drafted next, so their numbers are not drawn
    // again. Local.
    void distribution(const SeenLogits& row, std::span<float> q) const;
    // The same where text is greedy too: then the softmax at temperature 1, without filters. Local.
    void adjusted(const SeenLogits& row, std::span<float> q) const;
    TokenId sample_of(std::span<const float> q, std::uint64_t position, std::uint64_t round_start,
                      const ChoiceSetting& setting) const;

  private:
    const Request* request_ = nullptr;
    std::optional<LogitProcessor> processor_; // none where the request asks for nothing
    std::vector<float> processed_;
};

} // namespace entrodraft::spec
