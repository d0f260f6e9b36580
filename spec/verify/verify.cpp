// Acceptance of drafted tokens, by the rules in verify.h. Pure: the random numbers are arguments.
#include "spec/verify/verify.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <stdexcept>
#include <string>
#include <utility>

namespace entrodraft::spec {

namespace {

void check_lenience(double lenience) {
    if (!(lenience > 0 && lenience <= 1)) throw std::invalid_argument("--lenience must be above 0 and at most 1");
}

void check_numbers(const VerifyNumbers& numbers, std::size_t n) {
    if (!numbers.are(n)) throw std::invalid_argument("verifying needs a number for each token that may be emitted");
}

// The length of a row, if `values` numbers are `rows` rows. Errors call them `what`.
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

// The target's and the draft's probability of a drafted token.
struct TokenOdds {
    double p = 0, q = 0;
};

// The error's message calls the token `what` and `number`.
TokenOdds check_odds(const TokenOdds& odds, const char* what, std::size_t number) {
    if (!(odds.p >= 0) || !(odds.q > 0) || !std::isfinite(odds.p) || !std::isfinite(odds.q))
        throw std::runtime_error(fmt::format(
            "{}{} has draft probability {:f} and target probability {:f}: it cannot have been drawn from this row",
            what, number, odds.q, odds.p));
    return odds;
}

// A round's rows as rejection() and block() read them, from distributions.
struct WholeRows {
    const RejectionInput& input;
    const VerifyNumbers& resample;
    std::uint64_t round_start;
    std::size_t vocab = check();

    std::size_t check() const {
        const std::size_t length = row_length(input.p.size(), n_drafted() + 1, "target distributions");
        if (input.q.size() != n_drafted() * length)
            throw std::invalid_argument(fmt::format("draft distributions: {} numbers are not {} rows of {}",
                                                    input.q.size(), n_drafted(), length));
        check_numbers(resample, n_drafted() + 1);
        return length;
    }
    std::size_t n_drafted() const { return input.drafted.size(); }
    std::span<const float> p(std::size_t i) const { return row_of(input.p, i, vocab); }
    std::span<const float> q(std::size_t i) const { return row_of(input.q, i, vocab); }
    TokenOdds odds(std::size_t i) const {
        const std::size_t x = index_of(input.drafted[i], vocab);
        return check_odds({static_cast<double>(p(i)[x]), static_cast<double>(q(i)[x])}, "drafted token ", x);
    }
    double excess(std::size_t i, double scale) const { return sum_of_excess(p(i), q(i), scale); }
    // A token from norm(max(0, scale * p - q)). Where that is 0 everywhere, p and q are equal up to rounding, and the
    // residual is p itself.
    TokenId next(std::size_t i, double scale) const {
        const double u = resample.at(i, input.first_position, round_start);
        const TokenId token = i < n_drafted() ? sample_excess(p(i), q(i), u, scale) : -1;
        return token >= 0 ? token : sample(p(i), u);
    }
};

// The same from the figures that a GPU has computed.
struct DeviceRows {
    const DeviceInput& input;

