#include "launch/decode_one.h"

#include <optional>
#include <utility>

namespace entrodraft::launch {

DecodedText decode_one(spec::Engine& engine, const spec::Request* request, const volatile int& stop_signal,
                       const OnRound& on_round) {
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
