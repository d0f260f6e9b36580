#include "launch/load/placed_pair.h"

#include "launch/io/progress.h"
#include "launch/load/launch_check.h"
#include "launch/load/same_models.h"
#include "launch/start/failure.h"
#include "launch/start/phase.h"
#include "spec/protocol/packet.h"

#include <algorithm>
#include <fmt/format.h>

namespace entrodraft::launch {

namespace {

// Some models and types of weights run on CPUs alone. If the device was left to the program, it becomes the CPU, and a
// line says so. Throws OrderlyFailure.
void require_cpu(const OpenedPair& opened, const ModelOptions& options, PlacedPair& placed) {
    if (!options.needs_cpu.empty() && !placed.device.is_native_cpu()) { // options allow this for --device auto alone
        placed.device = {};
        if (placed.layout.is_writer() && !options.quiet)
            log_line("note: --device auto: " + options.needs_cpu + " runs on CPUs alone; cpu is used");
    }
    for (const OpenedModel* model : models_of(opened))
        if (const std::string why = why_no_kv_type(model->name, model->config, options.kv_type); !why.empty())
            throw OrderlyFailure(kBadOptions, why);
    for (const OpenedModel* model : models_of(opened)) {
        if (placed.device.is_native_cpu()) return;
        const bool on_torch = options.backend == Backend::torch;
        const std::string what = (on_torch ? model::what_torch_lacks : model::what_needs_cpu)(model->config);
        if (what.empty()) continue;
        if (on_torch)
            throw OrderlyFailure(kBadOptions, fmt::format("{} has {}, which --backend torch does not compute: leave "
                                                          "it out",
                                                          model->name, what));
        if (options.device != DeviceChoice::automatic)
            throw OrderlyFailure(kBadOptions, fmt::format("{} has {}, and only our CPU kernels run such models so far: "
                                                          "give --device cpu",
                                                          model->name, what));
        placed.device = {};
        if (placed.layout.is_writer() && !options.quiet)
            log_line(fmt::format("note: --device auto: {} has {}, which CPUs alone compute; cpu is used", model->name,
                                 what));
    }
}

// Returns the least source length that an encoder of the run takes, within the cache's positions; 0: no encoder.
int max_source_of(const OpenedPair& opened, int positions) {
    if (!opened.target.config.has_encoder()) return 0;
    for (const OpenedModel* model : models_of(opened))
        if (model->config.has_encoder()) positions = std::min(positions, model->config.encoder.max_positions);
    return positions;
}

CacheShape cache_of(const OpenedPair& opened, const ModelOptions& options, const Placement& placement) {
    CacheShape cache = {placement.batch_size, opened.target.config.max_positions, placement.num_beams,
                        placement.trees ? spec::Packet::kMaxDraftTokens : 0, options.kv_type};
    if (options.max_context > 0) cache.positions = std::min(options.max_context, cache.positions);
    return cache;
}

} // namespace

HeldDraft held_draft(const model::ModelConfig& config, std::optional<model::WeightType> type, bool on_cpu) {
    const bool has_many_bits = config.quantization && config.quantization->memory_bits > kMostDraftBits;
    if (!type && on_cpu && has_many_bits) type = model::WeightType::int4;
    HeldDraft held = {config, type.value_or(automatic_type(config, !on_cpu))};
    const bool is_rounded = held.type == model::WeightType::int8 || held.type == model::WeightType::int4;
    // MXFP4 files store matrices in an order of their own.
    const bool is_mxfp4 = config.quantization && config.quantization->form == model::QuantizedForm::mxfp4;
    if (on_cpu && is_rounded && !is_mxfp4) held.config.quantization.reset();
    return held;
}

std::string describe_weights(const model::ModelConfig& config, model::WeightType type) {
    return (config.quantization ? "codes of the file, " + to_string(*config.quantization) + "; other matrices " : "") +
           to_string(type);
}

std::string why_no_kv_type(const std::string& name, const model::ModelConfig& config,
                           std::optional<model::WeightType> type) {
    const std::string what = model::what_stays_float32(config);
    if (what.empty() || !type || type == model::WeightType::float32) return "";
    return fmt::format("--kv-dtype {}: {} keeps {} in float32: leave it out", to_string(*type), name, what);
}

void choose_types(const OpenedPair& opened, const ModelOptions& options, PlacedPair& placed) {
    const bool on_gpu = placed.device.is_gpu;
    placed.activations = options.activations;
    placed.target_type = options.dtype.value_or(automatic_type(opened.target.config, on_gpu));
    if (placed.device.is_native_cpu())
        placed.kv_type = kv_type_of(opened.target.config, placed.target_type, options.kv_type);
    placed.drafts.clear();
    for (const OpenedModel& draft : opened.drafts)
        placed.drafts.push_back(held_draft(draft.config, options.draft_dtype, placed.device.is_native_cpu()));
}

dist::RankLayout layout_of(const dist::Session& session, const Placement& placement) {
    return dist::make_layout(session.world_rank(), session.world_size(), placement.replicas, placement.draft);
}

void connect_devices(dist::Session& session, bool is_quiet, PlacedPair& placed) {
    const dist::RankLayout& layout = placed.layout;
    placed.tp = split_for_passes(session, placed.device, layout.holds_target() ? layout.replica : -1);
    const std::string about = shared_gpu_note(placed.device, placed.tp.get());
    if (!about.empty() && layout.is_writer() && !is_quiet) log_line(about);
}

void place(dist::Session& session, const OpenedPair& opened, const ModelOptions& options, const Placement& placement,
           PlacedPair& placed) {
    placed.replica = session.split(placed.layout.replica);
    placed.device = choose_device(session, options.device, options.backend);
    require_cpu(opened, options, placed);
    if (placed.layout.is_writer() && !options.quiet && options.backend == Backend::native)
        if (const std::string note = idle_gpu_note(options.device, placed.device, n_gpus(), has_gpu_file());
            !note.empty())
            log_line(note);
    placed.cache = cache_of(opened, options, placement);
    placed.ahead = opened.vocabularies ? 0 : placement.ahead;
    placed.replicas = placement.replicas;
    placed.max_source = max_source_of(opened, placed.cache.positions);
    connect_devices(session, options.quiet, placed);
    const int threads = check_launch(session, options.threads, options.quiet);
    require_same_models(session, opened, {.threads = threads, .quiet = options.quiet});
    choose_types(opened, options, placed);
    in_agreement(session, [&] { placed.team = std::make_unique<model::ThreadTeam>(threads); });
}

} // namespace entrodraft::launch
