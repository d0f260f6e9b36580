#include "launch/load/loaded_pair.h"

#include "launch/io/changed_files.h"
#include "launch/io/progress.h"
#include "launch/load/device_check.h"
#include "launch/start/failure.h"
#include "launch/start/phase.h"
#include "model/pass/self_check.h"
#include "spec/beams/beam_tree.h"

#include <algorithm>
#include <fmt/format.h>

namespace entrodraft::launch {

namespace {

// Returns the models that this rank holds, or its parts of them: the target, then each draft. A continuation drafted
// ahead writes few positions, but in the course of a text it writes at every place.
std::vector<HeldModel> held_models(const OpenedPair& opened, const ModelOptions& options, const PlacedPair& placed) {
    const dist::RankLayout& layout = placed.layout;
    const int ahead = placed.ahead;
    const bool on_gpu = !placed.device.is_native_cpu();
    std::vector<HeldModel> held;
    if (layout.holds_target())
        held.push_back({&opened.target.config, options.dtype.value_or(automatic_type(opened.target.config, on_gpu)),
                        layout.tp_size, layout.tp_rank, 0, on_gpu});
    if (!layout.owns_draft()) return held;
    const bool is_sharded = layout.placement == dist::DraftPlacement::sharded;
    const int kept = options.draft_window.is_on() ? options.draft_window.max_kept() : 0;
    const bool has_chunks = options.draft_window.chunks > 0;
    for (const HeldDraft& draft : placed.drafts)
        held.push_back({&draft.config, draft.type, is_sharded ? layout.tp_size : 1, is_sharded ? layout.tp_rank : 0,
                        ahead, on_gpu, kept, false, has_chunks});
    if (opened.self_draft)
        held.push_back({&*opened.self_draft, held.front().type, layout.tp_size, layout.tp_rank, ahead, on_gpu, kept,
                        true, has_chunks});
    for (std::size_t i = 0; opened.head && i < opened.head->head.modules.size(); ++i) {
        const model::ModelConfig& config = opened.head->head.modules[i].config;
        held.push_back({&config, options.draft_dtype.value_or(automatic_type(config, on_gpu)), 1, 0, 0, on_gpu});
    }
    return held;
}

// Reads the weights of the models that this rank holds.
void load_weights(const OpenedPair& opened, const std::vector<HeldModel>& held, const ModelOptions& options,
                  PlacedPair& placed, LoadedPair& loaded) {
    const dist::RankLayout& layout = placed.layout;
    const CacheShape& cache = placed.cache;
    const auto options_of = [&](const HeldModel& part) {
        model::DecoderOptions decoder;
        decoder.timeout_seconds = options.collective_timeout_seconds;
        decoder.weight_type = part.type;
        decoder.activations = options.activations;
        decoder.kv_type = cache.kv_type;
        decoder.sum = options.sum;
        decoder.capacity = std::min(cache.positions, part.config->max_positions);
        decoder.kept_positions = part.kept_positions;
        if (part.kept_positions > 0) decoder.retrieval = options.draft_window.retrieval();
        if (cache.num_beams > 0) decoder.tree_positions = spec::tree_positions(cache.num_beams, decoder.capacity);
        decoder.tree_room = cache.tree_room;
        decoder.n_slots = cache.sequences + part.beside;
        decoder.source_capacity = std::min(cache.positions, part.config->encoder.max_positions);
        return decoder;
    };
    const auto load = [&](const model::Checkpoint& checkpoint, const char* what, const HeldModel& part,
                          dist::Communicator& ranks) {
        LoadingBar bar(std::string("loading the ") + what, options.quiet || !layout.is_writer());
        model::DecoderOptions decoder = options_of(part);
        decoder.progress = [&](std::size_t done, std::size_t total) { bar.update(done, total); };
        return load_decoder(placed.device, checkpoint, *part.config, decoder, ranks, *placed.team);
    };
    loaded.device_round = make_device_round(placed.device);
    auto part = held.begin();
    if (layout.holds_target()) loaded.target = load(*opened.target.checkpoint, "target", *part++, *placed.tp);
    const bool is_sharded = layout.placement == dist::DraftPlacement::sharded;
    if (layout.owns_draft())
        for (const OpenedModel& draft : opened.drafts)
            loaded.drafts.push_back(load(*draft.checkpoint, "draft", *part++, is_sharded ? *placed.tp : placed.self));
    if (layout.owns_draft() && opened.self_draft) {
        const HeldModel& self = *part++;
        loaded.drafts.push_back(loaded.target->over_same_weights(*self.config, options_of(self)));
    }
    if (layout.owns_draft() && opened.head)
        for (const model::HeadModule& module : opened.head->head.modules)
            loaded.head_decoders.push_back(load(module.weights, "head", *part++, placed.self));
    if (is_sharded && !loaded.drafts.empty())
        loaded.sharded_draft = std::make_unique<spec::ShardedDraftModel>(*loaded.drafts.front(), *placed.replica,
                                                                         options.collective_timeout_seconds);
}

// Logs the notes of the decoders of the first replica.
void log_notes(const PlacedPair& placed, const LoadedPair& loaded) {
    if (placed.layout.replica != 0) return;
    const auto log = [](const char* what, const model::Decoder& decoder) {
        if (const std::string note = decoder.note(); !note.empty()) log_line(fmt::format("note: {}: {}", what, note));
    };
    if (placed.layout.tp_rank == 0) log("target", *loaded.target);
    for (const auto& draft : loaded.drafts)
        if (placed.layout.is_coordinator()) log("draft", *draft);
}

// Loads onto the placed devices. If these fail, loads onto others.
class PairLoader {
  public:
    PairLoader(dist::Session& session, const OpenedPair& opened, const ModelOptions& options, PlacedPair& placed,
               LoadedPair& loaded)
        : session_(session), opened_(opened), options_(options), placed_(placed), loaded_(loaded) {}

