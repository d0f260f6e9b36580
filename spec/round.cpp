// The walk. Its five steps are in walk(), in this order and nowhere else.
#include "spec/round.h"

#include "spec/admission.h"
#include "spec/draft/sharded_draft_model.h"
#include "spec/verify/philox.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace entrodraft::spec {

namespace {

constexpr std::uint64_t kSignalSeen = 1; // status word

} // namespace

RowSetting row_setting(const VerifyOptions& options, const EngineParts& parts) {
    const int tp_size = parts.layout->tp_size;
    return {options,
            parts.target_config,
            parts.target,
            tp_size,
            parts.replica->size() - tp_size,
            static_cast<std::size_t>(model::vocab_slice(*parts.target_config, 0, tp_size).size())};
}

Round::Round(const EngineOptions& options, const EngineParts& parts)
    : options_(options), parts_(parts),
      row_setting_(row_setting({options.acceptance, options.vocab_size, options.record_margins}, parts)),
      row_gather_(row_setting_, *parts.replica, options.n_slots), verifier_(row_setting_.options),
      packet_(options.n_slots, options.stop_rule.max_tokens), slots_(static_cast<std::size_t>(options.n_slots)),
      desks_(static_cast<std::size_t>(options.n_slots)) {
    if (parts.drafter) hidden_layers_ = parts.drafter->hidden_layers();
}

Command Round::step(const Plan& plan, const volatile int& stop_signal) {
    try {
        walk(plan, stop_signal);
        ++round_;
        return packet_.header().command;
    } catch (const RoundError&) {
        throw;
    } catch (const std::exception& error) {
        throw RoundError(error.what(), round_, step_);
    }
}

void Round::enter(const char* step) {
    step_ = step;
    if (parts_.watch) parts_.watch->enter(round_, step);
}

void Round::walk(const Plan& plan, const volatile int& stop_signal) {
    lap();
    step_began_ = lap_began_;

    // 1. draft (local, draft owner; collective where the draft is sharded too): until the stop rules fire or budgets
    // end.
    enter("draft");
    sequences_.clear();
    if (is_coordinator() && plan.command == Command::round) draft(plan);
    end_drafting();

    // 2. broadcast (collective over the replica): one broadcast says what every rank does next.
    enter("broadcast");
    broadcast(plan);
    commit(); // of the round before: its verifications rode in this packet
    share_out(plan, &StepSeconds::broadcast);

    switch (packet_.header().command) {
    case Command::round:
        break;
    case Command::admit:
        return admit(plan);
    case Command::prefill:
        prefill(plan);
        gather(stop_signal);
        return share_out(plan, &StepSeconds::prefill);
    case Command::idle:
        return gather(stop_signal); // a signal ends the wait, a dead rank is missed
    case Command::retire:
        return retire();
    case Command::stop:
    case Command::interrupt:
        return;
    }

    // 3. score (collective over the TP group, then the replica): one pass over next tokens and drafts, one gather.
    enter("score");
    score();
    share_out(plan, &StepSeconds::score);
    enter("gather");
    gather(stop_signal);
    share_out(plan, parts_.target ? &StepSeconds::gather : &StepSeconds::score); // who holds no shard waits for scores

    // 4. verify (local, coordinator): how many drafted tokens are accepted, and the token emitted after them.
    enter("verify");
    if (is_coordinator()) verify(plan);
    share_out(plan, &StepSeconds::verify);

    // 5. commit: rides in the next broadcast.
}

// ---- 1. draft ----

