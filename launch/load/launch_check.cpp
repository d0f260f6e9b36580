// Facts of ranks and the findings that follow from them: see launch_check.h.
#include "launch/load/launch_check.h"

#include "launch/io/progress.h"
#include "launch/start/counted.h"
#include "launch/start/failure.h"
#include "launch/start/phase.h"
#include "spec/verify/random.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <unistd.h>

namespace entrodraft::launch {

namespace {

// Returns a checksum of the bytes of this binary.
std::uint64_t build_checksum() {
    std::ifstream file("/proc/self/exe", std::ios::binary);
    std::vector<char> chunk(1 << 20);
    std::uint64_t checksum = 0;
    while (file.read(chunk.data(), static_cast<std::streamsize>(chunk.size())) || file.gcount() > 0)
        checksum = spec::hash_bytes(chunk.data(), static_cast<std::size_t>(file.gcount()), checksum);
    return checksum;
}

// Returns the cores that this process may run on.
cpu_set_t own_cores() {
    cpu_set_t cores{};
    if (sched_getaffinity(0, sizeof cores, &cores) != 0) CPU_SET(0, &cores); // fails for more than 1,024 CPUs
    return cores;
}

// Says why the cores of a host are too few for its ranks, `here`; empty: they suffice.
std::string why_cores_are_few(const std::vector<RankFacts>& ranks, const std::vector<std::size_t>& here) {
    const std::string host = ranks[here.front()].host;
    const auto cores = static_cast<std::size_t>(ranks[here.front()].host_cores);
    const auto counted_of = [](std::size_t n, const char* noun) { return counted(static_cast<std::int64_t>(n), noun); };
    if (here.size() > cores)
        return fmt::format("host {}: {} share {} and take turns: start no more ranks than cores", host,
                           counted_of(here.size(), "rank"), counted_of(cores, "core"));
    for (const std::size_t rank : here) {
        const cpu_set_t& mine = ranks[rank].cores;
        const auto width = static_cast<std::size_t>(CPU_COUNT(&mine));
        std::size_t sharers = 0, threads = 0;
        for (const std::size_t other : here)
            if (CPU_EQUAL(&ranks[other].cores, &mine)) {
                ++sharers;
                threads += static_cast<std::size_t>(ranks[other].threads);
            }
        const std::string bound =
            fmt::format("bound to {} ({}) of {}", counted_of(width, "core"), describe(mine), cores);
        if (sharers > width)
            return fmt::format("host {}: {} are {}: mpirun --bind-to none lets each use a core of its own", host,
                               counted_of(sharers, "rank"), bound);
        if (threads > width && width < cores)
            return fmt::format("host {}: rank {} and those beside it have {} but are {}: mpirun --bind-to none, or "
                               "--map-by slot:PE={} with --bind-to core",
                               host, rank, counted_of(threads, "thread"), bound, ranks[rank].threads);
        if (threads > width)
            return fmt::format("host {}: {} share {}: lower --threads to {}", host, counted_of(threads, "thread"),
                               counted_of(cores, "core"), std::max<std::size_t>(1, cores / here.size()));
    }
    return "";
}

} // namespace

std::optional<int> threads_of_environment(const dist::Environment& environment) {
    constexpr int kMax = 1024; // the same limit as for --threads
    for (const char* name : {"OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK"}) {
        const std::optional<std::string> text = environment(name);
        if (!text || text->empty()) continue; // OpenMP, too, ignores an empty value
        // For OpenMP, "4,2" gives the threads of each level of nested parallelism. This program has one level.
        const char* const end = text->data() + std::min(text->find(','), text->size());
        int threads = 0;
        const auto read = std::from_chars(text->data(), end, threads);
        if (read.ec != std::errc{} || read.ptr != end || threads < 1 || threads > kMax)
            throw BadOption(
                fmt::format("{}={} in the environment: must be a whole number from 1 to {}; unset it, or give "
                            "--threads N",
                            name, *text, kMax));
        return threads;
    }
    return std::nullopt;
}

std::vector<RankFacts> gather_facts(dist::Session& session, int threads, int gpus) {
    RankFacts mine;
    std::strncpy(mine.host, session.host_name().c_str(), sizeof mine.host - 1);
    mine.cores = own_cores();
    mine.host_cores = std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
    mine.gpus = gpus;
    in_agreement(session, [&] {
        mine.threads = threads > 0 ? threads : threads_of_environment(dist::process_environment()).value_or(0);
    });
    if (session.world_size() > 1) mine.build = build_checksum();
    if (const auto& shortage = session.shared_memory_shortage()) {
        mine.shared_memory_free = shortage->free_bytes;
        mine.shared_memory_wanted = shortage->wanted_bytes;
    }
    std::vector<RankFacts> all = from_all(session, mine);
    for (RankFacts& facts : all) {
        const auto sharers = std::ranges::count_if(all, [&](const RankFacts& other) {
            return std::strcmp(other.host, facts.host) == 0 && CPU_EQUAL(&other.cores, &facts.cores);
        });
        if (facts.threads == 0) facts.threads = std::max(1, static_cast<int>(CPU_COUNT(&facts.cores) / sharers));
    }
    return all;
}

std::vector<Finding> findings_of(const std::vector<RankFacts>& ranks) {
    std::vector<Finding> findings;
    const auto other =
        std::find_if(ranks.begin(), ranks.end(), [&](const RankFacts& facts) { return facts.build != ranks[0].build; });
    if (other != ranks.end())
        findings.push_back(
            {true, fmt::format("the program of rank {} (host {}) is another build than that of rank 0 (host "
                               "{}): install the same file on every host",
                               other - ranks.begin(), other->host, ranks[0].host)});
    std::map<std::string, std::vector<std::size_t>> hosts; // ranks of each host
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
        hosts[ranks[rank].host].push_back(rank);
    for (const auto& [host, here] : hosts) {
        const RankFacts& first = ranks[here.front()];
        if (const std::string why = why_cores_are_few(ranks, here); !why.empty()) findings.push_back({false, why});
        if (first.shared_memory_wanted > 0)
            findings.push_back(
                {false,
                 fmt::format("host {}: /dev/shm has {} KiB free, and its ranks want {} KiB: their messages go over "
                             "MPI, which is slower; enlarge it (docker run --shm-size=64m, or mount -o "
                             "remount,size=64m /dev/shm)",
                             host, first.shared_memory_free / 1024, first.shared_memory_wanted / 1024)});
        if (first.gpus > 0 && std::ssize(here) > first.gpus)
            findings.push_back(
                {false, fmt::format("host {}: {} for {}: NCCL needs one for each rank; start no more ranks "
                                    "than GPUs{}",
                                    host, counted(std::ssize(here), "rank"), counted(first.gpus, "GPU"),
                                    first.gpus > 1 ? ""
                                                   : ", or, where the launcher shows each rank its own GPU alone, ask "
                                                     "for --gpus-per-node without --gpus-per-task and --gpu-bind: "
                                                     "hidden from each other, GPUs sum through host memory")});
    }
    return findings;
}

std::string describe(const cpu_set_t& cores) {
    std::string text;
    for (int core = 0; core < CPU_SETSIZE; ++core) {
        if (!CPU_ISSET(core, &cores)) continue;
        int last = core;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &cores))
            ++last;
        text += fmt::format("{}{}{}", text.empty() ? "" : ",", core, last > core ? fmt::format("-{}", last) : "");
        core = last;
    }
    return text;
}

int check_launch(dist::Session& session, int threads, bool quiet) {
    const std::vector<RankFacts> ranks = gather_facts(session, threads);
    for (const Finding& finding : findings_of(ranks)) {
        if (finding.is_error) throw OrderlyFailure(kFailure, finding.text);
        if (session.world_rank() == 0 && !quiet) log_line("warning: " + finding.text);
    }
    return ranks[session.world_rank()].threads;
}

} // namespace entrodraft::launch
