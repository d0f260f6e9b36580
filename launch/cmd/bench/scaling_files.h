// What bench scaling is given: files of bench latency and bench compare, told apart by what they hold.
#pragma once

#include "launch/cmd/bench/scaling_model.h"

#include <string>
#include <vector>

namespace entrodraft::launch {

// How a run was started.
struct RunSetting {
    int ranks = 1;
    int threads = 1; // of each
    std::string placement;

    std::string name() const; // "2 ranks of 1 thread, colocated"
    int used_cores() const { return ranks * threads; }
    friend bool operator==(const RunSetting&, const RunSetting&) = default;
};

// A file of bench latency.
struct LatencyRun {
    std::string file;
    RunSetting setting;
    int cores = 1;      // of the first rank's host
    int host_ranks = 1; // of that host
    std::string target; // type and shape: what has to be alike to be compared
    MeasuredPass pass;
    double t_draft = 0; // seconds
    double announce = 0;
    double gather = 0; // of candidates
    std::vector<LinkSample> all_reduces;
    std::vector<ShardPass> shards_beside_draft; // timed by themselves: as ranks have it that draft too,
    std::vector<ShardPass> shards_alone;        // and as those that never do

    bool over_cores() const { return host_ranks * setting.threads > cores; }
    double around() const { return announce + gather; } // what a round has beside its passes
};

// A file of bench compare: its first temperature.
struct CompareRun {
    std::string file;
    RunSetting setting;
    double temperature = 0;
    double plain_tokens_per_second = 0;
    double drafting_tokens_per_second = 0; // of the fastest setting with a draft; 0: none
    std::string drafting;                  // that setting
};

struct ScalingFiles {
    std::vector<LatencyRun> latencies; // by ranks, threads, placement
    std::vector<CompareRun> compares;

    const CompareRun* compare_of(const RunSetting& setting) const; // null: none
};

// Throws model::BadFile with file, field and reason: also where a setting stands twice, where targets differ, and where
// a comparison has no latency beside it. Local.
ScalingFiles read_scaling_files(const std::vector<std::string>& files);

} // namespace entrodraft::launch
