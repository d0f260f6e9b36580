// See device_check.h.
#include "launch/load/device_check.h"

#include "dist/rank/error.h"
#include "launch/io/report.h"
#include "launch/start/phase.h"
#include "model/pass/self_check.h"
#include "model/torch/plugin.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <optional>
#include <vector>

namespace entrodraft::launch {

namespace {

using model::WeightType;

bool are_all(dist::Session& session, bool mine) {
    return std::ranges::count(from_all(session, static_cast<int>(mine)), 0) == 0;
}

bool torch_lacks(const HeldModel& held) {
    return model::is_scaled(held.type) || !model::what_torch_lacks(*held.config).empty();
}

// Returns the model as the other implementation holds it. Only GPUs have float8.
HeldModel held_there(HeldModel held, const RankDevice& device) {
    if (held.type == WeightType::float8) held.type = held.config->stored_type;
    held.on_gpu = !device.is_native_cpu();
    held.beside = 0;
    return held;
}

// Returns this rank's device of the second implementation; nothing if neither fits. Collective over the world.
std::optional<RankDevice> second_implementation(dist::Session& session, std::span<const HeldModel> held,
                                                const PlacedPair& placed) {
    const CacheShape cache = {1, model::kCheckedRows};
    const auto fits = [&](const RankDevice& device, auto... limits) { // within half of the free memory there
        std::vector<HeldModel> there;
        for (const HeldModel& each : held)
            there.push_back(held_there(each, device));
        RankMemory memory = planned_memory(session, there, placed.team->size(), cache, device);
        if (!device.is_cpu()) memory.host = placed.device.identity, memory.available_bytes = free_gpu_bytes();
        memory.available_bytes = std::min({memory.available_bytes / 2, limits...});
        return why_too_little_memory(from_all(session, memory), cache).empty();
    };
    RankDevice torch;
    torch.torch = fmt::format("cuda:{}", placed.device.number);
    torch.name = "torch " + torch.torch;
    const bool has_torch = model::torch::why_missing().empty() && model::torch::devices_of("cuda").count > 0 &&
                           std::ranges::none_of(held, torch_lacks);
    if (are_all(session, has_torch) && fits(torch)) return torch;
    const RankDevice cpu;
    if (fits(cpu, kMaxCheckedBytes)) return cpu;
    return std::nullopt;
}

// Says how any of this rank's models differs. Collective over the groups that hold them.
std::string difference_here(std::span<const HeldModel> held, const OpenedPair& opened, PlacedPair& placed,
                            LoadedPair& loaded, const RankDevice& safe, dist::Communicator* tp,
                            double timeout_seconds) {
    std::string found;
    auto part = held.begin();
    const auto check = [&](const char* name, model::Decoder& decoder, const model::Checkpoint& checkpoint,
                           const model::ModelConfig& config, bool is_sharded) {
        const HeldModel there = held_there(*part, safe);
        model::DecoderOptions options;
        options.timeout_seconds = timeout_seconds;
        options.weight_type = there.type;
        options.activations = model::ActivationType::int24; // these are nearer to what GPUs compute with
        options.kv_type = model::WeightType::float32;
        options.capacity = options.source_capacity = model::kCheckedRows;
        const auto other =
            load_decoder(safe, checkpoint, config, options, is_sharded ? *tp : placed.self, *placed.team);
        const std::string difference =
            model::difference_of(decoder, *other, model::self_check_bound(part->type, decoder.config()));
        if (found.empty() && !difference.empty()) found = fmt::format("{}: {}", name, difference);
        ++part;
    };
    try {
        if (loaded.target) check("the target", *loaded.target, *opened.target.checkpoint, opened.target.config, true);
        for (std::size_t i = 0; i < loaded.drafts.size(); ++i)
            check("the draft", *loaded.drafts[i], *opened.drafts[i].checkpoint, opened.drafts[i].config,
                  loaded.sharded_draft != nullptr);
        const std::size_t first = opened.head && opened.head->head.has_prefix ? 1 : 0; // a prefix has no logits
        if (first == 1 && !loaded.head_decoders.empty()) ++part;
        for (std::size_t i = first; i < loaded.head_decoders.size(); ++i)
            check("the head", *loaded.head_decoders[i], opened.head->head.modules[i].weights,
                  opened.head->head.modules[i].config, false);
    } catch (const dist::Error& error) { // CUDA or NCCL failed
        if (found.empty()) found = error.what();
    }
    return found;
}

} // namespace

DeviceCheck check_device(dist::Session& session, const OpenedPair& opened, std::span<const HeldModel> held,
                         PlacedPair& placed, LoadedPair& loaded) {
    DeviceCheck check;
    const auto safe = second_implementation(session, held, placed);
    if (!safe) {
        check.left_out = fmt::format("the models are not compared with the CPU's, which would take more than {} a host",
                                     format_bytes(kMaxCheckedBytes));
        return check;
    }
    check.safe = *safe;
    struct Found {
        char text[240] = {};
    } mine; // goes through a collective as it is
    const auto tp = split_for_passes(session, check.safe, placed.layout.holds_target() ? placed.layout.replica : -1);
    in_agreement(session, [&] {
        const std::string found =
            difference_here(held, opened, placed, loaded, check.safe, tp.get(), session.timeout_seconds());
        std::strncpy(mine.text, found.c_str(), sizeof mine.text - 1);
    });
    const std::vector<Found> all = from_all(session, mine);
    const auto first = std::ranges::find_if(all, [](const Found& found) { return found.text[0] != '\0'; });
    if (first == all.end()) return check;
    check.failure = all.size() == 1 ? first->text : fmt::format("rank {}, {}", first - all.begin(), first->text);
    return check;
}

} // namespace entrodraft::launch
