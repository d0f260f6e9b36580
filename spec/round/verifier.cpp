// Turns gathered rows into a verification: see verifier.h.
#include "spec/round/verifier.h"

#include "spec/verify/random.h"
#include "spec/verify/sampling.h"

#include <algorithm>
#include <cmath>

namespace entrodraft::spec {

namespace {

// A row in which every token is banned becomes zeros: it only matters if the text gets there.
bool adjust_if_alive(std::span<const float> logits, const SamplingOptions& sampling, std::span<float> p) {
    try {
        adjust(logits, sampling, p);
        return true;
    } catch (const NothingToSay&) {
        std::fill(p.begin(), p.end(), 0.0F);
        return false;
    }
}

// For a chain: the number of accepted tokens gives the last one.
VerifiedRound of_chain(VerifiedRound verified) {
    verified.last_accepted = verified.verification.accepted - 1;
    return verified;
}

class ExactVerifier final : public Verifier {
  public:
    explicit ExactVerifier(const VerifyOptions& options) : options_(options) {}
    VerifiedRound verify(const TargetRows& rows, const Draft& draft, const Request& request,
                         std::uint64_t position) override;

  private:
    VerifiedRound verify_best(const TargetRows& rows, const Draft& draft, bool is_greedy) const;
    VerifiedRound verify_tree(const Draft& draft, const Request& request, std::uint64_t position) const;
    VerifiedRound verify_on_device(const TargetRows& rows, std::size_t n_drafted, const Request& request,
                                   std::uint64_t position);
    void read_rows(const TargetRows& rows, std::size_t n_rows, const Request& request);
    void add_overlaps(const Draft& draft, VerifiedRound& verified) const;

