// Gathers digests of the files that each rank has opened, and gives them to all ranks: see same_models.h.
#include "launch/load/same_models.h"

#include "dist/rank/clock.h"
#include "launch/io/progress.h"
#include "launch/start/failure.h"
#include "launch/start/model_directory.h"
#include "launch/start/phase.h"
#include "model/cpu/kernels.h"
#include "model/files/gguf_file.h"
#include "model/weights/tensor_digest.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::launch {

namespace {

using Digests = std::vector<std::uint64_t>;

std::uint64_t digest_of_text(std::string_view text, std::uint64_t seed) {
    return model::hash_block(std::as_bytes(std::span(text)), seed);
}

} // namespace

std::uint64_t digest_of_file(const std::filesystem::path& path) {
    std::error_code ignored; // the reader of the file reports why it cannot be opened
    if (!std::filesystem::is_regular_file(path, ignored)) return 0;
    std::ifstream file(path, std::ios::binary);
    std::string chunk(std::size_t{1} << 20, '\0');
    std::uint64_t digest = 1;
    while (file.read(chunk.data(), static_cast<std::streamsize>(chunk.size())) || file.gcount() > 0)
        digest = digest_of_text({chunk.data(), static_cast<std::size_t>(file.gcount())}, digest);
    return digest;
}

namespace {

// Digests names, types and shapes of all tensors.
std::uint64_t digest_of_headers(const model::Checkpoint& checkpoint) {
    std::uint64_t digest = 0;
    for (const auto& [name, tensor] : checkpoint.tensors()) {
        digest = digest_of_text(tensor.dtype, digest_of_text(name, digest));
        digest = model::hash_block(std::as_bytes(std::span(tensor.shape)), digest);
    }
    return digest;
}

// A file, a list or a tensor, with a digest of what this rank has read of it. All ranks have the same number of parts.
struct Part {
    std::string name;
    std::uint64_t digest = 0;
    const char* remedy = "give every rank the same files";
};

// Digests the files of a model other than its weights.
std::vector<Part> small_parts_of(const OpenedModel& model) {
    std::vector<Part> parts;
    for (const char* file : kSmallFiles)
        parts.push_back({fmt::format("{} of {}", file, model.name), digest_of_file(model.path / file)});
    const auto gguf = model::gguf_file_of(model.path);
    parts.push_back({"what a GGUF file says of " + model.name,
                     gguf ? digest_of_text(model::open_gguf(*gguf).metadata.dump(), 1) : 0});
    parts.push_back({"the list of tensors in " + model.name, digest_of_headers(*model.checkpoint)});
    return parts;
}

// Digests the parts that are small enough to be compared always.
std::vector<Part> small_parts_of(const OpenedPair& pair) {
    std::vector<Part> parts;
    for (const OpenedModel* model : models_of(pair)) {
        std::ranges::move(small_parts_of(*model), std::back_inserter(parts));
        if (model->config.n_expert_layers() > 0) // each rank chooses them
            parts.push_back({"the instruction set, on which the choice of experts depends in near ties,",
                             digest_of_text(model::kernels::best_kernels().name, 1),
                             "run all ranks on processors of one kind"});
    }
    if (pair.head) {
        parts.push_back({"config.json of " + pair.head->name, digest_of_file(pair.head->path / "config.json")});
        for (const model::HeadModule& module : pair.head->head.modules)
            parts.push_back({"the list of tensors in " + pair.head->name, digest_of_headers(module.weights)});
    }
    return parts;
}

// Identifies the files from which a rank has opened the weights. Goes through a collective as it is.
struct RankFiles {
    char host[64] = {}; // zero-terminated
    std::uint64_t on_host = 0, anywhere = 0;

    bool is_copy_of(const RankFiles& other) const {
        return std::strcmp(host, other.host) == 0 && on_host == other.on_host;
    }
};

// Across hosts, device numbers say nothing.
RankFiles files_of(const dist::Session& session, const OpenedPair& pair) {
    RankFiles files;
    std::strncpy(files.host, session.host_name().c_str(), sizeof files.host - 1);
    for (const OpenedModel* model : models_of(pair))
        for (model::FileIdentity file : model->checkpoint->files()) {
            files.on_host = model::hash_block(std::as_bytes(std::span(&file, 1)), files.on_host);
            file.device = 0;
            files.anywhere = model::hash_block(std::as_bytes(std::span(&file, 1)), files.anywhere);
        }
    return files;
}

// Returns the digests of all ranks, by rank. Collective over the world.
std::vector<Digests> digests_of_all(dist::Session& session, const std::vector<Part>& parts) {
    Digests mine;
    for (const Part& part : parts)
        mine.push_back(part.digest);
    Digests all(mine.size() * static_cast<std::size_t>(session.world_size()));
    const dist::Deadline deadline = session.deadline();
    session.world().gather(mine.data(), all.data(), mine.size() * sizeof mine[0], 0, deadline);
    session.world().broadcast(all.data(), all.size() * sizeof all[0], 0, deadline);
    std::vector<Digests> rows;
    for (auto row = all.begin(); row != all.end(); row += std::ssize(mine))
        rows.emplace_back(row, row + std::ssize(mine));
    return rows;
}

// `digests` has the digests of each rank.
void require_same_digests(const std::vector<Part>& parts, const std::vector<Digests>& digests,
                          const std::vector<RankFiles>& ranks) {
    for (std::size_t rank = 1; rank < ranks.size(); ++rank)
        for (std::size_t i = 0; i < parts.size(); ++i)
            if (digests[rank][i] != digests[0][i])
                throw OrderlyFailure(
                    kFailure, fmt::format("{} differs between rank {} (host {}) and rank 0 (host {}): {}",
                                          parts[i].name, rank, ranks[rank].host, ranks[0].host, parts[i].remedy));
}

// Ranks of each copy of the weights. Copies are in the order of their first ranks.
using Copies = std::vector<std::vector<std::size_t>>;

Copies copies_of(const std::vector<RankFiles>& ranks) {
    Copies copies;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        const auto same = std::ranges::find_if(
            copies, [&](const auto& sharers) { return ranks[rank].is_copy_of(ranks[sharers.front()]); });
        (same != copies.end() ? *same : copies.emplace_back()).push_back(rank);
    }
    return copies;
}

