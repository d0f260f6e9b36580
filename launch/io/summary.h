// The summary of a run of generate: counted by each replica, added up by the writer, shown on stderr and written as
// JSON.
//
// Pure: formats and calculates, reads no clock and writes no file.
#pragma once

#include "launch/cli/options.h"
#include "launch/io/json_line.h"
#include "launch/io/machine_load.h"
#include "spec/plan/gain_model.h"
#include "spec/protocol/stats.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace entrodraft::launch {

// One sample per completed text. Both times begin at its admission: when a slot of the batch is given to its prompt.
struct LatencySamples {
    std::vector<double> ttft_ms;    // time to first token
    std::vector<double> tpot_ms;    // time per output token after the first; texts of one token have none
    std::vector<double> latency_ms; // to the end of the text

    void add(const spec::Stats& text);
};

struct RunSummary { // of all replicas
    spec::Stats stats;
    std::int64_t served = 0;
    std::int64_t with_error = 0;
    std::int64_t checked = 0;
    std::int64_t check_differs = 0;
    LatencySamples latencies;
    std::int64_t resumed = 0;                  // lines that an earlier run had served
    std::vector<double> replicas_busy_seconds; // of each, in which it had a text under way
    double wall_seconds = 0;
    double load_seconds = 0; // of reading the weights, of the slowest rank, before the wall time
    double load_bytes = 0;   // of weights in the files, that all ranks read together
    int batch_size = 1;
    int num_beams = 0; // 0: no beam search
    int ranks = 1;
    MachineLoad machine;      // while it decoded
    std::string slowest_rank; // and how long the others waited for it; empty: no rank to speak of
    SpeculationOptions speculation;
    std::optional<spec::Costs> costs;            // that the run was given; none: what it measured itself counts
    std::optional<spec::DraftWorth> draft_worth; // of the first replica, where the rule weighs costs
    double operations_ratio = 0;                 // of a draft's row over a target's; 0: no draft model
    bool interrupted = false;
    bool resumable = false; // there is an output file that --resume can go on with

    double tokens_per_second() const; // over the wall time; 0 where there was none
    double load_bytes_per_second() const { return load_seconds > 0 ? load_bytes / load_seconds : 0; }
};

// Of one rank; goes through a collective as it is.
struct RankWait {
    char host[64] = {};        // zero-terminated
    int replica = -1;          // -1: it holds no part of the target
    double waited_seconds = 0; // for the others of its target, in sums
    double run_seconds = 0;
};

// Which rank holds the others up, by the waits of all: where ranks meet in every layer, the one that waits least is the
// slowest. "rank 2 (host n1): the others waited 31 % of the time for it", of the replica where it is worst; empty where
// nobody waits a tenth of the time more than another. A coordinator that drafts is not slow: the others await it in
// the broadcast, not in sums.
std::string describe_slowest(const std::vector<RankWait>& ranks);

// Over decoding without a draft: what rounds without one would take for the same tokens, over the time that was taken.
struct SpeedupEstimate {
    // If passes of one row took as long as those of the run: tokens per target pass, times the share of time that is
    // not drafting.
    double at_most = 0;
    // With passes of one row as the run has timed them, or as its rule or `costs` have them beside wider ones; none:
    // not known.
    std::optional<double> likely;
};
// None without a drafter, with beams, and in batches.
std::optional<SpeedupEstimate> estimated_speedup(const RunSummary& summary);

// The i.i.d. model at the run's acceptance rate alpha; none where that is not known.
std::optional<spec::IidFigures> iid_model(const RunSummary& summary);

// Two lines, and those that nobody may miss; with `verbose` all figures. Each line ends with a newline.
std::string format_summary(const RunSummary& summary, bool verbose);

// For generate --summary; docs/formats.md has its fields. `environment`: see environment.h.
Json summary_json(const RunSummary& summary, const GenerateOptions& options, const Json& environment);

} // namespace entrodraft::launch
