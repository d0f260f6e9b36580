// The walk. Its five steps stand in walk(), in this order and nowhere else.
#include "entrodraft/spec/round.h"

#include "entrodraft/dist/shard.h"
#include "entrodraft/model/kernels/kernels.h"
#include "entrodraft/spec/philox.h"
#include "entrodraft/spec/verify.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace entrodraft::spec {

namespace {

constexpr int kSlot = 0;                 // one sequence at a time, for now
constexpr std::uint64_t kSignalSeen = 1; // status word
constexpr std::size_t kStatusBytes = sizeof(std::uint64_t);

// The head of an admission; the prompt's token ids follow.
struct Admission {
    std::uint64_t sequence_key = 0;
    std::uint64_t seed = 0;
    double temperature = 0;
    double top_p = 1;
    std::int32_t top_k = 0;
    std::int32_t n_tokens = 0;
};

std::span<const float> slice_of(const model::PassResult& scores, std::size_t row, std::size_t size) {
    return scores.logits.subspan(row * scores.logits_stride, size);
}

} // namespace

Round::Round(const EngineOptions& options, const EngineParts& parts)
    : options_(options), parts_(parts), packet_(1, options.stop_rule.max_tokens),
      slice_(static_cast<std::size_t>(model::vocab_slice(parts.target->config(), 0, parts.layout->tp_size).size())) {
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
        gather(0, {}, stop_signal);
        if (coordinates) plan.sequence->stats.seconds.prefill += lap();
        return;
    case Command::idle:
        return gather(0, {}, stop_signal); // a signal ends the wait, a dead rank is missed
    case Command::retire:
    case Command::stop:
    case Command::interrupt:
        slot_ = {};
        return;
    }

    // 3. score (collective over the TP group, then the replica): one pass over next token and draft, one gather.
    enter("score");
    score();
    const model::PassResult scores =
        parts_.target->forward({.rows = rows_,
                                .logit_rows = logit_rows_,
                                .hidden_layers = hidden_layers_,
                                .mask = model::Mask::causal,
                                .summary = gathers_candidates() ? model::LogitSummary::max : model::LogitSummary::none,
                                .summary_vocab = options_.vocab_size});
    if (coordinates) plan.sequence->stats.seconds.score += lap();
    enter("gather");
    gather(static_cast<int>(rows_.size()), scores, stop_signal);
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
    if (parts_.drafter && !sequence.request().plain)
        parts_.drafter->draft({sequence.tokens(), most, &sequence.request(), target_hidden_}, sequence.rule, draft_);
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
            header.admission_bytes =
                static_cast<std::uint32_t>(sizeof(Admission) + plan.sequence->tokens().size() * sizeof(TokenId));
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
    Admission admission;
    if (parts_.layout->is_coordinator()) {
        const Request& request = plan.sequence->request();
        admission = {request.sequence_key,   request.sampling.seed,  request.sampling.temperature,
                     request.sampling.top_p, request.sampling.top_k, static_cast<std::int32_t>(request.prompt.size())};
        std::memcpy(bytes.data(), &admission, sizeof admission);
        std::memcpy(bytes.data() + sizeof admission, request.prompt.data(), request.prompt.size() * sizeof(TokenId));
    }
    parts_.replica->broadcast(bytes.data(), bytes.size(), dist::RankLayout::kCoordinatorReplicaRank,
                              dist::Deadline::after_seconds(options_.timeout_seconds));
    std::memcpy(&admission, bytes.data(), sizeof admission);
    slot_ = {};
    target_hidden_.clear();
    slot_.state = SlotState::prefilling;
    slot_.greedy = admission.temperature == 0;
    slot_.checksum = admission.sequence_key;
    for (int i = 0; i < admission.n_tokens; ++i) {
        TokenId token;
        std::memcpy(&token, bytes.data() + sizeof admission + static_cast<std::size_t>(i) * sizeof token, sizeof token);
        append(slot_, token);
    }
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

// Greedy needs each rank's best candidate alone; everything else needs the rows themselves.
bool Round::gathers_candidates() const {
    return slot_.greedy && options_.lenience == 1;
}

