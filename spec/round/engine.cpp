// The loop of rounds: the coordinator plans the next command, and every rank carries it out.
#include "spec/round/engine.h"

#include "spec/round/round.h"

#include <algorithm>

namespace entrodraft::spec {

struct Engine::Impl {
    EngineOptions options;
    EngineParts parts;
    ReplicaState state;
    TargetGather gather;
    std::optional<Coordinator> coordinator; // on the rank that coordinates
    RoundObserver observer;

    Impl(const EngineOptions& engine_options, const EngineParts& engine_parts)
        : options(engine_options), parts(engine_parts),
          state(parts.target, options.n_slots,
                options.num_beams > 0 ? Packet::kMaxDraftTokens : options.stop_rule.max_tokens,
                parts.target_config->max_positions +
                    tree_positions(std::max(options.num_beams, 1), parts.target_config->max_positions)),
          gather(gather_setting(verify_options(options), parts), *parts.replica, options.n_slots),
          observer(*parts.clock, parts.watch) {
        if (parts.layout->is_coordinator()) coordinator.emplace(options, parts);
    }

    RoundResult run_round(const Plan& plan, const volatile int& stop_signal);
};

RoundResult Engine::Impl::run_round(const Plan& plan, const volatile int& stop_signal) {
    const RankContext rank = {*parts.replica, parts.target,        parts.sharded_draft, options.timeout_seconds,
                              observer,       parts.hidden_layers, stop_signal};
    try {
        return spec::run_round(rank, state, gather, coordinator ? &*coordinator : nullptr, plan);
    } catch (const std::exception& error) {
        throw RoundError(error.what(), observer.round(), observer.step());
    }
}

Engine::Engine(const EngineOptions& options, const EngineParts& parts)
    : impl_(std::make_unique<Impl>(options, parts)) {}
Engine::~Engine() = default;

DraftWorth Engine::draft_worth() const {
    return impl_->coordinator.value().draft_worth();
}

RunEnd Engine::run(const EngineCallbacks& callbacks, const volatile int& stop_signal) {
    ReplicaState& state = impl_->state;
    std::optional<Coordinator>& coordinator = impl_->coordinator;
    RoundObserver& observer = impl_->observer;
    for (;;) {
        const Plan plan = coordinator ? coordinator->next_plan(callbacks, state) : Plan{};
        const std::uint64_t number = observer.round();
        const RoundResult result = impl_->run_round(plan, stop_signal);
        const StepSeconds seconds = observer.end_round();
        if (result.command == Command::stop) return RunEnd::finished;
        if (result.command == Command::interrupt) return RunEnd::interrupted;
        if (!coordinator) continue;
        observer.enter(dist::kOutputStep);
        coordinator->finish(plan, result.drafts, state, number, seconds, callbacks);
    }
}

} // namespace entrodraft::spec