// Digests this rank's share of its copy of a model's tensors. All ranks read their shares in the same number of slices,
// enough for the largest share, and meet after each slice. Collective over the world.
void digest_share_of(dist::Session& session, const OpenedModel& model, const Copies& copies, model::DigestDepth depth,
                     const ComparisonOptions& options, std::vector<Part>& tensors) {
    const auto rank = static_cast<std::size_t>(session.world_rank());
    const auto& sharers =
        *std::ranges::find_if(copies, [&](const auto& ranks) { return std::ranges::find(ranks, rank) != ranks.end(); });
    const auto index = static_cast<int>(std::ranges::find(sharers, rank) - sharers.begin());
    const auto n_sharers = static_cast<int>(sharers.size());
    const auto fewest = static_cast<int>(std::ranges::min(copies, {}, &Copies::value_type::size).size());
    const model::Checkpoint& checkpoint = *model.checkpoint;
    const int n_slices = (model::shares_of_at_most(kMaxBytesBetweenMeetings, checkpoint, depth) + fewest - 1) / fewest;
    LoadingBar bar("comparing the copies of " + model.name, options.quiet || rank > 0);
    const std::size_t first = tensors.size();
    for (const auto& [name, tensor] : checkpoint.tensors())
        tensors.push_back({fmt::format("tensor {} of {}", name, model.name)});
    for (int slice = 0; slice < n_slices; ++slice)
        in_agreement(session, [&] {
            const auto progress = [&](std::size_t done, std::size_t total) {
                bar.update(static_cast<std::size_t>(slice) * total + done, static_cast<std::size_t>(n_slices) * total);
            };
            const model::DigestShare part = {index * n_slices + slice, n_sharers * n_slices};
            model::ThreadTeam team(options.threads);
            const Digests more = model::digest_tensors(checkpoint, depth, part, team, progress);
            for (std::size_t i = 0; i < more.size(); ++i)
                tensors[first + i].digest += more[i];
        });
}

// Returns, for each rank, the digests of the copy that it holds. They are sums over the ranks' shares of the copy.
std::vector<Digests> digests_of_copies(const Copies& copies, const std::vector<Digests>& shares) {
    std::vector<Digests> digests(shares.size());
    for (const std::vector<std::size_t>& sharers : copies) {
        Digests sum(shares[0].size());
        for (const std::size_t rank : sharers)
            std::ranges::transform(sum, shares[rank], sum.begin(), std::plus<>());
        for (const std::size_t rank : sharers)
            digests[rank] = sum;
    }
    return digests;
}

std::uint64_t digest_of_samples(const model::Checkpoint& checkpoint, std::uint64_t digest) {
    model::ThreadTeam team(1);
    const Digests tensors = model::digest_tensors(checkpoint, model::DigestDepth::sampled, {}, team);
    return model::hash_block(std::as_bytes(std::span(tensors)), digest);
}

} // namespace

std::uint64_t digest_of(const OpenedModel& model) {
    Digests digests;
    for (const Part& part : small_parts_of(model))
        digests.push_back(part.digest);
    return digest_of_samples(*model.checkpoint, model::hash_block(std::as_bytes(std::span(digests)), 0));
}

std::uint64_t digest_of(const OpenedHead& head) {
    std::uint64_t digest = digest_of_file(head.path / "config.json");
    for (const model::HeadModule& module : head.head.modules)
        digest = digest_of_samples(module.weights, digest ^ digest_of_headers(module.weights));
    return digest;
}

WeightComparison require_same_models(dist::Session& session, const OpenedPair& pair, const ComparisonOptions& options) {
    WeightComparison comparison;
    if (session.world_size() == 1) return comparison;
    std::vector<Part> small;
    in_agreement(session, [&] { small = small_parts_of(pair); });
    const std::vector<RankFiles> ranks = from_all(session, files_of(session, pair));
    require_same_digests(small, digests_of_all(session, small), ranks);

    const Copies copies = copies_of(ranks); // the same on all ranks, and so is all that follows from it
    comparison.n_copies = copies.size();
    if (comparison.n_copies == 1) return comparison;
    const bool is_shared = std::ranges::all_of(
        ranks, [&](const RankFiles& files) { return files.anywhere == ranks[0].anywhere; }); // inodes, sizes and times
    const auto depth =
        is_shared && options.trusts_shared_files ? model::DigestDepth::sampled : model::DigestDepth::full;
    const dist::SteadyClock clock;
    const double start = clock.now_seconds();
    std::vector<Part> tensors; // of all models
    for (const OpenedModel* model : models_of(pair)) {
        digest_share_of(session, *model, copies, depth, options, tensors);
        comparison.copy_bytes += model::digested_bytes(*model->checkpoint, depth);
    }
    comparison.seconds = clock.now_seconds() - start;
    require_same_digests(tensors, digests_of_copies(copies, digests_of_all(session, tensors)), ranks);
    return comparison;
}

} // namespace entrodraft::launch