std::size_t Round::row_bytes() const {
    return gathers_candidates() ? sizeof(Candidate) : slice_ * sizeof(float);
}

// Best of this rank's slice, as far as both models and the tokenizer know its tokens.
Round::Candidate Round::candidate_of(std::span<const float> logits, const model::kernels::LogitStats& summary) const {
    constexpr float kNone = -std::numeric_limits<float>::infinity();
    Candidate best{kNone, std::numeric_limits<TokenId>::max(), kNone};
    if (summary.arg_max < 0) return best; // this rank holds none of them
    best.value = summary.max;
    best.token = summary.arg_max;
    const auto begin = static_cast<int>(parts_.target->local_vocab().begin);
    const int known = std::clamp(options_.vocab_size - begin, 0, static_cast<int>(logits.size()));
    if (options_.record_margins)
        for (int i = 0; i < known; ++i)
            if (begin + i != best.token) best.runner_up = std::max(best.runner_up, logits[static_cast<std::size_t>(i)]);
    return best;
}

// One gather over the replica: a status word a rank, then what the options ask of each row.
void Round::gather(int rows, const model::PassResult& scores, const volatile int& stop_signal) {
    const auto n_rows = static_cast<std::size_t>(rows);
    sent_.resize(kStatusBytes + n_rows * row_bytes());
    const std::uint64_t status = stop_signal != 0 ? kSignalSeen : 0;
    std::memcpy(sent_.data(), &status, sizeof status);
    const auto local = static_cast<std::size_t>(parts_.target->local_vocab().size());
    const bool alone = parts_.replica->size() == 1 && !gathers_candidates(); // the rows need not be copied
    for (std::size_t row = 0; row < n_rows && !alone; ++row) {
        std::byte* to = sent_.data() + kStatusBytes + row * row_bytes();
        const std::span<const float> logits = slice_of(scores, row, local);
        if (gathers_candidates()) {
            const Candidate candidate = candidate_of(logits, scores.summaries[row]);
            std::memcpy(to, &candidate, sizeof candidate);
        } else {
            std::memcpy(to, logits.data(), logits.size_bytes());
        }
    }
    if (parts_.layout->is_coordinator())
        gathered_.resize(sent_.size() * static_cast<std::size_t>(parts_.replica->size()));
    parts_.replica->gather(sent_.data(), gathered_.data(), alone ? kStatusBytes : sent_.size(),
                           dist::RankLayout::kCoordinatorReplicaRank,
                           dist::Deadline::after_seconds(options_.timeout_seconds));
    if (!parts_.layout->is_coordinator()) return;
    for (int rank = 0; rank < parts_.replica->size(); ++rank) {
        std::uint64_t of_rank;
        std::memcpy(&of_rank, gathered_from(rank).data(), sizeof of_rank);
        signal_seen_ = signal_seen_ || of_rank == kSignalSeen;
    }
    if (alone) {
        target_rows_ = scores.logits;
        target_stride_ = scores.logits_stride;
    } else if (rows > 0 && !gathers_candidates()) {
        assemble_rows(rows);
    }
}

std::span<const std::byte> Round::gathered_from(int rank) const {
    return std::span<const std::byte>(gathered_).subspan(static_cast<std::size_t>(rank) * sent_.size(), sent_.size());
}

// Puts the ranks' slices side by side: [rows][vocab].
void Round::assemble_rows(int rows) {
    const int tp_size = parts_.layout->tp_size, vocab = parts_.target->config().vocab_size;
    const int first_target_rank = parts_.replica->size() - tp_size; // a dedicated drafter stands before them
    target_stride_ = static_cast<std::size_t>(vocab);
    assembled_.resize(static_cast<std::size_t>(rows) * target_stride_);
    for (int tp_rank = 0; tp_rank < tp_size; ++tp_rank) {
        const dist::Slice slice = model::vocab_slice(parts_.target->config(), tp_rank, tp_size);
        const std::byte* from = gathered_from(first_target_rank + tp_rank).data() + kStatusBytes;
        for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row)
            std::memcpy(assembled_.data() + row * target_stride_ + slice.begin, from + row * row_bytes(),
                        static_cast<std::size_t>(slice.size()) * sizeof(float));
    }
    target_rows_ = assembled_;
}

