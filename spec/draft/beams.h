// Drafting for beam searches: the draft's own beams behind those of the target, as one tree: see beams.cpp.
#pragma once

#include "spec/draft/drafter.h"
#include "spec/verify/device_verifier.h"

#include <memory>

namespace entrodraft::spec {

// Of one model, whose cache has tree_positions() beside a text; it outlives the drafter. For tasks of beam searches
// alone. `device`: of the GPU that has the whole model, null elsewhere.
std::unique_ptr<Drafter> make_beam_drafter(model::Decoder& model, const DraftSetting& setting,
                                           DeviceVerifier* device = nullptr);

} // namespace entrodraft::spec
