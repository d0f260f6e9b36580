// Sums by host, and Linux's figures of free memory: see memory_plan.h.
#include "launch/load/memory_plan.h"

#include "launch/io/report.h"
#include "launch/start/phase.h"
#include "model/footprint/inspection.h"
#include "model/pass/kv_cache.h"
#include "spec/beams/beam_tree.h"
#include "spec/verify/random.h"

#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

namespace entrodraft::launch {

namespace {

namespace fs = std::filesystem;

// Sums over the host's ranks.
struct HostMemory : RankMemory {
    int ranks = 0;
};

// Returns the positions, in whole blocks of the cache, that fit with weights and smallest buffers; 0: none fit.
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
    return fmt::format("{}{}{}{}take a smaller --dtype, fewer --replicas or more {}",
                       positions > 0 ? fmt::format("give --max-context {} or less, ", positions) : "",
                       cache.sequences > 1   ? "lower --batch-size, "
                       : cache.num_beams > 0 ? "lower --num-beams, "
                                             : "",
                       host.drafts_ahead ? "lower --draft-ahead, " : "", positions > 0 ? "or " : "",
                       host.is_gpu ? "GPUs" : "hosts");
}

// Returns the number in a file that holds nothing else; none if there is no such file or it says "max".
std::optional<std::uint64_t> number_in(const fs::path& file) {
    std::ifstream stream(file);
    std::uint64_t number = 0;
    if (!(stream >> number)) return std::nullopt;
    return number;
}

// Returns the number that follows `name` at the beginning of a line.
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

// Returns the memory that a control group and its parents leave. File pages that can be dropped at once count as free.
std::uint64_t left_by_groups(const fs::path& top, fs::path group, const char* limit_name, const char* usage_name) {
    std::uint64_t left = kNotKnown;
    for (;;) {
        const fs::path directory = top / group.relative_path();
        const auto limit = number_in(directory / limit_name), usage = number_in(directory / usage_name);
        if (limit && usage) {
            const fs::path statistics = directory / "memory.stat";
            const std::uint64_t droppable =
                std::max(number_after(statistics, "inactive_file").value_or(0),
                         number_after(statistics, "total_inactive_file").value_or(0)); // of version 1, with children
            const std::uint64_t taken = *usage - std::min(*usage, droppable);
            left = std::min(left, *limit - std::min(*limit, taken));
        }
        if (group.relative_path().empty()) return left;
        group = group.parent_path();
    }
}

// Returns how many positions of the cache take as much memory as the mean keys of the chunks in `all` positions. A
// chunk's mean key is float32.
int positions_of_means(const HeldModel& part, const CacheShape& cache, int all) {
    const model::ModelConfig& config = *part.config;
    const model::WeightType type = kv_type_of(config, part.type, cache.kv_type);
    const auto of_position = model::KvCache::bytes_of_position(type, config.key_dim(), config.value_dim());
    const auto of_mean = model::KvCache::bytes_of_position(model::WeightType::float32, config.key_dim(), 0);
    const auto chunks = static_cast<std::size_t>(all / model::RetrievalOptions::kChunk);
    return static_cast<int>((chunks * of_mean + of_position - 1) / of_position);
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
        host.drafts_ahead |= rank.drafts_ahead;
        ++host.ranks;
    }
    for (const RankMemory& rank : ranks) {
        const HostMemory& host = hosts[rank.host];
        if (host.total_bytes() <= host.available_bytes) continue;
        return fmt::format(
            "not enough memory: {} of a {} {} {} (weights {}, KV cache of {} of {} positions {}, buffers {}), and it "
            "has {} left: {}",
            host.ranks > 1 ? fmt::format("the {} ranks", host.ranks) : "the rank", host.is_gpu ? "GPU" : "host",
            host.ranks > 1 ? "need" : "needs", format_bytes(host.total_bytes()), format_bytes(host.weight_bytes),
            counted(cache.sequences, "sequence"), format_count(cache.positions), format_bytes(host.cache_bytes),
            format_bytes(host.buffer_bytes), format_bytes(host.available_bytes), remedy(host, cache));
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
        const int all = std::min(cache.positions, part.config->max_positions);
        int positions = part.kept_positions > 0 ? std::min(all, part.kept_positions) : all;
        if (part.has_chunks) positions += (part.shares_weights ? 0 : all) + positions_of_means(part, cache, all);
        const int in_trees = cache.num_beams > 0 ? spec::tree_positions(cache.num_beams, positions) : 0;
        model::RunShape run = {part.ranks,
                               threads,
                               cache.sequences + part.beside,
                               positions + in_trees + cache.tree_room,
                               part.type,
                               part.on_gpu,
                               in_trees,
                               cache.kv_type};
        const model::RankNeeds needs = needs_of(*part.config, run, part.rank);
        run.length = 1;
        if (!part.shares_weights) memory.weight_bytes += needs.weight_bytes;
        memory.cache_bytes += needs.cache_bytes;
        memory.drafts_ahead |= part.beside > 0;
        memory.buffer_bytes += needs.activation_bytes;
        memory.min_buffer_bytes += needs_of(*part.config, run, part.rank).activation_bytes;
    }
    return memory;
}

RankMemory planned_memory(dist::Session& session, std::span<const HeldModel> held, int threads, const CacheShape& cache,
                          const RankDevice& device) {
    RankMemory mine;
    in_agreement(session, [&] {
        mine = memory_of(held, threads, cache);
        if (device.is_gpu)
            mine.available_bytes = free_gpu_bytes();
        else if (device.is_cpu()) // the free memory of torch's other devices is not known
            mine.available_bytes = available_memory_bytes();
    });
    mine.is_gpu = device.is_gpu;
    mine.host =
        device.is_gpu ? device.identity : spec::hash_bytes(session.host_name().data(), session.host_name().size());
    return mine;
}

} // namespace entrodraft::launch
