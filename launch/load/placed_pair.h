// Places a run's models. It has the layout of the ranks, the device and threads of this rank, the communicator that
// sums passes, and the size of the caches. Called by model_pair.
#pragma once

#include "dist/layout/layout.h"
#include "dist/session/session.h"
#include "launch/load/memory_plan.h"
#include "launch/load/opened_model.h"
#include "launch/load/rank_device.h"
#include "model/host/thread_team.h"

#include <memory>
#include <optional>
#include <vector>

namespace entrodraft::launch {

struct Placement {
    int replicas = 1;
    dist::DraftPlacement draft = dist::DraftPlacement::colocated;
    int batch_size = 1;
    int ahead = 0;        // continuations of a text that the draft holds next to the text
    int num_beams = 0;    // beams of a sequence; 0: no beam search
    bool trees = false;   // true: rounds may draft trees, and caches have room for them at the end of a text
    bool records = false; // true: the run drafts after every place of a text
};

// Throws std::invalid_argument if the ranks do not fit the placement.
dist::RankLayout layout_of(const dist::Session& session, const Placement& placement);

// A draft in the form in which it is held. `config` has no quantization if the weights are rounded again.
struct HeldDraft {
    model::ModelConfig config;
    model::WeightType type{};
};
// `type`: the type that was asked for. None: the file's type; but on CPUs int4, if a GGUF file has more than
// kMostDraftBits a weight. The target alone decides the run's texts, so a draft may be rounded a second time: on CPUs
// to int8 and int4.
inline constexpr double kMostDraftBits = 5.5; // int4 takes 4.25
HeldDraft held_draft(const model::ModelConfig& config, std::optional<model::WeightType> type, bool on_cpu);

// Says what the weights are in memory, if matrices that are no codes have that type: "bfloat16", or "codes of the file,
// gptq of 4 bits in groups of 128; other matrices bfloat16".
std::string describe_weights(const model::ModelConfig& config, model::WeightType type);

// Says why a model's keys and values cannot have a type; empty: they can.
std::string why_no_kv_type(const std::string& name, const model::ModelConfig& config,
                           std::optional<model::WeightType> type);

struct PlacedPair {
    dist::RankLayout layout;
    std::unique_ptr<dist::Communicator> replica; // all ranks of the replica
    RankDevice device;                           // of this rank
    std::unique_ptr<dist::Communicator> tp;      // ranks that hold the target, for its passes; null elsewhere
    dist::SelfComm self;
    dist::SteadyClock clock;
    dist::StepWatch* watch = nullptr; // the session's
    std::unique_ptr<model::ThreadTeam> team;
    CacheShape cache; // for target and drafts
    int ahead = 0;    // continuations of a text that the draft holds next to the text
    int replicas = 1;
    model::WeightType target_type{};
    model::ActivationType activations{};
    std::optional<model::WeightType> kv_type; // type of the target's keys and values; empty: the device's own choice
    std::vector<HeldDraft> drafts;            // in the order of OpenedPair::drafts
    model::WeightType draft_type() const { return drafts.empty() ? target_type : drafts.front().type; }
    int max_source = 0; // tokens that the encoders of target and drafts read; 0: the target has none
};

// Chooses the types of weights for the device that is chosen by now.
void choose_types(const OpenedPair& opened, const ModelOptions& options, PlacedPair& placed);

// `placed` has the layout already. Chooses the device, connects the ranks, and compares their models. Throws
// OrderlyFailure. Collective over the world.
void place(dist::Session& session, const OpenedPair& opened, const ModelOptions& options, const Placement& placement,
           PlacedPair& placed);

// Makes the communicator that sums passes, for the devices that are chosen by now. Collective over the world.
void connect_devices(dist::Session& session, bool is_quiet, PlacedPair& placed);

} // namespace entrodraft::launch
