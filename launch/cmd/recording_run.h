// Decoding texts in order to record them: the text, what the target would have emitted behind a stop string, and the
// record of both.
//
// Called by the commands record and tune, on all ranks.
#pragma once

#include "launch/load/pair_engine.h"
#include "spec/replay/recorder.h"

#include <optional>
#include <string>
#include <vector>

namespace entrodraft::launch {

struct RecordingPlan {
    int max_draft_tokens = spec::StopRuleOptions::kDefaultMaxTokens;
    std::vector<spec::TreeOptions> trees = {};
    std::optional<spec::Costs> costs = {}; // of the first draft, with which the texts are decoded; on the coordinator
};

class RecordingRun {
  public:
    // Chains behind rejected tokens that are followed in the same passes.
    static constexpr int kChains = 16;

    RecordingRun(dist::Session& session, ModelPair& models, const Drafters& drafters, const RecordingPlan& plan);

    // The line of a request, which counts on the coordinator; null elsewhere. Nothing where a signal ended it. Throws
    // what decoding and recording throw. Collective over the world.
    std::optional<spec::RecordedLine> record(const spec::Request* request, const volatile int& stop_signal);

  private:
    std::vector<std::string> pieces_of(const std::vector<spec::TokenId>& tokens) const;
    void add_token_texts(spec::TextRecord& record) const;

    dist::Session& session_;
    ModelPair& models_;
    RecordingPlan plan_;
    PairEngine engine_;
    std::optional<spec::Recorder> recorder_;
};

// What all texts of a recording have in common, but for what is measured. Local, on the coordinator.
spec::RecordingHead recording_head(const ModelPair& models, const ModelOptions& options, const std::string& input,
                                   const RequestDefaults& requests, int max_draft_tokens);

} // namespace entrodraft::launch
