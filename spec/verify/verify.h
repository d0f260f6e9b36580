// Decides which drafted tokens are accepted, and which token is emitted after them. Pure.
//
// p is the target's adjusted distribution, q the draft's, x the drafted token. Row i of p is the distribution after the
// next token and i drafted tokens, so p has one row more than q. LOSSY: the text does not follow the target's
// distribution.
//   greedy     Accepts a drafted token while it equals the target's arg max. `gumbel` acceptance is the same with the
//              target's Gumbel-max samples (random.h) in place of arg maxima.
//   rejection  Leviathan et al. 2023, Algorithm 1 (also Chen et al. 2023): accepts x with probability
//              min(1, p(x) / q(x)). After a rejection, a token is drawn from norm(max(0, p - q)). After full
//              acceptance, a bonus token is drawn from p. Lenience l in (0, 1] changes the probability to
//              min(1, p(x) / (l q(x))), and greedy to p(x) >= l max p. It is LOSSY below 1.
//   block      Sun et al. 2024, Algorithm 2: verifies the drafted tokens together. Exact like rejection, and no exact
//              method accepts more of them in expectation. Has no lenience.
//   typical    Medusa (Cai et al. 2024): accepts x while p(x) > min(epsilon, delta exp(-H(p))), whatever q was. Then
//              a token is drawn from p. LOSSY.
//   bild       BiLD (Kim et al. 2023): accepts x while -ln p(x) <= the rollback distance, or x is the arg max of p,
//              whatever q was. Then a token is drawn from p. LOSSY.
#pragma once

#include "spec/gpu/device_round.h"
#include "spec/verify/random.h"
#include "spec/verify/sampling.h"
#include "spec/verify/token_tree.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::spec {

enum class Acceptance { rejection, block, gumbel, typical, bild };

std::string to_string(Acceptance acceptance);

struct Verification {
    int accepted = 0;        // leading accepted drafted tokens
    TokenId next_token = -1; // emitted after them
};

// `target_tokens` holds the target's arg max of each of the drafted.size() + 1 rows.
Verification verify_greedy(std::span<const TokenId> drafted, std::span<const TokenId> target_tokens);

// Greedy with lenience: rows of raw target logits, [drafted.size() + 1][vocab].
Verification verify_greedy_lenient(std::span<const TokenId> drafted, std::span<const float> target_logits,
                                   double lenience);

struct RejectionInput { // for `block` too
    std::span<const TokenId> drafted;
    std::span<const float> p;         // [drafted.size() + 1][vocab]
    std::span<const float> q;         // [drafted.size()][vocab]
    std::uint64_t first_position = 0; // position in the sequence of drafted[0]
    double lenience = 1;
};

// Random numbers in [0, 1) for the tokens of a round. A stream makes each number at the position in the sequence of the
// token that the number decides about; or the numbers are given, as in the exact tests.
class VerifyNumbers {
  public:
    VerifyNumbers(const RandomStream& stream) : stream_(&stream) {}         // NOLINT: a stream is its numbers
    VerifyNumbers(const std::vector<double>& given = {}) : given_(given) {} // NOLINT: and so are these

    // The i-th number of a round whose first token is at `position`.
    double at(std::size_t i, std::uint64_t position, std::uint64_t round_start) const {
        if (stream_ == nullptr) return given_[i];
        return stream_->uniform(position + i, 0, static_cast<std::uint32_t>(round_start));
    }
    bool are(std::size_t n) const { return stream_ != nullptr || given_.size() == n; }

  private:
    const RandomStream* stream_ = nullptr;
    std::span<const double> given_;
};

// The i-th number of `acceptance` decides about drafted[i]. The i-th of `resample` chooses the token emitted after i
// accepted ones. Throws std::invalid_argument on sizes and lenience, std::out_of_range on token ids. Throws
// std::runtime_error if q(x) is 0 (x cannot have been drawn from q), or if a probability that is read is NaN. A
// residual that is 0 everywhere by rounding is replaced by p.
Verification verify_rejection(const RejectionInput& input, const VerifyNumbers& acceptance,
                              const VerifyNumbers& resample);

// The chance that `rejection` accepts a token drawn from q: sum over the vocabulary of min(p / lenience, q),
// Leviathan's beta. p and q have the same length.
double acceptance_chance(std::span<const float> p, std::span<const float> q, double lenience);

// The same for `block`, which refuses a lenience other than 1. Streams make its numbers at (position, round start =
// first_position). The reason: `block` looks at the rejected tokens too, and a number that one round has used must not
// be used in the next. Hence the draft's samples must depend on the round start too.
Verification verify_block(const RejectionInput& input, const VerifyNumbers& acceptance, const VerifyNumbers& resample);

