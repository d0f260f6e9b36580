// Reads checkpoint directories, but not their weights, and checks whether the models go together. Called by model_pair
// and doctor, and by inspect for the warning. It communicates with no other rank.
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

// The facts that must agree between the models of a pair.
struct Vocabulary {
    std::string name;                         // OpenedModel::name
    std::optional<std::uint64_t> fingerprint; // of the tokenizer; none: the model has no tokenizer
    int n_tokens = 0;                         // tokens of the tokenizer
    int n_rows = 0;                           // rows of the model's logits
};

// Says in one line why the two are no pair; nothing if they are. Each model's logits may be wider than the tokenizer.
std::optional<std::string> why_no_pair(const Vocabulary& target, const Vocabulary& draft);

// Says in one line that why_no_pair() could not compare the tokens themselves, because a tokenizer is missing. Empty:
// it compared everything.
std::string not_compared(const Vocabulary& target, const Vocabulary& draft);

struct OpenedModel {
    std::string name;           // the name as in messages: "--target DIR"
    std::filesystem::path path; // the directory that the name means
    model::ModelConfig config;
    bool was_untied = false; // by model::untie_stored_head
    std::optional<model::Checkpoint> checkpoint;
    std::optional<model::Tokenizer> tokenizer;        // none: the directory has no tokenizer file
    std::optional<model::Tokenizer> source_tokenizer; // none: the tokenizer encodes sources too
};

struct OpenedHead {
    std::string name; // "--head DIR"
    std::filesystem::path path;
    model::DraftHead head;
};

// Digests of models' files, independent of where the files lie: see digest_of(). The head's is the last of the drafts.
struct ModelDigests {
    std::uint64_t target = 0;
    std::vector<std::uint64_t> drafts = {};
};

// Files, configs and tokenizers, as the options name them. Loading reads the weights and closes the checkpoints.
struct OpenedPair {
    OpenedModel target;
    std::optional<OpenedHead> head;
    std::vector<OpenedModel> drafts;                          // the largest first
    std::optional<model::ModelConfig> self_draft;             // replaces the drafts: the target's layers that draft
    std::shared_ptr<const model::VocabularyMap> vocabularies; // of target and last draft; null: they share one
    DraftVocabulary draft_vocabulary = DraftVocabulary::same; // the use of them: intersection or retokenize
    std::vector<std::string> doubts;                          // a line for each draft that may not fit this target
    Chat chat;                                                // the target's
    spec::DraftWindow draft_window;                           // the draft's
    std::optional<std::uint64_t> random_weights;              // seed of made-up weights
    ModelDigests digests;                                     // on the writer, if ModelOptions ask for them
    int vocab_size = 0; // number of tokens that target and tokenizer know; the draft knows them too

    const model::DraftHead* draft_head() const { return head ? &head->head : nullptr; }
};

// Returns the target, then the drafts.
std::vector<const OpenedModel*> models_of(const OpenedPair& pair);

// Opens the checkpoint; with the seed `random_weights`, its config and made-up weights. Throws BadOption, naming the
// option, if a directory is missing, and what reading throws otherwise.
OpenedModel open_model(const std::string& option, const std::string& name,
                       std::optional<std::uint64_t> random_weights = {});

// Opens the head for that target. Throws model::BadFile, or BadOption, naming --head, if the directory is missing.
OpenedHead open_head(const std::string& name, const model::ModelConfig& target, const model::Checkpoint& weights);

// Says in one line that the head was trained for a target of another name, by its own config; empty: it was not.
// `target` is "--target DIR", and `path` is the directory that this means.
std::string name_doubt(const OpenedHead& head, const std::string& target, const std::filesystem::path& path);

// Says how many of the target's tokens the draft has: "31,000 of 32,000 tokens (96.9 %)".
std::string describe_shared(const model::VocabularyMap& map);
// With half of the tokens in common, about a tenth of a text's tokens are not shared (bench/NOTES.md).
inline constexpr double kSmallShare = 0.5;
model::ModelVocabulary model_vocabulary(const model::Tokenizer& tokenizer, const model::ModelConfig& config);

// Opens both models. Throws BadOption if a draft has another vocabulary than the target and `draft_vocabulary` does not
// say what to do. `head`: a draft head of the target; empty: none.
OpenedPair open_pair(const std::string& target, const std::vector<std::string>& drafts,
                     std::optional<std::uint64_t> random_weights = {}, const std::string& head = "",
                     DraftVocabulary draft_vocabulary = DraftVocabulary::same);

// Returns the warning that model::untie_stored_head() has untied `model`, "--target DIR".
std::string stored_head_warning(const std::string& model);

// Throws BadOption if the heads of the target cannot be sharded across the ranks of the layout. Checks the drafts, too,
// if they are sharded.
void require_heads_for_all(const OpenedPair& pair, const dist::RankLayout& layout);

} // namespace entrodraft::launch
