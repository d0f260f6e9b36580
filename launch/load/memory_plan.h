// Checks, before anything is loaded, whether weights, KV cache and buffers of all ranks of a host, or of a GPU, fit its
// memory.
//
// This is arithmetic, except for planned_memory() and a look at the free memory that the system reports. A cache takes
// memory only when positions are first written. But the whole cache is counted, so that no run fails at its longest
// text. Called by model_pair.
#pragma once

#include "dist/session/session.h"
#include "launch/load/rank_device.h"
#include "model/families/config.h"

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>

namespace entrodraft::launch {

constexpr std::uint64_t kNotKnown = std::numeric_limits<std::uint64_t>::max();

// Memory that a rank will take. Trivially copyable: ranks send it to each other.
struct RankMemory {
    std::uint64_t host = 0; // hash of the host's name, or the identity of the GPU
    std::uint64_t weight_bytes = 0;
    std::uint64_t cache_bytes = 0;
    std::uint64_t buffer_bytes = 0;
    std::uint64_t min_buffer_bytes = 0; // the part of buffer_bytes that does not depend on the number of positions
    std::uint64_t available_bytes = kNotKnown; // free on its host before the rank takes any
    bool is_gpu = false;                       // `host` and `available_bytes` are a GPU's
    bool drafts_ahead = false;                 // its cache also holds continuations drafted ahead

    std::uint64_t total_bytes() const { return weight_bytes + cache_bytes + buffer_bytes; }
};

struct CacheShape {
    int sequences = 1;
    int positions = 0;                             // of each sequence
    int num_beams = 0;                             // of each sequence; 0: no beam search
    int tree_room = 0;                             // more positions of each sequence, for a round's tree; 0: no trees
    std::optional<model::WeightType> kv_type = {}; // as in model::DecoderOptions
};

// A model, or the part of it that this rank holds.
struct HeldModel {
    const model::ModelConfig* config = nullptr;
    model::WeightType type = model::WeightType::float32;
    int ranks = 1;  // number of ranks that it is sharded across
    int rank = 0;   // this rank's number among them
    int beside = 0; // more sequences in its cache than in the plan: continuations drafted ahead
    bool on_gpu = false;
    int kept_positions = 0;      // positions of a sequence that its cache holds at once; 0: all
    bool shares_weights = false; // it uses the weights of the model before it
    bool has_chunks = false;     // chunks of whole texts are kept, in that model's cache, else in one of its own
};

// Says in one line why the ranks do not fit their hosts: the numbers of the first such host, and what would help.
// Empty: they fit, or the free memory is not known.
std::string why_too_little_memory(std::span<const RankMemory> ranks, const CacheShape& cache);

// Returns the bytes that this process and its neighbours may still take: the least of what the host has available and
// what its control groups (version 1 or 2) leave. kNotKnown: the system does not say. `root`: where /proc and /sys are.
std::uint64_t available_memory_bytes(const std::filesystem::path& root = "/");

// Returns the memory that this rank will take for the models it holds. Each model has a cache of that shape, at most of
// its max_positions. Throws std::invalid_argument if that cannot be counted.
RankMemory memory_of(std::span<const HeldModel> held, int threads, const CacheShape& cache);

// Like memory_of(), with the free memory of the device. Throws OrderlyFailure. Collective over the world.
RankMemory planned_memory(dist::Session& session, std::span<const HeldModel> held, int threads, const CacheShape& cache,
                          const RankDevice& device);

} // namespace entrodraft::launch
