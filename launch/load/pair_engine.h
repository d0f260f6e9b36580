// Engines over a pair of models, with drafters of their own: what generate, bench compare, record and tune decode with.
#pragma once

#include "launch/load/drafters.h"
#include "launch/load/model_pair.h"
#include "spec/round/engine.h"

#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace entrodraft::launch {

inline constexpr volatile int kNoSignal = 0; // for runs that no signal ends early

struct DecodedText {
    spec::Completion completion; // on the coordinator
    spec::RunEnd end = spec::RunEnd::finished;
};

// An engine over a pair of models, with a drafter of its own.
class PairEngine {
  public:
    struct Setting {
        DrafterChoice drafter;                         // of no kind: plain decoding
        std::vector<spec::StopRuleOptions> rules;      // of each level of a cascade
        std::vector<std::optional<spec::Costs>> costs; // likewise, for expected-gain; none: measured as it goes
        spec::AcceptanceOptions acceptance;
        std::optional<double> synthetic_acceptance = std::nullopt;
        dist::StepWatch* watch = nullptr; // in place of the session's
    };
    using OnRound = std::function<void(const spec::Request&, const spec::RoundTrace&)>;
    using EndsText = std::function<bool(const spec::Request&)>; // asked after each round

    // `models` and `drafters` outlive it.
    PairEngine(dist::Session& session, ModelPair& models, const Drafters& drafters, const Setting& setting);

    spec::Engine& engine() { return *engine_; }

    // One request, which counts on the coordinator alone; null elsewhere. Collective over the replica.
    DecodedText decode(const spec::Request* request, const volatile int& stop_signal = kNoSignal,
                       const OnRound& on_round = {}, const EndsText& ends_text = {});

  private:
    std::unique_ptr<spec::Drafter> drafter_; // on the coordinator
    std::unique_ptr<spec::Engine> engine_;
};

// Runs the rounds that texts like `like` make most often, of 1, 2, 4, ... rows and of as many as the cap allows, so
// that GPUs have a graph of each before the first text: the first time a pass is set up, the second it is captured. The
// text is made up, and its engine and drafter are gone afterwards. On CPUs, and of beam searches, nothing is done.
// `like` counts on the coordinator. Collective over the replica.
void capture_common_rounds(dist::Session& session, ModelPair& models, const Drafters& drafters,
                           PairEngine::Setting setting, const spec::Request& like, const volatile int& stop_signal);

} // namespace entrodraft::launch
