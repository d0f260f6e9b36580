// Opening target and draft: see model_pair.h.
#include "launch/load/model_pair.h"

#include "launch/failure.h"
#include "launch/io/progress.h"
#include "launch/load/launch_check.h"
#include "launch/load/memory_plan.h"
#include "launch/load/opened_model.h"
#include "launch/load/same_models.h"
#include "launch/model_directory.h"
#include "launch/phase.h"

#include <algorithm>
#include <fmt/format.h>
#include <vector>

namespace entrodraft::launch {

namespace {

// What this rank holds of them: of the target, then of each draft. A continuation drafted ahead writes few positions,
// but in time at every place.
std::vector<HeldModel> held_models(const OpenedPair& opened, const ModelOptions& options,
                                   const dist::RankLayout& layout, int ahead, bool on_gpu) {
    std::vector<HeldModel> held;
    if (layout.holds_target())
        held.push_back({&opened.target.config, options.dtype.value_or(opened.target.config.stored_type), layout.tp_size,
                        layout.tp_rank, 0, on_gpu});
    if (!layout.owns_draft()) return held;
    const bool is_sharded = layout.placement == dist::DraftPlacement::sharded;
    for (const OpenedModel& draft : opened.drafts)
        held.push_back({&draft.config, options.draft_dtype.value_or(draft.config.stored_type),
                        is_sharded ? layout.tp_size : 1, is_sharded ? layout.tp_rank : 0, ahead, on_gpu});
    return held;
}

// Two directories that were exchanged make no error, only a slow run; nor do ids that are other tokens to the draft.
void warn_of_models(const OpenedPair& opened) {
    for (const OpenedModel* model : models_of(opened))
        if (model->was_untied) log_line(stored_head_warning(model->name));
    for (const std::string& line : opened.not_compared)
        log_line("warning: " + line);
    const std::int64_t of_target = parameter_count(opened.target.config);
    for (const OpenedModel& draft : opened.drafts)
        if (const std::int64_t of_draft = parameter_count(draft.config); of_draft > of_target)
            log_line(fmt::format("warning: {} has {} parameters, more than the {} of {}: such a draft costs more than "
                                 "it saves; were they exchanged?",
                                 draft.name, of_draft, of_target, opened.target.name));
}

} // namespace

PromptLimits ModelPair::prompt_limits() const {
    PromptLimits limits;
    if (tokenizer) {
        limits.encode = [this](std::string_view text) { return tokenizer->encode(text, true); };
        limits.encode_chat = [this](const std::vector<model::ChatMessage>& messages) {
            return tokenizer->encode(chat.render(messages), false);
        };
    }
    limits.vocab_size = vocab_size;
    limits.max_positions = target_config.max_positions;
    return limits;
}

spec::DraftLimits ModelPair::draft_limits() const {
    return spec::draft_limits_of(target_config, vocab_size);
}

spec::EngineParts ModelPair::engine_parts(spec::Drafter* drafter) {
    const bool coordinates = layout.is_coordinator();
    return {&layout,
            replica.get(),
            target.get(),
            coordinates ? drafter : nullptr,
            coordinates && tokenizer ? &*tokenizer : nullptr,
            &clock,
            &target_config,
            target_pass_bytes,
            watch,
            sharded_draft.get(),
            device_verifier.get()};
}

double operations_ratio(const ModelPair& models) {
    if (models.drafts.empty() || !models.target) return 0;
    const double of_target = models.target->operations_per_row() * models.layout.tp_size;
    const double of_draft =
        models.drafts.front()->operations_per_row() * (models.sharded_draft ? models.layout.tp_size : 1);
    return of_draft / of_target;
}

dist::RankLayout layout_of(const dist::Session& session, const Placement& placement) {
    return dist::make_layout(session.world_rank(), session.world_size(), placement.replicas, placement.draft);
}

namespace {

// Reads the weights of what this rank holds. Local.
void load_weights(const OpenedPair& opened, const std::vector<HeldModel>& held, const ModelOptions& options,
                  const CacheShape& cache, ModelPair& pair) {
    const dist::RankLayout& layout = pair.layout;
    const auto load = [&](const OpenedModel& from, const char* what, const HeldModel& part, dist::Communicator& ranks) {
        LoadingBar bar(std::string("loading the ") + what, options.quiet || !layout.is_writer());
        model::DecoderOptions decoder;
        decoder.timeout_seconds = options.collective_timeout_seconds;
        decoder.weight_type = part.type;
        decoder.sum = options.sum;
        decoder.capacity = std::min(cache.positions, from.config.max_positions);
        decoder.n_slots = cache.sequences + part.beside;
        decoder.progress = [&](std::size_t done, std::size_t total) { bar.update(done, total); };
        return load_decoder(pair.device, *from.checkpoint, from.config, decoder, ranks, *pair.team);
    };
    pair.device_verifier = make_device_verifier(pair.device);
    auto part = held.begin();
    if (layout.holds_target()) pair.target = load(opened.target, "target", *part++, *pair.tp);
    const bool is_sharded = layout.placement == dist::DraftPlacement::sharded;
    if (layout.owns_draft())
        for (const OpenedModel& draft : opened.drafts)
            pair.drafts.push_back(load(draft, "draft", *part++, is_sharded ? *pair.tp : pair.self));
    if (is_sharded && !opened.drafts.empty())
        pair.sharded_draft = std::make_unique<spec::ShardedDraftModel>(*pair.drafts.front(), *pair.replica,
                                                                       options.collective_timeout_seconds);
}

} // namespace

std::unique_ptr<ModelPair> open_models(dist::Session& session, const ModelOptions& options,
                                       const Placement& placement) {
    auto pair = std::make_unique<ModelPair>();
    pair->watch = &session.watch();
    pair->watch->enter(dist::kNoRound, "load");
    OpenedPair opened;
    in_agreement(session, [&] {
        pair->layout = layout_of(session, placement);
        pair->batch_size = placement.batch_size;
        opened = open_pair(options.target, options.drafts);
        if (!options.needs_text.empty() && !opened.target.tokenizer)
            throw BadOption(fmt::format("{} needs a tokenizer, and --target {} has none (tokenizer.json, or vocab.json "
                                        "with merges.txt); lines of --input may give prompt_token_ids",
                                        options.needs_text, options.target));
        pair->chat = open_chat(resolve_model_directory(options.target, "--target"), options.chat_template);
        require_heads_for_all(opened, pair->layout);
    });
    if (pair->layout.is_writer() && !options.quiet) warn_of_models(opened);

    const OpenedModel& target = opened.target;
    const dist::RankLayout& layout = pair->layout;
    pair->vocab_size = target.config.vocab_size;
    if (target.tokenizer) pair->vocab_size = std::min(pair->vocab_size, target.tokenizer->size());
    pair->replica = session.split(layout.replica);
    pair->device = choose_device(session, options.device, options.backend);
    if (pair->layout.is_writer() && !options.quiet && options.backend == Backend::native &&
        options.device == DeviceChoice::automatic && has_gpu_file())
        if (const std::string note = idle_gpu_note(options.device, true, n_gpus()); !note.empty()) log_line(note);
    pair->tp = split_for_passes(session, pair->device, layout.holds_target() ? layout.replica : -1);
    if (pair->layout.is_writer() && !options.quiet)
        if (const std::string note = shared_gpu_note(pair->device, pair->tp.get()); !note.empty()) log_line(note);
    const int threads = check_launch(session, options.threads, options.quiet);
    require_same_models(session, opened, {.threads = threads, .quiet = options.quiet});
    pair->target_type = options.dtype.value_or(target.config.stored_type);
    pair->draft_type = opened.drafts.empty() ? pair->target_type
                                             : options.draft_dtype.value_or(opened.drafts.front().config.stored_type);
    CacheShape cache = {placement.batch_size, target.config.max_positions};
    if (options.max_context > 0) cache.positions = std::min(options.max_context, cache.positions);
    const auto held = held_models(opened, options, layout, placement.ahead, !pair->device.is_native_cpu());
    require_memory(session, held, threads, cache, pair->device);
    const double begin = pair->clock.now_seconds();
    in_agreement(session, [&] {
        pair->team = std::make_unique<model::ThreadTeam>(threads);
        load_weights(opened, held, options, cache, *pair);
        pair->tokenizer = std::move(opened.target.tokenizer);
        pair->target_config = target.config;
        pair->target_config.max_positions = cache.positions;
        pair->target_pass_bytes = static_cast<double>(target.checkpoint->total_bytes()) / layout.tp_size;
        if (pair->target) pair->target_pass_bytes = static_cast<double>(pair->target->weight_bytes());
    });
    pair->load_seconds = pair->clock.now_seconds() - begin;
    for (const OpenedModel* model : models_of(opened))
        pair->load_bytes += static_cast<double>(model->checkpoint->total_bytes()) * placement.replicas;
    return pair;
}

} // namespace entrodraft::launch
