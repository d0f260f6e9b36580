// One round of a replica, walked by all its ranks together: draft, broadcast, score, gather, verify.
//
// The coordinator says what comes next, and the round packet tells the others: no collective is behind anything but
// that packet. Called by the engine (engine.cpp) only.
#pragma once

#include "spec/round/coordinator.h"
#include "spec/round/engine_parts.h"
#include "spec/round/replica_state.h"
#include "spec/round/target_rows.h"

#include <cstdint>
#include <span>

namespace entrodraft::spec {

// What is gathered of rows, over these ranks.
GatherSetting gather_setting(const VerifyOptions& options, const EngineParts& parts);

// Which step of which round this rank is in, and how long each took: for the watchdog, for messages and for the stats.
class RoundObserver {
  public:
    RoundObserver(const dist::Clock& clock, dist::StepWatch* watch) : clock_(clock), watch_(watch) {}

    // The step before has ended, and `step` begins: its seconds are counted as `counted`, or not at all (null).
    void enter(const char* step, double StepSeconds::*counted = nullptr);
    // The round has ended, and the next one begins. The seconds of its steps.
    StepSeconds end_round();

    std::uint64_t round() const { return round_; }
    const char* step() const { return step_; }
    double seconds_since_drafting() const { return clock_.now_seconds() - drafting_ended_; }

  private:
    const dist::Clock& clock_;
    dist::StepWatch* watch_;
    std::uint64_t round_ = 0;
    const char* step_ = "start";
    double began_ = 0; // the step
    double drafting_ended_ = 0;
    double StepSeconds::*counted_ = nullptr;
    StepSeconds seconds_;
};

// This rank among the others of its replica.
struct RankContext {
    dist::Communicator& replica;      // all ranks of it
    model::Decoder* target;           // this rank's shard; null where it holds none
    ShardedDraftModel* sharded_draft; // on all ranks, or on none
    double timeout_seconds;           // of every collective
    RoundObserver& observer;
    std::span<const int> hidden_layers; // EngineParts has them
    const volatile int& stop_signal;    // set by a signal handler

    dist::Deadline deadline() const { return dist::Deadline::after_seconds(timeout_seconds); }
};

struct RoundResult {
    Command command = Command::stop; // that was broadcast
    DraftsBySlot drafts;             // coordinator only
};

// One command of the protocol: a round of all sequences that are read, or one of the steps around it (admit, prefill,
// retire, idle, stop, interrupt). `coordinator` is null on the other ranks; `plan` counts on it alone. Throws what went
// wrong; the observer knows where. Collective over the replica.
RoundResult run_round(const RankContext& rank, ReplicaState& state, TargetGather& gather, Coordinator* coordinator,
                      const Plan& plan);

} // namespace entrodraft::spec
