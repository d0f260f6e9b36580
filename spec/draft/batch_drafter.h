// Drafting for all sequences of a replica, each in its slot.
//
// Either every sequence has a drafter of its own and these take turns, or one model drafts for all of them in passes
// that they share. Called by the round, on the draft owner only.
#pragma once

#include "spec/draft/drafter.h"

#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace entrodraft::spec {

class DraftModel;

// What one sequence of a round wants drafted, and where that goes. All of it outlives the round.
struct DraftTask {
    int slot = 0;
    DraftRequest request;
    StopRule* rule = nullptr;
    Draft* draft = nullptr;
};

class BatchDrafter {
  public:
    virtual ~BatchDrafter() = default;
    virtual std::string name() const = 0;
    virtual std::vector<int> hidden_layers() const { return {}; }
    virtual std::size_t weight_bytes() const = 0; // see drafter.h
    virtual bool keeps_logits_on_device() const { return false; }
    // A new sequence begins in the slot; `request` stays where it is until the next.
    virtual void begin_sequence(int slot, const Request& request) = 0;
    virtual void prefill(int slot, std::span<const TokenId> prompt) = 0; // see drafter.h
    // Drafts for each task until its rule fires or its budget ends. Tasks are of slots that increase. Local.
    virtual void draft(std::span<const DraftTask> tasks) = 0;

    // The sequence in the slot has ended. Nothing by default.
    virtual void end_sequence(int slot);

    // While the target scores what the last draft() of a single task drafted, prepares what comes next for its
    // most likely outcomes, until `enough` says so; the next draft() then begins with what was prepared, if the outcome
    // was among them. Nothing by default. Local.
    virtual void draft_ahead(const std::function<bool()>& enough);
};

// A drafter for each slot, one after another. Throws std::invalid_argument where there is none.
std::unique_ptr<BatchDrafter> make_turns_drafter(std::vector<std::unique_ptr<Drafter>> drafters);

// One model for `n_slots` sequences, a row of each in every pass. `model` outlives it.
std::unique_ptr<BatchDrafter> make_shared_passes_drafter(DraftModel& model, int n_slots, const DraftLimits& limits,
                                                         const dist::Clock& clock);

struct AheadOptions {
    static constexpr int kMaxOutcomes = 32;
    int outcomes = 0; // prepared a round, 1 to kMaxOutcomes; 0: as many as the target's passes leave time for
    int passes = 0;   // exactly so many hidden passes a round, however long the target takes: to study; 0: as they fit
};

// One model for one sequence that drafts ahead while the target scores (see draft_ahead.cpp). `model` has
// as many slots as outcomes (0: kMaxOutcomes) and one more, and outlives it. Where no outcome was the one foreseen,
// `backup`, a drafter that costs next to nothing, goes first, if there is one: the model drafts where it has nothing.
std::unique_ptr<BatchDrafter> make_ahead_drafter(DraftModel& model, const AheadOptions& options,
                                                 const DraftLimits& limits, const dist::Clock& clock,
                                                 std::unique_ptr<Drafter> backup = nullptr);

} // namespace entrodraft::spec
