// Runs one round of a replica, which all its ranks carry out together: draft, broadcast, score, gather, verify.
//
// The coordinator decides what comes next, and the round packet tells the other ranks. The packet alone decides which
// collectives a rank calls. Only the engine (engine.cpp) calls this.
#pragma once

#include "spec/round/coordinator.h"
#include "spec/round/engine_parts.h"
#include "spec/round/replica_state.h"
#include "spec/round/target_rows.h"

#include <cstdint>
#include <span>

namespace entrodraft::spec {

// The setting of the gather of rows over these ranks.
GatherSetting gather_setting(const VerifyOptions& options, const EngineParts& parts);

// Knows this rank's round and step, and how long each step took: for the watchdog, for messages and for the stats.
class RoundObserver {
  public:
    RoundObserver(const dist::Clock& clock, dist::StepWatch* watch) : clock_(clock), watch_(watch) {}

    // Ends the last step and begins `step`, whose seconds are counted as `counted`, or not at all (null).
    void enter(const char* step, double StepSeconds::*counted = nullptr);
    // Ends the round and begins the next. Returns the seconds of the ended round's steps.
    StepSeconds end_round();

    std::uint64_t round() const { return round_; }
    const char* step() const { return step_; }
    double seconds_since_drafting() const { return clock_.now_seconds() - drafting_ended_; }

  private:
    const dist::Clock& clock_;
    dist::StepWatch* watch_;
    std::uint64_t round_ = 0;
    const char* step_ = "start";
    double began_ = 0; // when the step began
    double drafting_ended_ = 0;
    double StepSeconds::*counted_ = nullptr;
    StepSeconds seconds_;
};

// This rank and its replica.
struct RankContext {
    dist::Communicator& replica;      // all ranks of it
    model::Decoder* target;           // this rank's shard; null if it holds none
    ShardedDraftModel* sharded_draft; // on all ranks, or on none
    double timeout_seconds;           // of every collective
    RoundObserver& observer;
    std::span<const int> hidden_layers; // see EngineParts
    const volatile int& stop_signal;    // set by a signal handler

    dist::Deadline deadline() const { return dist::Deadline::after_seconds(timeout_seconds); }
};

struct RoundResult {
    Command command = Command::stop; // as it was broadcast
    DraftsBySlot drafts;             // coordinator only
};

// Carries out one command of the protocol: a round of all sequences whose prompts are read, or one of the others
// (admit, prefill, share, retire, idle, stop, interrupt). `coordinator` is null on the other ranks, which ignore
// `plan`. Throws the exception of the step that failed; the observer has its name. Collective over the replica.
RoundResult run_round(const RankContext& rank, ReplicaState& state, TargetGather& gather, Coordinator* coordinator,
                      const Plan& plan);

} // namespace entrodraft::spec
