// Opening target and draft: see model_pair.h.
#include "launch/load/model_pair.h"

#include "launch/io/changed_files.h"
#include "launch/io/progress.h"
#include "launch/load/device_check.h"
#include "launch/load/launch_check.h"
#include "launch/load/memory_plan.h"
#include "launch/load/opened_model.h"
#include "launch/load/same_models.h"
#include "launch/start/failure.h"
#include "launch/start/model_directory.h"
#include "launch/start/phase.h"
#include "model/pass/self_check.h"
#include "model/weights/layer_plan.h"
#include "spec/beams/beam_tree.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>
#include <vector>

namespace entrodraft::launch {

namespace {

// What this rank holds of them: of the target, then of each draft. A continuation drafted ahead writes few positions,
// but in time at every place.
std::vector<HeldModel> held_models(const OpenedPair& opened, const ModelOptions& options,
                                   const dist::RankLayout& layout, int ahead, bool on_gpu) {
    std::vector<HeldModel> held;
    if (layout.holds_target())
        held.push_back({&opened.target.config, options.dtype.value_or(automatic_type(opened.target.config, on_gpu)),
                        layout.tp_size, layout.tp_rank, 0, on_gpu});
    if (!layout.owns_draft()) return held;
    const bool is_sharded = layout.placement == dist::DraftPlacement::sharded;
    const int kept = options.draft_window.is_on() ? options.draft_window.max_kept() : 0;
    const bool has_chunks = options.draft_window.chunks > 0;
    for (const OpenedModel& draft : opened.drafts)
        held.push_back({&draft.config, options.draft_dtype.value_or(automatic_type(draft.config, on_gpu)),
                        is_sharded ? layout.tp_size : 1, is_sharded ? layout.tp_rank : 0, ahead, on_gpu, kept, false,
                        has_chunks});
    if (opened.self_draft)
        held.push_back({&*opened.self_draft, held.front().type, layout.tp_size, layout.tp_rank, ahead, on_gpu, kept,
                        true, has_chunks});
    for (std::size_t i = 0; opened.head && i < opened.head->head.modules.size(); ++i) {
        const model::ModelConfig& config = opened.head->head.modules[i].config;
        held.push_back({&config, options.draft_dtype.value_or(automatic_type(config, on_gpu)), 1, 0, 0, on_gpu});
    }
    return held;
}

// Two directories that were exchanged make no error, only a slow run; nor do ids that are other tokens to the draft.
void warn_of_models(const OpenedPair& opened) {
    for (const OpenedModel* model : models_of(opened))
        if (model->was_untied) log_line(stored_head_warning(model->name));
    if (opened.vocabularies)
        log_line(fmt::format("note: {} has a vocabulary of its own, with {} of {}; drafts by {}",
                             opened.drafts.back().name, describe_shared(*opened.vocabularies), opened.target.name,
                             opened.draft_vocabulary == DraftVocabulary::retokenize ? "retokenize" : "intersection"));
    for (const std::string& line : opened.doubts)
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
        const model::Tokenizer& of_prompts = source_tokenizer ? *source_tokenizer : *tokenizer;
        limits.encode = [&of_prompts](std::string_view text) { return of_prompts.encode(text, true); };
        limits.encode_chat = [this, &of_prompts](const model::Conversation& conversation) {
            return of_prompts.encode(chat.render(conversation), false);
        };
    }
    limits.vocab_size = vocab_size;
    limits.max_positions = target_config.max_positions;
    if (!target_config.has_encoder()) return limits;
    limits.source = {max_source, target_config.encoder.vocab_size};
    if (source_tokenizer || (tokenizer && !target_config.encoder.own_embedding))
        limits.source.vocab_size =
            std::min(limits.source.vocab_size, (source_tokenizer ? *source_tokenizer : *tokenizer).size());
    for (const std::int64_t id : target_config.decoder_start_ids)
        limits.decoder_start.push_back(static_cast<spec::TokenId>(id));
    if (tokenizer)
        limits.encode_decoder_prompt = [this](std::string_view text) { return tokenizer->encode(text, false); };
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
            device_verifier.get(),
            max_prompt_rows,
            head ? head->target_layers : std::vector<int>(),
            tree_room};
}

