// Keeps the state of a replica's sequences, the same on every rank: their accepted tokens, how many of these tokens the
// target has read, and a checksum that is compared with the next packet's checksum.
//
// Only round packets and admissions change it. Called by the round.
#pragma once

#include "model/pass/decoder.h"
#include "spec/beams/beam_tree.h"
#include "spec/protocol/packet.h"
#include "spec/round/target_rows.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace entrodraft::spec {

// One pass of the target.
struct TargetBatch {
    std::vector<model::Row> rows;           // sequence by sequence: the next token, then the drafted ones
    std::vector<ScoredSequence> sequences;  // slots increase
    std::vector<int> logit_rows;            // all of them
    model::Mask mask = model::Mask::causal; // by_parent if there is a tree
    std::vector<model::Row> cached_nodes;   // of beam searches
};

class ReplicaState {
  public:
    // `target` is this rank's shard, null if it holds none; it outlives this. `max_draft_tokens`: of a slot's part of
    // the packet. `capacity`: positions of a slot of the target's cache.
    ReplicaState(model::Decoder* target, int n_slots, int max_draft_tokens, int capacity)
        : target_(target), slots_(static_cast<std::size_t>(n_slots)), max_draft_tokens_(max_draft_tokens),
          capacity_(capacity) {}

    int n_slots() const { return static_cast<int>(slots_.size()); }
    Packet empty_packet() const { return {n_slots(), max_draft_tokens_}; }
    std::uint64_t checksum() const;
    SlotState slot_state(int slot) const { return at(slot).state; }
    std::span<const TokenId> tokens(int slot) const { return at(slot).tokens; } // prompt and accepted text
    // Number of prompt tokens that the target must still read before the slot's first round.
    int prefill_left(int slot) const;
    bool is_read(int slot) const { return at(slot).state != SlotState::empty && prefill_left(slot) == 0; }

    // Throws std::runtime_error if the packet is not number `round`, is damaged, or does not match these sequences.
    void check(const Packet& packet, std::uint64_t round) const;
    // Takes the last round's result from a round's packet. The accepted drafted tokens and the token emitted after them
    // become text; the target's cache forgets the other drafted tokens.
    void apply_previous_result(const Packet& packet);

    // These carry out the packet's commands. `admission`: the bytes that were broadcast.
    void admit(int slot, const Request& request, std::span<const std::byte> admission);
    void retire(int slot);
    // The slot shares the cached prompt of slot `from`, whose prompt is the same. Then its prompt counts as read.
    void share(int slot, int from);
    // Returns whether another slot's cache begins in this slot's. If so, the slot cannot take a new sequence.
    bool is_shared(int slot) const;
    // The next `n_rows` rows of the slot's prompt.
    std::vector<model::Row> prefill(int slot, int n_rows);
    // Keeps the packet's drafts until their result comes, and returns the rows of the pass. Valid until the next call.
    TargetBatch begin_round(const Packet& packet);

  private:
    struct Slot {
        SlotState state = SlotState::empty;
        std::vector<TokenId> tokens;      // the last one is the next token
        std::vector<TokenId> drafted;     // of the last round; some of them are accepted
        std::vector<std::int8_t> parents; // of `drafted`, see verify/token_tree.h
        std::uint64_t checksum = 0;       // of the admission and the tokens since
        int cached = 0;                   // tokens that the target has read
        int shares = -1;                  // the slot in whose cache it begins; -1: its own
        std::optional<BeamTree> beams;    // of a beam search, whose `tokens` are the prompt alone
    };

    void begin_beams(Slot& slot, const Packet& packet, int index);
    Slot& at(int slot) { return slots_[slot]; }
    const Slot& at(int slot) const { return slots_[slot]; }

    model::Decoder* target_;
    std::vector<Slot> slots_;
    int max_draft_tokens_; // of a slot's part of the packet
    int capacity_;
};

} // namespace entrodraft::spec
