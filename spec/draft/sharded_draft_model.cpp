// Orders to the ranks that follow, and their logits back: see sharded_draft_model.h.
#include "spec/draft/sharded_draft_model.h"

#include "model/cpu/kernels.h"
#include "spec/packet.h"

#include <algorithm>
#include <stdexcept>

namespace entrodraft::spec {

namespace {

constexpr int kLeader = 0;

} // namespace

// What comes next, and how much of it: the head of every message.
struct ShardedDraftModel::Order {
    std::uint32_t rows = 0; // of a pass; 0: the step's drafting is over
    std::uint32_t logit_rows = 0;
    std::uint32_t bytes = 0; // of the broadcast that follows
};

ShardedDraftModel::ShardedDraftModel(model::Decoder& shard, dist::Communicator& ranks, double timeout_seconds)
    : Decoder(shard), decoder_(shard), ranks_(ranks), timeout_seconds_(timeout_seconds),
      slice_floats_(static_cast<std::size_t>(model::vocab_slice(config(), 0, ranks.size()).size())) {
    shard_.vocab = {0, config().vocab_size};
}

void ShardedDraftModel::end_of_step() {
    Order over;
    ranks_.broadcast(&over, sizeof over, kLeader, deadline());
}

model::PassResult ShardedDraftModel::forward(const model::Pass& pass) {
    message_.clear();
    append_values(message_, pass.rows);
    append_values(message_, pass.logit_rows);
    Order order = {static_cast<std::uint32_t>(pass.rows.size()), static_cast<std::uint32_t>(pass.logit_rows.size()),
                   static_cast<std::uint32_t>(message_.size())};
    ranks_.broadcast(&order, sizeof order, kLeader, deadline());
    ranks_.broadcast(message_.data(), message_.size(), kLeader, deadline());
    this->pass(pass);
    const std::size_t n_rows = pass.logit_rows.size();
    assemble(n_rows, pass);
    return {logits_, static_cast<std::size_t>(config().vocab_size), summaries_, {}, {}};
}

void ShardedDraftModel::follow() {
    for (;;) {
        Order order;
        ranks_.broadcast(&order, sizeof order, kLeader, deadline());
        if (order.rows == 0) return;
        const std::size_t bytes = order.rows * sizeof(model::Row) + order.logit_rows * sizeof(int);
        if (order.rows > static_cast<std::uint32_t>(max_rows()) || order.logit_rows > order.rows ||
            order.bytes != bytes)
            throw std::runtime_error("an order of the draft's leader cannot be followed");
        message_.resize(bytes);
        ranks_.broadcast(message_.data(), message_.size(), kLeader, deadline());
        std::span<const std::byte> rest = message_;
        const auto rows = take_values<model::Row>(rest, order.rows);
        for (const model::Row& row : rows) // the leader's cache ends where its rows begin
            if (row.parent < 0) cache().truncate(row.slot, row.position);
        const auto logit_rows = take_values<int>(rest, order.logit_rows);
        pass({.rows = rows, .logit_rows = logit_rows, .hidden_layers = {}, .mask = model::Mask::causal});
    }
}

// This rank's part of a pass, and its logits to the leader.
void ShardedDraftModel::pass(const model::Pass& pass) {
    const model::PassResult own = decoder_.forward(
        {.rows = pass.rows, .logit_rows = pass.logit_rows, .hidden_layers = {}, .mask = model::Mask::causal});
    const std::size_t n_rows = pass.logit_rows.size();
    if (n_rows == 0) return;
    const auto local = static_cast<std::size_t>(decoder_.local_vocab().size());
    slices_.assign(n_rows * slice_floats_, 0.0F);
    for (std::size_t row = 0; row < n_rows; ++row)
        std::copy_n(own.logits.begin() + static_cast<std::ptrdiff_t>(row * own.logits_stride), local,
                    slices_.begin() + static_cast<std::ptrdiff_t>(row * slice_floats_));
    if (ranks_.rank() == kLeader) gathered_.resize(slices_.size() * static_cast<std::size_t>(ranks_.size()));
    ranks_.gather(slices_.data(), gathered_.data(), slices_.size() * sizeof(float), kLeader, deadline());
}

// Puts the slices side by side, and sums them up as a decoder would.
void ShardedDraftModel::assemble(std::size_t n_rows, const model::Pass& pass) {
    const auto vocab = static_cast<std::size_t>(config().vocab_size);
    logits_.resize(n_rows * vocab);
    for (int rank = 0; rank < ranks_.size(); ++rank) {
        const dist::Slice slice = model::vocab_slice(config(), rank, ranks_.size());
        for (std::size_t row = 0; row < n_rows; ++row)
            std::copy_n(gathered_.data() + (static_cast<std::size_t>(rank) * n_rows + row) * slice_floats_,
                        static_cast<std::size_t>(slice.size()),
                        logits_.data() + row * vocab + static_cast<std::size_t>(slice.begin));
    }
    summaries_.clear();
    if (pass.needs.summary == model::LogitSummary::none) return;
    const model::kernels::Kernels& kernels = model::kernels::best_kernels();
    const auto summarise = pass.needs.summary == model::LogitSummary::max ? kernels.logit_max : kernels.logit_stats;
    const int counted = pass.summary_vocab > 0 ? pass.summary_vocab : config().vocab_size;
    for (std::size_t row = 0; row < n_rows; ++row)
        summaries_.push_back(summarise(logits_.data() + row * vocab, counted, 0));
}

} // namespace entrodraft::spec