// ---- 4. decide ----

void Round::decide(Sequence& sequence) {
    const std::span<const TokenId> drafted(slot_.announced);
    sequence.verdict =
        gathers_candidates() ? judge_candidates(drafted, sequence) : judge_distributions(drafted, sequence);
    const int n_drafted = static_cast<int>(drafted.size());
    sequence.stats.count_round(n_drafted, sequence.verdict.accepted, draft_.passes);
    const DraftEnd end = packet_.slot(kSlot).draft_end;
    const bool cut_short = end == DraftEnd::budget || end == DraftEnd::context || end == DraftEnd::end_of_text;
    sequence.rule.end_round({n_drafted, sequence.verdict.accepted, cut_short, draft_.passes,
                             draft_.seconds + draft_.entropy_seconds, parts_.clock->now_seconds() - drafted_at_});
    std::vector<TokenId> said(drafted.begin(), drafted.begin() + sequence.verdict.accepted);
    said.push_back(sequence.verdict.next_token);
    sequence.say(said, parts_.target->config().eos_token_ids, parts_.target->config().max_positions);
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

Verdict Round::judge_candidates(std::span<const TokenId> drafted, Sequence& sequence) {
    std::vector<TokenId> best_tokens(drafted.size() + 1);
    std::vector<float> margins(drafted.size() + 1);
    for (std::size_t row = 0; row <= drafted.size(); ++row) {
        Candidate best{-std::numeric_limits<float>::infinity(), std::numeric_limits<TokenId>::max(),
                       -std::numeric_limits<float>::infinity()};
        for (int rank = parts_.replica->size() - parts_.layout->tp_size; rank < parts_.replica->size(); ++rank) {
            Candidate other;
            std::memcpy(&other, gathered_from(rank).data() + kStatusBytes + row * sizeof other, sizeof other);
            const bool better = other.value > best.value || (other.value == best.value && other.token < best.token);
            const float beaten = std::max(best.runner_up, better ? best.value : other.value);
            if (better) best = other;
            best.runner_up = std::max(best.runner_up, beaten);
        }
        if (!std::isfinite(best.value))
            throw std::runtime_error("the largest logit of row " + std::to_string(row) + " is infinite or no number");
        best_tokens[row] = best.token;
        margins[row] = best.value - best.runner_up;
    }
    const Verdict verdict = verify_greedy(drafted, best_tokens);
    if (options_.record_margins)
        sequence.logit_margins.insert(sequence.logit_margins.end(), margins.begin(),
                                      margins.begin() + verdict.accepted + 1);
    return verdict;
}

// Rejection sampling over the adjusted distributions, or greedy with lenience over the rows.
Verdict Round::judge_distributions(std::span<const TokenId> drafted, const Sequence& sequence) {
    const auto vocab = static_cast<std::size_t>(options_.vocab_size);
    const SamplingOptions& sampling = sequence.request().sampling;
    p_.resize((drafted.size() + 1) * vocab);
    for (std::size_t row = 0; row <= drafted.size(); ++row) {
        const std::span<const float> logits = target_rows_.subspan(row * target_stride_, vocab);
        const std::span<float> to(p_.data() + row * vocab, vocab);
        if (sampling.greedy())
            std::copy(logits.begin(), logits.end(), to.begin());
        else
            adjust(logits, sampling, to);
    }
    if (sampling.greedy()) return verify_greedy_lenient(drafted, p_, options_.lenience);
    const std::uint64_t key = sequence.request().sequence_key;
    return verify_rejection({drafted, p_, draft_.q, sequence.tokens().size(), options_.lenience},
                            RandomStream(sampling.seed, key, Purpose::acceptance),
                            RandomStream(sampling.seed, key, Purpose::resample));
}

double Round::lap() {
    const double now = parts_.clock->now_seconds();
    const double seconds = now - lap_began_;
    lap_began_ = now;
    return seconds;
}

} // namespace entrodraft::spec
