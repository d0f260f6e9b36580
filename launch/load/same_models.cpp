// Digests of what each rank has opened, gathered to all ranks: see same_models.h.
#include "launch/load/same_models.h"

#include "dist/clock.h"
#include "launch/failure.h"
#include "launch/io/progress.h"
#include "launch/model_directory.h"
#include "launch/phase.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace entrodraft::launch {

namespace {

using DigestWords = std::vector<std::uint64_t>;

constexpr std::size_t kHostWords = 8; // a host's name of up to 63 bytes

std::uint64_t digest_of_text(std::string_view text, std::uint64_t seed) {
    return model::hash_block(std::as_bytes(std::span(text)), seed);
}

// 0 where there is no such file.
std::uint64_t digest_of_file(const std::filesystem::path& path) {
    std::error_code ignored; // who needs the file says why it cannot be looked at
    if (!std::filesystem::is_regular_file(path, ignored)) return 0;
    std::ifstream file(path, std::ios::binary);
    std::string chunk(std::size_t{1} << 20, '\0');
    std::uint64_t digest = 1;
    while (file.read(chunk.data(), static_cast<std::streamsize>(chunk.size())) || file.gcount() > 0)
        digest = digest_of_text({chunk.data(), static_cast<std::size_t>(file.gcount())}, digest);
    return digest;
}

// Names, types and shapes of all tensors.
std::uint64_t digest_of_headers(const model::Checkpoint& checkpoint) {
    std::uint64_t digest = 0;
    for (const auto& [name, tensor] : checkpoint.tensors()) {
        digest = digest_of_text(tensor.dtype, digest_of_text(name, digest));
        digest = model::hash_block(std::as_bytes(std::span(tensor.shape)), digest);
    }
    return digest;
}

struct NamedModel {
    std::string name; // "--target DIR"
    const OpenedModel* model = nullptr;
};

std::vector<NamedModel> models_of(const OpenedPair& pair) {
    std::vector<NamedModel> models = {{"--target " + pair.target.directory, &pair.target}};
    for (const OpenedModel& draft : pair.drafts)
        models.push_back({"--draft " + draft.directory, &draft});
    return models;
}

// What is small enough to be compared always; the same number of parts on every rank.
struct SmallPart {
    std::string name;
    std::uint64_t digest = 0;
};

std::vector<SmallPart> small_parts_of(const OpenedPair& pair) {
    std::vector<SmallPart> parts;
    for (const NamedModel& of : models_of(pair)) {
        for (const char* file : kSmallFiles)
            parts.push_back({std::string(file) + " of " + of.name, digest_of_file(of.model->path / file)});
        parts.push_back({"the list of tensors in " + of.name, digest_of_headers(*of.model->checkpoint)});
    }
    return parts;
}

// A digest of which files the weights lie in. Across hosts, device numbers say nothing.
std::uint64_t identity_of_files(const OpenedPair& pair, bool within_host) {
    std::uint64_t digest = within_host;
    for (const NamedModel& of : models_of(pair))
        for (model::FileIdentity file : of.model->checkpoint->files()) {
            if (!within_host) file.device = 0;
            digest = model::hash_block(std::as_bytes(std::span(&file, 1)), digest);
        }
    return digest;
}

// What all ranks bring, one row of `mine.size()` words a rank, which must be alike everywhere. Collective.
class WordTable {
  public:
    WordTable(dist::Session& session, const DigestWords& mine)
        : width_(mine.size()), words_(width_ * static_cast<std::size_t>(session.world_size())) {
        const dist::Deadline deadline = session.deadline();
        session.world().gather(mine.data(), words_.data(), width_ * sizeof(std::uint64_t), 0, deadline);
        session.world().broadcast(words_.data(), words_.size() * sizeof(std::uint64_t), 0, deadline);
    }
    std::span<const std::uint64_t> row(std::size_t rank) const {
        return std::span(words_).subspan(rank * width_, width_);
    }
    std::size_t n_ranks() const { return words_.size() / width_; }

