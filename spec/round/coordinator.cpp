// Plans, drafts and verification of a replica: see coordinator.h.
#include "spec/round/coordinator.h"

#include "spec/gpu/device_round.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace entrodraft::spec {

namespace {

// Most rows of a target pass.
int max_rows(const EngineOptions& options) {
    if (options.num_beams > 0) return model::Decoder::kMaxRows;
    return std::min(options.n_slots * (options.stop_rule.max_tokens + 1), model::Decoder::kMaxRows);
}

// The cost of a draft pass in target passes, before either is timed: the ratio of their weights' bytes.
double first_cost(const EngineParts& parts) {
    const double draft = parts.drafter ? static_cast<double>(parts.drafter->facts().weight_bytes) : 0;
    return parts.target_pass_bytes > 0 ? draft / parts.target_pass_bytes : 0;
}

std::unique_ptr<Verifier> verifier_of(const EngineOptions& options) {
    auto verifier = make_verifier(verify_options(options));
    if (!options.synthetic_acceptance) return verifier;
    return make_synthetic_verifier(std::move(verifier), *options.synthetic_acceptance);
}

} // namespace

VerifyOptions verify_options(const EngineOptions& options) {
    return {options.acceptance, options.vocab_size};
}

Coordinator::Coordinator(const EngineOptions& options, const EngineParts& parts)
    : options_(options), parts_(parts), verifier_(verifier_of(options)),
      gain_({max_rows(options), first_cost(parts), options.costs}),
      sequences_(static_cast<std::size_t>(options.n_slots)) {
    if (parts.drafter) hidden_layers_ = parts.drafter->facts().hidden_layers;
    if (!hidden_layers_.empty() && hidden_layers_ != parts.hidden_layers)
        throw std::invalid_argument("the drafter wants hidden states, of which the other ranks do not know");
}

// ---- what comes next ----

Plan Coordinator::next_plan(const EngineCallbacks& callbacks, const ReplicaState& state) {
    const bool goes_on = !callbacks.on_step || callbacks.on_step();
    int empty = -1, unread = -1, read = -1; // the first slot of each kind
    for (int slot = n_slots() - 1; slot >= 0; --slot) {
        if (sequence(slot) && sequence(slot)->ended()) return {Command::retire, slot};
        if (!sequence(slot) && state.is_shared(slot)) continue;
        (!sequence(slot) ? empty : state.prefill_left(slot) > 0 ? unread : read) = slot;
    }
    if (signal_seen_ || !goes_on) return {Command::interrupt};
    if (empty >= 0 && admits_another(callbacks, empty))
        return {Command::admit, empty, 0,
                pack_admission(sequence(empty)->request(), sequence(empty)->verified_on_device)};
    for (int slot = 0; slot < n_slots(); ++slot)
        if (const std::optional<int> twin = twin_of(slot, state)) return {Command::share, slot, *twin};
    if (unread >= 0 && (read < 0 || !prefilled_)) return {Command::prefill, unread};
    if (read >= 0) return {Command::round};
    return {callbacks.waiting && callbacks.waiting() ? Command::idle : Command::stop};
}

// For a slot whose prompt is not read: a slot that has read it for another sample of the same line. None with a drafter
// that reads the target's hidden states, as it needs those of every prompt.
std::optional<int> Coordinator::twin_of(int slot, const ReplicaState& state) const {
    if (!sequence(slot) || state.prefill_left(slot) == 0 || sequence(slot)->request().num_samples == 1 ||
        !hidden_layers_.empty())
        return std::nullopt;
    for (int other = 0; other < n_slots(); ++other)
        if (other != slot && sequence(other) && state.is_read(other) && !is_past_sharing(other) &&
            sequence(other)->request().id == sequence(slot)->request().id)
            return other;
    return std::nullopt;
}

// Returns whether the text has grown so long that the target's states may not go back to the end of its prompt.
bool Coordinator::is_past_sharing(int slot) const {
    const auto grown = static_cast<int>(sequence(slot)->tokens().size() - sequence(slot)->request().prompt.size());
    return parts_.target_config->n_linear_layers() > 0 && grown > model::RecurrentStates::kReach;
}

