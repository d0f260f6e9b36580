// Checks whether all ranks have the same models: their configurations, tokenizers, tensor headers and stored weights.
//
// Ranks of one host that have opened the same inodes share one copy, which is not compared with itself. Copies on
// several hosts with the same inode numbers, sizes and times are assumed to be in a shared file system: only some KiB
// of each tensor are compared. Other copies are compared byte for byte, by 64-bit digests. The ranks that share a copy
// divide the reading.
//
// No rank reads more than kMaxBytesBetweenMeetings of weights before it meets the others. So --collective-timeout
// limits the time for that number of bytes. It does not limit the time for a rank's whole share, which is large if few
// ranks share a copy. Called by model_pair and doctor.
#pragma once

#include "dist/session/session.h"
#include "launch/load/opened_model.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace entrodraft::launch {

inline constexpr std::size_t kMaxBytesBetweenMeetings = std::size_t{256} << 20;

struct ComparisonOptions {
    int threads = 1;
    bool quiet = true;               // no progress bar
    bool trusts_shared_files = true; // false: shared files, too, are compared byte for byte
};

// The comparison of the weights. The same on all ranks.
struct WeightComparison {
    std::size_t n_copies = 1;     // 1: all ranks opened the same files, and no weights were compared
    std::uint64_t copy_bytes = 0; // bytes that were read of each copy
    double seconds = 0;           // time of the slowest rank
};

// Digests of configuration, tokenizer, list of tensors and some KiB of each tensor. digest_of_file() digests the whole
// file; it returns 0 if the path is no regular file.
std::uint64_t digest_of(const OpenedModel& model);
std::uint64_t digest_of(const OpenedHead& head);
std::uint64_t digest_of_file(const std::filesystem::path& path);

// Throws OrderlyFailure that names rank, host, model and file or tensor if one differs. Collective over the world.
WeightComparison require_same_models(dist::Session& session, const OpenedPair& pair, const ComparisonOptions& options);

} // namespace entrodraft::launch
