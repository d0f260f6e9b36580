// Acceptance of drafted tokens. Pure: the random numbers come in as arguments. See verify.h for the rules.
#include "spec/verify/verify.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace entrodraft::spec {

namespace {

void check_lenience(double lenience) {
    if (!(lenience > 0 && lenience <= 1)) throw std::invalid_argument("--lenience must be above 0 and at most 1");
}

// Length of each of `rows` rows in `values` numbers.
std::size_t row_length(std::size_t values, std::size_t rows, const char* what) {
    if (rows == 0 || values == 0 || values % rows != 0)
        throw std::invalid_argument(fmt::format("{}: {} numbers are not {} rows", what, values, rows));
    return values / rows;
}

std::size_t index_of(TokenId token, std::size_t vocab) {
    if (token < 0 || static_cast<std::size_t>(token) >= vocab)
        throw std::out_of_range(fmt::format("drafted token {} is outside the vocabulary of {}", token, vocab));
    return static_cast<std::size_t>(token);
}

// A row of [rows][vocab].
std::span<const float> row_of(std::span<const float> rows, std::size_t i, std::size_t vocab) {
    return rows.subspan(i * vocab, vocab);
}

// Checks the sizes of what rejection and block compare; returns the vocabulary's.
std::size_t check_sizes(const RejectionInput& input, std::span<const double> acceptance,
                        std::span<const double> resample) {
    const std::size_t n_drafted = input.drafted.size();
    const std::size_t vocab = row_length(input.p.size(), n_drafted + 1, "target distributions");
    if (input.q.size() != n_drafted * vocab)
        throw std::invalid_argument(
            fmt::format("draft distributions: {} numbers are not {} rows of {}", input.q.size(), n_drafted, vocab));
    if (acceptance.size() != n_drafted || resample.size() != n_drafted + 1)
        throw std::invalid_argument("verifying needs a number for each token that may be emitted");
    return vocab;
}

// What target and draft think of a drafted token.
struct TokenOdds {
    double p = 0, q = 0;
};

// A message calls the token `what` `number`.
TokenOdds check_odds(const TokenOdds& odds, const char* what, std::size_t number) {
    if (!(odds.p >= 0) || !(odds.q > 0) || !std::isfinite(odds.p) || !std::isfinite(odds.q))
        throw std::runtime_error(fmt::format(
            "{}{} has draft probability {:f} and target probability {:f}: it cannot have been drawn from this row",
            what, number, odds.q, odds.p));
    return odds;
}

TokenOdds odds_of(TokenId token, std::span<const float> p, std::span<const float> q) {
    const std::size_t x = index_of(token, p.size());
    return check_odds({static_cast<double>(p[x]), static_cast<double>(q[x])}, "drafted token ", x);
}

// Of block, the paper's h_i: the chance that a prefix is accepted, of which the target can use the share `kept`.
// `excess` is that behind it, the sum of max(0, kept p - q); below 0: nothing was drafted there.
double pass_of_block(double kept, double excess) {
    if (excess < 0 || kept >= 1) return kept;
    if (!std::isfinite(excess)) throw std::runtime_error("a probability is not a number");
    return excess / (excess + 1 - kept);
}

TokenOdds check_device_odds(const DeviceInput& input, std::size_t i) {
    const VerifiedRow& row = input.rows[i];
    return check_odds({row.p, row.q}, "the drafted token at position ",
                      static_cast<std::size_t>(input.first_position) + i);
}

std::size_t check_rows(std::span<const VerifiedRow> rows) {
    if (rows.empty()) throw std::invalid_argument("verifying needs a row behind the drafted tokens");
    return rows.size() - 1;
}

Verification said_after(std::span<const VerifiedRow> rows, std::size_t accepted) {
    if (rows[accepted].next < 0 || !std::isfinite(rows[accepted].excess))
        throw std::runtime_error("a target probability is not a number");
    return {static_cast<int>(accepted), rows[accepted].next};
}

// A token from norm(max(0, factor * p - q)). Where that is 0 everywhere, p and q are equal but for rounding, and the
// residual is p itself.
TokenId sample_residual(std::span<const float> p, std::span<const float> q, double u, double factor = 1) {
    const TokenId token = sample_excess(p, q, u, factor);
    return token >= 0 ? token : sample(p, u);
}

using VerifyByNumbers = Verification(const RejectionInput&, std::span<const double>, std::span<const double>);

Verification verify_by_streams(VerifyByNumbers& verify, const RejectionInput& input, const RandomStream& acceptance,
                               const RandomStream& resample, std::uint32_t round_start) {
    std::vector<double> acceptance_numbers, resample_numbers;
    for (std::size_t i = 0; i <= input.drafted.size(); ++i) {
        const std::uint64_t position = input.first_position + i;
        if (i < input.drafted.size()) acceptance_numbers.push_back(acceptance.uniform(position, 0, round_start));
        resample_numbers.push_back(resample.uniform(position, 0, round_start));
    }
    return verify(input, acceptance_numbers, resample_numbers);
}

bool is_typical(std::span<const float> p, TokenId token, const TypicalOptions& options) {
    const double p_x = static_cast<double>(p[index_of(token, p.size())]);
    if (!(p_x >= 0)) throw std::runtime_error("a target probability is not a number");
    if (p_x > options.epsilon) return true;
    return p_x > std::min(options.epsilon, options.delta * std::exp(-entropy_nats(p)));
}

int typical_tokens(const TypicalInput& input, std::size_t vocab) {
    std::size_t i = 0;
    while (i < input.drafted.size() && is_typical(row_of(input.p, i, vocab), input.drafted[i], input.options))
        ++i;
    return static_cast<int>(i);
}

std::size_t check_typical(const TypicalInput& input) {
    if (*why_invalid(input.options) != '\0') throw std::invalid_argument(why_invalid(input.options));
    return row_length(input.p.size(), input.drafted.size() + 1, "target distributions");
}

constexpr std::pair<Acceptance, std::string_view> kAcceptances[] = {{Acceptance::rejection, "rejection"},
                                                                    {Acceptance::block, "block"},
                                                                    {Acceptance::gumbel, "gumbel"},
                                                                    {Acceptance::typical, "typical"}};

} // namespace

