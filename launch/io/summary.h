// The summary of a run of generate. Each replica counts, and the writer adds up the counts. The result is shown on
// stderr and written as JSON. Pure: it formats and calculates, but reads no clock and writes no file.
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

// One sample per completed text. Both times begin at its admission: when its prompt gets a slot of the batch.
struct LatencySamples {
    std::vector<double> ttft_ms;    // time to first token
    std::vector<double> tpot_ms;    // time per output token after the first; texts of one token have none
    std::vector<double> latency_ms; // to the end of the text

    void add(const spec::Stats& text);
};

struct RunSummary { // sums over all replicas
    spec::Stats stats;
    std::int64_t served = 0;
    std::int64_t with_error = 0;
    std::int64_t checked = 0;
    std::int64_t check_differs = 0;
    LatencySamples latencies;
    std::int64_t resumed = 0;                  // lines that an earlier run had served
    std::vector<double> replicas_busy_seconds; // for each replica, the time in which it had a text in progress
    double wall_seconds = 0;
    double load_seconds = 0;      // time to read the weights, on the slowest rank, before the wall time
    std::uint64_t load_bytes = 0; // bytes of weights in the files, which all ranks read together
    int batch_size = 1;
    int num_beams = 0; // 0: no beam search
    int ranks = 1;
    MachineLoad machine;      // load while it decoded
    std::string slowest_rank; // with the time that others waited for it; empty: none stands out
    SpeculationOptions speculation;
    std::optional<spec::Costs> costs;            // costs that the run was given; none: its own measurements count
    std::optional<spec::DraftWorth> draft_worth; // of the first replica, if the rule weighs costs
    double operations_ratio = 0; // operations of a draft's row over those of a target's; 0: no draft model
    bool interrupted = false;
    bool resumable = false; // --resume can go on with the output file

    double tokens_per_second() const; // over the wall time; 0 if there was none
    double load_bytes_per_second() const {
        return load_seconds > 0 ? static_cast<double>(load_bytes) / load_seconds : 0;
    }
};

// Wait of one rank; goes through a collective as it is.
struct RankWait {
    char host[64] = {};        // zero-terminated
    int replica = -1;          // -1: it holds no part of the target
    double waited_seconds = 0; // time spent in sums waiting for the others of its target
    double run_seconds = 0;
};

// Names the rank that delays the others. Ranks meet in every layer, so the rank that waits least is the slowest: "rank
// 2 (host n1): the others waited 31 % of the time for it". Takes the replica where it is worst; empty if no rank waits
// a tenth of the time longer than another. A coordinator that drafts is not slow: others wait for it in the broadcast,
// not in sums.
std::string describe_slowest(const std::vector<RankWait>& ranks);

// Speed-up over decoding without a draft: the time of rounds without a draft for the same tokens, over the time spent.
struct SpeedupEstimate {
    // The speed-up if passes of one row took as long as the run's passes: tokens per target pass, times the share of
    // time that is not drafting.
    double at_most = 0;
    // The speed-up with the time of one-row passes that the run has measured, or that its rule or `costs` give together
    // with wider passes; none: not known.
    std::optional<double> likely;
};
// Returns nothing without a drafter, with beams, and in batches.
std::optional<SpeedupEstimate> estimated_speedup(const RunSummary& summary);

// Returns the i.i.d. model at the run's acceptance rate alpha; none if alpha is not known.
std::optional<spec::IidFigures> iid_model(const RunSummary& summary);

// Returns two lines and the important warnings; with `verbose`, all figures. Each line ends with a newline.
std::string format_summary(const RunSummary& summary, bool verbose);

// Returns the JSON of generate --summary; docs/formats.md lists its fields. `environment`: see environment.h.
Json summary_json(const RunSummary& summary, const GenerateOptions& options, const Json& environment);

} // namespace entrodraft::launch