// Returns whether a GPU can verify rows that stay on it (DraftedRow): `rejection` or `block`, sampled without filters.
// Tokens are then drawn as the best of logit / temperature + Gumbel noise. The noise takes the place of the numbers of
// the purposes draft_sample and resample, and has their positions and round starts.
bool can_verify_on_device(Acceptance acceptance, const SamplingOptions& sampling);

// The rows that the GPU has verified, [drafted + 1].
struct DeviceInput {
    std::span<const VerifiedRow> rows;
    std::uint64_t first_position = 0; // position in the sequence of the first drafted token
    double lenience = 1;
};

// The same as verify_rejection and verify_block above. Throw std::runtime_error if a probability is not a number, and
// std::invalid_argument on sizes and lenience.
Verification verify_rejection(const DeviceInput& input, const RandomStream& acceptance);
Verification verify_block(const DeviceInput& input, const RandomStream& acceptance);

// Medusa's threshold: `epsilon`, and less where the target itself is unsure.
struct TypicalOptions {
    double epsilon = 0.09;
    double delta = 0.3;
    bool operator==(const TypicalOptions&) const = default;
};

// The options of verification.
struct AcceptanceOptions {
    Acceptance kind = Acceptance::gumbel;
    double lenience = 1; // for rejection and greedy text
    TypicalOptions typical = {};
    double distance = 5; // for bild: how far -log of the target's probability of a token may go

    // True if acceptance compares the target's probability of a token with a threshold: `typical` and `bild`.
    bool has_threshold() const { return kind == Acceptance::typical || kind == Acceptance::bild; }
    // True if the text is not the target's own.
    bool is_lossy() const { return lenience < 1 || has_threshold(); }
    bool operator==(const AcceptanceOptions&) const = default;
};
// Returns "rejection", with values that are not the defaults: "typical:epsilon=0.2".
std::string describe(const AcceptanceOptions& options);

// For kinds with a threshold. Returns why the options are invalid, with the option's name; empty if they are valid.
const char* why_invalid(const AcceptanceOptions& options);

struct ThresholdInput {
    std::span<const TokenId> drafted;
    std::span<const float> p;         // [drafted.size() + 1][vocab]; for greedy text the softmax at temperature 1
    std::uint64_t first_position = 0; // position in the sequence of drafted[0]
    AcceptanceOptions options;        // the kind has a threshold
};

// Emits a sample of p after the accepted tokens, with the number at the emitted token's position in the sequence.
// Without `resample` it emits the arg max of p, which `bild` always accepts, and `typical` if delta is below 1. Throws
// as verify_rejection does.
Verification verify_threshold(const ThresholdInput& input, const RandomStream* resample = nullptr);

// ---- trees ----

struct TreeVerification {
    int last_accepted = -1;  // last drafted token of the accepted path; -1: none is accepted
    TokenId next_token = -1; // emitted after it
};

struct TreeInput {
    std::span<const TokenId> drafted;
    Parents parents;
    std::span<const float> p; // [drafted.size() + 1][vocab]: row 0 after the next token, row i + 1 after drafted[i]
    std::uint64_t first_position = 0; // position in the sequence of a token that follows the next token
};

// Random numbers in [0, 1) of a round: for the sibling of a rank at a depth, and for the token emitted at a depth.
struct TreeNumbers {
    std::function<double(std::size_t depth, std::size_t rank)> acceptance;
    std::function<double(std::size_t depth)> resample;
};
TreeNumbers tree_numbers(const RandomStream& acceptance, const RandomStream& resample, std::uint64_t first_position);

// `rejection` with siblings that were drawn one after another. Row q[i] is the distribution that drafted[i] was drawn
// from: the draft's without the siblings before it, or 1 at the token if it was not drawn. At first r = p. A child x is
// accepted with probability min(1, r(x) / q(x)), else r becomes norm(max(0, r - q)) for its next sibling. If none is
// left, a token from r is emitted. Exact (Chen et al. 2024, Sequoia; Jeon et al. 2024, RSD), if the choice of proposed
// tokens does not depend on the tokens of their siblings. Throws as verify_rejection does.
TreeVerification verify_tree_rejection(const TreeInput& input, std::span<const float> q, const TreeNumbers& numbers);

// Accepts the longest path of accepted tokens; of equally long ones that of the largest sum of scores. The row after
// its last token emits the next one. Kinds with a threshold and greedy lenience use it for trees. `score` returns a
// token's score in its row, or nothing if it is not accepted. `emit` returns the token that a row at a depth emits.
TreeVerification
verify_longest_path(const TreeInput& input,
                    const std::function<std::optional<double>(std::span<const float> row, TokenId token)>& score,
                    const std::function<TokenId(std::span<const float> row, std::size_t depth)>& emit);

// Returns whether a kind with a threshold accepts the token; p is its row of probabilities. Throws std::runtime_error
// if the token's own is NaN.
bool passes_threshold(std::span<const float> p, TokenId token, const AcceptanceOptions& options);

} // namespace entrodraft::spec