    VerifyOptions options_;
    std::vector<float> p_;                 // [rows][vocab_size]
    std::vector<VerifiedRow> device_rows_; // [rows]
    std::size_t dead_row_ = 0;             // the first row in which every token is banned
};

VerifiedRound ExactVerifier::verify(const TargetRows& rows, const Draft& draft, const Request& request,
                                    std::uint64_t position) {
    const std::span<const TokenId> drafted(draft.tokens);
    const SamplingOptions& sampling = request.sampling;
    const bool is_best =
        sampling.greedy() ? !options_.acceptance.is_lossy() : options_.acceptance.kind == Acceptance::gumbel;
    if (rows.format() == RowFormat::verified_on_device)
        return of_chain(verify_on_device(rows, drafted.size(), request, position));
    if (is_best) return verify_best(rows, draft, sampling.greedy());

    read_rows(rows, drafted.size() + 1, request);
    if (!is_chain(draft.parents)) {
        VerifiedRound verified = verify_tree(draft, request, position);
        if (static_cast<std::size_t>(verified.last_accepted + 1) == dead_row_) throw NothingToSay();
        return verified;
    }
    const RandomStream acceptance(sampling.seed, request.sequence_key, Purpose::acceptance);
    const RandomStream resample(sampling.seed, request.sequence_key, Purpose::resample);
    VerifiedRound verified;
    if (options_.acceptance.has_threshold()) {
        const ThresholdInput input = {drafted, p_, position, options_.acceptance};
        verified.verification = verify_threshold(input, sampling.greedy() ? nullptr : &resample);
    } else if (sampling.greedy()) {
        verified.verification = verify_greedy_lenient(drafted, p_, options_.acceptance.lenience);
        verified.overlap = verified.verification.accepted;
        verified.overlaps = std::min(static_cast<int>(drafted.size()), verified.verification.accepted + 1);
    } else {
        const RejectionInput input = {drafted, p_, draft.q, position, options_.acceptance.lenience};
        verified.verification = options_.acceptance.kind == Acceptance::block
                                    ? verify_block(input, acceptance, resample)
                                    : verify_rejection(input, acceptance, resample);
        add_overlaps(draft, verified);
    }
    if (static_cast<std::size_t>(verified.verification.accepted) == dead_row_) throw NothingToSay();
    return of_chain(std::move(verified));
}

// For greedy and gumbel: accepts a drafted token while it is the target's own.
VerifiedRound ExactVerifier::verify_best(const TargetRows& rows, const Draft& draft, bool is_greedy) const {
    VerifiedRound verified;
    for (int node = -1;; ++verified.verification.accepted) { // rows of other branches are not looked at
        const BestToken best = rows.best(static_cast<std::size_t>(node + 1));
        verified.verification.next_token = best.token;
        verified.last_accepted = node;
        verified.margins.push_back(best.margin());
        const std::vector<int> children = children_of(draft.parents, node);
        const auto child = std::ranges::find(children, best.token, [&](int each) { return draft.tokens[each]; });
        if (is_greedy) { // p and q are one-hot
            verified.overlap += child != children.end() ? 1 : 0;
            verified.overlaps += children.empty() ? 0 : 1;
        }
        if (child == children.end()) return verified;
        node = *child;
    }
}

// Verifies by p_. There is no `block` here, which is for chains alone.
VerifiedRound ExactVerifier::verify_tree(const Draft& draft, const Request& request, std::uint64_t position) const {
    const SamplingOptions& sampling = request.sampling;
    const RandomStream acceptance(sampling.seed, request.sequence_key, Purpose::acceptance);
    const RandomStream resample(sampling.seed, request.sequence_key, Purpose::resample);
    const TreeInput input = {draft.tokens, draft.parents, p_, position};
    const auto emit = [&](std::span<const float> row, std::size_t depth) {
        return sampling.greedy() ? arg_max(row) : sample(row, resample.uniform(position + depth));
    };
    TreeVerification verified;
    if (options_.acceptance.has_threshold()) {
        const auto score = [&](std::span<const float> p, TokenId token) -> std::optional<double> {
            if (!passes_threshold(p, token, options_.acceptance)) return std::nullopt;
            return std::log(static_cast<double>(p[token]));
        };
        verified = verify_longest_path(input, score, emit);
    } else if (sampling.greedy()) { // p_ holds logits
        const double margin = std::log(options_.acceptance.lenience);
        const auto score = [&](std::span<const float> logits, TokenId token) -> std::optional<double> {
            const double below = static_cast<double>(logits[token]) - static_cast<double>(logits[arg_max(logits)]);
            return below >= margin ? std::optional(below) : std::nullopt;
        };
        verified = verify_longest_path(input, score, emit);
    } else {
        verified = verify_tree_rejection(input, draft.q, tree_numbers(acceptance, resample, position));
    }
    VerifiedRound round;
    round.verification = {depth_of(draft.parents, verified.last_accepted), verified.next_token};
    round.last_accepted = verified.last_accepted;
    return round;
}

// Verifies by the figures that the GPU has computed from the rows.
VerifiedRound ExactVerifier::verify_on_device(const TargetRows& rows, std::size_t n_drafted, const Request& request,
                                              std::uint64_t position) {
    device_rows_.clear();
    for (std::size_t row = 0; row <= n_drafted; ++row)
        device_rows_.push_back(rows.verified(row));
    const RandomStream acceptance(request.sampling.seed, request.sequence_key, Purpose::acceptance);
    const DeviceInput input = {device_rows_, position, options_.acceptance.lenience};
    VerifiedRound verified;
    verified.verification = options_.acceptance.kind == Acceptance::block ? verify_block(input, acceptance)
                                                                          : verify_rejection(input, acceptance);
    const std::size_t n_verified = std::min(n_drafted, static_cast<std::size_t>(verified.verification.accepted) + 1);
    for (std::size_t row = 0; row < n_verified; ++row)
        verified.overlap += device_rows_[row].overlap;
    verified.overlaps = static_cast<int>(n_verified);
    return verified;
}

// Fills p_ with the target's rows in the form that the rule needs: adjusted distributions. For greedy text it takes
// logits, or the plain softmax for kinds with a threshold.
void ExactVerifier::read_rows(const TargetRows& rows, std::size_t n_rows, const Request& request) {
    const auto vocab = static_cast<std::size_t>(options_.vocab_size);
    SamplingOptions sampling = request.sampling;
    if (sampling.greedy() && options_.acceptance.has_threshold()) {
        sampling = {};
        sampling.temperature = 1;
    }
    p_.resize(n_rows * vocab);
    dead_row_ = n_rows;
    for (std::size_t row = 0; row < n_rows; ++row) {
        const std::span<const float> logits = rows.logits(row);
        const std::span<float> to(p_.data() + row * vocab, vocab);
        bool is_alive = true;
        if (sampling.greedy()) {
            std::copy(logits.begin(), logits.end(), to.begin());
            is_alive = std::isfinite(logits[arg_max(logits)]);
        } else {
            is_alive = adjust_if_alive(logits, sampling, to);
        }
        if (!is_alive) dead_row_ = std::min(dead_row_, row);
    }
}

void ExactVerifier::add_overlaps(const Draft& draft, VerifiedRound& verified) const {
    const auto vocab = static_cast<std::size_t>(options_.vocab_size);
    const std::size_t n_verified =
        std::min(draft.tokens.size(), static_cast<std::size_t>(verified.verification.accepted) + 1);
    const double lenience = options_.acceptance.lenience;
    for (std::size_t row = 0; row < n_verified; ++row)
        verified.overlap += acceptance_chance(std::span<const float>(p_).subspan(row * vocab, vocab),
                                              draft.q.subspan(row * vocab, vocab), lenience);
    verified.overlaps = static_cast<int>(n_verified);
}

// Accepts the same number whatever was drafted: it depends on the text and the position alone.
class SyntheticVerifier final : public Verifier {
  public:
    SyntheticVerifier(std::unique_ptr<Verifier> verifier, double probability)
        : verifier_(std::move(verifier)), probability_(probability) {}
    VerifiedRound verify(const TargetRows& rows, const Draft& draft, const Request& request,
                         std::uint64_t position) override {
        VerifiedRound verified = verifier_->verify(rows, draft, request, position);
        const RandomStream chance(request.sampling.seed, request.sequence_key, Purpose::acceptance);
        const std::vector<int> best = first_path(draft.parents);
        std::size_t accepted = 0;
        while (accepted < best.size() && chance.uniform(position + accepted) < probability_)
            ++accepted;
        verified.verification.accepted = static_cast<int>(accepted);
        verified.last_accepted = accepted > 0 ? best[accepted - 1] : -1;
        return verified;
    }

  private:
    std::unique_ptr<Verifier> verifier_;
    double probability_;
};

} // namespace

std::unique_ptr<Verifier> make_verifier(const VerifyOptions& options) {
    return std::make_unique<ExactVerifier>(options);
}

std::unique_ptr<Verifier> make_synthetic_verifier(std::unique_ptr<Verifier> verifier, double probability) {
    return std::make_unique<SyntheticVerifier>(std::move(verifier), probability);
}

} // namespace entrodraft::spec
