// A draft model sharded across the ranks of the target: the coordinator leads its passes, the others follow them. The
// baseline that a draft on a single rank has to beat: every draft pass pays for two more messages and for its
// all-reduces.
//
// Made on all ranks of a replica; called by model_drafter on the coordinator and by the round on the others.
#pragma once

#include "dist/comm/communicator.h"
#include "model/decoder.h"

#include <cstddef>
#include <vector>

namespace entrodraft::spec {

class ShardedDraftModel final : public model::Decoder {
  public:
    // `shard` is this rank's, whose cache this shares; `ranks` are all that hold one, rank 0 the coordinator. Both
    // outlive this.
    ShardedDraftModel(model::Decoder& shard, dist::Communicator& ranks, double timeout_seconds);

    std::size_t weight_bytes() const override { return decoder_.weight_bytes(); }
    double operations_per_row() const override { return decoder_.operations_per_row(); }
    // With logits of the whole vocabulary. Rows follow their slot's cache: where that was truncated on this rank, so
    // are the others'. Not for slots that share or fork. On the coordinator, while the others follow. Collective over
    // the ranks.
    model::PassResult forward(const model::Pass& pass) override;

    // Does what the coordinator does, until it says that its drafting, or its reading, is over for now. Collective over
    // the ranks.
    void follow();
    // Says so. Coordinator only. Collective over the ranks.
    void end_of_step();

  private:
    struct Order;

    void pass(const model::Pass& pass);
    void assemble(std::size_t n_rows, const model::Pass& pass);
    dist::Deadline deadline() const { return dist::Deadline::after_seconds(timeout_seconds_); }

    model::Decoder& decoder_;
    dist::Communicator& ranks_;
    double timeout_seconds_;
    std::size_t slice_floats_; // most vocabulary that a rank holds
    std::vector<std::byte> message_;
    std::vector<float> slices_;   // [rows][slice_floats_]: this rank's
    std::vector<float> gathered_; // [ranks][rows][slice_floats_]
    std::vector<float> logits_;   // [rows][vocab]
    std::vector<model::kernels::LogitStats> summaries_;
};

} // namespace entrodraft::spec
