// Measures other work on the job's cores: see machine_load.h.
#include "launch/io/machine_load.h"

#include "launch/io/progress.h"
#include "launch/start/counted.h"
#include "launch/start/phase.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <ctime>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>
#include <unistd.h>

namespace entrodraft::launch {

namespace {

// Daemons and the kernel's own threads stay below these limits. A rank of another job, which waits for the other ranks
// in each pass, does not.
constexpr double kToleratedShare = 0.05; // share of the cores
constexpr double kMinTolerated = 0.15;   // cores
constexpr double kMaxTolerated = 1;      // cores
constexpr double kMinSeconds = 0.1;      // CPU time: /proc/stat counts in ticks of 10 ms, core by core
constexpr double kWideSpread = 1.5;      // p90 over median; 1.02 to 1.16 were seen on idle machines

std::string text_of_file(const char* file) {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

double cpu_seconds_of_process() {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Some containers show counters that do not move. The job's own work is missing from these.
bool is_known(const HostLoad& host) {
    return host.busy_seconds >= 0 && host.seconds > 0 && host.busy_seconds + kMinSeconds >= host.own_seconds / 2;
}

// Returns the number of cores that other work took, or the hypervisor; none if it is not known.
std::optional<double> others_of(const HostLoad& host) {
    if (!is_known(host)) return std::nullopt;
    return std::max(0.0, host.busy_seconds - host.own_seconds) / host.seconds;
}
std::optional<double> stolen_of(const HostLoad& host) {
    if (!is_known(host)) return std::nullopt;
    return host.stolen_seconds / host.seconds;
}

bool is_much(double cores, const HostLoad& host) {
    return cores * host.seconds >= kMinSeconds &&
           cores >= std::clamp(kToleratedShare * host.n_cores, kMinTolerated, kMaxTolerated);
}

} // namespace

// Reads lines "cpu1 user nice system idle iowait irq softirq steal ...". Time of this machine's own guests is within
// user and nice.
std::optional<CoreTicks> core_ticks(std::string_view proc_stat, const cpu_set_t& cores) {
    constexpr int kFields = 8, kIdle = 3, kWaitsForDisk = 4, kStolen = 7;
    constexpr std::int64_t kMaxTicks = 1'000'000'000'000'000; // no machine has run that long
    std::optional<CoreTicks> sum;
    std::istringstream lines{std::string(proc_stat)};
    for (std::string line; std::getline(lines, line);) {
        if (!line.starts_with("cpu") || line.starts_with("cpu ")) continue;
        std::istringstream numbers(line.substr(3));
        std::int64_t core = -1;
        if (!(numbers >> core) || core < 0) return std::nullopt;
        if (core >= CPU_SETSIZE || !CPU_ISSET(static_cast<std::size_t>(core), &cores)) continue;
        if (!sum) sum.emplace();
        for (int field = 0; field < kFields; ++field) {
            std::int64_t ticks = -1;
            if (!(numbers >> ticks) || ticks < 0 || ticks > kMaxTicks) return std::nullopt;
            if (field == kIdle || field == kWaitsForDisk) continue;
            (field == kStolen ? sum->stolen : sum->busy) += static_cast<std::uint64_t>(ticks);
        }
    }
    return sum;
}

std::optional<double> load_average(std::string_view proc_loadavg) {
    double load = 0;
    const auto [end, error] = std::from_chars(proc_loadavg.data(), proc_loadavg.data() + proc_loadavg.size(), load);
    if (error != std::errc() || !(load >= 0 && load < 1e6)) return std::nullopt;
    return load;
}

std::string MachineLoad::warning() const {
    if (disturbance.empty()) return "";
    return disturbance + ": times are not to be trusted" +
           (has_waiting_threads ? "; --threads 1 may be faster beside other work" : "");
}

std::string MachineLoad::warning_line() const {
    return disturbance.empty() ? "" : "warning: " + warning() + "\n";
}

std::vector<HostLoad> by_host(const std::vector<HostLoad>& ranks) {
    std::vector<HostLoad> hosts;
    for (const HostLoad& rank : ranks) {
        const auto host =
            std::ranges::find_if(hosts, [&](const HostLoad& other) { return std::strcmp(other.host, rank.host) == 0; });
        if (host == hosts.end())
            hosts.push_back(rank);
        else {
            host->own_seconds += rank.own_seconds;
            host->threads = std::max(host->threads, rank.threads);
        }
    }
    return hosts;
}

MachineLoad assess(const std::vector<HostLoad>& hosts, double spread) {
    MachineLoad worst;
    const auto disturbed = [](const HostLoad& host) {
        return others_of(host).value_or(0) + stolen_of(host).value_or(0);
    };
    std::vector<std::string> signs;
    if (const auto host = std::ranges::max_element(hosts, {}, disturbed); host != hosts.end()) {
        worst.host = *host;
        worst.others_busy_cores = others_of(*host);
        worst.stolen_cores = stolen_of(*host);
        const auto add_if_much = [&](const std::optional<double>& cores, const char* what) {
            if (cores && is_much(*cores, *host))
                signs.push_back(fmt::format("{:.1f} of {} are {}", *cores, counted(host->n_cores, "core"), what));
        };
        add_if_much(worst.others_busy_cores, "busy with other work");
        worst.has_waiting_threads = !signs.empty() && host->threads > 1;
        add_if_much(worst.stolen_cores, "taken by other virtual machines");
        if (!signs.empty() && hosts.size() > 1) signs.front() = fmt::format("host {}: {}", host->host, signs.front());
    }
    if (spread > 0) worst.spread = spread;
    if (spread >= kWideSpread)
        signs.push_back(fmt::format("one pass in ten takes {:.1f} times the median or more", spread));
    worst.disturbance = fmt::format("{}", fmt::join(signs, "; "));
    return worst;
}

double spread_of(const Quantiles& timings) {
    return timings.median > 0 ? timings.p90 / timings.median : 0;
}

Json to_json(const MachineLoad& load) {
    const HostLoad& host = load.host;
    Json json = {{"host", host.host}, {"cores", host.n_cores}, {"seconds", host.seconds}};
    if (host.load_average >= 0) json["load_average"] = host.load_average;
    if (load.others_busy_cores) json["others_busy_cores"] = *load.others_busy_cores;
    if (load.stolen_cores) json["stolen_cores"] = *load.stolen_cores;
    if (load.spread) json["spread"] = *load.spread;
    if (load.others_busy_cores || load.spread) json["trusted"] = load.is_trusted();
    if (!load.is_trusted()) json["disturbance"] = load.disturbance;
    return json;
}

void warn_of(const MachineLoad& load) {
    if (!load.is_trusted()) log_line("warning: " + load.warning());
}

MachineWatch::MachineWatch(dist::Session& session, int threads) : session_(session), threads_(threads) {
    struct RankCores {
        char host[sizeof HostLoad::host] = {};
        cpu_set_t cores = {};
    };
    RankCores mine;
    std::strncpy(mine.host, session.host_name().c_str(), sizeof mine.host - 1);
    if (sched_getaffinity(0, sizeof mine.cores, &mine.cores) != 0) CPU_ZERO(&mine.cores); // more than 1,024 cores
    CPU_ZERO(&cores_);
    for (const RankCores& each : from_all(session, mine))
        if (std::strcmp(each.host, mine.host) == 0) CPU_OR(&cores_, &cores_, &each.cores);
    load_average_ = launch::load_average(text_of_file("/proc/loadavg")).value_or(-1);
    start_ = read();
}

MachineWatch::Reading MachineWatch::read() const {
    const dist::SteadyClock clock;
    return {clock.now_seconds(), cpu_seconds_of_process(), core_ticks(text_of_file("/proc/stat"), cores_)};
}

void MachineWatch::watch_for(double seconds) const {
    const double left = seconds - (dist::SteadyClock().now_seconds() - start_.at);
    if (left > 0) std::this_thread::sleep_for(std::chrono::duration<double>(left));
}

MachineLoad MachineWatch::stop(double spread) const {
    session_.world().barrier(session_.deadline()); // waiting for a later rank is this job's own work
    const Reading end = read();
    HostLoad mine;
    std::strncpy(mine.host, session_.host_name().c_str(), sizeof mine.host - 1);
    mine.n_cores = CPU_COUNT(&cores_);
    mine.threads = threads_;
    mine.seconds = end.at - start_.at;
    mine.load_average = load_average_;
    mine.own_seconds = end.own_seconds - start_.own_seconds;
    // A core that leaves the machine takes its ticks along; then nothing is known.
    if (start_.ticks && end.ticks && end.ticks->busy >= start_.ticks->busy &&
        end.ticks->stolen >= start_.ticks->stolen) {
        const auto seconds = [](std::uint64_t ticks) {
            return static_cast<double>(ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
        };
        mine.busy_seconds = seconds(end.ticks->busy - start_.ticks->busy);
        mine.stolen_seconds = seconds(end.ticks->stolen - start_.ticks->stolen);
    }
    const std::vector<HostLoad> loads = from_all(session_, mine);
    session_.world().broadcast(&spread, sizeof spread, 0, session_.deadline());
    return assess(by_host(loads), spread);
}

} // namespace entrodraft::launch
