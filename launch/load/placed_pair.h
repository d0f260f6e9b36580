// Where the models of a run are: the layout of the ranks, the device and threads of this one, what sums passes, and the
// size of the caches. Called by model_pair.
#pragma once

#include "dist/layout/layout.h"
#include "dist/session/session.h"
#include "launch/load/memory_plan.h"
#include "launch/load/opened_model.h"
#include "launch/load/rank_device.h"
#include "model/host/thread_team.h"

#include <memory>

namespace entrodraft::launch {

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

struct PlacedPair {
    dist::RankLayout layout;
    std::unique_ptr<dist::Communicator> replica; // all ranks of the replica
    RankDevice device;                           // of this rank
    std::unique_ptr<dist::Communicator> tp;      // those that hold the target, for its passes; null elsewhere
    dist::SelfComm self;
    dist::SteadyClock clock;
    dist::StepWatch* watch = nullptr; // the session's
    std::unique_ptr<model::ThreadTeam> team;
    CacheShape cache; // of target and drafts
    int ahead = 0;    // continuations of a text that the draft holds beside it
    int replicas = 1;
    model::WeightType target_type{};
    model::WeightType draft_type{};
    int max_source = 0; // tokens that the encoders of target and drafts read; 0: the target has none
};

// `placed` has the layout. Chooses the device, connects the ranks, and compares their models. Throws OrderlyFailure.
// Collective over the world.
void place(dist::Session& session, const OpenedPair& opened, const ModelOptions& options, const Placement& placement,
           PlacedPair& placed);

// Makes the communicator that sums passes, for the devices as they are chosen by now. Collective over the world.
void connect_devices(dist::Session& session, bool is_quiet, PlacedPair& placed);

} // namespace entrodraft::launch