// A request brings only the text of its constraint; this compiles it.
void Coordinator::compile_constraint(Request& request) {
    LogitProcessing& processing = request.processing;
    if (!processing.constraint.is_on() || processing.grammar) return;
    if (!parts_.tokenizer) throw std::invalid_argument("a constraint is on text, and there is no tokenizer");
    if (!grammars_) {
        const std::vector<TokenId> ends = draft_limits_of(*parts_.target_config, options_.vocab_size).eos_tokens;
        grammars_.emplace(std::make_shared<model::grammar::Vocabulary>(
            model::grammar::Vocabulary::of(*parts_.tokenizer, options_.vocab_size, ends)));
    }
    processing.grammar = grammars_->get(processing.constraint);
}

bool Coordinator::admits_another(const EngineCallbacks& callbacks, int slot) {
    std::optional<Request> request = callbacks.next_request();
    if (!request) return false;
    if (!request->stop_rule.empty() && !callbacks.rule_of)
        throw std::invalid_argument("a request names a stop rule, and nothing reads it");
    const StopRuleOptions rule = request->stop_rule.empty() ? options_.stop_rule : callbacks.rule_of(*request);
    if (const std::string why = why_biased(rule, options_.acceptance.kind);
        !why.empty() && parts_.drafter && !request->sampling.greedy())
        throw std::invalid_argument(why);
    compile_constraint(*request);
    sequence(slot).emplace(std::move(*request), rule, &gain_, parts_.tokenizer, callbacks.on_text);
    if (sequence(slot)->request().beams.is_on() != (options_.num_beams > 0) ||
        sequence(slot)->request().beams.num_beams > options_.num_beams)
        throw std::invalid_argument("a request asks for other beams than the engine has");
    if (sequence(slot)->request().beams.is_on())
        sequence(slot)->begin_beams(parts_.target_config->eos_token_ids, parts_.target_config->max_positions);
    sequence(slot)->admitted_at = parts_.clock->now_seconds();
    sequence(slot)->verified_on_device = can_verify_on_device(*sequence(slot));
    return true;
}

// True if this rank's GPU holds the target's rows, or can get them, and also holds the rows of the drafter, if any.
bool Coordinator::can_verify_on_device(const Sequence& own) const {
    const Request& request = own.request();
    return parts_.target && parts_.device_round &&
           (!parts_.drafter || parts_.drafter->facts().keeps_logits_on_device) && request.processing.is_off() &&
           !request.logprobs && spec::can_verify_on_device(options_.acceptance.kind, request.sampling) &&
           options_.stop_rule.max_tokens <= DeviceRound::kMaxKept &&
           own.rule.options().entropy_of == EntropyOf::raw; // rows that rules read adjusted must come to the host
}

Packet Coordinator::pack(const Plan& plan, const DraftsBySlot& drafts, const ReplicaState& state, std::uint64_t round) {
    Packet packet = state.empty_packet();
    PacketHeader& header = packet.header();
    header.command = plan.command;
    header.slot = static_cast<std::uint8_t>(plan.slot);
    header.round = round;
    header.checksum = state.checksum();
    header.admission_bytes = static_cast<std::uint32_t>(plan.admission.size());
    if (plan.command == Command::share) header.prefill_rows = static_cast<std::uint32_t>(plan.from);
    if (plan.command == Command::prefill)
        header.prefill_rows =
            static_cast<std::uint32_t>(std::min(state.prefill_left(plan.slot), parts_.max_prompt_rows));
    for (int i = 0; i < n_slots(); ++i) {
        packet.slot(i).state = state.slot_state(i);
        if (plan.command != Command::round || !state.is_read(i)) continue;
        const Draft& draft = drafts[i];
        packet.slot(i) = {SlotState::decoding, draft.end, static_cast<std::uint8_t>(draft.tokens.size()),
                          static_cast<std::int8_t>(sequence(i)->last_accepted), sequence(i)->tokens().back()};
        const BeamEnds& ends = sequence(i)->beam_ends; // empty except for a beam search
        packet.slot(i).n_beams = static_cast<std::uint32_t>(ends.tokens.size());
        std::ranges::copy(draft.tokens, std::ranges::copy(ends.tokens, packet.tokens(i).begin()).out);
        std::ranges::copy(draft.parents, std::ranges::copy(ends.parents, packet.parents(i).begin()).out);
    }
    packet.seal();
    return packet;
}

// ---- drafting ----

