// Decodes texts in order to record them. The result has the text, the tokens that the target would have emitted after a
// stop string, and the record of both. The commands record and tune call this on all ranks.
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
    std::optional<spec::Costs> costs = {}; // the first draft's, for decoding the texts; on the coordinator
};

class RecordingRun {
  public:
    // Number of chains after rejected tokens that are followed in the same passes.
    static constexpr int kChains = 16;

    RecordingRun(dist::Session& session, ModelPair& models, const Drafters& drafters, const RecordingPlan& plan);

    // Returns the line of a request; nothing if a signal ended it. The request counts on the coordinator and is null
    // elsewhere. Throws what decoding and recording throw. Collective over the world.
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

// Returns what all texts of a recording have in common, without the measured fields. Local, on the coordinator.
spec::RecordingHead recording_head(const ModelPair& models, const ModelOptions& options, const std::string& input,
                                   const RequestDefaults& requests, int max_draft_tokens);

} // namespace entrodraft::launch
