// A drafter that drafts for every other place of a sequence alone, at most one token: what acceptance is measured with.
//
// Were it asked wherever a round begins, it would be asked more often where it had been wrong. Here a round at an even
// place drafts one token; whether it stands or falls, the next round that drafts is at the next even place, so that
// each even place is judged once. For rules of one token (constant, k = 1). Called by bench alpha.
#pragma once

#include "spec/draft/batch_drafter.h"

#include <cstdint>
#include <memory>

namespace entrodraft::spec {

struct PlaceCounts {
    std::int64_t asked = 0;    // even places at which there was room for a token
    std::int64_t proposed = 0; // of these, where the drafter had one
};

// `counts` outlives the drafter.
std::unique_ptr<BatchDrafter> make_every_other_place_drafter(std::unique_ptr<BatchDrafter> inner, PlaceCounts& counts);

} // namespace entrodraft::spec