std::string to_string(Acceptance acceptance) {
    for (const auto& [kind, name] : kAcceptances)
        if (kind == acceptance) return std::string(name);
    throw std::invalid_argument(fmt::format("acceptance number {} is unknown", static_cast<int>(acceptance)));
}

std::optional<Acceptance> parse_acceptance(std::string_view name) {
    for (const auto& [kind, known] : kAcceptances)
        if (known == name) return kind;
    return std::nullopt;
}

Verification verify_greedy(std::span<const TokenId> drafted, std::span<const TokenId> target_tokens) {
    if (target_tokens.size() != drafted.size() + 1)
        throw std::invalid_argument("verify_greedy needs one target token more than drafted ones");
    std::size_t i = 0;
    while (i < drafted.size() && drafted[i] == target_tokens[i])
        ++i;
    return {static_cast<int>(i), target_tokens[i]};
}

Verification verify_greedy_lenient(std::span<const TokenId> drafted, std::span<const float> target_logits,
                                   double lenience) {
    check_lenience(lenience);
    const std::size_t vocab = row_length(target_logits.size(), drafted.size() + 1, "target logits");
    const double margin = std::log(lenience); // p(x) >= l max p, as logits
    for (std::size_t i = 0;; ++i) {
        const auto row = row_of(target_logits, i, vocab);
        const TokenId best = arg_max(row);
        if (i == drafted.size()) return {static_cast<int>(i), best};
        const double logit = static_cast<double>(row[index_of(drafted[i], vocab)]);
        const double least = static_cast<double>(row[static_cast<std::size_t>(best)]) + margin;
        const bool accepted = drafted[i] == best || (lenience < 1 && logit >= least);
        if (!accepted) return {static_cast<int>(i), best};
    }
}

Verification verify_rejection(const RejectionInput& input, std::span<const double> acceptance,
                              std::span<const double> resample) {
    check_lenience(input.lenience);
    const std::size_t n_drafted = input.drafted.size(), vocab = check_sizes(input, acceptance, resample);
    for (std::size_t i = 0; i < n_drafted; ++i) {
        const auto p = row_of(input.p, i, vocab), q = row_of(input.q, i, vocab);
        const TokenOdds odds = odds_of(input.drafted[i], p, q);
        if (acceptance[i] * input.lenience * odds.q < odds.p) continue;
        return {static_cast<int>(i), sample_residual(p, q, resample[i])};
    }
    return {static_cast<int>(n_drafted), sample(row_of(input.p, n_drafted, vocab), resample[n_drafted])};
}

Verification verify_rejection(const RejectionInput& input, const RandomStream& acceptance,
                              const RandomStream& resample) {
    return verify_by_streams(verify_rejection, input, acceptance, resample, 0);
}

