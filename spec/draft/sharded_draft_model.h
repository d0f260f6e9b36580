// A draft model sharded across the ranks of the target: the coordinator leads its passes, the others follow them. The
// baseline that a draft on a single rank has to beat: every draft pass pays for two more messages and for its
// all-reduces.
//
// Made on all ranks of a replica; called by model_drafter on the coordinator and by the round on the others.
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
    // `shard` is this rank's, whose cache this shares; `ranks` are all that hold one, rank 0 the coordinator. Both
    // outlive this.
    ShardedDraftModel(model::Decoder& shard, dist::Communicator& ranks, double timeout_seconds);

    std::size_t weight_bytes() const override { return decoder_.weight_bytes(); }
    double operations_per_row() const override { return decoder_.operations_per_row(); }
    int max_prompt_rows() const override { return decoder_.max_prompt_rows(); }
    bool retrieves_own() const override { return decoder_.retrieves_own(); }
    bool reads_from_within() const override { return decoder_.reads_from_within(); }
    // With logits of the whole vocabulary. Slots are as long on the other ranks as on this one: where one was truncated
    // here, so it is there. Not for slots that share or fork. On the coordinator, while the others follow. Collective
    // over the ranks.
    model::PassResult forward(const model::Pass& pass) override;
    // On the coordinator, while the others follow. Collective over the ranks.
    void encode(int slot, std::span<const model::TokenId> source) override;
    // The others do so before the next pass. On the coordinator.
    void keep(int slot, int length, std::span<const int> path) override;

    // Does what the coordinator does, until it says that its drafting, or its reading, is over for now. Collective over
    // the ranks.
    void follow();
    // Says so. Coordinator only. Collective over the ranks.
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
    std::size_t slice_floats_;     // most vocabulary that a rank holds
    std::vector<KeptBranch> kept_; // since the last pass
    std::vector<int> kept_paths_;  // of all of these, one behind another
    std::vector<std::byte> message_;
    std::vector<float> slices_;   // [rows][slice_floats_]: this rank's
    std::vector<float> gathered_; // [ranks][rows][slice_floats_]
    std::vector<float> logits_;   // [rows][vocab]
    std::vector<model::LogitStats> summaries_;
};

} // namespace entrodraft::spec
