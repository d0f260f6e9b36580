// Makes random numbers, and samples by noise that is the same for every model and rank.
//
// A number is a pure function of key and counter (Philox4x32-10, Salmon et al., "Parallel random numbers: as easy as 1,
// 2, 3", SC 2011), so no rank keeps generator state. The key is a hash of (seed, sequence key, purpose, cascade level).
// The counter is (position, token or 0, round start). Two purposes never share a number.
//
// Gumbel-distributed noise g(token) is the same for each (seed, sequence, position, token). Every model, draft or
// target, and every rank takes the arg max of logit / temperature + g(token). This token is a sample of softmax(logits
// / temperature). So the text is that of plain sampling with the seed, whatever was drafted. `gumbel` acceptance is
// verify_greedy over these tokens.
//
// g = -log(-log(1 - v)), with v uniform in (0, 1). v has 32 bits, and 32 more if it is below 2^-12. The bits are word
// (t / 16) % 4 of the Philox block with number t / 64 * 16 + t % 16 at the position, for token t. So 64 neighbouring
// tokens share 16 blocks. The order of all operations is fixed: every processor and every slicing of the vocabulary
// gives the same bits. Called by the drafter, the ranks (on their slice) and the coordinator (on the gathered rows).
#pragma once

#include "model/cpu/kernels.h"
#include "spec/verify/sampling.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace entrodraft::spec {

// The use of a random number. No number serves two purposes: if draft sample and resample shared one, the output
// distribution would visibly change.
enum class Purpose : std::uint32_t { gumbel_noise = 1, draft_sample = 2, acceptance = 3, resample = 4 };

// The raw generator: makes 128 bits from a 64-bit key and a 128-bit counter.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

// Packs a position and the start of the round that decides it into one number, as each fits into 32 bits. `round_start`
// is 0 for noise that does not depend on the round.
inline std::uint64_t noise_position(std::uint64_t position, std::uint64_t round_start) {
    return position | round_start << 32;
}

class RandomStream {
  public:
    RandomStream(std::uint64_t seed, std::uint64_t sequence_key, Purpose purpose, std::uint32_t cascade_level = 0);
    // Uniform in [0, 1) with 53 bits.
    double uniform(std::uint64_t position, std::uint32_t token = 0, std::uint32_t round_start = 0) const;

    std::array<std::uint32_t, 2> key() const { return key_; }

  private:
    std::array<std::uint32_t, 2> key_;
};

// 64-bit mixing hash of a byte string, for sequence keys and checksums: the same on every machine.
std::uint64_t hash_bytes(const void* data, std::size_t bytes, std::uint64_t seed = 0);

// ---- noise of tokens, and the best of them ----

class GumbelNoise {
  public:
    GumbelNoise(std::uint64_t seed, std::uint64_t sequence_key) : stream_(seed, sequence_key, Purpose::gumbel_noise) {}
    // For another purpose. Nothing else may draw from this stream.
    explicit GumbelNoise(const RandomStream& stream) : stream_(stream) {}

    // The noise of a token emitted at this position of the sequence: from -3.2 to 45.1.
    double at(std::uint64_t position, TokenId token) const;
    // The noise of tokens 0, 1, ..., within 1e-5 of at(). It is many times faster, and serves to rank a draft's tokens.
    void fill(std::uint64_t position, std::span<float> noise) const;
    // The same as at(), where the token's 32 bits are known.
    double of_word(std::uint32_t word, std::uint64_t position, TokenId token) const;
    std::array<std::uint32_t, 2> key() const { return stream_.key(); }

  private:
    RandomStream stream_;
};

// Logits of the tokens from first_token on, a rank's share of a row or all of it.
struct LogitSlice {
    std::span<const float> logits;
    TokenId first_token = 0;
    std::uint64_t position = 0; // in the sequence, of the token that the row decides
};

struct BestToken {
    double value = -std::numeric_limits<double>::infinity();     // logit / temperature + noise
    TokenId token = -1;                                          // the lowest of ties; -1 if every logit is -inf
    double runner_up = -std::numeric_limits<double>::infinity(); // second-best value

    double margin() const { return value - runner_up; } // infinite if there is no second token
};

// The best token of a row's logits without noise, from the row's summary.
BestToken arg_max_of(const model::LogitStats& stats);

// The best of two disjoint slices.
BestToken better(const BestToken& a, const BestToken& b);

// The best of a slice without filters. Computes the noise of few tokens only: for the others an upper bound shows that
// they cannot win. Throws std::runtime_error on NaN and +inf. Throws std::invalid_argument on a temperature that is 0
// or that why_invalid refuses, and on a first_token below 0.
BestToken gumbel_max(const LogitSlice& slice, double temperature, const GumbelNoise& noise);

// The best of the tokens that adjust() keeps of a whole row. Throws as adjust() does.
BestToken gumbel_max_adjusted(const LogitSlice& row, const SamplingOptions& options, const GumbelNoise& noise);

// The form in which ranks send a row, so that the coordinator finds the best of the tokens that adjust() would keep.
enum class GumbelGather {
    best,      // a BestToken: nothing is filtered
    shortlist, // a shortlist: top-k (up to kMaxShortlisted, with or without top-p and min-p), or min-p alone
    rows,      // the logits: a larger top-k, or top-p without top-k, whose border depends on every token's mass
};
constexpr int kMaxShortlisted = 1024;
GumbelGather gumbel_gather(const SamplingOptions& options);

// A rank sorts its tokens by logit, the best first. The filters of the whole row cut this list at some place. For each
// possible place the shortlist has the best token before it. It holds the first top_k logits (the first one if top-k is
// off), and the tokens that beat all before them, about ten. It is plain bytes of a fixed size.
std::size_t shortlist_bytes(const SamplingOptions& options);

// Fills `shortlist`, which has shortlist_bytes(options). Throws as gumbel_max does, and std::invalid_argument where
// gumbel_gather asks for another form.
void make_shortlist(const LogitSlice& slice, const SamplingOptions& options, const GumbelNoise& noise,
                    std::span<std::byte> shortlist);

// The best of the whole row, from the shortlists of its slices: in the order of the slices, without gaps. Its runner_up
// is NaN. Throws NothingToSay if no token is left, and std::invalid_argument if the size is not a multiple of
// shortlist_bytes(options).
BestToken best_of_shortlists(std::span<const std::byte> shortlists, const SamplingOptions& options);

} // namespace entrodraft::spec
