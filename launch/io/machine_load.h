// Whether other work ran on this job's cores while it was timed: the busy and stolen time of the cores, less the CPU
// time of the job's own ranks, and how far repeated timings of one thing vary.
//
// On Linux; where /proc/stat cannot be read, nothing is claimed. Used by every command that prints times.
#pragma once

#include "dist/session/session.h"
#include "launch/io/json_line.h"
#include "launch/start/statistics.h"

#include <cstdint>
#include <optional>
#include <sched.h>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::launch {

// Clock ticks of some cores together since the machine started.
struct CoreTicks {
    std::uint64_t busy = 0;
    std::uint64_t stolen = 0; // by other guests of the hypervisor
};

// From the text of /proc/stat, over those of `cores` that it lists; none where it lists none of them, or where a line
// is not as proc(5) has it.
std::optional<CoreTicks> core_ticks(std::string_view proc_stat, const cpu_set_t& cores);
// The first number of /proc/loadavg.
std::optional<double> load_average(std::string_view proc_loadavg);

// What the cores of one host did during a timed stretch, as one of its ranks saw it. Goes through a collective as it
// is.
struct HostLoad {
    char host[64] = {};       // zero-terminated
    int n_cores = 0;          // that the job's ranks may run on
    double seconds = 0;       // of the stretch
    double load_average = -1; // of one minute, at the start
    double busy_seconds = -1; // of these cores together; -1, here and above: not known
    double stolen_seconds = 0;
    double own_seconds = 0; // CPU time of the rank; by_host: of all ranks of the host
    int threads = 0;        // of the rank; by_host: of the one with most; 0: nobody chose them
};

// One of each host, with the CPU time of all its ranks.
std::vector<HostLoad> by_host(const std::vector<HostLoad>& ranks);

// The report on the most disturbed host of the job.
struct MachineLoad {
    HostLoad host;
    std::optional<double> others_busy_cores, stolen_cores;
    std::optional<double> spread;     // p90 over median of repeated timings of one thing
    std::string disturbance;          // "1.1 of 2 cores are busy with other work"; empty: none seen
    bool has_waiting_threads = false; // of a rank, which wait for each other while other work has a core

    bool is_trusted() const { return disturbance.empty(); }
    // "1.1 of 2 cores are busy with other work: times are not to be trusted", with what may help; empty where nothing
    // was seen.
    std::string warning() const;
    // "warning: ", the same, and a newline, for the end of a table; or nothing.
    std::string warning_line() const;
};

// `spread` is 0 where nothing was timed repeatedly. Hosts are named where there are several.
MachineLoad assess(const std::vector<HostLoad>& hosts, double spread);

// p90 over median; 0 of nothing.
double spread_of(const Quantiles& timings);

Json to_json(const MachineLoad& load);
// The warning on stderr, if there is one.
void warn_of(const MachineLoad& load);

// Watches the cores of the job's ranks, from its construction on.
class MachineWatch {
  public:
    // `threads`: of this rank, if --threads can change them. Collective over the world.
    explicit MachineWatch(dist::Session& session, int threads = 0);

    // Since the start, the same on every rank. `spread` counts on rank 0. Collective over the world.
    MachineLoad stop(double spread = 0) const;
    // Waits until the cores have been watched for so many seconds.
    void watch_for(double seconds) const;

  private:
    struct Reading {
        double at = 0; // seconds of a steady clock
        double own_seconds = 0;
        std::optional<CoreTicks> ticks;
    };
    Reading read() const;

    dist::Session& session_;
    cpu_set_t cores_{}; // of all ranks of this host
    int threads_;
    double load_average_ = -1;
    Reading start_;
};

} // namespace entrodraft::launch