DraftsBySlot Coordinator::draft(const ReplicaState& state) {
    DraftsBySlot drafts(sequences_.size());
    const auto takes_part = [&](int slot) { return sequence(slot) && state.is_read(slot); };
    int n_sequences = 0, n_texts = 0;
    for (int slot = 0; slot < n_slots(); ++slot) {
        n_sequences += takes_part(slot) ? 1 : 0;
        n_texts += sequence(slot) ? 1 : 0;
    }
    tasks_.clear();
    for (int slot = 0; slot < n_slots(); ++slot) {
        if (!takes_part(slot)) continue;
        Sequence& own = *sequence(slot);
        const Request& request = own.request();
        const int share = model::Decoder::kMaxRows / n_sequences; // rows of a pass for each sequence
        if (!own.given_left().empty()) {
            draft_given(own, std::min(options_.stop_rule.max_tokens, share - 1), drafts[slot]);
            continue;
        }
        if (!parts_.drafter || request.plain) continue;
        const int most = own.beams
                             ? std::min(share, Packet::kMaxDraftTokens) - static_cast<int>(own.beam_ends.tokens.size())
                             : std::min(options_.stop_rule.max_tokens, share - 1);
        tasks_.push_back({slot,
                          own.tokens(),
                          own.beams ? most : std::min(most, left_tokens(own)),
                          &request,
                          {options_.acceptance.kind, request.sampling.seed, request.sequence_key},
                          &own.rule,
                          &drafts[slot],
                          left_tokens(own),
                          own.verified_on_device,
                          &gain_,
                          own.beams ? &*own.beams : nullptr,
                          std::min(most, cache_left(own)),
                          {{n_sequences - 1, n_sequences}, n_texts, 0, left_tokens(own) + 1}});
    }
    if (!tasks_.empty()) parts_.drafter->propose(tasks_);
    return drafts;
}

// Given tokens are "drafted" like a chain, and all are accepted. The last of them is the next token.
void Coordinator::draft_given(const Sequence& own, int most, Draft& draft) {
    draft.clear();
    const std::span<const TokenId> given = own.given_left();
    for (const TokenId token : given.first(std::min(given.size() - 1, static_cast<std::size_t>(most))))
        draft.add(token, {});
}

void Coordinator::take_given(Sequence& own, const Draft& draft, const TargetRows& rows) {
    const std::size_t n_drafted = draft.tokens.size();
    const std::span<const TokenId> taken = own.given_left().first(n_drafted + 1);
    own.verification = {static_cast<int>(n_drafted), taken.back()};
    own.last_accepted = static_cast<int>(n_drafted) - 1;
    for (std::size_t row = 0; row < taken.size(); ++row)
        own.logprobs_of_given.push_back(rows.logprobs(row, taken[row], own.request().logprobs.value()));
    own.take_given(taken);
}

// One token is emitted after the drafted ones, so the last token within budget and context is never drafted.
int Coordinator::left_tokens(const Sequence& own) const {
    const int context_left = parts_.target_config->max_positions - static_cast<int>(own.tokens().size());
    return std::min(own.remaining_tokens(), context_left) - 1;
}

// A pass writes the next token and all drafted ones to the cache; each node of a tree takes a position.
int Coordinator::cache_left(const Sequence& own) const {
    return parts_.target_config->max_positions + parts_.tree_room - static_cast<int>(own.tokens().size());
}

void Coordinator::prefill(int slot, std::span<const TokenId> prompt, std::span<const model::Row> rows,
                          const model::PassResult& scores) {
    if (!draft_reads_prompt(slot)) return;
    std::vector<int> all(rows.size());
    std::iota(all.begin(), all.end(), 0);
    tell_drafter(slot, {.first_position = rows.front().position}, all, scores);
    parts_.drafter->prefill(slot, prompt);
}

void Coordinator::prefill(int slot) {
    if (draft_reads_prompt(slot)) parts_.drafter->prefill(slot, sequence(slot)->request().prompt);
}

// With a rule that measures costs, the first round decides whether reading the prompt pays for the draft. On a rank of
// its own the draft reads for free, as the target reads at the same time.
bool Coordinator::draft_reads_prompt(int slot) const {
    if (!parts_.drafter || sequence(slot)->request().plain) return false;
    const bool measures = sequence(slot)->rule.options().type().weighs_costs && !options_.costs;
    return !parts_.drafter->facts().reads_late || !measures ||
           parts_.layout->placement == dist::DraftPlacement::dedicated;
}

void Coordinator::draft_ahead(const std::function<bool()>& enough) {
    if (tasks_.size() == 1) parts_.drafter->draft_ahead(enough);
}

// ---- verification ----

