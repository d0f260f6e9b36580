// The broadcast by which a sequence enters: its prompt and all of a request that ranks act on, as bytes.
//
// Packed by the coordinator, read by every rank; the packet before it says how long it is.
#pragma once

#include "spec/request.h"

#include <cstddef>
#include <span>
#include <vector>

namespace entrodraft::spec {

// What ranks must know of a text before its first pass.
struct Admission {
    Request request;
    bool verified_on_device = false; // its rows are verified on the GPU of the rank that drafts
};

// Local.
std::vector<std::byte> pack_admission(const Request& request, bool verified_on_device);

// The request with sequence key, prompt, sampling and processing as they were packed, and nothing else. Throws
// std::runtime_error where the bytes are no admission. Local.
Admission unpack_admission(std::span<const std::byte> bytes);

} // namespace entrodraft::spec
