// run_round() alone decides the order of a round's steps.
#include "spec/round/round.h"

#include "spec/draft/sharded_draft_model.h"

#include <utility>

namespace entrodraft::spec {

namespace {

constexpr std::uint64_t kSignalSeen = 1; // status word of a gather

// With a draft that is sharded over the ranks, the others run its passes with the coordinator until it has no more.
void end_or_follow_draft(const RankContext& rank, bool is_coordinator) {
    if (rank.sharded_draft) is_coordinator ? rank.sharded_draft->end_of_step() : rank.sharded_draft->follow();
}

Packet broadcast(const RankContext& rank, Packet packet) {
    rank.replica.broadcast(packet.bytes().data(), packet.bytes().size(), dist::RankLayout::kCoordinatorReplicaRank,
                           rank.deadline());
    return packet;
}

// Between rounds each rank sends only a status word: a signal ends the run, and a dead rank shows as a timeout.
std::vector<TargetRows> gather_rows(const RankContext& rank, TargetGather& gather, Coordinator* coordinator,
                                    std::span<const ScoredSequence> sequences = {},
                                    const model::PassResult& scores = {}) {
    gather.start(rank.stop_signal != 0 ? kSignalSeen : 0, sequences, scores);
    // A coordinator without a shard drafts ahead for the likely outcomes of the round, until the others have scored.
    if (coordinator && !rank.target && sequences.size() == 1)
        coordinator->draft_ahead([&] { return gather.has_arrived(); });
    std::vector<TargetRows> rows = gather.finish(rank.deadline());
    if (coordinator && gather.any_status(kSignalSeen)) coordinator->note_signal();
    return rows;
}

// Broadcasts a new sequence's prompt, source and options. The packet has given their size in bytes.
void admit(const RankContext& rank, ReplicaState& state, TargetGather& gather, const Coordinator* coordinator,
           std::vector<std::byte> bytes, const PacketHeader& header) {
    bytes.resize(header.admission_bytes);
    rank.replica.broadcast(bytes.data(), bytes.size(), dist::RankLayout::kCoordinatorReplicaRank, rank.deadline());
    auto [request, verified_on_device] = unpack_admission(bytes);
    if (coordinator) request.processing.grammar = coordinator->grammar(header.slot);
    gather.begin_sequence(header.slot, request, verified_on_device);
    state.admit(header.slot, request, bytes);
    if (request.source.empty()) return;
    rank.observer.enter("encode", &StepSeconds::prefill);
    if (rank.target) rank.target->encode(header.slot, request.source);
}

// Runs this rank's part of a target pass, if it holds a shard. The coordinator gets all states that a drafter wants.
model::PassResult score(const RankContext& rank, TargetGather& gather, const model::Pass& pass) {
    model::PassResult scores;
    if (rank.target) scores = rank.target->forward(pass);
    gather.share_hidden(scores, pass.hidden_layers.size() * pass.rows.size(), rank.deadline());
    return scores;
}

// Draft and target read the same chunk of the prompt, at the same time if the draft has a rank of its own. A drafter
// that wants the target's hidden states reads after the target.
void prefill(const RankContext& rank, ReplicaState& state, TargetGather& gather, Coordinator* coordinator,
             const PacketHeader& header) {
    const std::vector<model::Row> rows = state.prefill(header.slot, static_cast<int>(header.prefill_rows));
    const std::size_t n_read =
        static_cast<std::size_t>(rows.back().position) + 1; // the draft leaves the last one unread
    model::PassResult scores;
    const auto read_draft = [&] {
        if (coordinator) coordinator->prefill(header.slot, state.tokens(header.slot).first(n_read + 1), rows, scores);
        end_or_follow_draft(rank, coordinator != nullptr);
    };
    const bool wants_hidden = !rank.hidden_layers.empty();
    if (!wants_hidden) read_draft();
    scores = score(rank, gather,
                   {.rows = rows, .hidden_layers = rank.hidden_layers, .mask = model::Mask::causal, .is_prompt = true});
    if (wants_hidden) read_draft();
}

// Commands other than a round.
void run_command(const RankContext& rank, ReplicaState& state, TargetGather& gather, Coordinator* coordinator,
                 const Plan& plan, const PacketHeader& header) {
    switch (header.command) {
    case Command::admit:
        rank.observer.enter("admit");
        return admit(rank, state, gather, coordinator, plan.admission, header);
    case Command::prefill:
        rank.observer.enter("prefill", &StepSeconds::prefill);
        prefill(rank, state, gather, coordinator, header);
        gather_rows(rank, gather, coordinator);
        return;
    case Command::share: // the draft still reads the prompt
        rank.observer.enter("prefill", &StepSeconds::prefill);
        state.share(header.slot, static_cast<int>(header.prefill_rows));
        if (coordinator) coordinator->prefill(header.slot);
        return end_or_follow_draft(rank, coordinator != nullptr);
    case Command::idle:
        gather_rows(rank, gather, coordinator);
        return;
    case Command::retire:
        return state.retire(header.slot);
    case Command::stop:
    case Command::interrupt:
    case Command::round:
        return;
    }
}

} // namespace

GatherSetting gather_setting(const VerifyOptions& options, const EngineParts& parts) {
    const int tp_size = parts.layout->tp_size;
    return {options, parts.target_config, parts.target, tp_size, parts.replica->size() - tp_size, parts.device_round};
}

void RoundObserver::enter(const char* step, double StepSeconds::*counted) {
    const double now = clock_.now_seconds();
    if (counted_) seconds_.*counted_ += now - began_;
    if (counted_ == &StepSeconds::draft) drafting_ended_ = now;
    began_ = now;
    counted_ = counted;
    step_ = step;
    if (watch_) watch_->enter(round_, step);
}

StepSeconds RoundObserver::end_round() {
    if (counted_) seconds_.*counted_ += clock_.now_seconds() - began_;
    ++round_;
    counted_ = nullptr;
    return std::exchange(seconds_, {});
}

RoundResult run_round(const RankContext& rank, ReplicaState& state, TargetGather& gather, Coordinator* coordinator,
                      const Plan& plan) {
    RoundObserver& observer = rank.observer;

    // 1. The coordinator drafts until stop rules fire, or until the cap or the rest of max_new_tokens is used up. Its
    // sequences already have the result of the last round. `state` gets it from the next round's packet.
    observer.enter("draft", &StepSeconds::draft);
    DraftsBySlot drafts = coordinator && plan.command == Command::round ? coordinator->draft(state) : DraftsBySlot{};
    end_or_follow_draft(rank, coordinator != nullptr);

    // 2. One broadcast tells every rank what comes next, and how many drafted tokens of the last round were accepted.
    observer.enter("broadcast", &StepSeconds::broadcast);
    const Packet packet =
        broadcast(rank, coordinator ? coordinator->pack(plan, drafts, state, observer.round()) : state.empty_packet());
    state.check(packet, observer.round());
    const Command command = packet.header().command;
    rank.replica.rest(command == Command::idle);
    if (command != Command::round) {
        run_command(rank, state, gather, coordinator, plan, packet.header());
        return {command, {}};
    }

    state.apply_previous_result(packet);

    // 3. One target pass reads the next token and the drafted ones of every sequence.
    observer.enter("score", &StepSeconds::score);
    const TargetBatch batch = state.begin_round(packet);
    const model::PassResult scores = score(rank, gather,
                                           {.rows = batch.rows,
                                            .logit_rows = batch.logit_rows,
                                            .hidden_layers = rank.hidden_layers,
                                            .mask = batch.mask,
                                            .needs = gather.needs(batch.sequences),
                                            .summary_vocab = gather.summary_vocab(batch.sequences),
                                            .cached_nodes = batch.cached_nodes});

    // 4. One gather sends the coordinator each row in the form that acceptance needs. A rank without a shard waits here
    // for the target's pass.
    observer.enter("gather", rank.target ? &StepSeconds::gather : &StepSeconds::score);
    const std::vector<TargetRows> rows = gather_rows(rank, gather, coordinator, batch.sequences, scores);

    // 5. The coordinator accepts drafted tokens and emits one more. The next round's packet tells the other ranks.
    observer.enter("verify", &StepSeconds::verify);
    if (coordinator) coordinator->verify(drafts, batch, scores, rows, observer.seconds_since_drafting());
    return {command, std::move(drafts)};
}

} // namespace entrodraft::spec
