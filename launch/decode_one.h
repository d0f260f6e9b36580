// One request through an engine: what the benches and record do, text by text.
#pragma once

#include "spec/generate.h"

#include <functional>

namespace entrodraft::launch {

using OnRound = std::function<void(const spec::Request&, const spec::RoundTrace&)>;

struct DecodedText {
    spec::Completion completion; // on the coordinator
    spec::RunEnd end = spec::RunEnd::finished;
};

inline constexpr volatile int kNoSignal = 0; // for runs that no signal ends early

// `request` counts on the coordinator alone; null elsewhere. Collective over the engine's replica.
DecodedText decode_one(spec::Engine& engine, const spec::Request* request, const volatile int& stop_signal,
                       const OnRound& on_round = {});

} // namespace entrodraft::launch
