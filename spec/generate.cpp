// The loop around the round: the coordinator's plan of what comes next, and every rank's walk through it.
#include "entrodraft/spec/generate.h"

#include "entrodraft/spec/round.h"

namespace entrodraft::spec {

struct Engine::Impl {
    EngineOptions options;
    EngineParts parts;
    Round round;
    std::optional<Sequence> sequence; // the one being decoded; coordinator only
    GainModel gain;                   // what is learnt from one sequence to the next; coordinator only

    Impl(const EngineOptions& engine_options, const EngineParts& engine_parts)
        : options(engine_options), parts(engine_parts), round(engine_options, engine_parts),
          gain({options.stop_rule.max_tokens, first_cost(engine_parts), options.costs}) {}

    // A draft pass in target passes, before either is timed: their weights' bytes. The other ranks do not ask.
    static double first_cost(const EngineParts& parts) {
        const double draft = parts.drafter ? static_cast<double>(parts.drafter->weight_bytes()) : 0;
        return draft / static_cast<double>(parts.target->weight_bytes());
    }

    Plan next_plan(const EngineCallbacks& callbacks);
    void follow_up(Command done, const EngineCallbacks& callbacks);
};

// Admit, prefill, rounds, retire; then the next request, or idling until it comes. Coordinator only.
Plan Engine::Impl::next_plan(const EngineCallbacks& callbacks) {
    if (sequence && sequence->ended()) return {Command::retire, &*sequence}; // a signal does not lose a finished text
    if (round.signal_seen()) return {Command::interrupt, nullptr};
    if (sequence) {
        return {round.prefill_left() > 0 ? Command::prefill : Command::round, &*sequence};
    }
    std::optional<Request> request = callbacks.next_request();
    if (!request) return {callbacks.waiting && callbacks.waiting() ? Command::idle : Command::stop, nullptr};
    sequence.emplace(std::move(*request), options.stop_rule, &gain, *parts.tokenizer, callbacks.on_text);
    sequence->admitted_at = parts.clock->now_seconds();
    return {Command::admit, &*sequence};
}

void Engine::Impl::follow_up(Command done, const EngineCallbacks& callbacks) {
    if (done == Command::admit && parts.drafter) {
        const double began = parts.clock->now_seconds();
        parts.drafter->begin_sequence(sequence->request());
        if (!sequence->request().plain) parts.drafter->prefill(sequence->tokens());
        sequence->stats.seconds.prefill += parts.clock->now_seconds() - began;
    }
    if (done == Command::round && callbacks.on_round) callbacks.on_round(sequence->request(), round.trace(*sequence));
    if (done == Command::retire) {
        sequence->stats.seconds.total = parts.clock->now_seconds() - sequence->admitted_at;
        const Request request = sequence->request();
        Completion completion = sequence->finish();
        sequence.reset();
        callbacks.on_complete(request, std::move(completion));
    }
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
        if (coordinates) impl_->follow_up(done, callbacks);
    }
}

} // namespace entrodraft::spec
