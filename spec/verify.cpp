// Acceptance of drafted tokens. Pure: the random numbers come in as arguments. See verify.h for the rules.
#include "entrodraft/spec/verify.h"

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

namespace entrodraft::spec {

namespace {

void check_lenience(double lenience) {
    if (!(lenience > 0 && lenience <= 1)) throw std::invalid_argument("--lenience must be above 0 and at most 1");
}

// Length of each of `rows` rows in `values` numbers.
std::size_t row_length(std::size_t values, std::size_t rows, const char* what) {
    if (rows == 0 || values == 0 || values % rows != 0)
        throw std::invalid_argument(std::string(what) + ": " + std::to_string(values) + " numbers are not " +
                                    std::to_string(rows) + " rows");
    return values / rows;
}

std::size_t index_of(TokenId token, std::size_t vocab) {
    if (token < 0 || static_cast<std::size_t>(token) >= vocab)
        throw std::out_of_range("drafted token " + std::to_string(token) + " is outside the vocabulary of " +
                                std::to_string(vocab));
    return static_cast<std::size_t>(token);
}

} // namespace

Verdict verify_greedy(std::span<const TokenId> drafted, std::span<const TokenId> target_tokens) {
    if (target_tokens.size() != drafted.size() + 1)
        throw std::invalid_argument("verify_greedy needs one target token more than drafted ones");
    std::size_t i = 0;
    while (i < drafted.size() && drafted[i] == target_tokens[i])
        ++i;
    return {static_cast<int>(i), target_tokens[i]};
}

Verdict verify_greedy_lenient(std::span<const TokenId> drafted, std::span<const float> target_logits, double lenience) {
    check_lenience(lenience);
    const std::size_t vocab = row_length(target_logits.size(), drafted.size() + 1, "target logits");
    const double margin = std::log(lenience); // p(x) >= l max p, as logits
    for (std::size_t i = 0;; ++i) {
        const auto row = target_logits.subspan(i * vocab, vocab);
        const TokenId best = arg_max(row);
        if (i == drafted.size()) return {static_cast<int>(i), best};
        const double logit = static_cast<double>(row[index_of(drafted[i], vocab)]);
        const double least = static_cast<double>(row[static_cast<std::size_t>(best)]) + margin;
        const bool stands = drafted[i] == best || (lenience < 1 && logit >= least);
        if (!stands) return {static_cast<int>(i), best};
    }
}

Verdict verify_rejection(const RejectionInput& input, std::span<const double> acceptance,
                         std::span<const double> resample) {
    check_lenience(input.lenience);
    const std::size_t n_drafted = input.drafted.size();
    const std::size_t vocab = row_length(input.p.size(), n_drafted + 1, "target distributions");
    if (input.q.size() != n_drafted * vocab)
        throw std::invalid_argument("draft distributions: " + std::to_string(input.q.size()) + " numbers are not " +
                                    std::to_string(n_drafted) + " rows of " + std::to_string(vocab));
    if (acceptance.size() != n_drafted || resample.size() != n_drafted + 1)
        throw std::invalid_argument("verify_rejection needs a number for each token that it may say");
    for (std::size_t i = 0; i < n_drafted; ++i) {
        const auto p = input.p.subspan(i * vocab, vocab), q = input.q.subspan(i * vocab, vocab);
        const std::size_t x = index_of(input.drafted[i], vocab);
        const double p_x = static_cast<double>(p[x]), q_x = static_cast<double>(q[x]);
        if (!(p_x >= 0) || !(q_x > 0) || !std::isfinite(p_x) || !std::isfinite(q_x))
            throw std::runtime_error("drafted token " + std::to_string(x) + " has draft probability " +
                                     std::to_string(q_x) + " and target probability " + std::to_string(p_x) +
                                     ": it cannot have been drawn from this row");
        if (acceptance[i] * input.lenience * q_x < p_x) continue;
        const TokenId other = sample_excess(p, q, resample[i]);
        // Where p exceeds q nowhere, they are equal but for rounding, and the residual is p itself.
        return {static_cast<int>(i), other >= 0 ? other : sample(p, resample[i])};
    }
    return {static_cast<int>(n_drafted), sample(input.p.subspan(n_drafted * vocab, vocab), resample[n_drafted])};
}

Verdict verify_rejection(const RejectionInput& input, const RandomStream& acceptance, const RandomStream& resample) {
    std::vector<double> acceptance_numbers, resample_numbers;
    for (std::size_t i = 0; i <= input.drafted.size(); ++i) {
        if (i < input.drafted.size()) acceptance_numbers.push_back(acceptance.uniform(input.first_position + i));
        resample_numbers.push_back(resample.uniform(input.first_position + i));
    }
    return verify_rejection(input, acceptance_numbers, resample_numbers);
}

} // namespace entrodraft::spec
