#include "launch/load/opened_pair.h"

#include "launch/io/progress.h"
#include "launch/load/same_models.h"
#include "launch/start/failure.h"
#include "launch/start/model_directory.h"
#include "model/weights/layer_plan.h"
#include "spec/draft/token_table.h"

#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <numeric>

namespace entrodraft::launch {

namespace {

// Stretches the contexts for a --max-context of that many positions; 0 keeps the models' own.
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

// Throws BadOption if a model cannot drop positions, or if this rank's shard of the target cannot draft.
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

void require_same_vocabulary(const OpenedPair& opened, const ModelOptions& options) {
    if (opened.vocabularies && !options.needs_same_vocabulary.empty())
        throw BadOption(fmt::format("{} needs a draft of the target's vocabulary, and that of {} is another",
                                    options.needs_same_vocabulary, opened.drafts.back().name));
}

// Returns the tokens that --draft-vocab leaves a draft, in rising order. Throws BadOption, model::BadFile.
std::vector<model::TokenId> tokens_left(const ModelOptions& options, const OpenedPair& opened) {
    const OpenedModel& draft = opened.drafts.front();
    const auto& tokenizer = draft.tokenizer ? draft.tokenizer : opened.target.tokenizer; // they have one vocabulary
    int n_tokens = draft.config.vocab_size;
    if (tokenizer) n_tokens = std::min(n_tokens, tokenizer->size());
    if (options.draft_vocab >= n_tokens)
        throw BadOption(
            fmt::format("--draft-vocab {}: {} has {} tokens; leave it out", options.draft_vocab, draft.name, n_tokens));
    std::vector<model::TokenId> tokens(static_cast<std::size_t>(n_tokens));
    std::iota(tokens.begin(), tokens.end(), 0);
    if (!options.draft_vocab_counts.empty()) {
        const std::uint64_t fingerprint = tokenizer ? tokenizer->fingerprint() : 0;
        std::vector<float> frequency(tokens.size());
        spec::TokenTable::open(options.draft_vocab_counts, n_tokens, fingerprint).row(1, 0, frequency);
        std::ranges::stable_sort(tokens, std::greater<>(), [&](model::TokenId token) { return frequency[token]; });
    }
    const auto is_left = [&](model::TokenId token) {
        return std::ranges::find(draft.config.eos_token_ids, token) != draft.config.eos_token_ids.end() ||
               (tokenizer && tokenizer->has_token(token) && tokenizer->is_special(token));
    };
    const auto cut = tokens.begin() + options.draft_vocab;
    tokens.erase(std::remove_if(cut, tokens.end(), [&](model::TokenId token) { return !is_left(token); }),
                 tokens.end());
    std::ranges::sort(tokens);
    return tokens;
}

void restrict_draft(const ModelOptions& options, OpenedPair& opened) {
    if (options.draft_vocab == 0) return;
    OpenedModel& draft = opened.drafts.front();
    draft.config.output_tokens = tokens_left(options, opened);
    draft.config.picks_outputs = true;
}

void require_text(const OpenedPair& opened, const ModelOptions& options) {
    if (!options.needs_text.empty() && !opened.target.tokenizer)
        throw BadOption(fmt::format("{} needs a tokenizer, and --target {} has none (tokenizer.json, or "
                                    "other files of one); lines of --input may give prompt_token_ids",
                                    options.needs_text, options.target));
}

// A recording holds nothing that depends on where rounds begin.
void require_recordable(const OpenedPair& opened) {
    if (opened.head && opened.head->head.block > 1)
        throw BadOption(fmt::format("{}: what a head of the format {} drafts depends on where rounds begin, so that "
                                    "no recording can say it",
                                    opened.head->name, opened.head->head.format));
}

} // namespace

OpenedPair open_for_run(const ModelOptions& options, const dist::RankLayout& layout, bool records) {
    OpenedPair opened =
        open_pair(options.target, options.drafts, options.random_weights, options.head, options.draft_vocabulary);
    opened.draft_window = options.draft_window;
    opened.random_weights = options.random_weights;
    require_same_vocabulary(opened, options);
    restrict_draft(options, opened);
    stretch_contexts(options.max_context, opened);
    require_text(opened, options);
    opened.chat = open_chat(resolve_model_directory(options.target, "--target"), options.chat_template);
    if (records) require_recordable(opened);
    require_heads_for_all(opened, layout);
    require_window_fits(opened, options, layout);
    if (options.takes_digests && layout.is_writer()) opened.digests = digests_of(opened);
    const OpenedModel& target = opened.target;
    opened.vocab_size = target.config.vocab_size;
    if (target.tokenizer) opened.vocab_size = std::min(opened.vocab_size, target.tokenizer->size());
    return opened;
}

// Two exchanged directories cause no error, only a slow run. Ids that are other tokens to the draft do the same.
void say_what_was_opened(const OpenedPair& opened, const ModelOptions& options) {
    for (const std::string& note : options.notes)
        log_line(note);
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

} // namespace entrodraft::launch
