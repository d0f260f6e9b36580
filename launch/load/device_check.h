// Whether this rank's GPU computes what another implementation computes, looked at with the models that were loaded
// onto it: what --device auto goes by.
//
// The other implementation is torch on the same GPU, where its library can be opened and the models fit there once
// more, else the CPU, where they fit kMaxCheckedBytes a host. Called by model_pair.
#pragma once

#include "launch/load/loaded_pair.h"
#include "launch/load/memory_plan.h"
#include "launch/load/opened_model.h"

#include <cstdint>
#include <span>
#include <string>

namespace entrodraft::launch {

// Weights of all ranks of a host that are read once more, in its memory; at most half of what that has left.
inline constexpr std::uint64_t kMaxCheckedBytes = std::uint64_t{16} << 30;

// The same on all ranks.
struct DeviceCheck {
    std::string failure;  // what differed, and where; empty: nothing did
    std::string left_out; // why nothing was compared; empty: it was
    RankDevice safe;      // this rank's device of the other implementation
};

// Passes of three rows (model/pass/self_check.h) through each decoder of `pair` and one of the other implementation.
// `held`: the models in the order in which `pair` has them. Throws OrderlyFailure. Collective over the world.
DeviceCheck check_device(dist::Session& session, const OpenedPair& opened, std::span<const HeldModel> held,
                         PlacedPair& placed, LoadedPair& loaded);

} // namespace entrodraft::launch
