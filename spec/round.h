// One round of a replica, walked by all its ranks together: draft, broadcast, score, verify, commit.
//
// Every rank calls step() in turn; the coordinator says what comes next, and the round packet tells the others.
// No collective is behind anything but that packet. Called by the engine (generate.cpp) only.
#pragma once

#include "spec/draft/batch_drafter.h"
#include "spec/generate.h"
#include "spec/packet.h"
#include "spec/row_gather.h"
#include "spec/sequence.h"
#include "spec/verifier.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace entrodraft::spec {

// What the coordinator wants done next.
struct Plan {
    Command command = Command::stop;
    int slot = 0;                         // of admit, prefill, retire
    std::span<Sequence* const> sequences; // [n_slots]; null: the slot is empty
};

// What is gathered of rows, over these ranks.
RowSetting row_setting(const VerifyOptions& options, const EngineParts& parts);

class Round {
  public:
    Round(const EngineOptions& options, const EngineParts& parts);

    // One command of the protocol, on every rank: a round of all sequences that are read, or one of the steps around it
    // (admit, prefill, retire, idle, stop, interrupt). `plan` counts on the coordinator only. Returns what was
    // broadcast. Throws RoundError. Collective over the replica.
    Command step(const Plan& plan, const volatile int& stop_signal);

    // Whether a rank reported a signal in the last gather. Coordinator only.
    bool signal_seen() const { return signal_seen_; }
    // Prompt tokens that the target has yet to read before the slot's first round. The same on every rank.
    int prefill_left(int slot) const;
    // This rank begins `step`: for messages, and for those who watch. Local.
    void enter(const char* step);
    // The last round of the sequence in the slot, as it went. Coordinator only, until the next step.
    RoundTrace trace(int slot, const Sequence& sequence) const;

  private:
    // What every rank holds of a sequence: enough to check the next packet and to score.
    struct Slot {
        SlotState state = SlotState::empty;
        std::vector<TokenId> tokens;     // committed; the last one is the next token
        std::vector<TokenId> drafted;    // of the round before; some of them are accepted
        std::uint64_t checksum = 0;      // of the admission and the tokens since
        int cached = 0;                  // tokens that the target has read
        bool verified_on_device = false; // see admission.h
    };
    // What the coordinator alone has of it.
    struct Desk {
        Draft draft;
        std::vector<float> target_hidden; // [hidden_layers][hidden_size] at the last accepted row; empty at first
    };

    void walk(const Plan& plan, const volatile int& stop_signal);
    void draft(const Plan& plan);
    void end_drafting();
    void broadcast(const Plan& plan);
    void score();
    void verify(const Plan& plan);
    void commit();

    void admit(const Plan& plan);
    void prefill(const Plan& plan);
    void retire();
    void gather(const volatile int& stop_signal);
    void draft_ahead();
    bool can_verify_on_device(const Request& request) const;

    bool is_coordinator() const { return parts_.layout->is_coordinator(); }
    const model::ModelConfig& config() const { return *parts_.target_config; }
    int n_slots() const { return static_cast<int>(slots_.size()); }
    Slot& slot(int index) { return slots_[static_cast<std::size_t>(index)]; }
    const Slot& slot(int index) const { return slots_[static_cast<std::size_t>(index)]; }
    Desk& desk(int index) { return desks_[static_cast<std::size_t>(index)]; }
    dist::Deadline deadline() const { return dist::Deadline::after_seconds(options_.timeout_seconds); }
    bool is_read(int index) const { return slot(index).state != SlotState::empty && prefill_left(index) == 0; }
    int max_drafted(const Sequence& sequence, int n_sequences) const;
    int left_tokens(const Sequence& sequence) const;
    std::uint64_t checksum() const;
    void pack_slot(int index, const Sequence& sequence);
    void check_packet() const;
    void verify(Sequence& sequence, const RankRows& rows, double target_seconds);
    int accepted_by_chance(const Sequence& sequence, const Draft& draft) const;
    BatchLoad batch_load_of(const RankRows& rows) const;
    void keep_hidden(const RankRows& rows, int accepted);
    void append(Slot& slot, TokenId token) const;
    double lap();                                                // seconds since the last lap
    void share_out(const Plan& plan, double StepSeconds::*step); // the last lap, among the round's sequences

    EngineOptions options_;
    EngineParts parts_;
    RowSetting row_setting_;
    RowGather row_gather_;
    Verifier verifier_;
    Packet packet_;
    std::vector<Slot> slots_;
    std::vector<Desk> desks_;
    std::uint64_t round_ = 0; // number of the next packet
    const char* step_ = "start";
    double lap_began_ = 0;
    double step_began_ = 0;
    double drafted_at_ = 0; // when this round's drafting ended
    bool signal_seen_ = false;

    std::vector<DraftTask> tasks_;    // of this round, by slot
    std::vector<model::Row> rows_;    // of this pass
    std::vector<int> logit_rows_;     // of this pass
    std::vector<RankRows> sequences_; // of this round: those scored, by slot
    model::PassResult scores_;        // of this pass
    std::vector<int> hidden_layers_;  // that the drafter wants of the target
};

} // namespace entrodraft::spec
