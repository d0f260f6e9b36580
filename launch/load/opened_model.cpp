// Opens checkpoint directories: see opened_model.h.
#include "launch/load/opened_model.h"

#include "launch/cli/options.h"
#include "launch/io/report.h"
#include "launch/start/counted.h"
#include "launch/start/failure.h"
#include "launch/start/model_directory.h"
#include "model/families/names.h"
#include "model/families/read_config.h"
#include "model/weights/rank_shard.h"
#include "model/weights/tensor_shapes.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <stdexcept>

namespace entrodraft::launch {

namespace {

Vocabulary vocabulary_of(const OpenedModel& opened) {
    Vocabulary vocabulary = {opened.name, std::nullopt, 0, opened.config.vocab_size};
    if (opened.tokenizer) {
        vocabulary.fingerprint = opened.tokenizer->fingerprint();
        vocabulary.n_tokens = opened.tokenizer->size();
        if (opened.source_tokenizer) *vocabulary.fingerprint ^= 31 * opened.source_tokenizer->fingerprint();
    }
    return vocabulary;
}

} // namespace

std::string stored_head_warning(const std::string& model) {
    return "warning: " + model +
           ": config.json ties the head to the embedding, but the file stores a head of other values, which is " +
           "used, as transformers 5 does; set tie_word_embeddings to false, or remove the head";
}

std::optional<std::string> why_no_pair(const Vocabulary& target, const Vocabulary& draft) {
    if (target.fingerprint && draft.fingerprint && target.fingerprint != draft.fingerprint)
        return fmt::format("{} and {} have different vocabularies; a draft must tokenize as its target does",
                           draft.name, target.name);
    // A token without a row in the draft could never be emitted with it, though the target alone emits the token.
    const int known = target.fingerprint ? std::min(target.n_rows, target.n_tokens) : target.n_rows;
    if (draft.n_rows >= known) return std::nullopt;
    return fmt::format("{} has a vocab_size of {} and knows not all {} tokens of {}; choose a draft that does",
                       draft.name, draft.n_rows, known, target.name);
}

std::string not_compared(const Vocabulary& target, const Vocabulary& draft) {
    if (target.fingerprint && draft.fingerprint) return "";
    return fmt::format(
        "{} has no tokenizer: of {} and {} only the vocabulary sizes were compared; where an id is another "
        "token to the draft, drafts are rejected and cost time",
        draft.fingerprint ? target.name : draft.name, target.name, draft.name);
}

std::vector<const OpenedModel*> models_of(const OpenedPair& pair) {
    std::vector<const OpenedModel*> models = {&pair.target};
    for (const OpenedModel& draft : pair.drafts)
        models.push_back(&draft);
    return models;
}

OpenedModel open_model(const std::string& option, const std::string& name,
                       std::optional<std::uint64_t> random_weights) {
    const std::string directory = resolve_checkpoint_directory(name, option);
    OpenedModel opened;
    opened.name = option + " " + name;
    opened.path = directory;
    opened.config = model::read_config(directory);
    if (random_weights) opened.config.quantization.reset();
    opened.checkpoint =
        random_weights ? model::random_checkpoint(opened.config, *random_weights) : model::Checkpoint::open(directory);
    opened.was_untied = model::untie_stored_head(opened.config, *opened.checkpoint);
    if (has_tokenizer_files(directory)) {
        opened.tokenizer = model::Tokenizer::open(directory);
        opened.source_tokenizer = model::Tokenizer::open_source(directory);
    }
    return opened;
}

OpenedHead open_head(const std::string& name, const model::ModelConfig& target, const model::Checkpoint& weights) {
    const std::string directory = resolve_checkpoint_directory(name, "--head");
    return {"--head " + name, directory, model::read_head(directory, target, weights)};
}

// Other directories and the hub's cache all keep the name from "owner/name", but not always the owner.
std::string name_doubt(const OpenedHead& head, const std::string& target, const std::filesystem::path& path) {
    const auto in_lower_case = [](std::string text) {
        std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
        return text;
    };
    const std::string& full = head.head.trained_for;
    const std::string name = in_lower_case(std::filesystem::path(full).filename().string());
    const auto is_named_in = [&](const std::string& text) { return in_lower_case(text).find(name) != text.npos; };
    if (name.empty() || is_named_in(target) || is_named_in(path.string())) return "";
    return fmt::format("{} was trained for \"{}\", by its config, and {} has another name: drafts for another target "
                       "are rejected and cost time",
                       head.name, full, target);
}

std::string vocabulary_doubt(const OpenedHead& head, const OpenedModel& target) {
    const int known = head.head.trained_vocab_size;
    if (known == 0 || known == target.config.vocab_size) return "";
    return fmt::format("{} was trained for a target of {} tokens, by its config, and {} has {}: where an id is another "
                       "token, drafts are rejected and cost time",
                       head.name, known, target.name, target.config.vocab_size);
}

// Says why the draft's encoder could not read the target's sources; empty: it can, or the draft has no encoder.
std::string why_no_source(const OpenedModel& target, const OpenedModel& draft) {
    if (!draft.config.has_encoder()) return "";
    if (!target.config.has_encoder())
        return fmt::format("{} has an encoder and {} has none, so there is no source for it to read", draft.name,
                           target.name);
    if (draft.config.encoder.vocab_size >= target.config.encoder.vocab_size) return "";
    return fmt::format("the encoder of {} knows {} tokens, that of {} {}; choose a draft that knows them all",
                       draft.name, draft.config.encoder.vocab_size, target.name, target.config.encoder.vocab_size);
}

// Returns the target's config with its first `n_layers` layers; 0: all.
model::ModelConfig layers_that_draft(const OpenedModel& target, const std::string& draft, int n_layers) {
    if (target.config.has_encoder())
        throw BadOption(fmt::format("--draft {}: {} has an encoder, and such models do not draft for themselves", draft,
                                    target.name));
    if (n_layers > target.config.n_layers)
        throw BadOption(fmt::format("--draft {}: {} has {} layers", draft, target.name, target.config.n_layers));
    return n_layers > 0 ? model::first_layers(target.config, n_layers) : target.config;
}

std::string describe_shared(const model::VocabularyMap& map) {
    return fmt::format("{} of {} tokens ({:.1f} %)", format_count(map.shared().size()),
                       format_count(map.n_target_tokens()), 100 * map.target_share());
}

model::ModelVocabulary model_vocabulary(const model::Tokenizer& tokenizer, const model::ModelConfig& config) {
    return {tokenizer, config.vocab_size, config.eos_token_ids};
}

namespace {

// Maps the tokens of a draft with a vocabulary of its own. Throws BadOption if it cannot.
void map_vocabularies(const OpenedModel& draft, DraftVocabulary how, OpenedPair& pair) {
    const OpenedModel& target = pair.target;
    for (const OpenedModel* model : {&draft, &target})
        if (!model->tokenizer)
            throw BadOption(fmt::format("--draft-vocabulary {} needs the tokenizers of both models, and {} has none",
                                        how == DraftVocabulary::retokenize ? "retokenize" : "intersection",
                                        model->name));
    for (const OpenedModel* model : {&draft, &target})
        if (model->config.has_encoder())
            throw BadOption(
                fmt::format("{} has an encoder, and {} and {} have different vocabularies; a source is read "
                            "by models of one vocabulary alone",
                            model->name, draft.name, target.name));
    pair.vocabularies = std::make_shared<const model::VocabularyMap>(model_vocabulary(*target.tokenizer, target.config),
                                                                     model_vocabulary(*draft.tokenizer, draft.config));
    pair.draft_vocabulary = how == DraftVocabulary::retokenize ? how : DraftVocabulary::intersection;
    if (pair.draft_vocabulary == DraftVocabulary::retokenize) return;
    const model::VocabularyMap& map = *pair.vocabularies;
    const auto is_mark = [&](const auto& token) { return target.tokenizer->is_special(token.target); };
    if (std::ranges::all_of(map.shared(), is_mark))
        throw BadOption(fmt::format("{} and {} have no token in common; give --draft-vocabulary retokenize, or another "
                                    "draft",
                                    draft.name, target.name));
    if (map.target_share() < kSmallShare)
        pair.doubts.push_back(
            fmt::format("{} has few tokens of {}, {}: drafts of the others are rejected and cost time", draft.name,
                        target.name, describe_shared(map)));
}

} // namespace

OpenedPair open_pair(const std::string& target, const std::vector<std::string>& drafts,
                     std::optional<std::uint64_t> random_weights, const std::string& head,
                     DraftVocabulary draft_vocabulary) {
    OpenedPair pair;
    pair.target = open_model("--target", target, random_weights);
    if (!head.empty()) {
        pair.head = open_head(head, pair.target.config, *pair.target.checkpoint);
        for (std::string line :
             {name_doubt(*pair.head, pair.target.name, pair.target.path), vocabulary_doubt(*pair.head, pair.target)})
            if (!line.empty()) pair.doubts.push_back(std::move(line));
    }
    const Vocabulary of_target = vocabulary_of(pair.target);
    for (const std::string& name : drafts) {
        if (const auto self = self_draft_of(name)) {
            pair.self_draft = layers_that_draft(pair.target, name, self->n_layers);
            continue;
        }
        const Vocabulary of_draft =
            vocabulary_of(pair.drafts.emplace_back(open_model("--draft", name, random_weights)));
        const auto why_not = why_no_pair(of_target, of_draft);
        const bool may_differ = draft_vocabulary == DraftVocabulary::automatic
                                    ? why_not && of_target.fingerprint && of_draft.fingerprint
                                    : draft_vocabulary != DraftVocabulary::same;
        if (may_differ && pair.drafts.size() == drafts.size()) { // the smallest
            map_vocabularies(pair.drafts.back(), draft_vocabulary, pair);
            continue;
        }
        if (why_not) throw BadOption(*why_not + (may_differ ? ", but for the last of several" : ""));
        if (const std::string why = why_no_source(pair.target, pair.drafts.back()); !why.empty()) throw BadOption(why);
        if (std::string line = not_compared(of_target, of_draft); !line.empty()) pair.doubts.push_back(line);
    }
    return pair;
}

void require_heads_for_all(const OpenedPair& pair, const dist::RankLayout& layout) {
    for (const OpenedModel* model : models_of(pair)) {
        if (model != &pair.target && layout.placement != dist::DraftPlacement::sharded) return;
        try {
            model::shard_of(model->config, std::max(0, layout.tp_rank), layout.tp_size);
            if (model->config.has_encoder())
                model::shard_of(model::encoder_of(model->config), std::max(0, layout.tp_rank), layout.tp_size);
        } catch (const std::invalid_argument& error) {
            throw BadOption(fmt::format("{} on {}: {}", model->name, counted(layout.tp_size, "rank"), error.what()));
        }
    }
}

} // namespace entrodraft::launch
