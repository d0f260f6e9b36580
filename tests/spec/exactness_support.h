// Counts of an engine's texts, compared with the target's own distribution by chi-square. For tests only.
#pragma once

#include "tests/spec/engine_support.h"
#include "tests/spec/verify_support.h"

#include <cmath>
#include <functional>
#include <map>
#include <span>

namespace entrodraft {

using spec::Tokens;

inline constexpr double kMaxZ = 4.75;          // one in a million by chance; all seeds are fixed
inline constexpr std::size_t kVocab = 3;       // of 512 tokens; the others have probability 0
inline const Tokens kPrompt = {1, 2, 0, 1, 2}; // look-ups find a match from the start

// Probabilities of all texts of `length` tokens after the prompt, by the target itself. With `constrain`, which bans
// tokens of a row by the tokens before it, only of texts whose probability is not 0.
inline std::map<Tokens, double> target_probabilities(
    TestModel& target, const spec::SamplingOptions& sampling, std::size_t length,
    const std::function<void(std::span<const spec::TokenId> before, std::span<float> row)>& constrain = {}) {
    std::map<Tokens, double> all;
    spec::for_each_sequence(kVocab, length, [&](const Tokens& text) {
        Tokens tokens = kPrompt;
        tokens.insert(tokens.end(), text.begin(), text.end());
        target.forget();
        std::vector<float> logits = target.read(tokens);
        double product = 1;
        std::vector<float> p(kVocab);
        for (std::size_t i = 0; i < length && product > 0; ++i) {
            const std::span<float> row = std::span(logits).subspan((kPrompt.size() - 1 + i) * 512, kVocab);
            if (constrain) constrain(std::span(text).first(i), row);
            spec::adjust(row, sampling, p);
            product *= static_cast<double>(p[static_cast<std::size_t>(text[i])]);
        }
        if (product > 0 || !constrain) all[text] = product;
    });
    return all;
}

// Standard normal quantile of chi-square (Wilson and Hilferty's cube root).
inline double chi_square_z(const std::map<Tokens, int>& counts, const std::map<Tokens, double>& probabilities, int n) {
    double chi_square = 0;
    for (const auto& [text, probability] : probabilities) {
        const double expected = n * probability, found = counts.contains(text) ? counts.at(text) : 0;
        EXPECT_GT(expected, 10) << "too rare a text for chi-square";
        chi_square += (found - expected) * (found - expected) / expected;
    }
    const double df = static_cast<double>(probabilities.size()) - 1;
    return (std::cbrt(chi_square / df) - (1 - 2 / (9 * df))) / std::sqrt(2 / (9 * df));
}

struct Sampled {
    std::map<Tokens, int> counts;
    spec::Stats stats;
};

inline Sampled sample_texts(TestPair& pair, spec::Drafter& drafter, const RunOptions& options,
                            const spec::SamplingOptions& sampling, int n, std::size_t length) {
    Sampled sampled;
    int asked = 0;
    spec::EngineCallbacks callbacks;
    callbacks.next_request = [&]() -> std::optional<spec::Request> {
        if (asked == n) return std::nullopt;
        spec::Request request = request_of(kPrompt, static_cast<int>(length));
        request.sampling = sampling;
        request.ignore_eos = true;
        request.sequence_key = static_cast<std::uint64_t>(asked++);
        return request;
    };
    callbacks.on_complete = [&](const spec::Request&, const spec::Completion& completion) {
        ++sampled.counts[completion.tokens];
        sampled.stats += completion.stats;
    };
    const volatile int no_signal = 0;
    pair.engine(options, &drafter)->run(callbacks, no_signal);
    return sampled;
}

} // namespace entrodraft
