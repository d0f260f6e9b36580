// Whether all ranks hold the same models: their configurations, tokenizers, tensor headers and stored weights.
//
// Ranks of one host that have opened the same inodes hold one copy, and one copy is not compared with itself. Copies
// with the same inode numbers, sizes and times on several hosts are taken for a shared file system: some KiB of each
// tensor are compared. Any other copies are compared byte for byte, by 64-bit digests; the ranks that hold a copy
// share the reading of it. No rank reads more than kMaxBytesBetweenMeetings of weights before it meets the others, so
// that --collective-timeout bounds the reading of so much, and not of a share, which is large where a copy has few
// ranks. Called by model_pair and doctor.
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
    bool trusts_shared_files = true; // false: compared byte for byte, too
};

// What was compared of the weights. The same on all ranks.
struct WeightComparison {
    std::size_t n_copies = 1;     // 1: all ranks opened the same files, and no weights were compared
    std::uint64_t copy_bytes = 0; // that were read of each copy
    double seconds = 0;           // of the slowest rank
};

// A digest of configuration, tokenizer, list of tensors and some KiB of each tensor. That of a file is of all of it,
// and 0 where it is no regular file.
std::uint64_t digest_of(const OpenedModel& model);
std::uint64_t digest_of(const OpenedHead& head);
std::uint64_t digest_of_file(const std::filesystem::path& path);

// Throws OrderlyFailure naming rank, host, model and file or tensor where one differs. Collective over the world.
WeightComparison require_same_models(dist::Session& session, const OpenedPair& pair, const ComparisonOptions& options);

} // namespace entrodraft::launch
