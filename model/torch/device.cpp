#include "model/torch/device.h"

#include "model/pass/decoder.h"

#include <ATen/Parallel.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>

namespace entrodraft::model::torch {

namespace {

at::ScalarType scalar_type(WeightType type) {
    switch (type) {
    case WeightType::float32:
        return at::kFloat;
    case WeightType::bfloat16:
        return at::kBFloat16;
    case WeightType::float16:
        return at::kHalf;
    case WeightType::int8:
    case WeightType::int4:
    case WeightType::float8:
        break;
    }
    throw std::invalid_argument("the torch backend has float32, bfloat16 and float16 weights, not " + to_string(type));
}

// Loads ATen's code for a kind of device from its own library, which registers it. Returns why it failed, or empty.
std::string load_device_code(const std::string& type) {
    if (type == "cpu" || dlopen(("libtorch_" + type + ".so").c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return "";
    return "torch " ENTRODRAFT_TORCH_VERSION " has no code for it (" + std::string(dlerror()) + ")";
}

} // namespace

Devices count_devices(const std::string& type) {
    if (const std::string why = load_device_code(type); !why.empty()) return {0, why};
    const c10::DeviceType of = c10::Device(type).type();
    const int count = c10::impl::hasDeviceGuardImpl(of) ? c10::impl::getDeviceGuardImpl(of)->deviceCount() : 0;
    return {count, count > 0 ? "" : "torch sees none (no device, no driver, or none is visible)"};
}

at::TensorOptions numbers_on(const Place& place, const ModelConfig& config, WeightType type) {
    if (const std::string what = what_torch_lacks(config); !what.empty())
        throw std::invalid_argument("the torch backend cannot run a model with " + what);
    if (const std::string why = load_device_code(place.device.substr(0, place.device.find(':'))); !why.empty())
        throw std::invalid_argument("device " + place.device + ": " + why);
    at::set_num_threads(place.threads);
    return at::TensorOptions(c10::Device(place.device)).dtype(scalar_type(type));
}

} // namespace entrodraft::model::torch