    std::size_t n_drafted() const {
        if (input.rows.empty()) throw std::invalid_argument("verifying needs a row behind the drafted tokens");
        return input.rows.size() - 1;
    }
    TokenOdds odds(std::size_t i) const {
        return check_odds({input.rows[i].p, input.rows[i].q}, "the drafted token at position ",
                          static_cast<std::size_t>(input.first_position) + i);
    }
    double excess(std::size_t i, double) const { return input.rows[i].excess; }
    TokenId next(std::size_t i, double) const {
        if (input.rows[i].next < 0 || !std::isfinite(input.rows[i].excess))
            throw std::runtime_error("a target probability is not a number");
        return input.rows[i].next;
    }
};

template <typename Rows> Verification rejection(const Rows& rows, const VerifyNumbers& acceptance) {
    check_lenience(rows.input.lenience);
    check_numbers(acceptance, rows.n_drafted());
    std::size_t i = 0;
    for (; i < rows.n_drafted(); ++i) {
        const TokenOdds odds = rows.odds(i);
        if (acceptance.at(i, rows.input.first_position, 0) * rows.input.lenience * odds.q >= odds.p) break;
    }
    return {static_cast<int>(i), rows.next(i, 1)};
}

// kept (the paper's p_i) is the share of the drafted prefix's probability that the target can use. In the residual, p
// is scaled by the share of the accepted prefix. The longest prefix that passes its own test is accepted, even if
// shorter ones fail. A prefix passes with probability h_i of the paper. Unless the prefix is the whole draft, h_i needs
// the excess after the prefix, the sum of max(0, kept p - q).
template <typename Rows> Verification block(const Rows& rows, const VerifyNumbers& acceptance) {
    if (rows.input.lenience != 1) throw std::invalid_argument("--lenience below 1 does not go with --acceptance block");
    check_numbers(acceptance, rows.n_drafted());
    const std::uint64_t first = rows.input.first_position;
    std::size_t accepted = 0;
    double kept = 1, kept_of_accepted = 1;
    for (std::size_t i = 1; i <= rows.n_drafted(); ++i) {
        const TokenOdds odds = rows.odds(i - 1);
        kept = std::min(1.0, kept * (odds.p / odds.q));
        double passes = kept;
        if (i < rows.n_drafted() && kept < 1) {
            const double excess = rows.excess(i, kept);
            if (!std::isfinite(excess)) throw std::runtime_error("a probability is not a number");
            passes = excess / (excess + 1 - kept);
        }
        if (acceptance.at(i - 1, first, first) >= passes) continue;
        accepted = i;
        kept_of_accepted = kept;
    }
    return {static_cast<int>(accepted), rows.next(accepted, kept_of_accepted)};
}

constexpr std::pair<Acceptance, std::string_view> kAcceptances[] = {{Acceptance::rejection, "rejection"},
                                                                    {Acceptance::block, "block"},
                                                                    {Acceptance::gumbel, "gumbel"},
                                                                    {Acceptance::typical, "typical"},
                                                                    {Acceptance::bild, "bild"}};

} // namespace

std::string to_string(Acceptance acceptance) {
    for (const auto& [kind, name] : kAcceptances)
        if (kind == acceptance) return std::string(name);
    throw std::invalid_argument(fmt::format("acceptance number {} is unknown", static_cast<int>(acceptance)));
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
        const double least = static_cast<double>(row[best]) + margin;
        const bool accepted = drafted[i] == best || (lenience < 1 && logit >= least);
        if (!accepted) return {static_cast<int>(i), best};
    }
}

// The chance equals 1 - sum max(0, l q - p) / l.
double acceptance_chance(std::span<const float> p, std::span<const float> q, double lenience) {
    check_lenience(lenience);
    return 1 - sum_of_excess(q, p, lenience) / lenience;
}

Verification verify_rejection(const RejectionInput& input, const VerifyNumbers& acceptance,
                              const VerifyNumbers& resample) {
    return rejection(WholeRows{input, resample, 0}, acceptance);
}

Verification verify_rejection(const DeviceInput& input, const RandomStream& acceptance) {
    return rejection(DeviceRows{input}, acceptance);
}

Verification verify_block(const RejectionInput& input, const VerifyNumbers& acceptance, const VerifyNumbers& resample) {
    return block(WholeRows{input, resample, input.first_position}, acceptance);
}

Verification verify_block(const DeviceInput& input, const RandomStream& acceptance) {
    return block(DeviceRows{input}, acceptance);
}

bool can_verify_on_device(Acceptance acceptance, const SamplingOptions& sampling) {
    return (acceptance == Acceptance::rejection || acceptance == Acceptance::block) && !sampling.greedy() &&
           !sampling.filters();
}

std::string describe(const AcceptanceOptions& options) {
    const AcceptanceOptions usual;
    std::string text = to_string(options.kind);
    const auto add = [&text](const char* key, double value, double default_value) {
        if (value != default_value) text += fmt::format(":{}={:g}", key, value);
    };
    add("lenience", options.lenience, usual.lenience);
    add("epsilon", options.typical.epsilon, usual.typical.epsilon);
    add("delta", options.typical.delta, usual.typical.delta);
    add("distance", options.distance, usual.distance);
    return text;
}

const char* why_invalid(const AcceptanceOptions& options) {
    const auto& [epsilon, delta] = options.typical;
    if (!(epsilon >= 0 && epsilon <= 1)) return "epsilon must be a number from 0 to 1";
    if (!(delta >= 0 && delta <= 1)) return "delta must be a number from 0 to 1";
    if (!(options.distance >= 0)) return "distance must be a number that is not negative";
    return "";
}

bool passes_threshold(std::span<const float> p, TokenId token, const AcceptanceOptions& options) {
    const double p_x = static_cast<double>(p[index_of(token, p.size())]);
    if (!(p_x >= 0)) throw std::runtime_error("a target probability is not a number");
    if (options.kind == Acceptance::bild) return -std::log(p_x) <= options.distance || token == arg_max(p);
    const auto& [epsilon, delta] = options.typical;
    return p_x > epsilon || p_x > std::min(epsilon, delta * std::exp(-entropy_nats(p)));
}

