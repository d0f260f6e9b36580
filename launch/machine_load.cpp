// Other work on the job's cores: see machine_load.h.
#include "launch/machine_load.h"

#include "launch/counted.h"
#include "launch/io/progress.h"
#include "launch/phase.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <ctime>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <unistd.h>

namespace entrodraft::launch {

namespace {

// Daemons and the kernel's own threads are below this; a rank that waits for each pass of the others is not.
constexpr double kToleratedShare = 0.05; // of the cores
constexpr double kMinTolerated = 0.15;   // cores
constexpr double kMaxTolerated = 1;      // cores
constexpr double kMinSeconds = 0.1;      // CPU time: /proc/stat counts in ticks of 10 ms, core by core
constexpr double kWideSpread = 1.5;      // p90 over median; 1.02 to 1.16 were seen on idle machines

std::string text_of_file(const char* file) {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

// Takes the line off `text`.
std::string_view take_line(std::string_view& text) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return line;
}

// Takes a number off `text`, and blanks before it; none where there is none, or it does not fit.
std::optional<std::uint64_t> take_number(std::string_view& text) {
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc()) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (!text.empty() && text.front() != ' ') return std::nullopt;
    return number;
}

bool add_to(std::uint64_t& sum, std::uint64_t number) {
    return !__builtin_add_overflow(sum, number, &sum);
}

// "user nice system idle iowait irq softirq steal ...". What guests of this machine take is in user and nice.
bool add_core(CoreTicks& sum, std::string_view numbers) {
    constexpr std::size_t kFields = 8, kIdle = 3, kWaitsForDisk = 4, kStolen = 7;
    for (std::size_t field = 0; field < kFields; ++field) {
        const auto ticks = take_number(numbers);
        if (!ticks) return false;
        if (field == kIdle || field == kWaitsForDisk) continue;
        if (!add_to(field == kStolen ? sum.stolen : sum.busy, *ticks)) return false;
    }
    return true;
}

double cpu_seconds_of_process() {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Some containers show counters that stand still: then the job's own work is missing from them.
bool is_known(const HostLoad& host) {
    return host.busy_seconds >= 0 && host.seconds > 0 && host.busy_seconds + kMinSeconds >= host.own_seconds / 2;
}

// Cores that other work took, and the hypervisor; none where they are not known.
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

std::optional<CoreTicks> core_ticks(std::string_view proc_stat, const cpu_set_t& cores) {
    CoreTicks sum;
    bool is_listed = false;
    while (!proc_stat.empty()) {
        std::string_view line = take_line(proc_stat);
        if (line.substr(0, 3) != "cpu" || line.substr(0, 4) == "cpu ") continue;
        line.remove_prefix(3);
        const auto core = take_number(line);
        if (!core) return std::nullopt;
        if (*core >= CPU_SETSIZE || !CPU_ISSET(*core, &cores)) continue;
        if (!add_core(sum, line)) return std::nullopt;
        is_listed = true;
    }
    if (!is_listed) return std::nullopt;
    return sum;
}

std::optional<double> load_average(std::string_view proc_loadavg) {
    double load = 0;
    const auto [end, error] = std::from_chars(proc_loadavg.data(), proc_loadavg.data() + proc_loadavg.size(), load);
    if (error != std::errc() || !(load >= 0 && load < 1e6)) return std::nullopt;
    return load;
}

std::string MachineLoad::warning() const {
    return disturbance.empty() ? "" : disturbance + ": times are not to be trusted";
}

std::string MachineLoad::warning_line() const {
    return disturbance.empty() ? "" : "warning: " + warning() + "\n";
}

std::vector<HostLoad> by_host(const std::vector<HostLoad>& ranks) {
    std::vector<HostLoad> hosts;
    for (const HostLoad& rank : ranks) {
        const auto host = std::find_if(hosts.begin(), hosts.end(),
                                       [&](const HostLoad& other) { return std::strcmp(other.host, rank.host) == 0; });
        if (host == hosts.end())
            hosts.push_back(rank);
        else
            host->own_seconds += rank.own_seconds;
    }
    return hosts;
}

MachineLoad assess(const std::vector<HostLoad>& hosts, double spread) {
    MachineLoad worst;
    const auto disturbed = [](const HostLoad& host) {
        return others_of(host).value_or(0) + stolen_of(host).value_or(0);
    };
    const auto host = std::max_element(
        hosts.begin(), hosts.end(), [&](const HostLoad& a, const HostLoad& b) { return disturbed(a) < disturbed(b); });
    std::vector<std::string> signs;
    if (host != hosts.end()) {
        worst.host = host->host;
        worst.n_cores = host->n_cores;
        worst.seconds = host->seconds;
        if (host->load_average >= 0) worst.load_average = host->load_average;
        worst.others_busy_cores = others_of(*host);
        worst.stolen_cores = stolen_of(*host);
        const auto of_cores = [&](double cores) {
            return fmt::format("{:.1f} of {}", cores, counted(host->n_cores, "core"));
        };
        if (worst.others_busy_cores && is_much(*worst.others_busy_cores, *host))
            signs.push_back(of_cores(*worst.others_busy_cores) + " are busy with other work");
        if (worst.stolen_cores && is_much(*worst.stolen_cores, *host))
            signs.push_back(of_cores(*worst.stolen_cores) + " are taken by other virtual machines");
        if (!signs.empty() && hosts.size() > 1) signs.front() = "host " + worst.host + ": " + signs.front();
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
    Json json = {{"host", load.host}, {"cores", load.n_cores}, {"seconds", load.seconds}};
    if (load.load_average) json["load_average"] = *load.load_average;
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

MachineWatch::MachineWatch(dist::Session& session) : session_(session) {
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

MachineLoad MachineWatch::stop(double spread) const {
    session_.world().barrier(session_.deadline()); // a rank's wait for a later one is its own work, not another's
    const Reading end = read();
    HostLoad mine;
    std::strncpy(mine.host, session_.host_name().c_str(), sizeof mine.host - 1);
    mine.n_cores = CPU_COUNT(&cores_);
    mine.seconds = end.at - start_.at;
    mine.load_average = load_average_;
    mine.own_seconds = end.own_seconds - start_.own_seconds;
    // A core that was taken off the machine takes its ticks along: then nothing is known.
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
