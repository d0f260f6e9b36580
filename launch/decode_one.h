// One request through an engine: what the benches and record do, text by text.
#pragma once

#include "spec/engine.h"

#include <functional>
#include <optional>
#include <utility>

namespace entrodraft::launch {

using OnRound = std::function<void(const spec::Request&, const spec::RoundTrace&)>;

struct DecodedText {
    spec::Completion completion; // on the coordinator
    spec::RunEnd end = spec::RunEnd::finished;
};

inline constexpr volatile int kNoSignal = 0; // for runs that no signal ends early

// `request` counts on the coordinator alone; null elsewhere. Collective over the engine's replica.
inline DecodedText decode_one(spec::Engine& engine, const spec::Request* request, const volatile int& stop_signal,
                              const OnRound& on_round = {}) {
    DecodedText text;
    spec::EngineCallbacks callbacks;
    if (request) {
        callbacks.next_request = [&]() -> std::optional<spec::Request> {
            const spec::Request* next = std::exchange(request, nullptr);
            return next ? std::optional(*next) : std::nullopt;
        };
        callbacks.on_round = on_round;
        callbacks.on_complete = [&](const spec::Request&, spec::Completion completion) {
            text.completion = std::move(completion);
        };
    }
    text.end = engine.run(callbacks, stop_signal);
    return text;
}

} // namespace entrodraft::launch
