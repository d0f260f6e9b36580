// Facts of ranks and what follows from them: see launch_check.h.
#include "launch/load/launch_check.h"

#include "launch/counted.h"
#include "launch/failure.h"
#include "launch/io/report.h"
#include "spec/verify/philox.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <unistd.h>

namespace entrodraft::launch {

namespace {

// Of the bytes of this binary.
std::uint64_t build_checksum() {
    std::ifstream file("/proc/self/exe", std::ios::binary);
    std::vector<char> chunk(1 << 20);
    std::uint64_t checksum = 0;
    while (file.read(chunk.data(), static_cast<std::streamsize>(chunk.size())) || file.gcount() > 0)
        checksum = spec::hash_bytes(chunk.data(), static_cast<std::size_t>(file.gcount()), checksum);
    return checksum;
}

// Ranks of one host, by number.
using Hosts = std::map<std::string, std::vector<std::size_t>>;

Hosts hosts_of(const std::vector<RankFacts>& ranks) {
    Hosts hosts;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
        hosts[ranks[rank].host].push_back(rank);
    return hosts;
}

std::string kib(std::uint64_t bytes) {
    return std::to_string(bytes / 1024) + " KiB";
}

// How the cores of a host suffice for its ranks; empty: they do.
std::string why_cores_are_few(const std::vector<RankFacts>& ranks, const std::vector<std::size_t>& here) {
    const std::string host = std::string("host ") + ranks[here.front()].host + ": ";
    const auto cores = static_cast<std::size_t>(ranks[here.front()].host_cores);
    if (here.size() > cores)
        return host + counted(here.size(), "rank") + " share " + counted(cores, "core") +
               " and take turns: start no more ranks than cores";
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
            "bound to " + counted(width, "core") + " (" + describe(mine) + ") of " + std::to_string(cores);
        if (sharers > width)
            return host + counted(sharers, "rank") + " are " + bound +
                   ": mpirun --bind-to none lets each use a core of its own";
        if (threads > width && width < cores)
            return host + "rank " + std::to_string(rank) + " and those beside it have " + counted(threads, "thread") +
                   " but are " + bound +
                   ": mpirun --bind-to none, or --map-by slot:PE=" + std::to_string(ranks[rank].threads) +
                   " with --bind-to core";
        if (threads > width)
            return host + counted(threads, "thread") + " share " + counted(cores, "core") + ": lower --threads to " +
                   std::to_string(std::max<std::size_t>(1, cores / here.size()));
    }
    return "";
}

} // namespace

std::vector<RankFacts> gather_facts(dist::Session& session, double timeout_seconds, int threads, int gpus) {
    RankFacts mine;
    std::strncpy(mine.host, session.host_name().c_str(), sizeof mine.host - 1);
    if (sched_getaffinity(0, sizeof mine.cores, &mine.cores) != 0) CPU_SET(0, &mine.cores); // more than 1,024 CPUs
    mine.host_cores = std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
    mine.threads = threads;
    mine.gpus = gpus;
    if (session.world_size() > 1) mine.build = build_checksum();
    if (const auto& shortage = session.shared_memory_shortage()) {
        mine.shared_memory_free = shortage->free_bytes;
        mine.shared_memory_wanted = shortage->wanted_bytes;
    }
    std::vector<RankFacts> all(static_cast<std::size_t>(session.world_size()));
    const auto deadline = dist::Deadline::after_seconds(timeout_seconds);
    session.world().gather(&mine, all.data(), sizeof mine, 0, deadline);
    session.world().broadcast(all.data(), all.size() * sizeof mine, 0, deadline);
    return all;
}

std::vector<Finding> findings_of(const std::vector<RankFacts>& ranks) {
    std::vector<Finding> findings;
    for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
        if (ranks[rank].build == ranks[0].build) continue;
        findings.push_back({true, "the program of rank " + std::to_string(rank) + " (host " + ranks[rank].host +
                                      ") is another build than that of rank 0 (host " + ranks[0].host +
                                      "): install the same file on every host"});
        break;
    }
    for (const auto& [host, here] : hosts_of(ranks)) {
        if (const std::string why = why_cores_are_few(ranks, here); !why.empty()) findings.push_back({false, why});
        if (const RankFacts& first = ranks[here.front()]; first.shared_memory_wanted > 0)
            findings.push_back({false, "host " + host + ": /dev/shm has " + kib(first.shared_memory_free) +
                                           " free, and its ranks want " + kib(first.shared_memory_wanted) +
                                           ": their messages go over MPI, which is slower; enlarge it (docker run "
                                           "--shm-size=64m, or mount -o remount,size=64m /dev/shm)"});
        const int gpus = ranks[here.front()].gpus;
        if (gpus > 0 && here.size() > static_cast<std::size_t>(gpus))
            findings.push_back({false, "host " + host + ": " + counted(here.size(), "rank") + " for " +
                                           counted(static_cast<std::size_t>(gpus), "GPU") +
                                           ": NCCL needs one for each rank; start no more ranks than GPUs"});
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
        text += (text.empty() ? "" : ",") + std::to_string(core) + (last > core ? "-" + std::to_string(last) : "");
        core = last;
    }
    return text;
}

void check_launch(dist::Session& session, double timeout_seconds, int threads, bool quiet) {
    for (const Finding& finding : findings_of(gather_facts(session, timeout_seconds, threads))) {
        if (finding.is_error) throw OrderlyFailure(kFailure, finding.text);
        if (session.world_rank() == 0 && !quiet) say("warning: " + finding.text);
    }
}

} // namespace entrodraft::launch
