// Rows from ranks to coordinator: see row_gather.h.
#include "entrodraft/spec/row_gather.h"

#include "entrodraft/model/kernels/kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

namespace entrodraft::spec {

namespace {

constexpr std::size_t kStatusBytes = sizeof(std::uint64_t);
constexpr double kNone = -std::numeric_limits<double>::infinity();

} // namespace

RowForm row_form(const JudgingOptions& options, const SamplingOptions& sampling) {
    if (options.acceptance.kind == Acceptance::typical) return RowForm::logits;
    if (sampling.greedy()) return options.acceptance.lenience == 1 ? RowForm::best : RowForm::logits;
    if (options.acceptance.kind != Acceptance::gumbel) return RowForm::logits;
    switch (gumbel_gather(sampling)) {
    case GumbelGather::best:
        return RowForm::noisy_best;
    case GumbelGather::shortlist:
        return RowForm::shortlist;
    case GumbelGather::rows:
        return RowForm::logits;
    }
    throw std::invalid_argument("row_form: no such form");
}

RowGather::RowGather(const JudgingOptions& options, const dist::RankLayout& layout, dist::Communicator& replica,
                     const model::Decoder& target)
    : options_(options), layout_(layout), replica_(replica), target_(target),
      slice_(static_cast<std::size_t>(model::vocab_slice(target.config(), 0, layout.tp_size).size())) {}

void RowGather::begin_sequence(const Request& request) {
    sampling_ = request.sampling;
    form_ = row_form(options_, sampling_);
    noise_.emplace(sampling_.seed, request.sequence_key);
    processor_.reset();
    if (request.processing.is_off()) return;
    std::vector<TokenId> eos_tokens;
    for (const std::int64_t token : target_.config().eos_token_ids)
        eos_tokens.push_back(static_cast<TokenId>(token));
    processor_.emplace(request.processing, request.prompt, eos_tokens);
}

model::LogitSummary RowGather::summary() const {
    return form_ == RowForm::best && !processor_ ? model::LogitSummary::max : model::LogitSummary::none;
}

std::size_t RowGather::row_bytes() const {
    switch (form_) {
    case RowForm::best:
    case RowForm::noisy_best:
        return sizeof(BestToken);
    case RowForm::shortlist:
        return shortlist_bytes(sampling_);
    case RowForm::logits:
        return slice_ * sizeof(float);
    }
    throw std::invalid_argument("row_bytes: no such form");
}

// Tokens of this rank's slice that count.
std::size_t RowGather::known() const {
    const dist::Slice local = target_.local_vocab();
    return static_cast<std::size_t>(std::clamp<std::int64_t>(options_.vocab_size - local.begin, 0, local.size()));
}

int RowGather::first_target_rank() const {
    return replica_.size() - layout_.tp_size; // a dedicated drafter stands before them
}

RowGather::View RowGather::view_of(const RankRows& rows) {
    const auto local = static_cast<std::size_t>(target_.local_vocab().size());
    if (!processor_) return {rows.scores->logits, rows.scores->logits_stride, local};
    processed_.clear();
    for (std::size_t row = 0; row <= rows.drafted.size(); ++row) {
        const auto from = rows.scores->logits.subspan(row * rows.scores->logits_stride, local);
        processed_.insert(processed_.end(), from.begin(), from.end());
    }
    processor_->follow(rows.prefix);
    processor_->apply_to_rows(rows.drafted, processed_, static_cast<TokenId>(target_.local_vocab().begin));
    return {processed_, local, local};
}

void RowGather::gather(std::uint64_t status, const RankRows& rows, dist::Deadline deadline) {
    const std::size_t n_rows = rows.scores ? rows.drafted.size() + 1 : 0;
    const bool alone = replica_.size() == 1 && form_ == RowForm::logits; // the rows need not be copied
    position_ = rows.prefix.size();
    sent_.resize(kStatusBytes + (alone ? 0 : n_rows * row_bytes()));
    std::memcpy(sent_.data(), &status, sizeof status);
    View view;
    if (n_rows > 0) view = view_of(rows);
    for (std::size_t row = 0; row < n_rows && !alone; ++row)
        write_row(view, rows, row, std::span(sent_).subspan(kStatusBytes + row * row_bytes(), row_bytes()));
    if (layout_.is_coordinator()) gathered_.resize(sent_.size() * static_cast<std::size_t>(replica_.size()));
    replica_.gather(sent_.data(), gathered_.data(), sent_.size(), dist::RankLayout::kCoordinatorReplicaRank, deadline);
    if (!layout_.is_coordinator() || form_ != RowForm::logits || n_rows == 0) return;
    if (alone) {
        rows_ = view.logits;
        row_stride_ = view.stride;
    } else {
        assemble(n_rows);
    }
}

void RowGather::write_row(const View& view, const RankRows& rows, std::size_t row, std::span<std::byte> to) {
    const std::span<const float> logits = view.row(row);
    if (form_ == RowForm::logits) {
        std::memcpy(to.data(), logits.data(), logits.size_bytes());
    } else if (form_ == RowForm::shortlist) {
        const auto first = static_cast<TokenId>(target_.local_vocab().begin);
        make_shortlist({logits.first(known()), first, rows.prefix.size() + row}, sampling_, *noise_, to);
    } else {
        const BestToken best = best_of_slice(logits.first(known()), rows, row);
        std::memcpy(to.data(), &best, sizeof best);
    }
}

BestToken RowGather::best_of_slice(std::span<const float> logits, const RankRows& rows, std::size_t row) const {
    const auto first = static_cast<TokenId>(target_.local_vocab().begin);
    if (form_ == RowForm::noisy_best)
        return noisy_best({logits, first, rows.prefix.size() + row}, sampling_.temperature, *noise_);
    if (logits.empty()) return {}; // this rank knows none of the tokens that count
    const model::kernels::LogitStats stats =
        processor_ ? model::kernels::best_kernels().logit_max(logits.data(), static_cast<int>(logits.size()), first)
                   : rows.scores->summaries[row];
    BestToken best{static_cast<double>(stats.max), stats.arg_max, kNone};
    if (options_.record_margins)
        for (std::size_t i = 0; i < logits.size(); ++i)
            if (first + static_cast<TokenId>(i) != best.token)
                best.runner_up = std::max(best.runner_up, static_cast<double>(logits[i]));
    return best;
}

std::span<const std::byte> RowGather::gathered_row(int rank, std::size_t row) const {
    const std::size_t of_rank = static_cast<std::size_t>(rank) * sent_.size();
    return std::span(gathered_).subspan(of_rank + kStatusBytes + row * row_bytes(), row_bytes());
}

bool RowGather::any_status(std::uint64_t status) const {
    for (int rank = 0; rank < replica_.size(); ++rank) {
        std::uint64_t of_rank;
        std::memcpy(&of_rank, gathered_.data() + static_cast<std::size_t>(rank) * sent_.size(), sizeof of_rank);
        if (of_rank == status) return true;
    }
    return false;
}

// Puts the ranks' slices side by side: [rows][vocab].
void RowGather::assemble(std::size_t rows) {
    row_stride_ = static_cast<std::size_t>(target_.config().vocab_size);
    assembled_.resize(rows * row_stride_);
    for (int tp_rank = 0; tp_rank < layout_.tp_size; ++tp_rank) {
        const dist::Slice slice = model::vocab_slice(target_.config(), tp_rank, layout_.tp_size);
        for (std::size_t row = 0; row < rows; ++row)
            std::memcpy(assembled_.data() + row * row_stride_ + slice.begin,
                        gathered_row(first_target_rank() + tp_rank, row).data(),
                        static_cast<std::size_t>(slice.size()) * sizeof(float));
    }
    rows_ = assembled_;
}

BestToken RowGather::best(std::size_t row) const {
    if (form_ == RowForm::shortlist) {
        std::vector<std::byte> shortlists;
        for (int rank = first_target_rank(); rank < replica_.size(); ++rank) {
            const std::span<const std::byte> of_rank = gathered_row(rank, row);
            shortlists.insert(shortlists.end(), of_rank.begin(), of_rank.end());
        }
        return best_of_shortlists(shortlists, sampling_);
    }
    if (form_ == RowForm::logits) return noisy_best_adjusted({logits(row), 0, position_ + row}, sampling_, *noise_);
    BestToken best;
    for (int rank = first_target_rank(); rank < replica_.size(); ++rank) {
        BestToken of_rank;
        std::memcpy(&of_rank, gathered_row(rank, row).data(), sizeof of_rank);
        best = better(best, of_rank);
    }
    if (best.value == kNone && processor_) throw NothingToSay();
    if (!std::isfinite(best.value))
        throw std::runtime_error("the largest logit of row " + std::to_string(row) + " is infinite or no number");
    return best;
}

std::span<const float> RowGather::logits(std::size_t row) const {
    return rows_.subspan(row * row_stride_, static_cast<std::size_t>(options_.vocab_size));
}

} // namespace entrodraft::spec
