// See pair_engine.h.
#include "launch/pair_engine.h"

#include <utility>

namespace entrodraft::launch {

PairEngine::PairEngine(dist::Session& session, ModelPair& models, const Drafters& drafters, const Setting& setting)
    : drafter_(drafters.make(setting.drafter, setting.rules, setting.costs)) {
    spec::EngineOptions engine;
    engine.acceptance = setting.acceptance;
    engine.stop_rule = setting.rules.front();
    engine.costs = setting.costs.front();
    engine.n_slots = models.batch_size;
    engine.num_beams = models.num_beams;
    engine.vocab_size = models.vocab_size;
    engine.timeout_seconds = session.timeout_seconds();
    engine.synthetic_acceptance = setting.synthetic_acceptance;
    spec::EngineParts parts = models.engine_parts(drafter_.get());
    if (setting.drafter.kinds.empty()) parts.sharded_draft = nullptr; // nobody has to wait for drafts
    if (setting.watch) parts.watch = setting.watch;
    engine_ = std::make_unique<spec::Engine>(engine, parts);
}

DecodedText PairEngine::decode(const spec::Request* request, const volatile int& stop_signal, const OnRound& on_round,
                               const EndsText& ends_text) {
    DecodedText text;
    spec::EngineCallbacks callbacks;
    if (request) {
        callbacks.next_request = [&]() -> std::optional<spec::Request> {
            const spec::Request* next = std::exchange(request, nullptr);
            return next ? std::optional(*next) : std::nullopt;
        };
        callbacks.on_round = on_round;
        callbacks.ends_text = ends_text;
        callbacks.on_complete = [&](const spec::Request&, spec::Completion completion) {
            text.completion = std::move(completion);
        };
    }
    text.end = engine_->run(callbacks, stop_signal);
    return text;
}

} // namespace entrodraft::launch
