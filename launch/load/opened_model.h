// What is read of checkpoint directories before their weights, and whether they go together.
//
// Called by model_pair and doctor, and for the warning by inspect; local throughout.
#pragma once

#include "dist/layout/layout.h"
#include "launch/cli/options.h"
#include "launch/io/chat.h"
#include "model/families/config.h"
#include "model/files/checkpoint.h"
#include "model/heads/head.h"
#include "model/text/tokenizer/vocabulary_map.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace entrodraft::launch {

// What a pair must have in common.
struct Vocabulary {
    std::string name;                         // OpenedModel's
    std::optional<std::uint64_t> fingerprint; // of the tokenizer; none: the model has no tokenizer
    int n_tokens = 0;                         // of the tokenizer
    int n_rows = 0;                           // of the model's logits
};

// Why it cannot, in one line; nothing where it can. Logits may be wider than the tokenizer, each model's own way.
std::optional<std::string> why_no_pair(const Vocabulary& target, const Vocabulary& draft);

// What why_no_pair() could not look at, in one line: the tokens themselves, where a tokenizer is missing; empty where
// it looked at everything.
std::string not_compared(const Vocabulary& target, const Vocabulary& draft);

struct OpenedModel {
    std::string name;           // as messages call it: "--target DIR"
    std::filesystem::path path; // that this means
    model::ModelConfig config;
    bool was_untied = false; // by model::untie_stored_head
    std::optional<model::Checkpoint> checkpoint;
    std::optional<model::Tokenizer> tokenizer;        // none: the directory has no file of one
    std::optional<model::Tokenizer> source_tokenizer; // none: sources are encoded as texts are
};

struct OpenedHead {
    std::string name; // "--head DIR"
    std::filesystem::path path;
    model::DraftHead head;
};

// Digests of what is in the files of models, wherever they lie: digest_of(). The head's is the last of the drafts.
struct ModelDigests {
    std::uint64_t target = 0;
    std::vector<std::uint64_t> drafts = {};
};

// Files, configs and tokenizers, as they were named. Loading reads the weights, and closes the checkpoints.
struct OpenedPair {
    OpenedModel target;
    std::optional<OpenedHead> head;
    std::vector<OpenedModel> drafts;                          // the largest first
    std::optional<model::ModelConfig> self_draft;             // in place of them: of the target's layers that draft
    std::shared_ptr<const model::VocabularyMap> vocabularies; // of target and last draft; null: they have the same
    DraftVocabulary draft_vocabulary = DraftVocabulary::same; // what is done then: intersection or retokenize
    std::vector<std::string> doubts;                          // a line for each draft that may be none of this target
    Chat chat;                                                // the target's
    spec::DraftWindow draft_window;                           // of the draft
    std::optional<std::uint64_t> random_weights;              // seed of weights that are made up
    ModelDigests digests;                                     // where ModelOptions ask for them, on the writer
    int vocab_size = 0; // tokens that target and tokenizer know, and so does the draft

    const model::DraftHead* draft_head() const { return head ? &head->head : nullptr; }
};

// The target, then the drafts.
std::vector<const OpenedModel*> models_of(const OpenedPair& pair);

// The checkpoint, or its config with weights made up by `random_weights`, a seed. Throws BadOption, naming the option,
// where a directory is missing; what reading throws otherwise.
OpenedModel open_model(const std::string& option, const std::string& name,
                       std::optional<std::uint64_t> random_weights = {});

// The head for that target. Throws BadOption, naming --head, where the directory is missing, model::BadFile.
OpenedHead open_head(const std::string& name, const model::ModelConfig& target, const model::Checkpoint& weights);

// That the head says that it was trained for a target of another name, in one line; empty: it does not. `target` is
// "--target DIR", `path` what this means.
std::string name_doubt(const OpenedHead& head, const std::string& target, const std::filesystem::path& path);

// How many of the target's tokens the draft has: "31,000 of 32,000 tokens (96.9 %)".
std::string describe_shared(const model::VocabularyMap& map);
// Of such pairs about a tenth of a text's tokens are not shared (bench/NOTES.md).
inline constexpr double kSmallShare = 0.5;
model::ModelVocabulary model_vocabulary(const model::Tokenizer& tokenizer, const model::ModelConfig& config);

// The same of both; throws BadOption where a draft has another vocabulary than the target, and `draft_vocabulary` does
// not say what to do. `head`: a draft head of the target; empty: none.
OpenedPair open_pair(const std::string& target, const std::vector<std::string>& drafts,
                     std::optional<std::uint64_t> random_weights = {}, const std::string& head = "",
                     DraftVocabulary draft_vocabulary = DraftVocabulary::same);

// That model::untie_stored_head() has untied `model`, "--target DIR".
std::string stored_head_warning(const std::string& model);

// Throws BadOption where the heads of the target, or of a draft that is sharded too, cannot be sharded across the ranks
// of the layout.
void require_heads_for_all(const OpenedPair& pair, const dist::RankLayout& layout);

} // namespace entrodraft::launch