void Round::draft(const Plan& plan) {
    const auto takes_part = [&](int i) { return plan.sequences[static_cast<std::size_t>(i)] && is_read(i); };
    int n_sequences = 0;
    for (int i = 0; i < n_slots(); ++i)
        n_sequences += takes_part(i) ? 1 : 0;
    tasks_.clear();
    for (int i = 0; i < n_slots(); ++i) {
        desk(i).draft.clear();
        if (!takes_part(i)) continue;
        Sequence& sequence = *plan.sequences[static_cast<std::size_t>(i)];
        const Request& request = sequence.request();
        sequence.rule.set_batch_load({n_sequences - 1, n_sequences});
        if (!parts_.drafter || request.plain) continue;
        tasks_.push_back({i,
                          {sequence.tokens(),
                           max_drafted(sequence, n_sequences),
                           &request,
                           {options_.acceptance.kind, request.sampling.seed, request.sequence_key},
                           desk(i).target_hidden,
                           left_tokens(sequence),
                           slot(i).verified_on_device},
                          &sequence.rule,
                          &desk(i).draft});
    }
    if (!tasks_.empty()) parts_.drafter->draft(tasks_);
    const double seconds = lap();
    drafted_at_ = lap_began_;
    for (int i = 0; i < n_slots(); ++i) {
        if (!takes_part(i)) continue;
        StepSeconds& steps = plan.sequences[static_cast<std::size_t>(i)]->stats.seconds;
        steps.entropy += desk(i).draft.entropy_seconds;
        steps.draft += seconds / n_sequences - desk(i).draft.entropy_seconds;
    }
}

// Where the draft is sharded across the ranks, the others have followed its passes so far.
void Round::end_drafting() {
    if (parts_.sharded_draft) is_coordinator() ? parts_.sharded_draft->end_of_step() : parts_.sharded_draft->follow();
}

// The rows of a pass are shared out among its sequences.
int Round::max_drafted(const Sequence& sequence, int n_sequences) const {
    const int room = model::Decoder::kMaxRows / n_sequences - 1;
    return std::min({options_.stop_rule.max_tokens, left_tokens(sequence), room});
}

// One token is emitted after the drafted ones: the last that budget and context leave is never drafted.
int Round::left_tokens(const Sequence& sequence) const {
    const int context_left = config().max_positions - static_cast<int>(sequence.tokens().size());
    return std::min(sequence.remaining_tokens(), context_left) - 1;
}

// ---- 2. broadcast ----

void Round::broadcast(const Plan& plan) {
    if (is_coordinator()) {
        packet_.clear();
        PacketHeader& header = packet_.header();
        header.command = plan.command;
        header.slot = static_cast<std::uint8_t>(plan.slot);
        header.round = round_;
        header.checksum = checksum();
        for (int i = 0; i < n_slots(); ++i)
            packet_.slot(i).state = slot(i).state;
        if (plan.command == Command::admit)
            header.admission_bytes = static_cast<std::uint32_t>(
                pack_admission(plan.sequences[static_cast<std::size_t>(plan.slot)]->request(), false).size());
        if (plan.command == Command::prefill)
            header.prefill_rows =
                static_cast<std::uint32_t>(std::min(prefill_left(plan.slot), model::Decoder::kMaxRows));
        for (int i = 0; i < n_slots() && plan.command == Command::round; ++i)
            if (is_read(i)) pack_slot(i, *plan.sequences[static_cast<std::size_t>(i)]);
        packet_.seal();
    }
    parts_.replica->broadcast(packet_.bytes().data(), packet_.bytes().size(), dist::RankLayout::kCoordinatorReplicaRank,
                              deadline());
    check_packet();
}

void Round::pack_slot(int index, const Sequence& sequence) {
    const Draft& draft = desk(index).draft;
    SlotHeader& header = packet_.slot(index);
    header.state = SlotState::decoding;
    header.n_committed = static_cast<std::uint8_t>(sequence.verification.accepted);
    header.next_token = sequence.tokens().back();
    header.n_drafted = static_cast<std::uint8_t>(draft.tokens.size());
    header.draft_end = draft.end;
    std::copy(draft.tokens.begin(), draft.tokens.end(), packet_.tokens(index).begin());
    std::copy(draft.parents.begin(), draft.parents.end(), packet_.parents(index).begin());
}

