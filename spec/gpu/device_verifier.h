// Makes the implementation of spec/verify/device_verifier.h. Called where models are loaded onto a GPU.
#pragma once

#include "spec/verify/device_verifier.h"

#include <memory>

namespace entrodraft::spec::gpu {

// For models on the current device; outlives their decoders. Throws dist::Error. Local.
std::unique_ptr<DeviceVerifier> make_device_verifier();

} // namespace entrodraft::spec::gpu
