// What passes of a pair's decoders and collectives of its ranks take on this machine, timed one by one, and the limits
// of its cores.
//
// Called by the commands bench latency, bench compare, record, tune and doctor.
#pragma once

#include "dist/clock.h"
#include "dist/session.h"
#include "launch/load/model_pair.h"
#include "launch/statistics.h"
#include "model/decoder.h"
#include "spec/stats.h"

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace entrodraft::launch {

// Passes after a fixed context.
class PassTimer {
  public:
    // Fills the slot with `context` tokens, and leaves it empty. All outlive this. Collective over the decoder's group.
    PassTimer(model::Decoder& decoder, const dist::Clock& clock, int context);
    ~PassTimer() { decoder_.cache().truncate(kSlot, 0); }
    PassTimer(const PassTimer&) = delete;
    PassTimer& operator=(const PassTimer&) = delete;

    // Seconds of a pass of `rows` rows with the largest logit of each, as a greedy round has it, and of cutting the
    // cache back. Collective over its group.
    double time(int rows);

  private:
    static constexpr int kSlot = 0;

    void make_rows(int first_position, int rows);

    model::Decoder& decoder_;
    const dist::Clock& clock_;
    int context_;
    std::vector<model::Row> rows_;
    std::vector<int> logit_rows_;
};

struct PassTimes {
    std::vector<Quantiles> target; // [r - 1]: a pass of r rows and the truncation after it
    Quantiles first_draft;         // of one row, right after a target pass; zeros without a draft
    Quantiles draft;               // of one row, after another draft pass

    spec::Costs costs() const;
};

// Passes of 1 to plan.rows rows of a target, each with a run of draft passes behind it as in a round, after some that
// warm up. Either may be missing. `align` goes before each target pass. Collective over their groups.
PassTimes time_in_turns(
    PassTimer* target, PassTimer* draft, const LatencyPlan& plan, const std::function<void()>& align = [] {});

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

// Each as often as `repetitions` says, one after another, of its slowest rank. On the writer; elsewhere without
// meaning. Collective over the world.
std::vector<CollectiveTime> time_collectives(dist::Session& session, std::span<const NamedCollective> collectives,
                                             int repetitions);

// "all-reduce, 1 row of 320: 118.00 us over shared memory, 0.80 us over MPI: ...", of the sum that is the most times
// slower; empty where none is. The times are of the same collectives. Local.
std::string slower_sum(std::span<const CollectiveTime> over_shared_memory, std::span<const CollectiveTime> over_mpi);

// All of the slowest rank. On the writer; without meaning elsewhere.
struct Latency : PassTimes {
    std::vector<double> limit; // [r - 1]: max(bytes / read rate, operations / peak)
    double weight_bytes = 0;   // of a rank
    double read_rate = 0;      // bytes a second, of the slowest rank, all ranks reading
    double peak = 0;           // operations a second
    std::vector<CollectiveTime> collectives;
};

// Costs of each level of drafting: the first draft for the target (`latency`), the second for the first, and so on. On
// the coordinator; empty elsewhere. Local.
std::vector<spec::Costs> level_costs(const Latency& latency, ModelPair& models, const LatencyPlan& plan);

// Passes of 1 to rows rows, interleaved, all with `context` tokens in the cache. Collective over the world.
Latency measure_latency(dist::Session& session, ModelPair& models, const LatencyPlan& plan);

// Costs of files, by level; on the writer it is said which were measured on a disturbed machine. Throws OrderlyFailure.
// Collective over the world.
std::vector<spec::Costs> read_costs(dist::Session& session, const std::vector<std::string>& files);

// LatencyPlan's context, or what positions the models leave beside rows, where that is less; ranks without a draft do
// not know of its positions. Local.
int fitting_context(const ModelPair& models, int rows);

} // namespace entrodraft::launch