// A rank that holds something else than the coordinator must not go on: its text would be another.
void Round::check_packet() const {
    const std::string reason = packet_.why_unexpected(round_, checksum());
    if (!reason.empty()) throw RoundError(reason + "; this rank is out of step with the coordinator", round_, step_);
    if (!packet_.is_intact()) throw RoundError("the packet is not as the coordinator sent it", round_, step_);
    const PacketHeader& header = packet_.header();
    if (header.command == Command::prefill && static_cast<int>(header.prefill_rows) > prefill_left(header.slot))
        throw RoundError("more is to be read than the prompt has left", round_, step_);
    for (int i = 0; i < n_slots() && header.command == Command::round; ++i) {
        if (packet_.slot(i).state != SlotState::decoding) continue;
        if (!is_read(i)) throw RoundError("a sequence is to be decoded that is not yet read", round_, step_);
        if (packet_.slot(i).n_committed > slot(i).drafted.size())
            throw RoundError("the broadcast commit is longer than the draft before it", round_, step_);
    }
}

std::uint64_t Round::checksum() const {
    std::uint64_t sum = 0;
    for (const Slot& each : slots_)
        sum = hash_bytes(&each.checksum, sizeof each.checksum, sum);
    return sum;
}

// ---- 5. commit, as the next broadcast brings it ----

// Accepted drafted tokens become text, then the token emitted after them; the caches forget the others.
void Round::commit() {
    if (packet_.header().command != Command::round) return;
    for (int i = 0; i < n_slots(); ++i) {
        const SlotHeader& header = packet_.slot(i);
        if (header.state != SlotState::decoding) continue;
        Slot& own = slot(i);
        const bool first_round = own.state == SlotState::prefilling;
        own.state = SlotState::decoding;
        if (first_round) continue; // the next token is the prompt's last
        for (int k = 0; k < header.n_committed; ++k)
            append(own, own.drafted[static_cast<std::size_t>(k)]);
        append(own, header.next_token);
        own.cached = static_cast<int>(own.tokens.size()) - 1;
        if (parts_.target) parts_.target->cache().truncate(i, own.cached);
    }
}

void Round::append(Slot& to, TokenId token) const {
    to.tokens.push_back(token);
    to.checksum = hash_bytes(&token, sizeof token, to.checksum);
}

// ---- around the rounds: admission, prefill, retirement ----

// One further broadcast of the length the packet states: prompt and the options that ranks act on.
void Round::admit(const Plan& plan) {
    enter("admit");
    const int index = packet_.header().slot;
    std::vector<std::byte> bytes(packet_.header().admission_bytes);
    if (is_coordinator()) {
        const Request& of_plan = plan.sequences[static_cast<std::size_t>(index)]->request();
        bytes = pack_admission(of_plan, can_verify_on_device(of_plan));
    }
    parts_.replica->broadcast(bytes.data(), bytes.size(), dist::RankLayout::kCoordinatorReplicaRank, deadline());
    const auto [request, verified_on_device] = unpack_admission(bytes);
    row_gather_.slot(index).begin_sequence(request, verified_on_device);
    desk(index) = {};
    Slot& own = slot(index) = {};
    own.state = SlotState::prefilling;
    own.verified_on_device = verified_on_device;
    own.checksum = hash_bytes(bytes.data(), bytes.size()); // of all that ranks act on
    own.tokens = request.prompt;
    if (parts_.target) parts_.target->cache().truncate(index, 0);
}

// Where this rank's GPU holds the rows of the target, or can get them, and of whatever drafts.
bool Round::can_verify_on_device(const Request& request) const {
    return parts_.target && parts_.target->keeps_logits_on_device() &&
           (!parts_.drafter || parts_.drafter->keeps_logits_on_device()) && request.processing.is_off() &&
           spec::can_verify_on_device(options_.acceptance.kind, request.sampling) &&
           options_.stop_rule.max_tokens <= model::Decoder::kMaxKept &&
           options_.stop_rule.entropy_of == EntropyOf::raw; // what rules look at has to come to the host
}

int Round::prefill_left(int index) const {
    if (slot(index).state != SlotState::prefilling) return 0;
    return static_cast<int>(slot(index).tokens.size()) - 1 - slot(index).cached;
}

