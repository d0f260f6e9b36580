// One round of a replica, walked by all its ranks together: draft, announce, score, decide, commit.
//
// Every rank calls step() in turn; the coordinator says what comes next, and the announce packet tells the others.
// No collective stands behind anything but that packet. Called by the engine (generate.cpp) only.
#pragma once

#include "entrodraft/spec/generate.h"
#include "entrodraft/spec/judge.h"
#include "entrodraft/spec/packet.h"
#include "entrodraft/spec/row_gather.h"
#include "entrodraft/spec/sequence.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace entrodraft::spec {

// What the coordinator wants done next. `sequence` is the one concerned; null for idle, stop and interrupt.
struct Plan {
    Command command = Command::stop;
    Sequence* sequence = nullptr;
};

class Round {
  public:
    Round(const EngineOptions& options, const EngineParts& parts);

    // One command of the protocol, on every rank: a round, or one of the steps around it (admit, prefill, retire,
    // idle, stop, interrupt). `plan` counts on the coordinator only. Returns what was announced. Throws RoundError.
    // Collective over the replica.
    Command step(const Plan& plan, const volatile int& stop_signal);

    // Whether a rank reported a signal in the last gather. Coordinator only.
    bool signal_seen() const { return signal_seen_; }
    // Prompt tokens the target has yet to read before the first round. The same on every rank.
    int prefill_left() const;
    // The last round, as it went. Coordinator only, until the next step.
    RoundTrace trace(const Sequence& sequence) const;

  private:
    // What every rank holds of a sequence: enough to check the next packet and to score.
    struct Slot {
        SlotState state = SlotState::empty;
        std::vector<TokenId> tokens;    // committed; the last one is the next token
        std::vector<TokenId> announced; // drafted tokens of the round before, of which some stand
        std::uint64_t checksum = 0;     // of tokens
    };

    void walk(const Plan& plan, const volatile int& stop_signal);
    void draft(Sequence& sequence);
    void announce(const Plan& plan);
    void score();
    void decide(Sequence& sequence);
    void commit();

    void admit(const Plan& plan);
    void prefill();
    void gather(const model::PassResult* scores, const volatile int& stop_signal);
    void check_packet() const;
    void keep_hidden(std::span<const float> hidden, int accepted);
    void append(Slot& slot, TokenId token) const;
    double lap(); // seconds since the last lap
    void enter(const char* step) { step_ = step; }

    EngineOptions options_;
    EngineParts parts_;
    RowGather row_gather_;
    Judge judge_;
    Packet packet_;
    Draft draft_;
    Slot slot_;
    std::uint64_t round_ = 0; // number of the next packet
    const char* step_ = "start";
    double lap_began_ = 0;
    double step_began_ = 0;
    double drafted_at_ = 0; // when this round's drafting ended
    bool signal_seen_ = false;

    std::vector<model::Row> rows_;
    std::vector<int> logit_rows_;
    std::vector<int> hidden_layers_;   // that the drafter wants of the target
    std::vector<float> target_hidden_; // [hidden_layers][hidden_size] at the last row that stood; empty before a round
};

} // namespace entrodraft::spec
