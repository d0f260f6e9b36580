// Target and draft, opened and sharded across the ranks: everything a run needs before its first round.
//
// Called by all commands that decode, collectively. Every failure is one message and one code on all ranks.
#pragma once

#include "dist/layout.h"
#include "dist/session.h"
#include "launch/cli/options.h"
#include "launch/io/chat.h"
#include "launch/io/requests.h"
#include "launch/load/rank_device.h"
#include "model/host/thread_team.h"
#include "model/pass/decoder.h"
#include "model/text/tokenizer/tokenizer.h"
#include "spec/draft/head_texts.h"
#include "spec/draft/sharded_draft_model.h"
#include "spec/round/engine.h"

#include <memory>
#include <optional>
#include <string>

namespace entrodraft::launch {

// Digests of what is in the files of models, wherever they lie: digest_of(). The head's is the last of the drafts.
struct ModelDigests {
    std::uint64_t target = 0;
    std::vector<std::uint64_t> drafts = {};
};

struct ModelPair {
    dist::RankLayout layout;
    int num_beams = 0;                           // of each sequence, for beam search; 0: none
    int batch_size = 1;                          // sequences that target and drafts hold at once
    int tree_room = 0;                           // positions beside those of a sequence, for a round's tree
    spec::DraftWindow draft_window;              // of the draft
    std::unique_ptr<dist::Communicator> replica; // all ranks of the replica
    RankDevice device;                           // of this rank
    std::unique_ptr<dist::Communicator> tp;      // those that hold the target, for its passes; null elsewhere
    dist::SelfComm self;
    dist::SteadyClock clock;
    dist::StepWatch* watch = nullptr; // the session's
    std::unique_ptr<model::ThreadTeam> team;
    std::optional<model::Tokenizer> tokenizer, source_tokenizer; // source_tokenizer: none: as texts
    std::shared_ptr<const model::VocabularyMap> vocabularies;    // of target and last draft; null: they have the same
    DraftVocabulary draft_vocabulary = DraftVocabulary::same;    // as OpenedPair has it
    Chat chat;                                                   // the target's
    model::ModelConfig target_config;
    double target_pass_bytes = 0;                          // of weights that a pass reads, of a rank with a shard
    int max_prompt_rows = 0;                               // of the ranks with a shard, on all ranks
    std::unique_ptr<spec::DeviceVerifier> device_verifier; // where models are on a GPU
    std::unique_ptr<model::Decoder> target;                // on ranks with a shard
    std::vector<std::unique_ptr<model::Decoder>> drafts;   // on draft owners: one for each --draft, the largest first
    std::optional<model::DraftHead> head;                  // on all ranks, where there is one
    std::vector<std::unique_ptr<model::Decoder>> head_decoders; // its modules, on draft owners
    std::unique_ptr<spec::ShardedDraftModel> sharded_draft;     // on all ranks, where the draft is sharded across them
    std::optional<std::uint64_t> random_weights;                // seed of weights that are made up
    ModelDigests digests;                                       // where ModelOptions ask for them, on the writer
    model::WeightType target_type{};
    model::WeightType draft_type{};
    double load_seconds = 0; // of reading all weights, of the slowest rank
    double load_bytes = 0;   // of weights in the files that all ranks read together
    int max_source = 0;      // tokens that the encoders of target and drafts read; 0: the target has none
    int vocab_size = 0;      // tokens that target and tokenizer know, and so does the draft

    PromptLimits prompt_limits() const;
    // What bounds every draft of this pair.
    spec::DraftLimits draft_limits() const;
    // Of the drafter `head`; on draft owners. Null: there is no head.
    std::optional<spec::HeadModules> head_modules() const;
    // Of an engine over this pair. `drafter` counts on the coordinator.
    spec::EngineParts engine_parts(spec::Drafter* drafter);
};

// Operations of a draft's row over those of the target's, all ranks together; 0 without a draft model, and on ranks
// that do not draft. Local.
double operations_ratio(const ModelPair& models);

struct Placement {
    int replicas = 1;
    dist::DraftPlacement draft = dist::DraftPlacement::colocated;
    int batch_size = 1;
    int ahead = 0;        // continuations of a text that the draft holds beside it
    int num_beams = 0;    // of a sequence; 0: no beam search
    bool trees = false;   // whether rounds may draft trees, for which caches then have room at the end of a text
    bool records = false; // drafts behind every place of a text
};

// Throws std::invalid_argument where the ranks do not fit it. Local.
dist::RankLayout layout_of(const dist::Session& session, const Placement& placement);

// Throws OrderlyFailure. Collective over the world.
std::unique_ptr<ModelPair> open_models(dist::Session& session, const ModelOptions& options, const Placement& placement);

} // namespace entrodraft::launch
