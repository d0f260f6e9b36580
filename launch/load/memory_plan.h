// Whether weights, KV cache and buffers of all ranks of a host, or of a GPU, fit its memory, before anything is loaded.
//
// Arithmetic, but for planned_memory() and a look at what the system says is free. A cache takes memory only as
// positions are first written; it is counted whole all the same, so that no run dies of its longest text. Called by
// model_pair.
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

// What a rank will take. Trivially copyable: ranks hand it to each other.
struct RankMemory {
    std::uint64_t host = 0; // hash of its host's name, or of its GPU's number
    std::uint64_t weight_bytes = 0;
    std::uint64_t cache_bytes = 0;
    std::uint64_t buffer_bytes = 0;
    std::uint64_t min_buffer_bytes = 0;        // of them, however few the positions
    std::uint64_t available_bytes = kNotKnown; // on its host, before any of it is taken
    bool is_gpu = false;                       // `host` and what is there are a GPU's

    std::uint64_t total_bytes() const { return weight_bytes + cache_bytes + buffer_bytes; }
};

struct CacheShape {
    int sequences = 1;
    int positions = 0;                             // of each
    int num_beams = 0;                             // of each; 0: no beam search
    int tree_room = 0;                             // positions of each beside these, for a round's tree; 0: no trees
    std::optional<model::WeightType> kv_type = {}; // as model::DecoderOptions has it
};

// A model, or the part of it that this rank holds.
struct HeldModel {
    const model::ModelConfig* config = nullptr;
    model::WeightType type = model::WeightType::float32;
    int ranks = 1;  // that it is sharded across
    int rank = 0;   // of them
    int beside = 0; // sequences that its cache holds beside those of the plan: continuations drafted ahead
    bool on_gpu = false;
    int kept_positions = 0;      // of a sequence, that its cache holds at once; 0: all
    bool shares_weights = false; // with the model before it
    bool has_chunks = false;     // of whole texts, in the cache of that model, else in one more of its own
};

// Why the ranks do not fit their hosts, in one line with the numbers and what would help, of the first such host;
// empty: they fit, or nobody knows.
std::string why_too_little_memory(std::span<const RankMemory> ranks, const CacheShape& cache);

// Bytes that this process and those beside it may still take: the least of what the host has available and what its
// control groups (version 1 or 2) leave; kNotKnown: the system does not say. `root`: where /proc and /sys are.
std::uint64_t available_memory_bytes(const std::filesystem::path& root = "/");

// What this rank will take for the models it holds, each with a cache of that shape or of all positions it has. Throws
// std::invalid_argument where that cannot be counted.
RankMemory memory_of(std::span<const HeldModel> held, int threads, const CacheShape& cache);

// The same with what is free where it goes. Throws OrderlyFailure. Collective over the world.
RankMemory planned_memory(dist::Session& session, std::span<const HeldModel> held, int threads, const CacheShape& cache,
                          const RankDevice& device);

} // namespace entrodraft::launch
