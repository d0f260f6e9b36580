// What passes of a pair's decoders and collectives of its ranks take on this machine, timed one by one, and the limits
// of its cores.
//
// Called by the commands bench latency, bench compare, record, tune and doctor.
#pragma once

#include "dist/rank/clock.h"
#include "dist/session/session.h"
#include "launch/cmd/bench/measuring_time.h"
#include "launch/load/model_pair.h"
#include "launch/start/statistics.h"
#include "model/pass/decoder.h"
#include "spec/protocol/stats.h"
#include "spec/verify/device_verifier.h"

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace entrodraft::launch {

// Drafts of one token after another.
class DraftTimer {
  public:
    virtual ~DraftTimer() = default;
    // Seconds of a token right after a target pass, which has driven the draft's weights out of caches.
    virtual double first() = 0;
    // Of one more behind it.
    virtual double further() = 0;
    // Of a tree's level of so many rows behind first().
    virtual double level(int rows) = 0;
};

// Passes after a fixed context.
class PassTimer final : public DraftTimer {
  public:
    static constexpr int kLoopSteps = 8;

    // Fills the slot with `context` tokens, and leaves it empty. `loop`: of a draft whose GPU goes on by itself. All
    // outlive this. Collective over the decoder's group.
    PassTimer(model::Decoder& decoder, const dist::Clock& clock, int context, spec::DeviceVerifier* loop = nullptr);
    ~PassTimer() override { decoder_.cache().truncate(kSlot, 0); }
    PassTimer(const PassTimer&) = delete;
    PassTimer& operator=(const PassTimer&) = delete;

    // Seconds of a pass of `rows` rows with the largest logit of each, as a greedy round has it, and of cutting the
    // cache back. Collective over its group.
    double time(int rows);
    // The same of a tree: the next token and those that follow it. Collective over its group.
    double time_tree(spec::Parents parents);

    double first() override { return loop_ ? time_loop(1) : time(1); }
    // Where the device drafts in a loop, as in generate, a step of it.
    double level(int rows) override;
    double further() override { return loop_ ? (time_loop(1 + kLoopSteps) - time_loop(1)) / kLoopSteps : time(1); }

  private:
    static constexpr int kSlot = 0;

    void make_rows(int first_position, int rows);
    void add_row(int position, int parent);
    // Of a draft of so many tokens, each with its entropy, and of cutting the cache back.
    double time_loop(int tokens);
    double time(const model::LogitNeeds& needs, std::size_t summaries, model::Mask mask = model::Mask::causal);

    model::Decoder& decoder_;
    const dist::Clock& clock_;
    int context_;
    spec::DeviceVerifier* loop_;
    std::vector<model::Row> rows_;
    std::vector<int> logit_rows_;
};

// Behind so many tokens.
struct PassTimes {
    int context = 0;
    std::vector<Quantiles> target; // [r - 1]: a pass of r rows and the truncation after it; zeros: not timed
    std::vector<Quantiles> tree;   // [r - 1]: the same of a tree of r rows
    Quantiles first_draft;         // of one token, right after a target pass; zeros without a draft
    Quantiles draft;               // of one row, after another draft pass; or of a step of the device's loop
    double draft_row = 0;          // seconds of a further row of a tree's level; 0: not timed
    std::vector<PassTimes> native; // one: the same by our kernels, timed in turns with these; none

    spec::Costs costs() const;
};

// Either may be missing.
struct TimedPair {
    PassTimer* target = nullptr;
    DraftTimer* draft = nullptr;
};

// Passes of the plan's rows of each pair's target, up and down in turns, each with a run of draft passes behind it as
// in a round, after some that warm up. The context is that of the timers. Several pairs take turns, a repetition each.
// `has_time` is asked before each target pass, and is where ranks meet. Where time is short the first repetition goes
// from coarse to fine, and times passes of the least and of the most rows in any case. Collective over their groups.
std::vector<PassTimes> time_in_turns(std::span<const TimedPair> pairs, const LatencyPlan& plan,
                                     const HasTime& has_time);

struct NamedCollective {
    std::string name;
    std::function<void()> run; // collective over the group that it is for; on ranks outside it, nothing
    std::size_t bytes = 0;     // that a rank brings or, of a broadcast, gets
};

struct CollectiveTime {
    std::string name;
    Quantiles seconds;
    std::size_t bytes = 0;
};

// Each as often as `repetitions` says, one after another, of its slowest rank; less often where all of them would take
// more than `max_seconds` (0: they may). On the writer; elsewhere without meaning. Collective over the world.
std::vector<CollectiveTime> time_collectives(dist::Session& session, std::span<const NamedCollective> collectives,
                                             int repetitions, double max_seconds = 0);

// "all-reduce, 1 row of 320: 118.00 us over shared memory, 0.80 us over MPI: ...", of the sum that is the most times
// slower; empty where none is. The times are of the same collectives.
std::string slower_sum(std::span<const CollectiveTime> over_shared_memory, std::span<const CollectiveTime> over_mpi);

// All of the slowest rank. On the writer; without meaning elsewhere.
struct Latency {
    std::vector<PassTimes> passes; // of each context
    std::vector<double> limit;     // [r - 1]: max(bytes / read rate, operations / peak)
    double weight_bytes = 0;       // of a rank
    double read_rate = 0;          // bytes a second, of the slowest rank, all ranks reading; infinity: not known
    double peak = 0;               // operations a second
    std::vector<CollectiveTime> collectives;

    const PassTimes& first() const { return passes.front(); } // whose costs are those of the run
};

// Costs of each level of drafting: the first draft for the target (`first`), the second for the first, and so on, at
// the same context. On the coordinator; empty elsewhere.
std::vector<spec::Costs> level_costs(const PassTimes& first, ModelPair& models, const LatencyPlan& plan);

// Passes of the plan's rows, interleaved, behind each of its contexts, or without any behind default_context().
// `native`: the same models on our kernels, for PassTimes::native. Unless `quiet`, the limit and what is left of it are
// shown. Throws OrderlyFailure where the models have too few positions. Collective over the world.
std::vector<PassTimes> measure_passes(dist::Session& session, ModelPair& models, const LatencyPlan& plan, bool quiet,
                                      ModelPair* native = nullptr);
// Those, the collectives of rounds and the limits of the machine. Collective over the world.
Latency measure_latency(dist::Session& session, ModelPair& models, const LatencyPlan& plan, bool quiet,
                        ModelPair* native = nullptr);
// The collectives of rounds of up to plan.max_rows() rows, within so many seconds; 0: however long they take.
// Collective over the world.
std::vector<CollectiveTime> measure_collectives(dist::Session& session, ModelPair& models, const LatencyPlan& plan,
                                                double max_seconds);
// p90 over median of the target's one-row passes of so many seconds, on the writer; 0 where these are too few to tell.
// Collective over the world.
double measure_spread(dist::Session& session, ModelPair& models, double max_seconds);

// Costs of files, by level; on the writer it is said which were measured on a disturbed machine. Throws OrderlyFailure.
// Collective over the world.
std::vector<spec::Costs> read_costs(dist::Session& session, const std::vector<std::string>& files);

// Tokens that passes of up to so many rows are timed behind where none are asked for: 64, and 1,000 where the models
// are not on CPUs, whose attention takes little of a pass; or what positions the models leave. The same on all ranks.
// Collective over the world.
int default_context(dist::Session& session, const ModelPair& models, int rows);

} // namespace entrodraft::launch