void Coordinator::verify(const DraftsBySlot& drafts, const TargetBatch& batch, const model::PassResult& scores,
                         std::span<const TargetRows> rows, double target_seconds) {
    for (std::size_t i = 0; i < batch.sequences.size(); ++i) {
        const ScoredSequence& scored = batch.sequences[i];
        const Draft& draft = drafts[scored.slot];
        const auto position = static_cast<int>(sequence(scored.slot)->tokens().size()) - 1; // of the next token's row
        const BatchLoad load = {static_cast<int>(batch.rows.size() - scored.n_rows()),
                                static_cast<int>(batch.sequences.size())};
        const bool is_given = !sequence(scored.slot)->given_left().empty();
        if (sequence(scored.slot)->beams)
            verify_beams(*sequence(scored.slot), draft, rows[i], target_seconds, load);
        else if (is_given)
            take_given(*sequence(scored.slot), draft, rows[i]);
        else
            verify(*sequence(scored.slot), draft, rows[i], target_seconds, load);
        std::vector<int> rows_kept = {static_cast<int>(scored.first_row)};
        for (const int node : path_to(draft.parents, sequence(scored.slot)->last_accepted))
            rows_kept.push_back(static_cast<int>(scored.first_row) + 1 + node);
        TargetOutcome outcome{.first_position = position, .accepted = static_cast<int>(rows_kept.size()) - 1};
        if (!is_given)
            outcome.token_after = [&](int node) { return rows[i].own_token(static_cast<std::size_t>(node + 1)); };
        tell_drafter(scored.slot, outcome, rows_kept, scores);
    }
}

void Coordinator::verify(Sequence& own, const Draft& draft, const TargetRows& rows, double target_seconds,
                         const BatchLoad& load) {
    VerifiedRound verified;
    try {
        verified = verifier_->verify(rows, draft, own.request(), own.tokens().size());
    } catch (const NothingToSay&) { // only this text fails; the others go on
        own.verification = {};
        own.last_accepted = -1;
        return own.fail(why_nothing(own.request().processing));
    }
    const int accepted = verified.verification.accepted;
    own.verification = verified.verification;
    own.last_accepted = verified.last_accepted;
    const std::vector<int> path = path_to(draft.parents, verified.last_accepted);
    own.logit_margins.insert(own.logit_margins.end(), verified.margins.begin(), verified.margins.end());
    own.stats.count_tree(draft.parents, verified.last_accepted, draft.passes, draft.further_rows);
    if (own.rule.options().looks_at_distribution()) own.stats.count_entropies(draft.entropies_on(path), accepted);
    own.stats.ahead += draft.ahead;
    own.stats.overlap += verified.overlap;
    own.stats.overlaps += verified.overlaps;
    add_levels(own.stats.levels, draft.levels);
    if (!own.request().plain) { // plain replays teach nothing about drafting; rules have seen a tree's best path
        RoundFeedback result = feedback_of(draft, path);
        result.draft_seconds = draft.seconds + draft.entropy_seconds;
        result.target_seconds = target_seconds;
        result.batch_load = load;
        own.rule.end_round(result);
    }
    const bool is_first = own.stats.new_tokens == 0;
    std::vector<TokenId> emitted;
    for (const int node : path)
        emitted.push_back(draft.tokens[node]);
    emitted.push_back(verified.verification.next_token);
    note_logprobs(own, rows, path, emitted);
    own.emit(emitted, parts_.target_config->eos_token_ids, parts_.target_config->max_positions);
    if (is_first) own.stats.seconds.first_token = parts_.clock->now_seconds() - own.admitted_at;
}

// The row of an emitted token is the one after the token before it.
void Coordinator::note_logprobs(Sequence& own, const TargetRows& rows, std::span<const int> path,
                                std::span<const TokenId> emitted) {
    if (!own.request().logprobs) return;
    for (std::size_t i = 0; i < emitted.size(); ++i)
        own.logprobs.push_back(
            rows.logprobs(i == 0 ? 0 : static_cast<std::size_t>(path[i - 1]) + 1, emitted[i], *own.request().logprobs));
}

