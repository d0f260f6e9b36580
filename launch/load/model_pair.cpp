// Opens target and draft: see model_pair.h.
#include "launch/load/model_pair.h"

#include "launch/load/opened_pair.h"
#include "launch/start/phase.h"

#include <algorithm>

namespace entrodraft::launch {

PromptLimits ModelPair::prompt_limits() const {
    PromptLimits limits;
    const auto &tokenizer = opened.target.tokenizer, &source_tokenizer = opened.target.source_tokenizer;
    const model::ModelConfig& config = opened.target.config;
    if (tokenizer) {
        const model::Tokenizer& of_prompts = source_tokenizer ? *source_tokenizer : *tokenizer;
        limits.encode = [&of_prompts](std::string_view text) { return of_prompts.encode(text, true); };
        limits.encode_chat = [this, &of_prompts](const model::Conversation& conversation) {
            return of_prompts.encode(opened.chat.render(conversation), false);
        };
    }
    limits.vocab_size = opened.vocab_size;
    limits.max_positions = config.max_positions;
    if (!config.has_encoder()) return limits;
    limits.source = {placed.max_source, config.encoder.vocab_size};
    if (source_tokenizer || (tokenizer && !config.encoder.own_embedding))
        limits.source.vocab_size =
            std::min(limits.source.vocab_size, (source_tokenizer ? *source_tokenizer : *tokenizer).size());
    for (const std::int64_t id : config.decoder_start_ids)
        limits.decoder_start.push_back(static_cast<spec::TokenId>(id));
    if (tokenizer)
        limits.encode_decoder_prompt = [&tokenizer](std::string_view text) { return tokenizer->encode(text, false); };
    return limits;
}

spec::DraftLimits ModelPair::draft_limits() const {
    return spec::draft_limits_of(opened.target.config, opened.vocab_size);
}

spec::EngineParts ModelPair::engine_parts(spec::Drafter* drafter) {
    const bool coordinates = placed.layout.is_coordinator();
    const auto& tokenizer = opened.target.tokenizer;
    return {&placed.layout,
            placed.replica.get(),
            loaded.target.get(),
            coordinates ? drafter : nullptr,
            coordinates && tokenizer ? &*tokenizer : nullptr,
            &placed.clock,
            &opened.target.config,
            loaded.target_pass_bytes,
            placed.watch,
            loaded.sharded_draft.get(),
            loaded.device_round.get(),
            loaded.max_prompt_rows,
            opened.head ? opened.head->head.target_layers : std::vector<int>(),
            placed.cache.tree_room};
}

std::optional<spec::HeadModules> ModelPair::head_modules() const {
    if (!opened.head) return std::nullopt;
    spec::HeadModules modules = {&opened.head->head, {}};
    for (const auto& decoder : loaded.head_decoders)
        modules.modules.push_back(decoder.get());
    return modules;
}

double operations_ratio(const ModelPair& models) {
    const LoadedPair& loaded = models.loaded;
    if (loaded.drafts.empty() || !loaded.target) return 0;
    const int tp_size = models.placed.layout.tp_size;
    const double of_target = loaded.target->operations_per_row() * tp_size;
    return loaded.drafts.front()->operations_per_row() * (loaded.sharded_draft ? tp_size : 1) / of_target;
}

namespace {

// A loaded model no longer needs its files, and a draft no longer needs its tokenizer.
void close_files(OpenedPair& opened) {
    opened.target.checkpoint.reset();
    for (OpenedModel& draft : opened.drafts) {
        draft.checkpoint.reset();
        draft.tokenizer.reset();
    }
}

} // namespace

std::unique_ptr<ModelPair> open_models(dist::Session& session, const ModelOptions& options,
                                       const Placement& placement) {
    auto pair = std::make_unique<ModelPair>();
    PlacedPair& placed = pair->placed;
    placed.watch = &session.watch();
    placed.watch->enter(dist::kNoRound, "load");
    in_agreement(session, [&] {
        placed.layout = layout_of(session, placement);
        pair->opened = open_for_run(options, placed.layout, placement.records);
    });
    if (placed.layout.is_writer() && !options.quiet) say_what_was_opened(pair->opened, options);
    place(session, pair->opened, options, placement, placed);
    load(session, pair->opened, options, placed, pair->loaded);
    pair->opened.target.config.max_positions = placed.cache.positions;
    close_files(pair->opened);
    return pair;
}

} // namespace entrodraft::launch
