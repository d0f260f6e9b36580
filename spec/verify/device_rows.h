// A target's row that is verified on the GPU that holds it: what the host says of it, and what comes back.
//
// Plain data. Called by target_rows and verify.h, and by spec/gpu.
#pragma once

#include "model/logit_needs.h"
#include "spec/token_id.h"

#include <cstdint>

namespace entrodraft::spec {

// Verified by the draft's row that the token behind it was drawn from. p and q are the softmaxes of both at the
// temperature, over the tokens that count.
struct DraftedRow {
    TokenId drafted = -1;  // the token behind it; -1: none was drafted
    bool is_first = false; // of its text's
    // p is scaled by what `block` calls the share of the drafted prefix that the target can use: 1 for the first row,
    // then min(1, share of the row before * its p / its q of the token drafted).
    bool is_scaled = false;
    float lenience = 1;    // of VerifiedRow::overlap
    model::RowNoise noise; // of the token emitted if the text ends here; of temperature 0: the row is not verified
};

// What comes of that. s is the scale of p, or 1.
struct VerifiedRow {
    double p = 0, q = 0; // of the token drafted
    double scale = 1;    // s
    double excess = 0;   // sum of max(0, s p - q)
    double overlap = 0;  // sum of min(p / lenience, q)
    TokenId next = -1;   // a sample of max(0, s p - q), of p where nothing was drafted; -1: no row, or no numbers in it
    std::int32_t unused = 0;
};

} // namespace entrodraft::spec