void Coordinator::verify_beams(Sequence& own, const Draft& draft, const TargetRows& rows, double target_seconds,
                               const BatchLoad& load) {
    BeamSearch& search = *own.beams;
    const std::size_t n_ends = own.beam_ends.tokens.size();
    const int length = search.length(), n_drafted = static_cast<int>(draft.tokens.size());
    const auto candidates = [&](std::size_t row) { return rows.candidates(row); };
    BeamOutcome outcome = advance(search, n_ends, draft.tokens, draft.parents, candidates);
    own.beam_ends = std::move(outcome.ends);
    own.verification = {outcome.accepted, search.running().empty() ? -1 : search.running()[0].tokens.back()};
    const int n_rows = static_cast<int>(n_ends) + n_drafted;
    own.stats.count_beams(
        {n_rows, levels_of(n_ends, draft.parents), outcome.accepted, draft.passes, draft.further_rows});
    if (!own.request().plain)
        gain_.learn({{.accepted = outcome.accepted,
                      .draft_seconds = draft.seconds + draft.entropy_seconds,
                      .target_seconds = target_seconds,
                      .batch_load = load,
                      .rows = n_rows,
                      .emitted = search.length() - length},
                     {},
                     0,
                     static_cast<double>(draft.passes),
                     static_cast<double>(draft.further_rows)});
    if (length == 0) own.stats.seconds.first_token = parts_.clock->now_seconds() - own.admitted_at;
    if (search.ended()) own.end_beams();
}

// Tells the drafter of the outcome, with the target's hidden states of these rows if it wants them.
void Coordinator::tell_drafter(int slot, TargetOutcome outcome, std::span<const int> rows,
                               const model::PassResult& scores) {
    if (!parts_.drafter || sequence(slot)->request().plain) return;
    const std::vector<float> states = hidden_of_rows(scores, rows, hidden_layers_.size(), *parts_.target_config);
    outcome.states = states;
    parts_.drafter->observe(slot, outcome);
}

// ---- after a step ----

void Coordinator::finish(const Plan& plan, const DraftsBySlot& drafts, const ReplicaState& state, std::uint64_t round,
                         const StepSeconds& seconds, const EngineCallbacks& callbacks) {
    prefilled_ = plan.command == Command::prefill;
    if (plan.command == Command::admit || plan.command == Command::prefill || plan.command == Command::share ||
        plan.command == Command::retire)
        sequence(plan.slot)->stats.seconds += seconds;
    if (plan.command == Command::admit && parts_.drafter)
        parts_.drafter->begin_sequence(plan.slot, sequence(plan.slot)->request());
    if (plan.command == Command::retire) hand_out(plan.slot, callbacks);
    if (plan.command != Command::round) return;

    std::vector<int> decoded; // slots
    for (int slot = 0; slot < n_slots(); ++slot)
        if (sequence(slot) && state.is_read(slot)) decoded.push_back(slot);
    const StepSeconds each = seconds / static_cast<double>(decoded.size());
    for (const int slot : decoded) {
        const Draft& draft = drafts[slot];
        StepSeconds own = each;
        own.draft -= draft.entropy_seconds;
        own.entropy += draft.entropy_seconds;
        sequence(slot)->stats.count_seconds(own, static_cast<int>(draft.tokens.size()) + 1);
    }
    const double target_seconds = seconds.broadcast + seconds.score + seconds.gather + seconds.verify;
    for (const int slot : decoded) {
        if (callbacks.on_round)
            callbacks.on_round(sequence(slot)->request(),
                               {round, first_position(slot, state), &drafts[slot], sequence(slot)->verification,
                                seconds.draft, target_seconds});
        if (callbacks.ends_text && !sequence(slot)->ended() && callbacks.ends_text(sequence(slot)->request()))
            sequence(slot)->cut();
    }
}

// The position of the round's first drafted token.
int Coordinator::first_position(int slot, const ReplicaState& state) const {
    const auto n_tokens = static_cast<int>(state.tokens(slot).size());
    if (!sequence(slot)->beams) return n_tokens;
    return n_tokens + sequence(slot)->beams->length() - sequence(slot)->verification.accepted - 1;
}

void Coordinator::hand_out(int slot, const EngineCallbacks& callbacks) {
    sequence(slot)->stats.seconds.total = parts_.clock->now_seconds() - sequence(slot)->admitted_at;
    const Request request = sequence(slot)->request();
    if (!request.plain)
        gain_.policy.learn_length(static_cast<int>(sequence(slot)->stats.new_tokens), request.max_new_tokens);
    Completion completion = sequence(slot)->finish();
    sequence(slot).reset();
    callbacks.on_complete(request, std::move(completion));
}

} // namespace entrodraft::spec
