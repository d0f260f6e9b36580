// Bounded steps around an engine: see served_run.h.
#include "launch/cmd/served_run.h"

#include "launch/start/signals.h"

#include <utility>

namespace entrodraft::launch {

void capture_rounds(dist::Session& session, ModelPair& models, const Drafters& drafters, PairEngine::Setting setting,
                    const RequestDefaults& requests) {
    const dist::Session::BoundedSteps bounded(session, session.timeout_seconds());
    spec::Request request;
    request.sampling = requests.sampling;
    request.logprobs = requests.logprobs;
    setting.watch = nullptr;
    capture_common_rounds(session, models, drafters, std::move(setting), request, stop_signal());
}

bool run_engine(dist::Session& session, spec::Engine& engine, RequestTracker* tracker,
                const volatile int& stop_signal) {
    const dist::Session::BoundedSteps bounded(session, session.timeout_seconds());
    const spec::EngineCallbacks callbacks = tracker ? tracker->callbacks() : spec::EngineCallbacks{};
    return engine.run(callbacks, stop_signal) == spec::RunEnd::interrupted;
}

} // namespace entrodraft::launch
