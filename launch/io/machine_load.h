// Finds out whether other work ran on this job's cores during a measurement. It compares the busy and stolen time of
// the cores with the CPU time of the job's own ranks, and looks at how much repeated timings vary. Linux only: if
// /proc/stat cannot be read, nothing is claimed. Used by every command that prints times.
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

// Clock ticks since the machine started, summed over some cores.
struct CoreTicks {
    std::uint64_t busy = 0;
    std::uint64_t stolen = 0; // by other guests of the hypervisor
};

// Sums the text of /proc/stat over those of `cores` that it lists. Returns nothing if it lists none of them, or if a
// line is not as proc(5) describes it.
std::optional<CoreTicks> core_ticks(std::string_view proc_stat, const cpu_set_t& cores);
// Returns the first number of /proc/loadavg.
std::optional<double> load_average(std::string_view proc_loadavg);

// The load of one host's cores while something was timed, as a rank saw it. Goes through a collective as it is.
struct HostLoad {
    char host[64] = {};       // zero-terminated
    int n_cores = 0;          // cores that the job's ranks may run on
    double seconds = 0;       // time that was watched
    double load_average = -1; // over one minute, at the start
    double busy_seconds = -1; // all these cores together; -1, here and above: not known
    double stolen_seconds = 0;
    double own_seconds = 0; // CPU time of the rank; by_host: of all ranks of the host
    int threads = 0;        // of the rank; by_host: the largest on the host; 0: not chosen by --threads
};

// Returns one entry for each host, with the CPU time of all its ranks.
std::vector<HostLoad> by_host(const std::vector<HostLoad>& ranks);

// The report on the most disturbed host of the job.
struct MachineLoad {
    HostLoad host;
    std::optional<double> others_busy_cores, stolen_cores;
    std::optional<double> spread;     // p90 over median of repeated timings of one thing
    std::string disturbance;          // "1.1 of 2 cores are busy with other work"; empty: none seen
    bool has_waiting_threads = false; // a rank's threads wait for each other while other work has a core

    bool is_trusted() const { return disturbance.empty(); }
    // Returns "1.1 of 2 cores are busy with other work: times are not to be trusted", and a possible remedy; empty if
    // nothing was seen.
    std::string warning() const;
    // Returns "warning: ", the same text and a newline, for the end of a table; or nothing.
    std::string warning_line() const;
};

// `spread` is 0 if nothing was timed repeatedly. Names the host if there are several.
MachineLoad assess(const std::vector<HostLoad>& hosts, double spread);

// Returns p90 over median; 0 for no timings.
double spread_of(const Quantiles& timings);

Json to_json(const MachineLoad& load);
// Logs the warning, if there is one.
void warn_of(const MachineLoad& load);

// Watches the cores of the job's ranks, from its construction on.
class MachineWatch {
  public:
    // `threads`: this rank's threads, if --threads can change them. Collective over the world.
    explicit MachineWatch(dist::Session& session, int threads = 0);

    // Returns the load since the start, the same on every rank. `spread` counts on rank 0. Collective over the world.
    MachineLoad stop(double spread = 0) const;
    // Waits until the cores have been watched for that many seconds.
    void watch_for(double seconds) const;

  private:
    struct Reading {
        double at = 0; // time of a steady clock, in seconds
        double own_seconds = 0;
        std::optional<CoreTicks> ticks;
    };
    Reading read() const;

    dist::Session& session_;
    cpu_set_t cores_{}; // cores of all ranks of this host
    int threads_;
    double load_average_ = -1;
    Reading start_;
};

} // namespace entrodraft::launch
