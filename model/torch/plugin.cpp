#include "model/torch/plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <stdexcept>
#include <string_view>

namespace entrodraft::model::torch {

namespace {

struct OpenedPlugin {
    const Plugin* plugin = nullptr;
    std::string why_missing;
};

// Looks for the library next to the program's own ones (its RUNPATH). Never closes it: decoders run its code.
OpenedPlugin open_plugin() {
    constexpr const char* kFile = "libentrodraft_torch.so";
    constexpr const char* kRemedy = "build with -DENTRODRAFT_TORCH=ON over a torch that stays in its place "
                                    "(pip install torch)";
    void* library = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return {nullptr, fmt::format("{}; {}", dlerror(), kRemedy)};
    const auto* plugin = static_cast<const Plugin*>(dlsym(library, "entrodraft_torch"));
    if (plugin == nullptr || std::string_view(plugin->version) != ENTRODRAFT_PLUGIN_VERSION)
        return {nullptr, fmt::format("{} is of another version of this program; {}", kFile, kRemedy)};
    if (const std::string why = plugin->why_unusable(); !why.empty())
        return {nullptr, fmt::format("{} {}; {}", kFile, why, kRemedy)};
    return {plugin, ""};
}

const OpenedPlugin& opened() {
    static const OpenedPlugin once = open_plugin();
    return once;
}

const Plugin& plugin() {
    if (opened().plugin == nullptr) throw std::runtime_error(opened().why_missing);
    return *opened().plugin;
}

} // namespace

std::string why_missing() {
    return opened().why_missing;
}

Devices devices_of(const std::string& type) {
    return plugin().devices_of(type);
}

std::unique_ptr<Decoder> load_decoder(const Checkpoint& checkpoint, const ModelConfig& config,
                                      const DecoderOptions& options, dist::Communicator& tp, const Place& place) {
    return plugin().load_decoder(checkpoint, config, options, tp, place);
}

std::unique_ptr<Trainer> load_trainer(const Checkpoint& checkpoint, const ModelConfig& config,
                                      const TrainerOptions& options, dist::Communicator& ranks, const Place& place) {
    return plugin().load_trainer(checkpoint, config, options, ranks, place);
}

std::string to_string(DistillLoss loss) {
    switch (loss) {
    case DistillLoss::forward_kl:
        return "forward-kl";
    case DistillLoss::reverse_kl:
        return "reverse-kl";
    case DistillLoss::jsd:
        return "jsd";
    case DistillLoss::tvd:
        return "tvd";
    case DistillLoss::log_alpha:
        return "log-alpha";
    }
    return "?";
}

} // namespace entrodraft::model::torch