std::optional<spec::HeadModules> ModelPair::head_modules() const {
    if (!head) return std::nullopt;
    spec::HeadModules modules = {&*head, {}};
    for (const auto& decoder : head_decoders)
        modules.modules.push_back(decoder.get());
    return modules;
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
    const auto options_of = [&](const HeldModel& part) {
        model::DecoderOptions decoder;
        decoder.timeout_seconds = options.collective_timeout_seconds;
        decoder.weight_type = part.type;
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
        return load_decoder(pair.device, checkpoint, *part.config, decoder, ranks, *pair.team);
    };
    pair.device_verifier = make_device_verifier(pair.device);
    auto part = held.begin();
    if (layout.holds_target()) pair.target = load(*opened.target.checkpoint, "target", *part++, *pair.tp);
    const bool is_sharded = layout.placement == dist::DraftPlacement::sharded;
    if (layout.owns_draft())
        for (const OpenedModel& draft : opened.drafts)
            pair.drafts.push_back(load(*draft.checkpoint, "draft", *part++, is_sharded ? *pair.tp : pair.self));
    if (layout.owns_draft() && opened.self_draft) {
        const HeldModel& self = *part++;
        pair.drafts.push_back(pair.target->over_same_weights(*self.config, options_of(self)));
    }
    if (layout.owns_draft() && opened.head)
        for (const model::HeadModule& module : opened.head->head.modules)
            pair.head_decoders.push_back(load(module.weights, "head", *part++, pair.self));
    if (is_sharded && !pair.drafts.empty())
        pair.sharded_draft = std::make_unique<spec::ShardedDraftModel>(*pair.drafts.front(), *pair.replica,
                                                                       options.collective_timeout_seconds);
}

// The least that an encoder of the run takes, within the cache's positions; 0: the target has none.
int max_source_of(const OpenedPair& opened, int positions) {
    if (!opened.target.config.has_encoder()) return 0;
    for (const OpenedModel* model : models_of(opened))
        if (model->config.has_encoder()) positions = std::min(positions, model->config.encoder.max_positions);
    return positions;
}

// Some models and types of weights run on CPUs alone: a device that was left to the program becomes one, in a line that
// says so. Throws OrderlyFailure.
void require_cpu(const OpenedPair& opened, const ModelOptions& options, ModelPair& pair) {
    if (!options.needs_cpu.empty() && !pair.device.is_native_cpu()) { // --device auto, by the options' own check
        pair.device = {};
        if (pair.layout.is_writer() && !options.quiet)
            log_line("note: --device auto: " + options.needs_cpu + " runs on CPUs alone; cpu is used");
    }
    for (const OpenedModel* model : models_of(opened)) {
        if (pair.device.is_native_cpu()) return;
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
        pair.device = {};
        if (pair.layout.is_writer() && !options.quiet)
            log_line(fmt::format("note: --device auto: {} has {}, which CPUs alone compute; cpu is used", model->name,
                                 what));
    }
}

// How the models of the first replica compute, where there is something to say.
void log_notes(const ModelPair& pair) {
    if (pair.layout.replica != 0) return;
    const auto log = [](const char* what, const model::Decoder& decoder) {
        if (const std::string note = decoder.note(); !note.empty()) log_line(fmt::format("note: {}: {}", what, note));
    };
    if (pair.layout.tp_rank == 0) log("target", *pair.target);
    for (const auto& draft : pair.drafts)
        if (pair.layout.is_coordinator()) log("draft", *draft);
}

// Throws BadOption where a model cannot drop positions, or where this rank's shard of the target cannot draft.
void require_window_fits(const OpenedPair& opened, const ModelOptions& options, const dist::RankLayout& layout) {
    if (opened.self_draft && layout.tp_size > 1 && layout.placement != dist::DraftPlacement::sharded)
        throw BadOption(fmt::format(
            "--draft self: the target is sharded across {} ranks; add --draft-placement sharded", layout.tp_size));
    if (!options.draft_window.is_on()) return;
    if (opened.vocabularies)
        throw BadOption(fmt::format("--draft-window: {} has another vocabulary than {}; leave it out",
                                    opened.drafts.front().name, opened.target.name));
    const model::ModelConfig& config = opened.self_draft ? *opened.self_draft : opened.drafts.front().config;
    if (config.n_linear_layers() > 0)
        throw BadOption(
            fmt::format("--draft-window: --draft {} has linear attention, whose states cannot drop a position",
                        options.drafts.front()));
}

