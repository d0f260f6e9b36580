// An engine over a pair of models, with a drafter of its own. Several such engines may share one pair. generate, bench
// compare, record and tune decode with them.
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

// An engine over a pair of models, with its own drafter.
class PairEngine {
  public:
    struct Setting {
        DrafterChoice drafter;                         // without a kind: plain decoding
        std::vector<spec::StopRuleOptions> rules;      // one for each level of a cascade
        std::vector<std::optional<spec::Costs>> costs; // likewise, for expected-gain; none: measured during the run
        spec::AcceptanceOptions acceptance;
        std::optional<double> synthetic_acceptance = std::nullopt;
        dist::StepWatch* watch = nullptr; // in place of the session's
    };
    using OnRound = std::function<void(const spec::Request&, const spec::RoundTrace&)>;
    using EndsText = std::function<bool(const spec::Request&)>; // asked after each round

    // `models` and `drafters` outlive this object.
    PairEngine(dist::Session& session, ModelPair& models, const Drafters& drafters, const Setting& setting);

    spec::Engine& engine() { return *engine_; }

    // Decodes one request, which counts on the coordinator alone; null elsewhere. Collective over the replica.
    DecodedText decode(const spec::Request* request, const volatile int& stop_signal = kNoSignal,
                       const OnRound& on_round = {}, const EndsText& ends_text = {});

  private:
    std::unique_ptr<spec::Drafter> drafter_; // on the coordinator
    std::unique_ptr<spec::Engine> engine_;
};

// Runs the rounds that texts like `like` make most often: 1, 2, 4, ... rows, and as many rows as the cap allows. GPUs
// then have a graph of each such pass before the first text: the first run of a pass sets it up, the second captures
// it. The text is made up; its engine and drafter are dropped afterwards. Nothing is done on CPUs and for beam search.
// `like` counts on the coordinator. Collective over the replica.
void capture_common_rounds(dist::Session& session, ModelPair& models, const Drafters& drafters,
                           PairEngine::Setting setting, const spec::Request& like, const volatile int& stop_signal);

} // namespace entrodraft::launch
