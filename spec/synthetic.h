// Recordings of no model: texts along which a draft of a given mean acceptance is right or wrong by chance, so that
// stop rules can be replayed (simulate.h) where there are no checkpoints.
//
// Not a claim about any model. Entropies are independent of each other, Weibull of shape 1.3 and scale 3 nats
// (mean 2.8); a token at entropy x stands with probability logistic(a - b sqrt(x)). Called by bench preset.
#pragma once

#include "entrodraft/spec/recording.h"

#include <cstdint>
#include <vector>

namespace entrodraft::spec {

// b with which 90 % stand at 2 nats and 10 % at 5, where two thirds stand in all: about what Kluser 2024 saw.
constexpr double kSyntheticSlope = 5.35;

struct SyntheticOptions {
    double alpha = 2.0 / 3;         // mean probability that a drafted token stands, in [0, 1]
    double slope = kSyntheticSlope; // b; 0: entropies say nothing
    int texts = 1;
    int new_tokens = 128; // of each text
    int max_draft_tokens = 15;
    std::uint64_t seed = 0;
    Costs costs;
};

// Of texts and drafts it holds what replays look at: tokens, entropies and probabilities (exp(-x)), no more.
struct SyntheticRecording {
    RecordingHead head;
    std::vector<TextRecord> texts;
    double shift = 0; // a

    std::vector<const TextRecord*> pointers() const;
};

// The x below which a share u in [0, 1) of all entropies lies, in nats. Local.
double synthetic_entropy(double u);
// a, at which the mean over all entropies is alpha in (0, 1). Local.
double synthetic_shift(double alpha, double slope);

// The same on every machine. Throws std::invalid_argument on options that make no sense. Local.
SyntheticRecording make_synthetic(const SyntheticOptions& options);

} // namespace entrodraft::spec
