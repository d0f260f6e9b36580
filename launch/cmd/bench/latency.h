// Measures the times of passes of a pair's decoders and of collectives of its ranks on this machine, one by one, and
// the limits of its cores. Called by the commands bench latency, bench compare, record, tune and doctor.
#pragma once

#include "dist/rank/clock.h"
#include "dist/session/session.h"
#include "launch/cmd/bench/measuring_time.h"
#include "launch/load/model_pair.h"
#include "launch/start/statistics.h"
#include "model/pass/decoder.h"
#include "spec/gpu/device_round.h"
#include "spec/protocol/stats.h"

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace entrodraft::launch {

// Times the drafting of one token after another.
class DraftTimer {
  public:
    virtual ~DraftTimer() = default;
    // Returns the seconds of a token right after a target pass, which has evicted the draft's weights from caches.
    virtual double first() = 0;
    // Returns the seconds of one more token after it.
    virtual double further() = 0;
    // Returns the seconds of a tree's level of `rows` rows after first().
    virtual double level(int rows) = 0;
};

// Times passes after a fixed context.
class PassTimer final : public DraftTimer {
  public:
    static constexpr int kLoopSteps = 8;

    // Fills the slot with `context` tokens; the destructor empties it. `loop`: for a draft whose GPU drafts in a loop
    // by itself. All arguments outlive this object. Collective over the decoder's group.
    PassTimer(model::Decoder& decoder, const dist::Clock& clock, int context, spec::DeviceRound* loop = nullptr);
    ~PassTimer() override { decoder_.cache().truncate(kSlot, 0); }
    PassTimer(const PassTimer&) = delete;
    PassTimer& operator=(const PassTimer&) = delete;

    // Returns the seconds of a pass of `rows` rows and of truncating the cache. As in a greedy round, the pass computes
    // the largest logit of each row. Collective over the decoder's group.
    double time(int rows);
    // Like time(), for a tree: the next token and those that follow it. Collective over the decoder's group.
    double time_tree(spec::Parents parents);

    double first() override { return loop_ ? time_loop(1) : time(1); }
    // If the device drafts in a loop, as in generate, further() is the time of a step of that loop.
    double level(int rows) override;
    double further() override { return loop_ ? (time_loop(1 + kLoopSteps) - time_loop(1)) / kLoopSteps : time(1); }

  private:
    static constexpr int kSlot = 0;

    void make_rows(int first_position, int rows);
    void add_row(int position, int parent);
    // Returns the seconds of a draft of that many tokens, each with its entropy, and of truncating the cache.
    double time_loop(int tokens);
    double time(const model::LogitNeeds& needs, std::size_t summaries, model::Mask mask = model::Mask::causal);

    model::Decoder& decoder_;
    const dist::Clock& clock_;
    int context_;
    spec::DeviceRound* loop_;
    std::vector<model::Row> rows_;
    std::vector<int> logit_rows_;
};

// Times of passes after a context of `context` tokens.
struct PassTimes {
    int context = 0;
    std::vector<Quantiles> target; // [r - 1]: a pass of r rows and the truncation after it; zeros: not timed
    std::vector<Quantiles> tree;   // [r - 1]: the same of a tree of r rows
    Quantiles first_draft;         // time of one token right after a target pass; zeros without a draft
    Quantiles draft;               // time of one row after another draft pass, or of a step of the device's loop
    double draft_row = 0;          // seconds of a further row of a tree's level; 0: not timed
    std::vector<PassTimes> native; // one entry: the same on our kernels, timed in turns with these; or none

    spec::Costs costs() const;
};

// Either member may be missing.
struct TimedPair {
    PassTimer* target = nullptr;
    DraftTimer* draft = nullptr;
};

// Times the target of each pair at the plan's numbers of rows, up and down in turns. Each pass is followed by a run of
// draft passes, as in a round, and warm-up passes come first. The context is that of the timers. Several pairs take
// turns, a repetition each. `has_time` is asked before each target pass; ranks meet there. If time is short, the first
// repetition goes from coarse to fine, and times the fewest and the most rows in any case. Collective over their
// groups.
std::vector<PassTimes> time_in_turns(std::span<const TimedPair> pairs, const LatencyPlan& plan,
                                     const HasTime& has_time);

struct NamedCollective {
    std::string name;
    std::function<void()> run; // collective over its group; does nothing on ranks outside it
    std::size_t bytes = 0;     // bytes that a rank sends or, in a broadcast, receives
};

struct CollectiveTime {
    std::string name;
    Quantiles seconds;
    std::size_t bytes = 0;
};

// Times each collective `repetitions` times, one after another, on its slowest rank. If all of them would take more
// than `max_seconds`, times them less often; 0: no limit. The result counts on the writer. Collective over the world.
std::vector<CollectiveTime> time_collectives(dist::Session& session, std::span<const NamedCollective> collectives,
                                             int repetitions, double max_seconds = 0);

// Returns "all-reduce, 1 row of 320: 118.00 us over shared memory, 0.80 us over MPI: ..." for the sum that shared
// memory slows down most; empty if it slows down none. Both lists time the same collectives.
std::string slower_sum(std::span<const CollectiveTime> over_shared_memory, std::span<const CollectiveTime> over_mpi);

// Times of the slowest rank. On the writer; elsewhere they mean nothing.
struct Latency {
    std::vector<PassTimes> passes; // for each context
    std::vector<double> limit;     // [r - 1]: max(bytes / read rate, operations / peak)
    double weight_bytes = 0;       // bytes of a rank
    double read_rate = 0;          // bytes a second on the slowest rank, while all ranks read; infinity: not known
    double peak = 0;               // operations a second
    std::vector<CollectiveTime> collectives;

    const PassTimes& first() const { return passes.front(); } // its costs are those of the run
};

// Returns the costs of each level of drafting: the first draft for the target (`first`), the second draft for the
// first, and so on, all at the same context. On the coordinator; empty elsewhere.
std::vector<spec::Costs> level_costs(const PassTimes& first, ModelPair& models, const LatencyPlan& plan);

// Times passes of the plan's rows, interleaved, after each of its contexts, or after default_context() if it has none.
// `native`: the same models on our kernels, for PassTimes::native. Unless `quiet`, shows the limit and the remaining
// time. Throws OrderlyFailure if the models have too few positions. Collective over the world.
std::vector<PassTimes> measure_passes(dist::Session& session, ModelPair& models, const LatencyPlan& plan, bool quiet,
                                      ModelPair* native = nullptr);
// Also measures the collectives of rounds and the limits of the machine. Collective over the world.
Latency measure_latency(dist::Session& session, ModelPair& models, const LatencyPlan& plan, bool quiet,
                        ModelPair* native = nullptr);
// Times the collectives of rounds of up to plan.max_rows() rows, within `max_seconds`; 0: no limit. Collective over the
// world.
std::vector<CollectiveTime> measure_collectives(dist::Session& session, ModelPair& models, const LatencyPlan& plan,
                                                double max_seconds);
// Returns p90 over median of the target's one-row passes in `max_seconds`, on the writer; 0 if there were too few
// passes to tell. Collective over the world.
double measure_spread(dist::Session& session, ModelPair& models, double max_seconds);

// Reads the costs of files, by level. The writer warns of files that were measured on a disturbed machine. Throws
// OrderlyFailure. Collective over the world.
std::vector<spec::Costs> read_costs(dist::Session& session, const std::vector<std::string>& files);

// Returns the default context for timing passes of up to `rows` rows: 64 tokens on CPUs, and 1,000 on other devices,
// where attention takes little of a pass. It is less if the models leave fewer positions. The same on all ranks.
// Collective over the world.
int default_context(dist::Session& session, const ModelPair& models, int rows);

} // namespace entrodraft::launch