Verification verify_threshold(const ThresholdInput& input, const RandomStream* resample) {
    if (!input.options.has_threshold()) throw std::invalid_argument("this acceptance has no threshold");
    if (*why_invalid(input.options) != '\0') throw std::invalid_argument(why_invalid(input.options));
    const std::size_t vocab = row_length(input.p.size(), input.drafted.size() + 1, "target distributions");
    std::size_t i = 0;
    while (i < input.drafted.size() && passes_threshold(row_of(input.p, i, vocab), input.drafted[i], input.options))
        ++i;
    const std::span<const float> p = row_of(input.p, i, vocab);
    return {static_cast<int>(i), resample ? sample(p, resample->uniform(input.first_position + i)) : arg_max(p)};
}

// ---- trees ----

TreeNumbers tree_numbers(const RandomStream& acceptance, const RandomStream& resample, std::uint64_t first_position) {
    return {[&acceptance, first_position](std::size_t depth, std::size_t rank) {
                return acceptance.uniform(first_position + depth, static_cast<std::uint32_t>(rank));
            },
            [&resample, first_position](std::size_t depth) { return resample.uniform(first_position + depth); }};
}

namespace {

// Replaces r by norm(max(0, r - q)). Where that is 0 everywhere, r and q are equal up to rounding, and r stays.
void take_away(std::vector<double>& r, std::span<const float> q) {
    double sum = 0;
    for (std::size_t i = 0; i < r.size(); ++i)
        sum += std::max(0.0, r[i] - static_cast<double>(q[i]));
    if (std::isnan(sum)) throw std::runtime_error("a probability is not a number");
    if (sum <= 0) return;
    for (std::size_t i = 0; i < r.size(); ++i)
        r[i] = std::max(0.0, r[i] - static_cast<double>(q[i])) / sum;
}

} // namespace

TreeVerification verify_tree_rejection(const TreeInput& input, std::span<const float> q, const TreeNumbers& numbers) {
    const std::size_t vocab = row_length(input.p.size(), input.drafted.size() + 1, "target distributions");
    if (q.size() != input.drafted.size() * vocab)
        throw std::invalid_argument("verifying needs a draft distribution for each drafted token");
    int node = -1;
    for (std::size_t depth = 0;; ++depth) {
        const std::span<const float> p = row_of(input.p, static_cast<std::size_t>(node + 1), vocab);
        std::vector<double> r(p.begin(), p.end());
        int accepted = -1;
        std::size_t rank = 0;
        for (const int child : children_of(input.parents, node)) {
            const std::span<const float> drawn_from = row_of(q, static_cast<std::size_t>(child), vocab);
            const std::size_t x = index_of(input.drafted[child], vocab);
            const TokenOdds odds = check_odds({r[x], static_cast<double>(drawn_from[x])}, "drafted token ", x);
            if (numbers.acceptance(depth, rank++) * odds.q < odds.p) {
                accepted = child;
                break;
            }
            take_away(r, drawn_from);
        }
        if (accepted < 0) {
            const std::vector<float> left(r.begin(), r.end());
            return {node, sample(left, numbers.resample(depth))};
        }
        node = accepted;
    }
}

TreeVerification
verify_longest_path(const TreeInput& input,
                    const std::function<std::optional<double>(std::span<const float> row, TokenId token)>& score,
                    const std::function<TokenId(std::span<const float> row, std::size_t depth)>& emit) {
    const std::size_t vocab = row_length(input.p.size(), input.drafted.size() + 1, "target distributions");
    const auto row_after = [&](int node) { return row_of(input.p, static_cast<std::size_t>(node + 1), vocab); };
    using Path = std::pair<std::size_t, double>;             // length, and the sum of its scores
    std::vector<std::optional<Path>> paths = {Path{0, 0.0}}; // [node + 1]; none: a token of it is not accepted
    int best = -1;
    for (int node = 0; node < static_cast<int>(input.drafted.size()); ++node) {
        const int parent = parent_of(input.parents, node);
        const std::optional<Path> before = paths[parent + 1];
        const TokenId token = input.drafted[node];
        index_of(token, vocab);
        const std::optional<double> own = before ? score(row_after(parent), token) : std::nullopt;
        paths.push_back(own ? std::optional<Path>({before->first + 1, before->second + *own}) : std::nullopt);
        if (own && *paths.back() > *paths[best + 1]) best = node;
    }
    return {best, emit(row_after(best), paths[best + 1]->first)};
}

} // namespace entrodraft::spec