// The models on the ranks' devices, and what sums their passes there.
class PairLoader {
  public:
    PairLoader(dist::Session& session, const OpenedPair& opened, const ModelOptions& options,
               const Placement& placement, ModelPair& pair)
        : session_(session), opened_(opened), options_(options), placement_(placement), pair_(pair) {
        cache_ = {placement.batch_size, opened.target.config.max_positions, placement.num_beams,
                  placement.trees ? spec::Packet::kMaxDraftTokens : 0};
        if (options.max_context > 0) cache_.positions = std::min(options.max_context, cache_.positions);
    }

    int positions() const { return cache_.positions; }
    int tree_room() const { return cache_.tree_room; }

    // What sums the passes, on the devices as they are chosen by now. Collective over the world.
    void connect() {
        pair_.tp = split_for_passes(session_, pair_.device, pair_.layout.holds_target() ? pair_.layout.replica : -1);
        if (const std::string about = shared_gpu_note(pair_.device, pair_.tp.get()); !about.empty())
            log(about, options_.quiet);
    }

    // Where the device was left to the program, GPUs have to hold the models and to compute as another implementation
    // does; else that computes. Behind connect(). Throws OrderlyFailure. Collective over the world.
    void load() {
        const bool is_left_to_us = options_.device == DeviceChoice::automatic && pair_.device.is_gpu;
        if (const std::string why = memory_shortage(); !why.empty()) {
            if (!is_left_to_us) throw OrderlyFailure(kBadOptions, why); // the same on every rank
            note(why + "; cpu is used", options_.quiet);
            pair_.device = {};
            connect();
            return load();
        }
        in_agreement(session_, [&] { load_weights(opened_, held(), options_, cache_, pair_); });
        if (!is_left_to_us || cache_.positions < model::kCheckedRows) return;
        const DeviceCheck check = check_device(session_, opened_, held(), pair_);
        if (!check.left_out.empty()) note(check.left_out + "; the GPU is used unchecked", options_.quiet);
        if (check.failure.empty()) return;
        note(fmt::format("the GPU failed its self-check against {}: {}; {} is used", check.safe.name, check.failure,
                         check.safe.name),
             false);
        unload();
        pair_.device = check.safe;
        connect();
        load();
    }

  private:
    std::vector<HeldModel> held() const {
        return held_models(opened_, options_, pair_.layout, placement_.ahead, !pair_.device.is_native_cpu());
    }
    std::string memory_shortage() {
        return why_too_little_memory(
            from_all(session_, planned_memory(session_, held(), pair_.team->size(), cache_, pair_.device)), cache_);
    }
    void unload() {
        pair_.sharded_draft.reset();
        pair_.drafts.clear();
        pair_.head_decoders.clear();
        pair_.target.reset();
        pair_.device_verifier.reset();
        pair_.tp.reset();
    }
    void note(const std::string& line, bool is_quiet) const { log("note: --device auto: " + line, is_quiet); }
    void log(const std::string& line, bool is_quiet) const {
        if (pair_.layout.is_writer() && !is_quiet) log_line(line);
    }

    dist::Session& session_;
    const OpenedPair& opened_;
    const ModelOptions& options_;
    const Placement& placement_;
    ModelPair& pair_;
    CacheShape cache_;
};

} // namespace

