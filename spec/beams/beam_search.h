// Beam search of one text, as in transformers 5: decides which beams go on, which are finished, and when the search
// ends.
//
// It knows neither model nor cache: rows of candidates go in, beams come out. Called by the coordinator.
#pragma once

#include "spec/protocol/request.h"

#include <cstddef>
#include <span>
#include <vector>

namespace entrodraft::spec {

// A token that may follow a beam. Its probability is processed if the request asks for that.
using BeamCandidate = TokenLogProb;

// The best `n` by log_prob, of equal ones the lower token first. Tokens of probability 0 are left out. `row` has all
// tokens from 0 on.
std::vector<BeamCandidate> best_candidates(std::span<const float> row, std::size_t n);

class BeamSearch {
  public:
    struct Beam {
        float score = 0;             // sum of log-probabilities
        std::vector<TokenId> tokens; // after the prompt
        int parent = 0;              // the beam of the step before that it continues
    };
    struct Finished {
        std::vector<TokenId> tokens; // with the end-of-text token
        float score = 0;             // with the length penalty
        bool ended = false;          // by an end-of-text token; else by its length
    };

    // A search of at least one beam, for at most `max_new_tokens` >= 1 tokens.
    BeamSearch(const BeamOptions& options, int max_new_tokens, std::span<const TokenId> eos_tokens);

    // Adds one token. `rows`: candidates of each running beam. Ties go to the lower beam, then the lower token.
    void step(std::span<const std::vector<BeamCandidate>> rows);

    bool ended() const { return ended_; }
    std::size_t n_beams() const { return static_cast<std::size_t>(options_.num_beams); }
    int max_new_tokens() const { return max_new_tokens_; }
    int length() const { return length_; } // tokens after the prompt
    // The beams that go on, the best first; at the start one beam without tokens. They do not end the text.
    std::span<const Beam> running() const { return running_; }
    // The finished texts, the best first; at most num_beams.
    std::span<const Finished> finished() const { return finished_; }
    bool ends_text(TokenId token) const;

  private:
    struct Extended {
        float score = 0;
        int beam = 0;
        TokenId token = 0;
    };
    void add_finished(const Extended& extended);
    bool can_improve() const;
    float penalized(float score, int length) const;

    BeamOptions options_;
    int max_new_tokens_;
    std::vector<TokenId> eos_tokens_;
    std::vector<Beam> running_ = {Beam{}};
    std::vector<Finished> finished_;
    int length_ = 0;
    bool can_improve_ = true; // once false, it stays so
    bool ended_ = false;
};

} // namespace entrodraft::spec
