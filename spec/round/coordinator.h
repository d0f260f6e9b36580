// The coordinator's part of a replica. It knows the sequences, decides what all ranks do next, drafts, and verifies the
// target's rows.
//
// It calls no collective: the round (round.h) broadcasts its packets and gathers the rows. Called by engine and round.
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

// The coordinator's next command for all ranks.
struct Plan {
    Command command = Command::stop;
    int slot = 0;                          // for admit, prefill, retire, share
    int from = 0;                          // for share
    std::vector<std::byte> admission = {}; // for admit
};

// [slot]; empty for slots without a sequence in the round.
using DraftsBySlot = std::vector<Draft>;

VerifyOptions verify_options(const EngineOptions& options);

class Coordinator {
  public:
    Coordinator(const EngineOptions& options, const EngineParts& parts);

    // First retires texts that have ended, so that a signal does not lose them. Then fills free slots. Then reads
    // prompts and decodes texts, in turn if there are both.
    Plan next_plan(const EngineCallbacks& callbacks, const ReplicaState& state);

    // Drafts for all sequences whose prompts are read, until their stop rules fire or budgets end.
    DraftsBySlot draft(const ReplicaState& state);
    // The packet for all ranks: the plan, the drafts, and the result of the round before.
    Packet pack(const Plan& plan, const DraftsBySlot& drafts, const ReplicaState& state, std::uint64_t round);
    // The draft model reads the prompt as far as the target does, unless it reads late (draft_reads_prompt). `rows` are
    // the target pass's rows of that chunk. A drafter that wants hidden states gets theirs.
    void prefill(int slot, std::span<const TokenId> prompt, std::span<const model::Row> rows,
                 const model::PassResult& scores);
    // The same for the whole prompt, where the target shares another slot's.
    void prefill(int slot);
    // While the target scores the draft of a sequence alone, drafts for its most likely outcomes.
    void draft_ahead(const std::function<bool()>& enough);
    // Finds how many drafted tokens are accepted, and the token after them. The emitted tokens become text, and rules
    // learn from them. `target_seconds` have passed since the drafts were done.
    void verify(const DraftsBySlot& drafts, const TargetBatch& batch, const model::PassResult& scores,
                std::span<const TargetRows> rows, double target_seconds);

    // Called when the ranks have carried out the plan, in `seconds`. Counts and shows it. Hands out a retired text.
    void finish(const Plan& plan, const DraftsBySlot& drafts, const ReplicaState& state, std::uint64_t round,
                const StepSeconds& seconds, const EngineCallbacks& callbacks);

    // The slot's grammar, which its text must satisfy; null: none.
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
    bool can_verify_on_device(const Sequence& own) const;
    bool draft_reads_prompt(int slot) const;
    int left_tokens(const Sequence& sequence) const;
    int cache_left(const Sequence& sequence) const;
    void verify(Sequence& sequence, const Draft& draft, const TargetRows& rows, double target_seconds,
                const BatchLoad& load);
    static void draft_given(const Sequence& sequence, int most, Draft& draft);
    static void take_given(Sequence& sequence, const Draft& draft, const TargetRows& rows);
    static void note_logprobs(Sequence& sequence, const TargetRows& rows, std::span<const int> path,
                              std::span<const TokenId> emitted);
    void verify_beams(Sequence& sequence, const Draft& draft, const TargetRows& rows, double target_seconds,
                      const BatchLoad& load);
    void tell_drafter(int slot, TargetOutcome outcome, std::span<const int> rows, const model::PassResult& scores);

    int n_slots() const { return static_cast<int>(sequences_.size()); }
    std::optional<Sequence>& sequence(int slot) { return sequences_[slot]; }
    const std::optional<Sequence>& sequence(int slot) const { return sequences_[slot]; }

    EngineOptions options_;
    EngineParts parts_;
    std::unique_ptr<Verifier> verifier_;
    std::optional<model::grammar::TokenGrammars> grammars_; // made for the first constraint
    GainModel gain_;                                        // learns across sequences
    std::vector<std::optional<Sequence>> sequences_;        // [slot]
    std::vector<DraftTask> tasks_;                          // of this round
    std::vector<int> hidden_layers_;
    bool prefilled_ = false;   // the last step read a part of a prompt
    bool signal_seen_ = false; // by any rank
};

} // namespace entrodraft::spec