// = 1 - sum max(0, l q - p) / l
double acceptance_chance(std::span<const float> p, std::span<const float> q, double lenience) {
    check_lenience(lenience);
    return 1 - sum_of_excess(q, p, lenience) / lenience;
}

// kept (the paper's p_i) is the share of the drafted prefix's probability that the target can use; that of the prefix
// which is accepted scales p in the residual. The longest prefix that passes its own test is accepted, whatever shorter
// ones did.
Verification verify_block(const RejectionInput& input, std::span<const double> acceptance,
                          std::span<const double> resample) {
    if (input.lenience != 1) throw std::invalid_argument("--lenience below 1 does not go with --acceptance block");
    const std::size_t n_drafted = input.drafted.size(), vocab = check_sizes(input, acceptance, resample);
    std::size_t accepted = 0;
    double kept = 1, kept_of_accepted = 1;
    for (std::size_t i = 1; i <= n_drafted; ++i) {
        const TokenOdds odds =
            odds_of(input.drafted[i - 1], row_of(input.p, i - 1, vocab), row_of(input.q, i - 1, vocab));
        kept = std::min(1.0, kept * (odds.p / odds.q));
        double excess = -1;
        if (i < n_drafted && kept < 1)
            excess = sum_of_excess(row_of(input.p, i, vocab), row_of(input.q, i, vocab), kept);
        if (acceptance[i - 1] >= pass_of_block(kept, excess)) continue;
        accepted = i;
        kept_of_accepted = kept;
    }
    const double u = resample[accepted];
    const auto p = row_of(input.p, accepted, vocab);
    if (accepted == n_drafted) return {static_cast<int>(accepted), sample(p, u)};
    return {static_cast<int>(accepted), sample_residual(p, row_of(input.q, accepted, vocab), u, kept_of_accepted)};
}

Verification verify_block(const RejectionInput& input, const RandomStream& acceptance, const RandomStream& resample) {
    return verify_by_streams(verify_block, input, acceptance, resample,
                             static_cast<std::uint32_t>(input.first_position));
}

bool can_verify_on_device(Acceptance acceptance, const SamplingOptions& sampling) {
    const bool is_filtered = sampling.top_k > 0 || sampling.top_p < 1 || sampling.min_p > 0;
    return (acceptance == Acceptance::rejection || acceptance == Acceptance::block) && !sampling.greedy() &&
           !is_filtered;
}

Verification verify_rejection(const DeviceInput& input, const RandomStream& acceptance) {
    check_lenience(input.lenience);
    const std::size_t n_drafted = check_rows(input.rows);
    std::size_t i = 0;
    for (; i < n_drafted; ++i) {
        const TokenOdds odds = check_device_odds(input, i);
        if (acceptance.uniform(input.first_position + i) * input.lenience * odds.q >= odds.p) break;
    }
    return said_after(input.rows, i);
}

Verification verify_block(const DeviceInput& input, const RandomStream& acceptance) {
    if (input.lenience != 1) throw std::invalid_argument("--lenience below 1 does not go with --acceptance block");
    const std::size_t n_drafted = check_rows(input.rows);
    const auto round_start = static_cast<std::uint32_t>(input.first_position);
    std::size_t accepted = 0;
    for (std::size_t i = 1; i <= n_drafted; ++i) {
        check_device_odds(input, i - 1);
        const double kept = input.rows[i].scale;
        const double passes = pass_of_block(kept, i < n_drafted ? input.rows[i].excess : -1);
        if (acceptance.uniform(input.first_position + i - 1, 0, round_start) < passes) accepted = i;
    }
    return said_after(input.rows, accepted);
}

const char* why_invalid(const TypicalOptions& options) {
    if (!(options.epsilon >= 0 && options.epsilon <= 1)) return "--typical-epsilon must be a number from 0 to 1";
    if (!(options.delta >= 0 && options.delta <= 1)) return "--typical-delta must be a number from 0 to 1";
    return "";
}

Verification verify_typical(const TypicalInput& input) {
    const std::size_t vocab = check_typical(input);
    const int accepted = typical_tokens(input, vocab);
    return {accepted, arg_max(row_of(input.p, static_cast<std::size_t>(accepted), vocab))};
}

Verification verify_typical(const TypicalInput& input, const RandomStream& resample) {
    const std::size_t vocab = check_typical(input);
    const auto accepted = static_cast<std::size_t>(typical_tokens(input, vocab));
    const double u = resample.uniform(input.first_position + accepted);
    return {static_cast<int>(accepted), sample(row_of(input.p, accepted, vocab), u)};
}

} // namespace entrodraft::spec
