// Sends orders to the ranks that follow, and gets their logits: see sharded_draft_model.h.
#include "spec/draft/sharded_draft_model.h"

#include "model/cpu/kernels.h"
#include "spec/protocol/packet.h"

#include <algorithm>
#include <stdexcept>

namespace entrodraft::spec {

namespace {

constexpr int kLeader = 0;

} // namespace

// The head of every message: the kind and size of what follows.
struct ShardedDraftModel::Order {
    std::uint32_t rows = 0; // of a pass, or tokens of a source; 0: the step's drafting is over
    std::uint32_t logit_rows = 0;
    std::uint32_t cached_nodes = 0;
    std::uint32_t retrievals = 0;
    std::uint16_t is_tree = 0;   // Mask::by_parent
    std::uint16_t is_prompt = 0; // Pass::is_prompt
    std::uint16_t is_source = 0; // only its tokens follow
    std::uint16_t source_slot = 0;
    std::uint32_t kept = 0; // branches, before the pass
    std::uint32_t kept_nodes = 0;
    std::uint32_t bytes = 0; // of the broadcast that follows
};

ShardedDraftModel::ShardedDraftModel(model::Decoder& shard, dist::Communicator& ranks, double timeout_seconds)
    : Decoder(shard), decoder_(shard), ranks_(ranks), timeout_seconds_(timeout_seconds),
      slice_floats_(static_cast<std::size_t>(model::vocab_slice(config(), 0, ranks.size()).size())) {
    shard_.vocab = shard_.outputs = {0, config().vocab_size};
}

void ShardedDraftModel::end_of_step() {
    Order over;
    ranks_.broadcast(&over, sizeof over, kLeader, deadline());
}

void ShardedDraftModel::keep(int slot, int length, std::span<const int> path) {
    Decoder::keep(slot, length, path);
    kept_.push_back({slot, length, static_cast<std::int32_t>(path.size())});
    kept_paths_.insert(kept_paths_.end(), path.begin(), path.end());
}

void ShardedDraftModel::encode(int slot, std::span<const model::TokenId> source) {
    Order order;
    order.rows = static_cast<std::uint32_t>(source.size());
    order.is_source = 1;
    order.source_slot = static_cast<std::uint16_t>(slot);
    ranks_.broadcast(&order, sizeof order, kLeader, deadline());
    std::vector<model::TokenId> tokens(source.begin(), source.end());
    ranks_.broadcast(tokens.data(), tokens.size() * sizeof(model::TokenId), kLeader, deadline());
    decoder_.encode(slot, tokens);
}

// The leader has forgotten the slot's text, so this rank empties the slot as well.
void ShardedDraftModel::follow_source(const Order& order) {
    const int slot = order.source_slot;
    if (slot >= cache().shape().n_slots || order.rows > static_cast<std::uint32_t>(max_source()))
        throw std::runtime_error("an order of the draft's leader cannot be followed");
    std::vector<model::TokenId> tokens(order.rows);
    ranks_.broadcast(tokens.data(), tokens.size() * sizeof(model::TokenId), kLeader, deadline());
    cache().truncate(slot, 0);
    decoder_.encode(slot, tokens);
}

model::PassResult ShardedDraftModel::forward(const model::Pass& pass) {
    std::vector<int> lengths;
    for (int slot = 0; slot < cache().shape().n_slots; ++slot)
        lengths.push_back(cache().length(slot));
    message_.clear();
    append_values(message_, pass.rows);
    append_values(message_, pass.logit_rows);
    append_values(message_, pass.cached_nodes);
    append_values(message_, pass.retrievals);
    append_values(message_, std::span<const KeptBranch>(kept_));
    append_values(message_, std::span<const int>(kept_paths_));
    append_values(message_, std::span<const int>(lengths));
    const auto count = [](const auto& values) { return static_cast<std::uint32_t>(values.size()); };
    Order order = {.rows = count(pass.rows),
                   .logit_rows = count(pass.logit_rows),
                   .cached_nodes = count(pass.cached_nodes),
                   .retrievals = count(pass.retrievals),
                   .is_tree = static_cast<std::uint16_t>(pass.mask == model::Mask::by_parent),
                   .is_prompt = static_cast<std::uint16_t>(pass.is_prompt),
                   .kept = count(kept_),
                   .kept_nodes = count(kept_paths_),
                   .bytes = count(message_)};
    kept_.clear();
    kept_paths_.clear();
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
        if (order.is_source != 0) {
            follow_source(order);
            continue;
        }
        const std::size_t rows_and_nodes = std::size_t{order.rows} + order.cached_nodes;
        const std::size_t numbers =
            std::size_t{order.logit_rows} + order.kept_nodes + static_cast<std::size_t>(cache().shape().n_slots);
        const bool is_prompt = order.is_prompt != 0;
        if (order.rows > static_cast<std::uint32_t>(is_prompt ? max_prompt_rows() : max_rows()) ||
            order.logit_rows > order.rows ||
            order.bytes != rows_and_nodes * sizeof(model::Row) + order.retrievals * sizeof(model::Retrieval) +
                               order.kept * sizeof(KeptBranch) + numbers * sizeof(int))
            throw std::runtime_error("an order of the draft's leader cannot be followed");
        message_.resize(order.bytes);
        ranks_.broadcast(message_.data(), message_.size(), kLeader, deadline());
        std::span<const std::byte> rest = message_;
        const auto rows = take_values<model::Row>(rest, order.rows);
        const auto logit_rows = take_values<int>(rest, order.logit_rows);
        const auto cached_nodes = take_values<model::Row>(rest, order.cached_nodes);
        const auto retrievals = take_values<model::Retrieval>(rest, order.retrievals);
        take_over(rest, order);
        pass({.rows = rows,
              .logit_rows = logit_rows,
              .mask = order.is_tree != 0 ? model::Mask::by_parent : model::Mask::causal,
              .is_prompt = is_prompt,
              .cached_nodes = cached_nodes,
              .retrievals = retrievals});
    }
}

// Brings this rank's cache to the state of the leader's: the branches that it has kept, and the lengths of its slots.
void ShardedDraftModel::take_over(std::span<const std::byte>& message, const Order& order) {
    const auto kept = take_values<KeptBranch>(message, order.kept);
    const auto nodes = take_values<int>(message, order.kept_nodes);
    const auto lengths = take_values<int>(message, static_cast<std::size_t>(cache().shape().n_slots));
    for (std::size_t begin = 0; const KeptBranch& branch : kept) {
        const auto n = static_cast<std::size_t>(branch.nodes);
        if (branch.slot < 0 || branch.slot >= cache().shape().n_slots || n > nodes.size() - begin)
            throw std::runtime_error("a branch that the draft's leader has kept is none here");
        cache().keep(branch.slot, branch.length, std::span(nodes).subspan(begin, n));
        begin += n;
    }
    for (std::size_t slot = 0; slot < lengths.size(); ++slot)
        cache().truncate(static_cast<int>(slot), lengths[slot]);
}

// Runs this rank's part of a pass, and sends its logits to the leader.
void ShardedDraftModel::pass(const model::Pass& pass) {
    const model::PassResult own = decoder_.forward({.rows = pass.rows,
                                                    .logit_rows = pass.logit_rows,
                                                    .mask = pass.mask,
                                                    .is_prompt = pass.is_prompt,
                                                    .cached_nodes = pass.cached_nodes,
                                                    .retrievals = pass.retrievals});
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

// Puts the slices next to each other, and summarizes them as a decoder would.
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
