// The one gather of a round: every rank's part of every sequence's rows to the coordinator, a status word a rank first.
//
// What a row is and what is found in it is sequence_rows.h's affair. Called by the round.
#pragma once

#include "dist/comm/communicator.h"
#include "spec/sequence_rows.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace entrodraft::spec {

class RowGather {
  public:
    // `n_slots` sequences at once; `setting` and `replica` outlive it.
    RowGather(const RowSetting& setting, dist::Communicator& replica, int n_slots);

    SequenceRows& slot(int index) { return slots_[static_cast<std::size_t>(index)]; }
    const SequenceRows& slot(int index) const { return slots_[static_cast<std::size_t>(index)]; }
    // What to ask of a pass over rows of these. Local.
    // Valid until the next call.
    model::LogitNeeds needs(std::span<const RankRows> sequences);

    // Hands over this rank's part of `sequences` (none between rounds), which stay as they are until finish().
    // Collective over the replica.
    void start(std::uint64_t status, std::span<const RankRows> sequences);
    // Whether finish() would not wait, as far as is known. Local.
    bool has_arrived() const { return replica_.is_ready(); }
    // On the coordinator every slot of `sequences` has its rows now. Local wait on a collective.
    void finish(dist::Deadline deadline);

    // Whether a rank sent this status word. Coordinator only.
    bool any_status(std::uint64_t status) const;

  private:
    bool is_coordinator() const;
    bool is_copied(const RankRows& rows) const;

    dist::Communicator& replica_;
    std::vector<SequenceRows> slots_;
    std::span<const RankRows> sequences_; // under way
    std::vector<model::RowNoise> noises_; // of a pass's rows
    std::vector<model::DraftedRow> drafted_;
    std::vector<std::byte> sent_;     // status word, then each sequence's rows
    std::vector<std::byte> gathered_; // the same of every rank
};

} // namespace entrodraft::spec
