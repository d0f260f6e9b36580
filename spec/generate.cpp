// The loop around the round: the coordinator's plan of what comes next, and every rank's walk through it.
#include "spec/generate.h"

#include "spec/round.h"

#include <algorithm>

namespace entrodraft::spec {

struct Engine::Impl {
    EngineOptions options;
    EngineParts parts;
    Round round;
    std::vector<std::optional<Sequence>> sequences; // [slot]: those being decoded; coordinator only
    std::vector<Sequence*> present;                 // [slot]: the same, null where there is none
    bool prefilled = false;                         // whether the last step read a part of a prompt
    GainModel gain;                                 // what is learnt from one sequence to the next; coordinator only

    Impl(const EngineOptions& engine_options, const EngineParts& engine_parts)
        : options(engine_options), parts(engine_parts), round(engine_options, engine_parts),
          sequences(static_cast<std::size_t>(options.n_slots)), present(sequences.size()),
          gain({max_rows(options), first_cost(engine_parts), options.costs}) {}

    static int max_rows(const EngineOptions& options) {
        return std::min(options.n_slots * (options.stop_rule.max_tokens + 1), model::Decoder::kMaxRows);
    }
    // A draft pass in target passes, before either is timed: their weights' bytes. The other ranks do not ask.
    static double first_cost(const EngineParts& parts) {
        const double draft = parts.drafter ? static_cast<double>(parts.drafter->weight_bytes()) : 0;
        return parts.target_pass_bytes > 0 ? draft / parts.target_pass_bytes : 0;
    }

    Plan plan(Command command, int slot = 0) const { return {command, slot, present}; }
    Plan next_plan(const EngineCallbacks& callbacks);
    bool admits_another(const EngineCallbacks& callbacks, int slot);
    void follow_up(const Plan& plan, Command done, const EngineCallbacks& callbacks);
    void hand_out(int slot, const EngineCallbacks& callbacks);
};

// Texts that ended leave first, so that a signal does not lose them; then free slots are filled; then prompts are read
// and texts decoded, in turn where there is both to do. Coordinator only.
Plan Engine::Impl::next_plan(const EngineCallbacks& callbacks) {
    const bool goes_on = !callbacks.on_step || callbacks.on_step();
    int empty = -1, unread = -1, read = -1; // a slot of each kind
    for (int slot = static_cast<int>(present.size()) - 1; slot >= 0; --slot) {
        const Sequence* sequence = present[static_cast<std::size_t>(slot)];
        if (sequence && sequence->ended()) return plan(Command::retire, slot);
        (!sequence ? empty : round.prefill_left(slot) > 0 ? unread : read) = slot;
    }
    if (round.signal_seen() || !goes_on) return plan(Command::interrupt);
    if (empty >= 0 && admits_another(callbacks, empty)) return plan(Command::admit, empty);
    if (unread >= 0 && (read < 0 || !prefilled)) return plan(Command::prefill, unread);
    if (read >= 0) return plan(Command::round);
    return plan(callbacks.waiting && callbacks.waiting() ? Command::idle : Command::stop);
}

bool Engine::Impl::admits_another(const EngineCallbacks& callbacks, int slot) {
    std::optional<Request> request = callbacks.next_request();
    if (!request) return false;
    std::optional<Sequence>& sequence = sequences[static_cast<std::size_t>(slot)];
    sequence.emplace(std::move(*request), options.stop_rule, &gain, parts.tokenizer, callbacks.on_text);
    sequence->admitted_at = parts.clock->now_seconds();
    present[static_cast<std::size_t>(slot)] = &*sequence;
    return true;
}

void Engine::Impl::follow_up(const Plan& plan, Command done, const EngineCallbacks& callbacks) {
    prefilled = done == Command::prefill;
    if (done == Command::admit && parts.drafter)
        parts.drafter->begin_sequence(plan.slot, present[static_cast<std::size_t>(plan.slot)]->request());
    if (done == Command::round && callbacks.on_round)
        for (int slot = 0; slot < static_cast<int>(present.size()); ++slot)
            if (const Sequence* sequence = present[static_cast<std::size_t>(slot)])
                if (round.prefill_left(slot) == 0)
                    callbacks.on_round(sequence->request(), round.trace(slot, *sequence));
    if (done == Command::retire) hand_out(plan.slot, callbacks);
}

void Engine::Impl::hand_out(int slot, const EngineCallbacks& callbacks) {
    Sequence& sequence = *present[static_cast<std::size_t>(slot)];
    sequence.stats.seconds.total = parts.clock->now_seconds() - sequence.admitted_at;
    if (parts.drafter) parts.drafter->end_sequence(slot);
    const Request request = sequence.request();
    Completion completion = sequence.finish();
    present[static_cast<std::size_t>(slot)] = nullptr;
    sequences[static_cast<std::size_t>(slot)].reset();
    callbacks.on_complete(request, std::move(completion));
}

Engine::Engine(const EngineOptions& options, const EngineParts& parts)
    : impl_(std::make_unique<Impl>(options, parts)) {}
Engine::~Engine() = default;

RunEnd Engine::run(const EngineCallbacks& callbacks, const volatile int& stop_signal) {
    const bool coordinates = impl_->parts.layout->is_coordinator();
    for (;;) {
        const Plan plan = coordinates ? impl_->next_plan(callbacks) : Plan{};
        const Command done = impl_->round.step(plan, stop_signal);
        if (done == Command::stop) return RunEnd::finished;
        if (done == Command::interrupt) return RunEnd::interrupted;
        if (!coordinates) continue;
        impl_->round.enter(dist::kOutputStep);
        impl_->follow_up(plan, done, callbacks);
    }
}

} // namespace entrodraft::spec
