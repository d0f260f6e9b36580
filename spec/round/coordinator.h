// The coordinator's part of a replica: which sequences there are, what all ranks do next, the drafts, and what becomes
// of the target's rows.
//
// Holds no collective: the round (round.h) carries its packets out and the rows in. Called by engine and round.
#pragma once

#include "spec/draft/drafter.h"
#include "spec/protocol/packet.h"
#include "spec/round/engine_parts.h"
#include "spec/round/replica_state.h"
#include "spec/round/sequence.h"
#include "spec/round/verifier.h"

#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace entrodraft::spec {

// What the coordinator wants done next.
struct Plan {
    Command command = Command::stop;
    int slot = 0;                          // of admit, prefill, retire, share
    int from = 0;                          // of share
    std::vector<std::byte> admission = {}; // of admit
};

// [slot]; nothing drafted where no sequence takes part.
using DraftsBySlot = std::vector<Draft>;

VerifyOptions verify_options(const EngineOptions& options);

class Coordinator {
  public:
    Coordinator(const EngineOptions& options, const EngineParts& parts);

    // Texts that ended leave first, so that a signal does not lose them; then free slots are filled; then prompts are
    // read and texts decoded, in turn where there is both to do.
    Plan next_plan(const EngineCallbacks& callbacks, const ReplicaState& state);

    // Drafts for all sequences that are read, until their stop rules fire or budgets end.
    DraftsBySlot draft(const ReplicaState& state);
    // What ranks are told: the plan, the drafts, and the result of the round before.
    Packet pack(const Plan& plan, const DraftsBySlot& drafts, const ReplicaState& state, std::uint64_t round);
    // The draft model reads the prompt as far as the target does, unless it is read late (draft_reads_prompt). `rows`
    // of the target's pass are that chunk; their states count where the drafter wants them.
    void prefill(int slot, std::span<const TokenId> prompt, std::span<const model::Row> rows,
                 const model::PassResult& scores);
    // The same where the target has taken over all of the prompt.
    void prefill(int slot);
    // While the target scores the draft of a sequence alone, drafts for its most likely outcomes.
    void draft_ahead(const std::function<bool()>& enough);
    // How many drafted tokens are accepted, and the token emitted after them; what is emitted becomes text, and rules
    // learn from it. `target_seconds` have gone by since the drafts were done.
    void verify(const DraftsBySlot& drafts, const TargetBatch& batch, const model::PassResult& scores,
                std::span<const TargetRows> rows, double target_seconds);

    // The ranks have done as planned, in `seconds`: counted, shown and, where a text has ended, handed out.
    void finish(const Plan& plan, const DraftsBySlot& drafts, const ReplicaState& state, std::uint64_t round,
                const StepSeconds& seconds, const EngineCallbacks& callbacks);

    // That the slot's text is held to; null: none.
    std::shared_ptr<model::grammar::TokenGrammar> grammar(int slot) const {
        return sequence(slot)->request().processing.grammar;
    }

    void note_signal() { signal_seen_ = true; }
    DraftWorth draft_worth() const { return gain_.worth(); }

  private:
    void compile_constraint(Request& request);
    bool admits_another(const EngineCallbacks& callbacks, int slot);
    std::optional<int> twin_of(int slot, const ReplicaState& state) const;
    bool is_past_sharing(int slot) const;
    int first_position(int slot, const ReplicaState& state) const;
    void hand_out(int slot, const EngineCallbacks& callbacks);
    bool can_verify_on_device(const Request& request) const;
    bool draft_reads_prompt(int slot) const;
    int left_tokens(const Sequence& sequence) const;
    int cache_left(const Sequence& sequence) const;
    void verify(Sequence& sequence, const Draft& draft, const TargetRows& rows, double target_seconds,
                const BatchLoad& load);
    static void note_logprobs(Sequence& sequence, const TargetRows& rows, std::span<const int> path,
                              std::span<const TokenId> emitted);
    void verify_beams(Sequence& sequence, const Draft& draft, const TargetRows& rows, double target_seconds,
                      const BatchLoad& load);
    void hand_hidden(int slot, int first_position, std::span<const int> rows, const model::PassResult& scores);

    int n_slots() const { return static_cast<int>(sequences_.size()); }
    std::optional<Sequence>& sequence(int slot) { return sequences_[static_cast<std::size_t>(slot)]; }
    const std::optional<Sequence>& sequence(int slot) const { return sequences_[static_cast<std::size_t>(slot)]; }

    EngineOptions options_;
    EngineParts parts_;
    std::unique_ptr<Verifier> verifier_;
    std::optional<model::grammar::TokenGrammars> grammars_; // made for the first constraint
    GainModel gain_;                                        // what is learnt from one sequence to the next
    std::vector<std::optional<Sequence>> sequences_;        // [slot]
    std::vector<DraftTask> tasks_;                          // of this round
    std::vector<int> hidden_layers_;
    bool prefilled_ = false;   // whether the last step read a part of a prompt
    bool signal_seen_ = false; // by any rank
};

} // namespace entrodraft::spec