    void run() {
        const bool is_left_to_us = options_.device == DeviceChoice::automatic && placed_.device.is_gpu;
        if (const std::string why = memory_shortage(); !why.empty()) {
            if (!is_left_to_us) throw OrderlyFailure(kBadOptions, why); // the same on every rank
            note(why + "; cpu is used", options_.quiet);
            move_to({});
            return run();
        }
        in_agreement(session_, [&] { load_weights(opened_, held(), options_, placed_, loaded_); });
        if (!is_left_to_us || placed_.cache.positions < model::kCheckedRows) return;
        const DeviceCheck check = check_device(session_, opened_, held(), placed_, loaded_);
        if (!check.left_out.empty()) note(check.left_out + "; the GPU is used unchecked", options_.quiet);
        if (check.failure.empty()) return;
        note(fmt::format("the GPU failed its self-check against {}: {}; {} is used", check.safe.name, check.failure,
                         check.safe.name),
             false);
        unload();
        move_to(check.safe);
        run();
    }

  private:
    std::vector<HeldModel> held() const { return held_models(opened_, options_, placed_); }
    void move_to(const RankDevice& device) {
        placed_.device = device;
        choose_types(opened_, options_, placed_);
        connect_devices(session_, options_.quiet, placed_);
    }
    std::string memory_shortage() {
        const CacheShape& cache = placed_.cache;
        return why_too_little_memory(
            from_all(session_, planned_memory(session_, held(), placed_.team->size(), cache, placed_.device)), cache);
    }
    void unload() { // each is freed before the objects that it uses
        loaded_.sharded_draft.reset();
        loaded_.drafts.clear();
        loaded_.head_decoders.clear();
        loaded_.target.reset();
        loaded_.device_round.reset();
        placed_.tp.reset();
    }
    void note(const std::string& line, bool is_quiet) const {
        if (placed_.layout.is_writer() && !is_quiet) log_line("note: --device auto: " + line);
    }

    dist::Session& session_;
    const OpenedPair& opened_;
    const ModelOptions& options_;
    PlacedPair& placed_;
    LoadedPair& loaded_;
};

} // namespace

void load(dist::Session& session, const OpenedPair& opened, const ModelOptions& options, PlacedPair& placed,
          LoadedPair& loaded) {
    const double begin = placed.clock.now_seconds();
    PairLoader(session, opened, options, placed, loaded).run();
    warn_of_changed_files(session);
    loaded.seconds = placed.clock.now_seconds() - begin;
    loaded.target_pass_bytes =
        loaded.target ? static_cast<double>(loaded.target->weight_bytes())
                      : static_cast<double>(opened.target.checkpoint->total_bytes()) / placed.layout.tp_size;
    const std::vector<int> prompt_rows = from_all(session, loaded.target ? loaded.target->max_prompt_rows() : 0);
    loaded.max_prompt_rows = *std::max_element(prompt_rows.begin(), prompt_rows.end());
    if (!options.quiet) log_notes(placed, loaded);
    for (const OpenedModel* model : models_of(opened))
        loaded.bytes += model->checkpoint->total_bytes() * static_cast<std::uint64_t>(placed.replicas);
}

} // namespace entrodraft::launch
