// Checks whether this rank's GPU computes the same as another implementation, with the models that were loaded onto the
// GPU. --device auto decides by this check.
//
// The other implementation is torch on the same GPU, if its library can be opened and the models fit there a second
// time. Otherwise it is the CPU, if the models take at most kMaxCheckedBytes on each host. Called by model_pair.
#pragma once

#include "launch/load/loaded_pair.h"
#include "launch/load/memory_plan.h"
#include "launch/load/opened_model.h"

#include <cstdint>
#include <span>
#include <string>

namespace entrodraft::launch {

// Limit for the weights of all ranks of a host that are read once more into its memory. They may also take at most half
// of the host's free memory.
inline constexpr std::uint64_t kMaxCheckedBytes = std::uint64_t{16} << 30;

// All ranks get the same result, except for `safe`.
struct DeviceCheck {
    std::string failure;  // what differed, and where; empty: nothing differed
    std::string left_out; // why nothing was compared; empty: the models were compared
    RankDevice safe;      // this rank's device of the other implementation
};

// Runs passes of three rows (model/pass/self_check.h) through each decoder of `pair` and through one of the other
// implementation. `held`: the models in the order of `pair`. Throws OrderlyFailure. Collective over the world.
DeviceCheck check_device(dist::Session& session, const OpenedPair& opened, std::span<const HeldModel> held,
                         PlacedPair& placed, LoadedPair& loaded);

} // namespace entrodraft::launch
