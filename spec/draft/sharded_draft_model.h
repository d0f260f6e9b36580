// Runs a draft model that is sharded across the ranks of the target. The coordinator leads its passes, and the other
// ranks follow. It is the baseline for a draft on a single rank: each draft pass costs two more messages and the
// all-reduces.
//
// Made on all ranks of a replica. Called by model_drafter on the coordinator, and by the round on the other ranks.
#pragma once

#include "dist/comm/communicator.h"
#include "model/pass/decoder.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace entrodraft::spec {

class ShardedDraftModel final : public model::Decoder {
  public:
    // `shard` is this rank's; this object shares its cache. `ranks` are all ranks with a shard, rank 0 is the
    // coordinator. Both must outlive this.
    ShardedDraftModel(model::Decoder& shard, dist::Communicator& ranks, double timeout_seconds);

    std::size_t weight_bytes() const override { return decoder_.weight_bytes(); }
    double operations_per_row() const override { return decoder_.operations_per_row(); }
    int max_prompt_rows() const override { return decoder_.max_prompt_rows(); }
    bool retrieves_own() const override { return decoder_.retrieves_own(); }
    bool reads_from_within() const override { return decoder_.reads_from_within(); }
    // Gives logits of the whole vocabulary. A slot that was truncated on this rank is truncated on the other ranks too.
    // Slots that share or fork are not allowed. On the coordinator, while the others follow. Collective over the ranks.
    model::PassResult forward(const model::Pass& pass) override;
    // On the coordinator, while the others follow. Collective over the ranks.
    void encode(int slot, std::span<const model::TokenId> source) override;
    // On the coordinator. The other ranks do the same before the next pass.
    void keep(int slot, int length, std::span<const int> path) override;

    // Does the same as the coordinator, until that says that its drafting, or its reading, is over for now. Collective
    // over the ranks.
    void follow();
    // Says that the step is over. Coordinator only. Collective over the ranks.
    void end_of_step();

  private:
    struct Order;
    struct KeptBranch {
        std::int32_t slot = 0, length = 0, nodes = 0; // nodes: of its path
    };

    void pass(const model::Pass& pass);
    void follow_source(const Order& order);
    void take_over(std::span<const std::byte>& message, const Order& order);
    void assemble(std::size_t n_rows, const model::Pass& pass);
    dist::Deadline deadline() const { return dist::Deadline::after_seconds(timeout_seconds_); }

    model::Decoder& decoder_;
    dist::Communicator& ranks_;
    double timeout_seconds_;
    std::size_t slice_floats_;     // most vocabulary entries of a rank
    std::vector<KeptBranch> kept_; // since the last pass
    std::vector<int> kept_paths_;  // of all of these, one after another
    std::vector<std::byte> message_;
    std::vector<float> slices_;   // [rows][slice_floats_]: this rank's
    std::vector<float> gathered_; // [ranks][rows][slice_floats_]
    std::vector<float> logits_;   // [rows][vocab]
    std::vector<model::LogitStats> summaries_;
};

} // namespace entrodraft::spec
