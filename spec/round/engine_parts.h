// Options, parts and callbacks of an engine: see engine.h. Its coordinator and its rounds read them.
#pragma once

#include "dist/comm/communicator.h"
#include "dist/layout/layout.h"
#include "dist/rank/clock.h"
#include "dist/rank/step_watch.h"
#include "model/pass/decoder.h"
#include "model/text/tokenizer/tokenizer.h"
#include "spec/draft/drafter.h"
#include "spec/protocol/request.h"
#include "spec/stop/stop_rule.h"
#include "spec/verify/verify.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

namespace entrodraft::spec {

struct EngineOptions {
    AcceptanceOptions acceptance;
    StopRuleOptions stop_rule;
    std::optional<Costs> costs; // of passes, for expected-gain; none: measured during the run
    int n_slots = 1;            // sequences decoded together, 1 to kMaxSlots
    int num_beams = 0;          // most beams of a sequence; all sequences are beam searches; 0: none is one
    int vocab_size = 0;         // tokens that both models and the tokenizer know
    double timeout_seconds = dist::kDefaultTimeoutSeconds; // of every collective
    // For benches with random models: each drafted token is accepted with this probability, whatever it is. The text
    // then has no meaning, but the rest of a round costs as usual.
    std::optional<double> synthetic_acceptance;
};

class DeviceRound;
class ShardedDraftModel;

// Most sequences that an engine decodes together: each has at least one row of a pass.
constexpr int kMaxSlots = model::Decoder::kMaxRows;

// The parts that an engine uses. All outlive it. target is null on a rank that holds no shard. drafter and tokenizer
// are null on ranks that do not coordinate. On the coordinator, a null drafter means plain decoding, and a null
// tokenizer results without text. With a null watch, steps are not reported.
struct EngineParts {
    const dist::RankLayout* layout = nullptr;
    dist::Communicator* replica = nullptr; // all ranks of the replica
    model::Decoder* target = nullptr;
    Drafter* drafter = nullptr;
    const model::Tokenizer* tokenizer = nullptr;
    const dist::Clock* clock = nullptr;
    const model::ModelConfig* target_config = nullptr;
    double target_pass_bytes = 0; // of weights that a pass reads on each rank with a shard
    dist::StepWatch* watch = nullptr;
    ShardedDraftModel* sharded_draft = nullptr; // on all ranks of the replica, or on none
    DeviceRound* device_round = nullptr;        // of this rank's GPU; null: models are on the CPU
    // Most tokens of a prompt that a pass reads: Decoder::max_prompt_rows() of the ranks with a shard.
    int max_prompt_rows = model::Decoder::kMaxRows;
    std::vector<int> hidden_layers = {}; // the drafter's, on all ranks, so that all run the same passes of the target
    // Positions of the target's cache beyond its context, the same on all ranks. At the end of a text a tree can have
    // more nodes than the text has positions left.
    int tree_room = 0;
};

// A round's course, for callbacks.
struct RoundTrace {
    std::uint64_t number = 0;     // of its packet
    int position = 0;             // in the sequence, of the first drafted token
    const Draft* draft = nullptr; // valid until the next round
    Verification verification;
    double draft_seconds = 0;
    double target_seconds = 0; // of everything after drafting
};

// Callbacks through which the coordinator gets requests and hands out results. Unused on the other ranks.
struct EngineCallbacks {
    // Called while a slot is empty, even if others decode. Returns nothing if there is no request, or none yet. It may
    // wait, much less than the timeout, but only while none of its requests is under way.
    std::function<std::optional<Request>()> next_request;
    // Returns the rule of a request that names one. Unset if none does.
    std::function<StopRuleOptions(const Request&)> rule_of;
    std::function<bool()> waiting; // true if more requests may come, so that next_request is called again; may be unset
    std::function<void(const Request&, const TextPiece&)> on_text;   // a piece of text; may be unset
    std::function<void(const Request&, const RoundTrace&)> on_round; // after each round; may be unset
    std::function<bool(const Request&)> ends_text; // after each round: true ends the text there; may be unset
    std::function<void(const Request&, Completion)> on_complete; // when a text ends, in any order
    // Before each step of the protocol; returns at once. False ends the run as a signal does. May be unset.
    std::function<bool()> on_step;
};

} // namespace entrodraft::spec
