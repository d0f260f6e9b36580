// The walk. Its five steps stand in walk(), in this order and nowhere else.
#include "entrodraft/spec/round.h"

#include "entrodraft/spec/admission.h"
#include "entrodraft/spec/philox.h"

#include <algorithm>

namespace entrodraft::spec {

namespace {

constexpr int kSlot = 0;                 // one sequence at a time, for now
constexpr std::uint64_t kSignalSeen = 1; // status word

JudgingOptions judging(const EngineOptions& options) {
    return {options.acceptance, options.vocab_size, options.record_margins};
}

} // namespace

Round::Round(const EngineOptions& options, const EngineParts& parts)
    : options_(options), parts_(parts), row_gather_(judging(options), *parts.layout, *parts.replica, *parts.target),
      judge_(judging(options)), packet_(1, options.stop_rule.max_tokens) {
    if (parts.drafter) hidden_layers_ = parts.drafter->hidden_layers();
}

Command Round::step(const Plan& plan, const volatile int& stop_signal) {
    try {
        walk(plan, stop_signal);
        return packet_.header().command;
    } catch (const RoundError&) {
        throw;
    } catch (const std::exception& error) {
        throw RoundError(error.what(), round_, step_);
    }
}

void Round::walk(const Plan& plan, const volatile int& stop_signal) {
    lap();
    step_began_ = lap_began_;
    const bool coordinates = parts_.layout->is_coordinator();

    // 1. draft (local, draft owner): until the stop rule fires or the budget ends.
    enter("draft");
    draft_.clear();
    if (coordinates && plan.command == Command::round) draft(*plan.sequence);

    // 2. announce (collective over the replica): one broadcast says what every rank does next.
    enter("announce");
    announce(plan);
    commit(); // of the round before: its verdict rode in this packet
    if (coordinates && plan.sequence) plan.sequence->stats.seconds.announce += lap();

    switch (packet_.header().command) {
    case Command::round:
        break;
    case Command::admit:
        return admit(plan);
    case Command::prefill:
        prefill();
        gather(nullptr, stop_signal);
        if (coordinates) plan.sequence->stats.seconds.prefill += lap();
        return;
    case Command::idle:
        return gather(nullptr, stop_signal); // a signal ends the wait, a dead rank is missed
    case Command::retire:
    case Command::stop:
    case Command::interrupt:
        slot_ = {};
        return;
    }

    // 3. score (collective over the TP group, then the replica): one pass over next token and draft, one gather.
    enter("score");
    score();
    const model::PassResult scores = parts_.target->forward({.rows = rows_,
                                                             .logit_rows = logit_rows_,
                                                             .hidden_layers = hidden_layers_,
                                                             .mask = model::Mask::causal,
                                                             .summary = row_gather_.summary(),
                                                             .summary_vocab = options_.vocab_size});
    if (coordinates) plan.sequence->stats.seconds.score += lap();
    enter("gather");
    gather(&scores, stop_signal);
    if (coordinates) plan.sequence->stats.seconds.gather += lap();

    // 4. decide (local, coordinator): how many drafted tokens stand, and what is said after them.
    enter("decide");
    if (coordinates) {
        decide(*plan.sequence);
        keep_hidden(scores.hidden, plan.sequence->verdict.accepted);
        plan.sequence->stats.seconds.decide += lap();
    }

    // 5. commit: rides in the next announce.
}

// ---- 1. draft ----

void Round::draft(Sequence& sequence) {
    const int context_left = parts_.target->config().max_positions - static_cast<int>(sequence.tokens().size());
    // One token is said after the drafted ones: the last that budget and context leave is never drafted.
    const int left = std::min(sequence.remaining_tokens(), context_left) - 1;
    const int most = std::min(options_.stop_rule.max_tokens, left);
    const Request& request = sequence.request();
    const ChoiceSetting choice = {options_.acceptance.kind, request.sampling.seed, request.sequence_key};
    if (parts_.drafter && !request.plain)
        parts_.drafter->draft({sequence.tokens(), most, &request, choice, target_hidden_}, sequence.rule, draft_);
    const double seconds = lap();
    drafted_at_ = lap_began_;
    sequence.stats.seconds.entropy += draft_.entropy_seconds;
    sequence.stats.seconds.draft += seconds - draft_.entropy_seconds;
}

// ---- 2. announce ----

void Round::announce(const Plan& plan) {
    if (parts_.layout->is_coordinator()) {
        packet_.clear();
        PacketHeader& header = packet_.header();
        header.command = plan.command;
        header.round = round_;
        header.checksum = slot_.checksum;
        SlotHeader& slot = packet_.slot(kSlot);
        slot.state = slot_.state;
        if (plan.command == Command::admit)
            header.admission_bytes = static_cast<std::uint32_t>(pack_admission(plan.sequence->request()).size());
        if (plan.command == Command::prefill)
            header.prefill_rows = static_cast<std::uint32_t>(std::min(prefill_left(), parts_.target->most_rows()));
        if (plan.command == Command::round) {
            slot.n_committed = static_cast<std::uint8_t>(plan.sequence->verdict.accepted);
            slot.next_token = plan.sequence->tokens().back();
            slot.n_drafted = static_cast<std::uint8_t>(draft_.tokens.size());
            slot.draft_end = draft_.end;
            std::copy(draft_.tokens.begin(), draft_.tokens.end(), packet_.tokens(kSlot).begin());
            std::copy(draft_.parents.begin(), draft_.parents.end(), packet_.parents(kSlot).begin());
        }
    }
    parts_.replica->broadcast(packet_.bytes().data(), packet_.bytes().size(), dist::RankLayout::kCoordinatorReplicaRank,
                              dist::Deadline::after_seconds(options_.timeout_seconds));
    check_packet();
    ++round_;
}

// A rank that holds something else than the coordinator must not go on: its text would be another.
void Round::check_packet() const {
    const std::string reason = packet_.why_unexpected(round_, slot_.checksum);
    if (!reason.empty()) throw RoundError(reason + "; this rank is out of step with the coordinator", round_, step_);
    if (packet_.slot(kSlot).n_committed > slot_.announced.size())
        throw RoundError("the announced commit is longer than the draft before it", round_, step_);
}

// ---- 5. commit, as the next announce brings it ----

// Drafted tokens that stood become text, then the token said after them; the caches forget the others.
void Round::commit() {
    if (packet_.header().command != Command::round) return;
    const SlotHeader& header = packet_.slot(kSlot);
    const bool first_round = slot_.state == SlotState::prefilling;
    slot_.state = SlotState::decoding;
    if (first_round) return; // the next token is the prompt's last
    for (int i = 0; i < header.n_committed; ++i)
        append(slot_, slot_.announced[static_cast<std::size_t>(i)]);
    append(slot_, header.next_token);
    parts_.target->cache().truncate(kSlot, static_cast<int>(slot_.tokens.size()) - 1);
}

void Round::append(Slot& slot, TokenId token) const {
    slot.tokens.push_back(token);
    slot.checksum = hash_bytes(&token, sizeof token, slot.checksum);
}

// ---- around the rounds: admission and prefill ----

// One further broadcast of the length the packet states: prompt and the options that ranks act on.
void Round::admit(const Plan& plan) {
    enter("admit");
    std::vector<std::byte> bytes(packet_.header().admission_bytes);
    if (parts_.layout->is_coordinator()) bytes = pack_admission(plan.sequence->request());
    parts_.replica->broadcast(bytes.data(), bytes.size(), dist::RankLayout::kCoordinatorReplicaRank,
                              dist::Deadline::after_seconds(options_.timeout_seconds));
    const Request request = unpack_admission(bytes);
    row_gather_.begin_sequence(request);
    target_hidden_.clear();
    slot_ = {};
    slot_.state = SlotState::prefilling;
    slot_.checksum = request.sequence_key;
    for (const TokenId token : request.prompt)
        append(slot_, token);
    parts_.target->cache().truncate(kSlot, 0);
}

int Round::prefill_left() const {
    if (slot_.state != SlotState::prefilling) return 0;
    return static_cast<int>(slot_.tokens.size()) - 1 - parts_.target->cache().length(kSlot);
}

void Round::prefill() {
    enter("prefill");
    const int cached = parts_.target->cache().length(kSlot);
    rows_.clear();
    for (int i = 0; i < static_cast<int>(packet_.header().prefill_rows); ++i)
        rows_.push_back({slot_.tokens[static_cast<std::size_t>(cached + i)], kSlot, cached + i, i - 1});
    parts_.target->forward({.rows = rows_, .logit_rows = {}, .hidden_layers = {}, .mask = model::Mask::causal});
}

// ---- 3. score ----

// Rows of the pass: the next token, then the drafted ones.
void Round::score() {
    const SlotHeader& header = packet_.slot(kSlot);
    const auto drafted = packet_.tokens(kSlot).first(header.n_drafted);
    slot_.announced.assign(drafted.begin(), drafted.end());
    const int base = static_cast<int>(slot_.tokens.size()) - 1;
    rows_.assign(1, {slot_.tokens.back(), kSlot, base, -1});
    logit_rows_.assign(1, 0);
    for (int i = 0; i < header.n_drafted; ++i) {
        rows_.push_back({drafted[static_cast<std::size_t>(i)], kSlot, base + 1 + i,
                         packet_.parents(kSlot)[static_cast<std::size_t>(i)] + 1});
        logit_rows_.push_back(i + 1);
    }
}

// Between rounds a status word alone.
void Round::gather(const model::PassResult* scores, const volatile int& stop_signal) {
    const std::uint64_t status = stop_signal != 0 ? kSignalSeen : 0;
    row_gather_.gather(status, {scores, slot_.tokens, slot_.announced},
                       dist::Deadline::after_seconds(options_.timeout_seconds));
    if (parts_.layout->is_coordinator()) signal_seen_ = signal_seen_ || row_gather_.any_status(kSignalSeen);
}

// ---- 4. decide ----

void Round::decide(Sequence& sequence) {
    Judged judged;
    try {
        judged = judge_.judge(row_gather_, draft_, sequence.request(), sequence.tokens().size());
    } catch (const NothingToSay& nothing) { // of this text alone: the others go on
        sequence.verdict = {};
        return sequence.fail(nothing.what());
    }
    const int drafted = static_cast<int>(draft_.tokens.size()), accepted = judged.verdict.accepted;
    sequence.verdict = judged.verdict;
    sequence.logit_margins.insert(sequence.logit_margins.end(), judged.margins.begin(), judged.margins.end());
    Stats& stats = sequence.stats;
    stats.count_round(drafted, accepted, draft_.passes);
    stats.count_entropies(draft_.entropies_nats, accepted);
    stats.overlap += judged.overlap;
    stats.overlaps += judged.overlaps;
    add_levels(stats.levels, draft_.levels);
    if (!sequence.request().plain) // a replay teaches nothing of drafting
        sequence.rule.end_round({drafted, accepted, is_cut_short(draft_.end), draft_.seconds + draft_.entropy_seconds,
                                 parts_.clock->now_seconds() - drafted_at_});
    std::vector<TokenId> said(draft_.tokens.begin(), draft_.tokens.begin() + accepted);
    said.push_back(judged.verdict.next_token);
    sequence.say(said, parts_.target->config().eos_token_ids, parts_.target->config().max_positions);
}

RoundTrace Round::trace(const Sequence& sequence) const {
    return {round_ - 1,       rows_.front().position + 1, &draft_,
            sequence.verdict, drafted_at_ - step_began_,  lap_began_ - drafted_at_};
}

// Of every layer that the drafter asked for, the target's state at the last row that stands: for the next draft.
void Round::keep_hidden(std::span<const float> hidden, int accepted) {
    const auto width = static_cast<std::size_t>(parts_.target->config().hidden_size);
    target_hidden_.clear();
    for (std::size_t layer = 0; layer < hidden_layers_.size(); ++layer) {
        const std::span<const float> row =
            hidden.subspan((layer * rows_.size() + static_cast<std::size_t>(accepted)) * width, width);
        target_hidden_.insert(target_hidden_.end(), row.begin(), row.end());
    }
}

double Round::lap() {
    const double now = parts_.clock->now_seconds();
    const double seconds = now - lap_began_;
    lap_began_ = now;
    return seconds;
}

} // namespace entrodraft::spec