// Draft and target read the same part of the prompt; at once, where the draft has a rank of its own.
void Round::prefill(const Plan& plan) {
    enter("prefill");
    const int index = packet_.header().slot;
    Slot& own = slot(index);
    rows_.clear();
    for (int i = 0; i < static_cast<int>(packet_.header().prefill_rows); ++i)
        rows_.push_back({own.tokens[static_cast<std::size_t>(own.cached + i)], index, own.cached + i, i - 1});
    own.cached += static_cast<int>(rows_.size());
    if (is_coordinator() && parts_.drafter && !plan.sequences[static_cast<std::size_t>(index)]->request().plain)
        parts_.drafter->prefill(index, std::span(own.tokens).first(static_cast<std::size_t>(own.cached) + 1));
    end_drafting();
    if (parts_.target)
        parts_.target->forward({.rows = rows_, .logit_rows = {}, .hidden_layers = {}, .mask = model::Mask::causal});
}

void Round::retire() {
    slot(packet_.header().slot) = {};
}

// ---- 3. score ----

// Rows of the pass, sequence by sequence: the next token, then the drafted ones.
void Round::score() {
    rows_.clear();
    for (int i = 0; i < n_slots(); ++i) {
        const SlotHeader& header = packet_.slot(i);
        if (header.state != SlotState::decoding) continue;
        Slot& own = slot(i);
        const auto drafted = packet_.tokens(i).first(header.n_drafted);
        own.drafted.assign(drafted.begin(), drafted.end());
        const int base = static_cast<int>(own.tokens.size()) - 1, first = static_cast<int>(rows_.size());
        sequences_.push_back({i, &scores_, rows_.size(), own.tokens, own.drafted, desk(i).draft.kept});
        rows_.push_back({own.tokens.back(), i, base, -1});
        for (int k = 0; k < header.n_drafted; ++k)
            rows_.push_back({drafted[static_cast<std::size_t>(k)], i, base + 1 + k,
                             first + packet_.parents(i)[static_cast<std::size_t>(k)] + 1});
    }
    if (!parts_.target) return;
    logit_rows_.resize(rows_.size());
    std::iota(logit_rows_.begin(), logit_rows_.end(), 0);
    scores_ = parts_.target->forward({.rows = rows_,
                                      .logit_rows = logit_rows_,
                                      .hidden_layers = hidden_layers_,
                                      .mask = model::Mask::causal,
                                      .needs = row_gather_.needs(sequences_),
                                      .summary_vocab = options_.vocab_size});
}

// Between rounds a status word alone. A drafter that holds no target drafts ahead until the others have scored.
void Round::gather(const volatile int& stop_signal) {
    row_gather_.start(stop_signal != 0 ? kSignalSeen : 0, sequences_);
    if (is_coordinator() && !parts_.target) draft_ahead();
    row_gather_.finish(deadline());
    if (is_coordinator()) signal_seen_ = signal_seen_ || row_gather_.any_status(kSignalSeen);
}

void Round::draft_ahead() {
    if (sequences_.size() != 1 || tasks_.size() != 1) return;
    parts_.drafter->draft_ahead([this] { return row_gather_.has_arrived(); });
}

// ---- 4. verify ----

void Round::verify(const Plan& plan) {
    const double target_seconds = parts_.clock->now_seconds() - drafted_at_;
    for (const RankRows& rows : sequences_) {
        Sequence& sequence = *plan.sequences[static_cast<std::size_t>(rows.slot)];
        verify(sequence, rows, target_seconds);
        keep_hidden(rows, sequence.verification.accepted);
    }
}

