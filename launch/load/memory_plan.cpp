// Sums by host, and what Linux says of free memory: see memory_plan.h.
#include "launch/load/memory_plan.h"

#include "launch/counted.h"
#include "launch/failure.h"
#include "launch/load/inspection_report.h"
#include "launch/phase.h"
#include "model/inspection.h"
#include "model/kv_cache.h"
#include "spec/verify/philox.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <vector>

namespace entrodraft::launch {

namespace {

namespace fs = std::filesystem;

struct HostMemory {
    std::uint64_t weight_bytes = 0;
    std::uint64_t cache_bytes = 0;
    std::uint64_t buffer_bytes = 0;
    std::uint64_t min_buffer_bytes = 0;
    std::uint64_t available_bytes = kNotKnown;
    int ranks = 0;
    bool is_gpu = false;

    std::uint64_t total_bytes() const { return weight_bytes + cache_bytes + buffer_bytes; }
};

// Positions, in whole blocks of the cache, that leave room for the rest; 0: none do.
int positions_that_fit(const HostMemory& host, const CacheShape& cache) {
    const std::uint64_t rest = host.weight_bytes + host.min_buffer_bytes;
    if (rest >= host.available_bytes) return 0;
    const double share =
        static_cast<double>(host.available_bytes - rest) / static_cast<double>(host.total_bytes() - rest);
    const int fitting = static_cast<int>(share * cache.positions);
    return fitting / model::KvCache::kBlock * model::KvCache::kBlock;
}

std::string remedy(const HostMemory& host, const CacheShape& cache) {
    const int positions = positions_that_fit(host, cache);
    std::string text;
    if (positions > 0) text += "give --max-context " + std::to_string(positions) + " or less, ";
    if (cache.sequences > 1) text += "lower --batch-size, ";
    return text + (positions > 0 ? "or " : "") + "take a smaller --dtype, fewer --replicas or more " +
           (host.is_gpu ? "GPUs" : "hosts");
}

// The number in a file that holds nothing else; none where there is no such file or it says "max".
std::optional<std::uint64_t> number_in(const fs::path& file) {
    std::ifstream stream(file);
    std::uint64_t number = 0;
    if (!(stream >> number)) return std::nullopt;
    return number;
}

// The number that follows `name` at the beginning of a line.
std::optional<std::uint64_t> number_after(const fs::path& file, const std::string& name) {
    std::ifstream stream(file);
    for (std::string line; std::getline(stream, line);) {
        std::istringstream words(line);
        std::string word;
        std::uint64_t number = 0;
        if (words >> word >> number && word == name) return number;
    }
    return std::nullopt;
}

// What a control group and those above it leave. File pages that it can drop at once are not counted as taken.
std::uint64_t left_by_groups(const fs::path& top, fs::path group, const char* limit_name, const char* usage_name) {
    std::uint64_t left = kNotKnown;
    for (;;) {
        const fs::path directory = top / group.relative_path();
        const auto limit = number_in(directory / limit_name), usage = number_in(directory / usage_name);
        if (limit && usage) {
            const fs::path statistics = directory / "memory.stat";
            const std::uint64_t droppable =
                std::max(number_after(statistics, "inactive_file").value_or(0),
                         number_after(statistics, "total_inactive_file").value_or(0)); // of version 1, children's too
            const std::uint64_t taken = *usage - std::min(*usage, droppable);
            left = std::min(left, *limit - std::min(*limit, taken));
        }
        if (group.relative_path().empty()) return left;
        group = group.parent_path();
    }
}

} // namespace

std::string why_too_little_memory(std::span<const RankMemory> ranks, const CacheShape& cache) {
    std::map<std::uint64_t, HostMemory> hosts;
    for (const RankMemory& rank : ranks) {
        HostMemory& host = hosts[rank.host];
        host.weight_bytes += rank.weight_bytes;
        host.cache_bytes += rank.cache_bytes;
        host.buffer_bytes += rank.buffer_bytes;
        host.min_buffer_bytes += rank.min_buffer_bytes;
        host.available_bytes = std::min(host.available_bytes, rank.available_bytes);
        host.is_gpu = rank.is_gpu;
        ++host.ranks;
    }
    for (const RankMemory& rank : ranks) {
        const HostMemory& host = hosts[rank.host];
        if (host.total_bytes() <= host.available_bytes) continue;
        return "not enough memory: " +
               std::string(host.ranks > 1 ? "the " + std::to_string(host.ranks) + " ranks" : "the rank") +
               (host.is_gpu ? " of a GPU" : " of a host") + " need" + (host.ranks > 1 ? " " : "s ") +
               format_bytes(host.total_bytes()) + " (weights " + format_bytes(host.weight_bytes) + ", KV cache of " +
               counted(cache.sequences, "sequence") + " of " + format_count(cache.positions) + " positions " +
               format_bytes(host.cache_bytes) + ", buffers " + format_bytes(host.buffer_bytes) + "), and it has " +
               format_bytes(host.available_bytes) + " left: " + remedy(host, cache);
    }
    return "";
}

std::uint64_t available_memory_bytes(const fs::path& root) {
    std::uint64_t available = kNotKnown;
    if (const auto kibibytes = number_after(root / "proc/meminfo", "MemAvailable:")) available = *kibibytes * 1024;
    std::ifstream groups(root / "proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) { // hierarchy:controllers:path
        const std::size_t first = line.find(':'), second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) continue;
        const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
        const fs::path group = line.substr(second + 1);
        const fs::path top = root / "sys/fs/cgroup";
        if (controllers == ",,")
            available = std::min(available, left_by_groups(top, group, "memory.max", "memory.current"));
        else if (controllers.find(",memory,") != std::string::npos)
            available = std::min(
                available, left_by_groups(top / "memory", group, "memory.limit_in_bytes", "memory.usage_in_bytes"));
    }
    return available;
}

RankMemory memory_of(std::span<const HeldModel> held, int threads, const CacheShape& cache) {
    RankMemory memory;
    for (const HeldModel& part : held) {
        const int positions = std::min(cache.positions, part.config->max_positions);
        model::RunShape run = {part.ranks, threads, cache.sequences + part.beside, positions, part.type, part.on_gpu};
        const model::RankNeeds needs = needs_of(*part.config, run, part.rank);
        run.length = 1;
        memory.weight_bytes += needs.weight_bytes;
        memory.cache_bytes += needs.cache_bytes;
        memory.buffer_bytes += needs.activation_bytes;
        memory.min_buffer_bytes += needs_of(*part.config, run, part.rank).activation_bytes;
    }
    return memory;
}

void require_memory(dist::Session& session, double timeout_seconds, std::span<const HeldModel> held, int threads,
                    const CacheShape& cache, const RankDevice& device) {
    RankMemory mine;
    in_agreement(session, timeout_seconds, [&] {
        mine = memory_of(held, threads, cache);
        mine.available_bytes = device.is_gpu ? free_bytes(device) : available_memory_bytes();
    });
    mine.is_gpu = device.is_gpu;
    mine.host =
        device.is_gpu ? device.identity : spec::hash_bytes(session.host_name().data(), session.host_name().size());
    std::vector<RankMemory> all(static_cast<std::size_t>(session.world_size()));
    const auto deadline = dist::Deadline::after_seconds(timeout_seconds);
    session.world().gather(&mine, all.data(), sizeof mine, 0, deadline);
    session.world().broadcast(all.data(), all.size() * sizeof mine, 0, deadline);
    const std::string why = why_too_little_memory(all, cache);
    if (!why.empty()) throw OrderlyFailure(kBadOptions, why); // the same on every rank
}

} // namespace entrodraft::launch
