// Rows from ranks to coordinator: see row_gather.h.
#include "spec/row_gather.h"

#include "dist/layout.h"

#include <cstring>

namespace entrodraft::spec {

namespace {

constexpr std::size_t kStatusBytes = sizeof(std::uint64_t);
constexpr int kRoot = dist::RankLayout::kCoordinatorReplicaRank;

} // namespace

RowGather::RowGather(const RowSetting& setting, dist::Communicator& replica, int n_slots)
    : replica_(replica), slots_(static_cast<std::size_t>(n_slots), SequenceRows(setting)) {}

bool RowGather::is_coordinator() const {
    return replica_.rank() == kRoot;
}

// A rank alone need not copy whole rows to itself.
bool RowGather::is_copied(const RankRows& rows) const {
    return replica_.size() > 1 || slot(rows.slot).form() != RowForm::logits;
}

model::LogitNeeds RowGather::needs(std::span<const RankRows> sequences) {
    model::LogitNeeds all(model::LogitSummary::none, false);
    noises_.clear();
    drafted_.clear();
    bool any_noise = false, any_verified = false;
    for (const RankRows& rows : sequences) {
        all = all.and_those_of(slot(rows.slot).needs());
        for (std::size_t i = 0; i < rows.count(); ++i) {
            noises_.push_back(slot(rows.slot).noise(rows.prefix.size() + i));
            any_noise = any_noise || noises_.back().temperature > 0;
            drafted_.push_back(slot(rows.slot).drafted_row(rows, i));
            any_verified = any_verified || drafted_.back().noise.temperature > 0;
        }
    }
    if (any_noise) all.noises = noises_;
    if (any_verified) all.drafted = drafted_;
    return all;
}

void RowGather::start(std::uint64_t status, std::span<const RankRows> sequences) {
    sequences_ = sequences;
    std::size_t bytes = kStatusBytes;
    for (const RankRows& rows : sequences)
        if (is_copied(rows)) bytes += rows.count() * slot(rows.slot).row_bytes();
    sent_.resize(bytes);
    std::memcpy(sent_.data(), &status, sizeof status);
    std::size_t at = kStatusBytes;
    for (const RankRows& rows : sequences) {
        if (!is_copied(rows)) continue;
        const std::size_t part = rows.count() * slot(rows.slot).row_bytes();
        slot(rows.slot).write(rows, std::span(sent_).subspan(at, part));
        at += part;
    }
    if (is_coordinator()) gathered_.resize(sent_.size() * static_cast<std::size_t>(replica_.size()));
    replica_.start_gather(sent_.data(), gathered_.data(), sent_.size(), kRoot);
}

void RowGather::finish(dist::Deadline deadline) {
    replica_.wait(deadline);
    if (!is_coordinator()) return;
    std::size_t at = kStatusBytes;
    for (const RankRows& rows : sequences_) {
        SequenceRows& sequence = slot(rows.slot);
        if (!is_copied(rows)) {
            sequence.take_own(rows);
            continue;
        }
        sequence.take(std::span(gathered_).subspan(at), sent_.size(), rows.count(), rows.prefix.size());
        at += rows.count() * sequence.row_bytes();
    }
}

bool RowGather::any_status(std::uint64_t status) const {
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(replica_.size()); ++rank) {
        std::uint64_t of_rank;
        std::memcpy(&of_rank, gathered_.data() + rank * sent_.size(), sizeof of_rank);
        if (of_rank == status) return true;
    }
    return false;
}

} // namespace entrodraft::spec