  private:
    std::size_t width_;
    DigestWords words_;
};

// Host, identities, then the digests of the small parts.
DigestWords row_of_words(const dist::Session& session, const OpenedPair& pair) {
    DigestWords words(kHostWords);
    std::strncpy(reinterpret_cast<char*>(words.data()), session.host_name().c_str(),
                 kHostWords * sizeof(std::uint64_t) - 1);
    words.push_back(identity_of_files(pair, true));
    words.push_back(identity_of_files(pair, false));
    for (const SmallPart& part : small_parts_of(pair))
        words.push_back(part.digest);
    return words;
}

std::string rank_and_host(const WordTable& table, std::size_t rank) {
    return fmt::format("rank {} (host {})", rank, reinterpret_cast<const char*>(table.row(rank).data()));
}

[[noreturn]] void refuse_difference(const WordTable& table, std::size_t rank, const std::string& what) {
    throw OrderlyFailure(kFailure, fmt::format("{} differs between {} and {}: give every rank the same files", what,
                                               rank_and_host(table, rank), rank_and_host(table, 0)));
}

// Which copy of the weights each rank holds, numbered by the first rank that holds it.
struct Copies {
    explicit Copies(const WordTable& table) {
        std::map<DigestWords, std::size_t> known; // by host and identity on it
        for (std::size_t rank = 0; rank < table.n_ranks(); ++rank) {
            const auto row = table.row(rank);
            const auto [copy, is_new] =
                known.try_emplace(DigestWords(row.begin(), row.begin() + kHostWords + 1), ranks.size());
            if (is_new) ranks.emplace_back();
            of_rank.push_back(copy->second);
            ranks[copy->second].push_back(rank);
            are_alike = are_alike && row[kHostWords + 1] == table.row(0)[kHostWords + 1];
        }
    }
    std::size_t fewest_sharers() const {
        const auto less = [](const auto& a, const auto& b) { return a.size() < b.size(); };
        return std::min_element(ranks.begin(), ranks.end(), less)->size();
    }
    std::vector<std::size_t> of_rank;
    std::vector<std::vector<std::size_t>> ranks; // by copy
    bool are_alike = true;                       // in inodes, sizes and times
};

// The digests of a model, one a tensor, of this rank's share of its copy. All ranks read theirs in so many slices, as
// many as the largest share takes, and meet after each. Collective over the world.
DigestWords digest_share_of(dist::Session& session, const NamedModel& of, const Copies& copies,
                            model::DigestDepth depth, const ComparisonOptions& options) {
    const auto rank = static_cast<std::size_t>(session.world_rank());
    const std::vector<std::size_t>& sharers = copies.ranks[copies.of_rank[rank]];
    const auto index = static_cast<int>(std::find(sharers.begin(), sharers.end(), rank) - sharers.begin());
    const auto n_sharers = static_cast<int>(sharers.size()), fewest = static_cast<int>(copies.fewest_sharers());
    const model::Checkpoint& checkpoint = *of.model->checkpoint;
    const int n_slices = (model::shares_of_at_most(kMaxBytesBetweenMeetings, checkpoint, depth) + fewest - 1) / fewest;
    LoadingBar bar("comparing the copies of " + of.name, options.quiet || rank > 0);
    DigestWords digests(checkpoint.tensors().size());
    for (int slice = 0; slice < n_slices; ++slice)
        in_agreement(session, [&] {
            const auto progress = [&](std::size_t done, std::size_t total) {
                bar.update(static_cast<std::size_t>(slice) * total + done, static_cast<std::size_t>(n_slices) * total);
            };
            const model::DigestShare part = {index * n_slices + slice, n_sharers * n_slices};
            model::ThreadTeam team(options.threads);
            const DigestWords more = model::digest_tensors(checkpoint, depth, part, team, progress);
            std::transform(digests.begin(), digests.end(), more.begin(), digests.begin(), std::plus<>());
        });
    return digests;
}

void require_same_weights(const OpenedPair& pair, const Copies& copies, const WordTable& table,
                          const WordTable& shares) {
    const std::size_t width = shares.row(0).size();
    std::vector<DigestWords> digests(copies.ranks.size(), DigestWords(width));
    for (std::size_t rank = 0; rank < shares.n_ranks(); ++rank)
        for (std::size_t i = 0; i < width; ++i)
            digests[copies.of_rank[rank]][i] += shares.row(rank)[i];
    for (std::size_t copy = 1; copy < digests.size(); ++copy) {
        std::size_t at = 0;
        for (const NamedModel& of : models_of(pair))
            for (const auto& [name, tensor] : of.model->checkpoint->tensors())
                if (const std::size_t i = at++; digests[copy][i] != digests[0][i])
                    refuse_difference(table, copies.ranks[copy].front(), "tensor " + name + " of " + of.name);
    }
}

} // namespace

WeightComparison require_same_models(dist::Session& session, const OpenedPair& pair, const ComparisonOptions& options) {
    WeightComparison comparison;
    if (session.world_size() == 1) return comparison;
    DigestWords mine;
    in_agreement(session, [&] { mine = row_of_words(session, pair); });
    const WordTable table(session, mine);
    for (std::size_t rank = 1; rank < table.n_ranks(); ++rank)
        for (std::size_t i = kHostWords + 2; i < mine.size(); ++i)
            if (table.row(rank)[i] != table.row(0)[i])
                refuse_difference(table, rank, small_parts_of(pair)[i - kHostWords - 2].name);

    const Copies copies(table); // the same on all ranks, and so is all that follows from it
    comparison.n_copies = copies.ranks.size();
    if (comparison.n_copies == 1) return comparison;
    const bool samples = copies.are_alike && options.trusts_shared_files;
    comparison.depth = samples ? model::DigestDepth::sampled : model::DigestDepth::full;
    const dist::SteadyClock clock;
    const double start = clock.now_seconds();
    DigestWords share; // all models behind one another
    for (const NamedModel& of : models_of(pair)) {
        const DigestWords more = digest_share_of(session, of, copies, *comparison.depth, options);
        share.insert(share.end(), more.begin(), more.end());
    }
    comparison.seconds = clock.now_seconds() - start;
    require_same_weights(pair, copies, table, WordTable(session, share));
    for (const NamedModel& of : models_of(pair))
        comparison.copy_bytes += model::digested_bytes(*of.model->checkpoint, *comparison.depth);
    return comparison;
}

} // namespace entrodraft::launch