void Round::verify(Sequence& sequence, const RankRows& rows, double target_seconds) {
    const Draft& draft = desk(rows.slot).draft;
    VerifiedRound verified;
    try {
        verified = verifier_.verify(row_gather_.slot(rows.slot), draft, sequence.request(), sequence.tokens().size());
    } catch (const NothingToSay& nothing) { // of this text alone: the others go on
        sequence.verification = {};
        return sequence.fail(nothing.what());
    }
    if (options_.synthetic_acceptance) verified.verification.accepted = accepted_by_chance(sequence, draft);
    const int drafted = static_cast<int>(draft.tokens.size()), accepted = verified.verification.accepted;
    sequence.verification = verified.verification;
    sequence.logit_margins.insert(sequence.logit_margins.end(), verified.margins.begin(), verified.margins.end());
    Stats& stats = sequence.stats;
    stats.count_round(drafted, accepted, draft.passes);
    stats.count_entropies(draft.entropies_nats, accepted);
    stats.ahead += draft.ahead;
    stats.overlap += verified.overlap;
    stats.overlaps += verified.overlaps;
    add_levels(stats.levels, draft.levels);
    if (!sequence.request().plain) // a replay teaches nothing of drafting
        sequence.rule.end_round({drafted, accepted, is_cut_short(draft.end), draft.seconds + draft.entropy_seconds,
                                 target_seconds, batch_load_of(rows)});
    const bool is_first = stats.new_tokens == 0;
    std::vector<TokenId> emitted(draft.tokens.begin(), draft.tokens.begin() + accepted);
    emitted.push_back(verified.verification.next_token);
    sequence.emit(emitted, config().eos_token_ids, config().max_positions);
    if (is_first) stats.seconds.first_token = parts_.clock->now_seconds() - sequence.admitted_at;
}

// The same whatever was drafted: it hangs on text and position alone.
int Round::accepted_by_chance(const Sequence& sequence, const Draft& draft) const {
    const Request& request = sequence.request();
    const RandomStream chance(request.sampling.seed, request.sequence_key, Purpose::acceptance);
    int accepted = 0;
    while (accepted < static_cast<int>(draft.tokens.size()) &&
           chance.uniform(sequence.tokens().size() + static_cast<std::size_t>(accepted)) <
               *options_.synthetic_acceptance)
        ++accepted;
    return accepted;
}

BatchLoad Round::batch_load_of(const RankRows& rows) const {
    return {static_cast<int>(rows_.size() - rows.count()), static_cast<int>(sequences_.size())};
}

RoundTrace Round::trace(int index, const Sequence& sequence) const {
    return {round_ - 1,
            static_cast<int>(slot(index).tokens.size()),
            &desks_[static_cast<std::size_t>(index)].draft,
            sequence.verification,
            drafted_at_ - step_began_,
            lap_began_ - drafted_at_};
}

// Of every layer that the drafter asked for, the target's state at the last accepted row: for the next draft.
void Round::keep_hidden(const RankRows& rows, int accepted) {
    const auto width = static_cast<std::size_t>(config().hidden_size);
    std::vector<float>& kept = desk(rows.slot).target_hidden;
    kept.clear();
    for (std::size_t layer = 0; layer < hidden_layers_.size(); ++layer) {
        const std::size_t row = layer * rows_.size() + rows.first + static_cast<std::size_t>(accepted);
        const std::span<const float> from = scores_.hidden.subspan(row * width, width);
        kept.insert(kept.end(), from.begin(), from.end());
    }
}

double Round::lap() {
    const double now = parts_.clock->now_seconds();
    const double seconds = now - lap_began_;
    lap_began_ = now;
    return seconds;
}

// Among the sequences of the round, or to the one that the command concerns.
void Round::share_out(const Plan& plan, double StepSeconds::*step) {
    if (!is_coordinator()) return;
    const double seconds = lap();
    const auto add = [&](int index, double part) {
        if (Sequence* sequence = plan.sequences[static_cast<std::size_t>(index)]) sequence->stats.seconds.*step += part;
    };
    if (packet_.header().command != Command::round) {
        if (!plan.sequences.empty()) add(plan.slot, seconds);
        return;
    }
    int n_sequences = 0;
    for (int i = 0; i < n_slots(); ++i)
        n_sequences += packet_.slot(i).state == SlotState::decoding ? 1 : 0;
    for (int i = 0; i < n_slots(); ++i)
        if (packet_.slot(i).state == SlotState::decoding) add(i, seconds / n_sequences);
}

} // namespace entrodraft::spec
