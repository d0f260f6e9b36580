// Drafting for beam searches: the draft's own beams continue those of the target, as one tree. See beams.cpp.
#pragma once

#include "spec/draft/drafter.h"
#include "spec/gpu/device_round.h"

#include <memory>

namespace entrodraft::spec {

// Drafts with one model, whose cache has tree_positions() next to a text. `model` must outlive the drafter. All tasks
// must be beam searches. `device`: of the GPU that has the whole model; null elsewhere.
std::unique_ptr<Drafter> make_beam_drafter(model::Decoder& model, const DraftSetting& setting,
                                           DeviceRound* device = nullptr);

} // namespace entrodraft::spec
