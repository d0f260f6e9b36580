// What passes of a pair's decoders and collectives of its ranks take on this machine, timed one by one, and the limits
// of its cores.
//
// Called by the commands bench latency, bench compare, record and doctor.
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
    static constexpr int kSlot = 0;
    // Draft passes after every target pass, as in a round: the first finds its weights driven out of the caches.
    static constexpr int kDraftRun = 3;

    // Fills the slot with `context` tokens. All outlive this. Collective over the decoder's group.
    PassTimer(model::Decoder& decoder, const dist::Clock& clock, int context);

    // Seconds of a pass of `rows` rows with the largest logit of each, as a greedy round has it, and of cutting the
    // cache back. Collective over its group.
    double time(int rows);

  private:
    void make_rows(int first_position, int rows);

    model::Decoder& decoder_;
    const dist::Clock& clock_;
    int context_;
    std::vector<model::Row> rows_;
    std::vector<int> logit_rows_;
};

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

// All of the slowest rank. On the writer; empty elsewhere.
struct Latency {
    std::vector<Quantiles> target; // [r - 1]: a pass of r rows and the truncation after it
    Quantiles first_draft;         // of one row, right after a target pass; zeros without a draft
    Quantiles draft;               // of one row, after another draft pass
    std::vector<double> limit;     // [r - 1]: max(bytes / read rate, operations / peak)
    double weight_bytes = 0;       // of a rank
    double read_rate = 0;          // bytes a second, of the slowest rank, all ranks reading
    double peak = 0;               // operations a second
    std::vector<CollectiveTime> collectives;

    spec::Costs costs() const;
};

// Costs of each level of drafting: the first draft for the target (`latency`), the second for the first, and so on. On
// the coordinator; empty elsewhere. Local.
std::vector<spec::Costs> level_costs(const Latency& latency, ModelPair& models, const LatencyPlan& plan);

// Passes of 1 to rows rows, interleaved, all with `context` tokens in the cache. Collective over the world.
Latency measure_latency(dist::Session& session, ModelPair& models, const LatencyPlan& plan);

// Costs of files, by level; on the writer it is said which were measured on a disturbed machine. Throws OrderlyFailure.
// Collective over the world.
std::vector<spec::Costs> read_costs(dist::Session& session, const std::vector<std::string>& files);

// LatencyPlan's context, or what positions the models leave beside rows, where that is less. Local.
int fitting_context(const ModelPair& models, int rows);

} // namespace entrodraft::launch