namespace {

// Of all models of the run, for a --max-context of so many positions; 0: what the models have.
void stretch_contexts(int positions, OpenedPair& opened) {
    model::stretch_context(opened.target.config, positions);
    for (OpenedModel& draft : opened.drafts)
        model::stretch_context(draft.config, positions);
    if (opened.self_draft) model::stretch_context(*opened.self_draft, positions);
    if (!opened.head) return;
    for (model::HeadModule& module : opened.head->head.modules)
        model::stretch_context(module.config, positions);
}

ModelDigests digests_of(const OpenedPair& opened) {
    ModelDigests digests = {digest_of(opened.target)};
    for (const OpenedModel& draft : opened.drafts)
        digests.drafts.push_back(digest_of(draft));
    if (opened.head) digests.drafts.push_back(digest_of(*opened.head));
    return digests;
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
        pair->draft_window = options.draft_window;
        pair->num_beams = placement.num_beams;
        pair->random_weights = options.random_weights;
        opened =
            open_pair(options.target, options.drafts, options.random_weights, options.head, options.draft_vocabulary);
        if (opened.vocabularies && !options.needs_same_vocabulary.empty())
            throw BadOption(fmt::format("{} needs a draft of the target's vocabulary, and that of {} is another",
                                        options.needs_same_vocabulary, opened.drafts.back().name));
        place_experts(options.expert_placement, opened.target.name, opened.target.config);
        stretch_contexts(options.max_context, opened);
        if (!options.needs_text.empty() && !opened.target.tokenizer)
            throw BadOption(fmt::format("{} needs a tokenizer, and --target {} has none (tokenizer.json, or "
                                        "other files of one); lines of --input may give prompt_token_ids",
                                        options.needs_text, options.target));
        pair->chat = open_chat(resolve_model_directory(options.target, "--target"), options.chat_template);
        if (placement.records && opened.head && opened.head->head.block > 1)
            throw BadOption(
                fmt::format("{}: what a head of the format {} drafts depends on where rounds begin, so that "
                            "no recording can say it",
                            opened.head->name, opened.head->head.format));
        require_heads_for_all(opened, pair->layout);
        require_window_fits(opened, options, pair->layout);
        if (options.takes_digests && pair->layout.is_writer()) pair->digests = digests_of(opened);
    });
    if (pair->layout.is_writer() && !options.quiet) {
        for (const std::string& note : options.notes)
            log_line(note);
        warn_of_models(opened);
    }

    const OpenedModel& target = opened.target;
    pair->vocab_size = target.config.vocab_size;
    if (target.tokenizer) pair->vocab_size = std::min(pair->vocab_size, target.tokenizer->size());
    pair->replica = session.split(pair->layout.replica);
    pair->device = choose_device(session, options.device, options.backend);
    require_cpu(opened, options, *pair);
    if (pair->layout.is_writer() && !options.quiet && options.backend == Backend::native)
        if (const std::string note = idle_gpu_note(options.device, pair->device, n_gpus(), has_gpu_file());
            !note.empty())
            log_line(note);
    Placement loaded = placement;
    if (opened.vocabularies) loaded.ahead = 0;
    PairLoader loader(session, opened, options, loaded, *pair);
    loader.connect();
    const int threads = check_launch(session, options.threads, options.quiet);
    require_same_models(session, opened, {.threads = threads, .quiet = options.quiet});
    const bool on_gpu = pair->device.is_gpu;
    pair->target_type = options.dtype.value_or(automatic_type(target.config, on_gpu));
    pair->draft_type = opened.drafts.empty()
                           ? pair->target_type
                           : options.draft_dtype.value_or(automatic_type(opened.drafts.front().config, on_gpu));
    const double begin = pair->clock.now_seconds();
    in_agreement(session, [&] { pair->team = std::make_unique<model::ThreadTeam>(threads); });
    loader.load();
    warn_of_changed_files(session);
    pair->load_seconds = pair->clock.now_seconds() - begin;
    pair->tokenizer = std::move(opened.target.tokenizer);
    pair->source_tokenizer = std::move(opened.target.source_tokenizer);
    pair->vocabularies = opened.vocabularies;
    pair->draft_vocabulary = opened.draft_vocabulary;
    if (opened.head) pair->head = std::move(opened.head->head);
    pair->target_config = target.config;
    pair->target_config.max_positions = loader.positions();
    pair->tree_room = loader.tree_room();
    pair->max_source = max_source_of(opened, loader.positions());
    pair->target_pass_bytes = static_cast<double>(target.checkpoint->total_bytes()) / pair->layout.tp_size;
    if (pair->target) pair->target_pass_bytes = static_cast<double>(pair->target->weight_bytes());
    const std::vector<int> prompt_rows = from_all(session, pair->target ? pair->target->max_prompt_rows() : 0);
    pair->max_prompt_rows = *std::max_element(prompt_rows.begin(), prompt_rows.end());
    if (!options.quiet) log_notes(*pair);
    for (const OpenedModel* model : models_of(opened))
        pair->load_bytes += static_cast<double>(model->checkpoint->total_bytes()) * placement.replicas;
    return pair;
}

} // namespace entrodraft::launch
