// From a pass's logits to what travels, and back: see sequence_rows.h.
#include "spec/sequence_rows.h"

#include "model/cpu/kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

namespace entrodraft::spec {

namespace {

constexpr double kNoValue = -std::numeric_limits<double>::infinity();

} // namespace

RowForm row_form(const VerifyOptions& options, const SamplingOptions& sampling) {
    if (options.whole_rows || options.acceptance.kind == Acceptance::typical) return RowForm::logits;
    if (sampling.greedy()) return options.acceptance.lenience == 1 ? RowForm::best : RowForm::logits;
    if (options.acceptance.kind != Acceptance::gumbel) return RowForm::logits;
    switch (gumbel_gather(sampling)) {
    case GumbelGather::best:
        return RowForm::gumbel_max;
    case GumbelGather::shortlist:
        return RowForm::shortlist;
    case GumbelGather::rows:
        return RowForm::logits;
    }
    throw std::invalid_argument("row_form: no such form");
}

void SequenceRows::begin_sequence(const Request& request, bool verified_on_device) {
    sampling_ = request.sampling;
    form_ = verified_on_device ? RowForm::verified : row_form(setting_->options, sampling_);
    noise_.emplace(sampling_.seed, request.sequence_key);
    resample_.emplace(sampling_.seed, request.sequence_key, Purpose::resample);
    processor_.reset();
    if (request.processing.is_off()) return;
    std::vector<TokenId> eos_tokens;
    for (const std::int64_t token : setting_->config->eos_token_ids)
        eos_tokens.push_back(static_cast<TokenId>(token));
    processor_.emplace(request.processing, request.prompt, eos_tokens);
}

model::LogitNeeds SequenceRows::needs() const {
    if (form_ == RowForm::verified) return {model::LogitSummary::none, false};
    const bool is_best = form_ == RowForm::best || form_ == RowForm::gumbel_max;
    if (!is_best || processor_) return {};
    return {form_ == RowForm::best ? model::LogitSummary::max : model::LogitSummary::none,
            setting_->options.record_margins};
}

model::RowNoise SequenceRows::noise(std::uint64_t position) const {
    if (form_ != RowForm::gumbel_max || needs().rows) return {};
    return {noise_->key(), position, sampling_.temperature};
}

model::DraftedRow SequenceRows::drafted_row(const RankRows& rows, std::size_t i) const {
    if (form_ != RowForm::verified) return {};
    const bool is_block = setting_->options.acceptance.kind == Acceptance::block;
    const std::uint64_t first = rows.prefix.size(), round_start = is_block ? first : 0;
    model::DraftedRow row;
    if (i < rows.drafted.size()) row.drafted = rows.drafted[i];
    if (i < rows.draft_rows.size()) row.draft_logits = rows.draft_rows[i];
    row.is_first = i == 0;
    row.is_scaled = is_block;
    row.lenience = static_cast<float>(setting_->options.acceptance.lenience);
    row.noise = {resample_->key(), noise_position(first + i, round_start), sampling_.temperature};
    return row;
}

std::size_t SequenceRows::row_bytes() const {
    switch (form_) {
    case RowForm::verified:
        return sizeof(model::VerifiedRow);
    case RowForm::best:
    case RowForm::gumbel_max:
        return sizeof(BestToken);
    case RowForm::shortlist:
        return shortlist_bytes(sampling_);
    case RowForm::logits:
        return setting_->slice_floats * sizeof(float);
    }
    throw std::invalid_argument("row_bytes: no such form");
}

// ---- this rank's part ----

// Tokens of this rank's slice that count.
std::size_t SequenceRows::known() const {
    const dist::Slice local = setting_->target->local_vocab();
    const int vocab = setting_->options.vocab_size;
    return static_cast<std::size_t>(std::clamp<std::int64_t>(vocab - local.begin, 0, local.size()));
}

SequenceRows::View SequenceRows::view_of(const RankRows& rows) {
    const dist::Slice slice = setting_->target->local_vocab();
    const auto local = static_cast<std::size_t>(slice.size());
    const std::size_t stride = rows.scores->logits_stride;
    if (rows.scores->logits.empty()) return {}; // the summaries serve
    const std::span<const float> logits = rows.scores->logits.subspan(rows.first * stride);
    if (!processor_) return {logits, stride, local};
    processed_.clear();
    for (std::size_t row = 0; row < rows.count(); ++row) {
        const auto from = logits.subspan(row * stride, local);
        processed_.insert(processed_.end(), from.begin(), from.end());
    }
    processor_->follow(rows.prefix);
    processor_->apply_to_rows(rows.drafted, processed_, static_cast<TokenId>(slice.begin));
    return {processed_, local, local};
}

void SequenceRows::write(const RankRows& rows, std::span<std::byte> to) {
    if (!setting_->target) return std::fill(to.begin(), to.end(), std::byte{0});
    if (form_ == RowForm::verified) {
        const auto verified = std::as_bytes(rows.scores->verified.subspan(rows.first, rows.count()));
        std::copy(verified.begin(), verified.end(), to.begin());
        return;
    }
    const View view = view_of(rows);
    for (std::size_t row = 0; row < rows.count(); ++row)
        write_row(view, rows, row, to.subspan(row * row_bytes(), row_bytes()));
}

void SequenceRows::write_row(const View& view, const RankRows& rows, std::size_t row, std::span<std::byte> to) {
    const std::span<const float> logits = view.row(row);
    if (form_ == RowForm::logits) {
        std::memcpy(to.data(), logits.data(), logits.size_bytes());
    } else if (form_ == RowForm::shortlist) {
        const auto first = static_cast<TokenId>(setting_->target->local_vocab().begin);
        make_shortlist({logits.first(known()), first, rows.prefix.size() + row}, sampling_, *noise_, to);
    } else {
        const BestToken best = best_of_slice(logits.empty() ? logits : logits.first(known()), rows, row);
        std::memcpy(to.data(), &best, sizeof best);
    }
}

// `logits` is empty where the pass was not asked for them.
BestToken SequenceRows::best_of_slice(std::span<const float> logits, const RankRows& rows, std::size_t row) const {
    if (known() == 0) return {}; // this rank knows none of the tokens that count
    const auto first = static_cast<TokenId>(setting_->target->local_vocab().begin);
    const std::size_t place = rows.first + row;
    if (form_ == RowForm::gumbel_max) {
        if (!logits.empty())
            return gumbel_max({logits, first, rows.prefix.size() + row}, sampling_.temperature, *noise_);
        const model::NoisyToken& found = rows.scores->noisy[place];
        return {found.token < 0 ? kNoValue : found.value, found.token, kNoValue};
    }
    const model::kernels::LogitStats stats =
        processor_ ? model::kernels::best_kernels().logit_max(logits.data(), static_cast<int>(logits.size()), first)
                   : rows.scores->summaries[place];
    BestToken best{static_cast<double>(stats.max), stats.arg_max, kNoValue};
    if (setting_->options.record_margins)
        for (std::size_t i = 0; i < logits.size(); ++i)
            if (first + static_cast<TokenId>(i) != best.token)
                best.runner_up = std::max(best.runner_up, static_cast<double>(logits[i]));
    return best;
}

// ---- what all ranks handed over ----

void SequenceRows::take(std::span<const std::byte> parts, std::size_t stride, std::size_t n_rows,
                        std::uint64_t position) {
    parts_ = parts;
    part_stride_ = stride;
    position_ = position;
    if (form_ == RowForm::logits) assemble(n_rows);
}

void SequenceRows::take_own(const RankRows& rows) {
    const View view = view_of(rows);
    position_ = rows.prefix.size();
    rows_ = view.logits;
    row_stride_ = view.stride;
}

std::span<const std::byte> SequenceRows::part(int tp_rank, std::size_t row) const {
    const auto rank = static_cast<std::size_t>(setting_->first_target_rank + tp_rank);
    return parts_.subspan(rank * part_stride_ + row * row_bytes(), row_bytes());
}

// Puts the ranks' slices side by side: [rows][vocab].
void SequenceRows::assemble(std::size_t n_rows) {
    row_stride_ = static_cast<std::size_t>(setting_->config->vocab_size);
    assembled_.resize(n_rows * row_stride_);
    for (int tp_rank = 0; tp_rank < setting_->tp_size; ++tp_rank) {
        const dist::Slice slice = model::vocab_slice(*setting_->config, tp_rank, setting_->tp_size);
        for (std::size_t row = 0; row < n_rows; ++row)
            std::memcpy(assembled_.data() + row * row_stride_ + slice.begin, part(tp_rank, row).data(),
                        static_cast<std::size_t>(slice.size()) * sizeof(float));
    }
    rows_ = assembled_;
}

BestToken SequenceRows::best(std::size_t row) const {
    if (form_ == RowForm::shortlist) {
        std::vector<std::byte> shortlists;
        for (int tp_rank = 0; tp_rank < setting_->tp_size; ++tp_rank) {
            const std::span<const std::byte> of_rank = part(tp_rank, row);
            shortlists.insert(shortlists.end(), of_rank.begin(), of_rank.end());
        }
        return best_of_shortlists(shortlists, sampling_);
    }
    if (form_ == RowForm::logits) return gumbel_max_adjusted({logits(row), 0, position_ + row}, sampling_, *noise_);
    BestToken best;
    for (int tp_rank = 0; tp_rank < setting_->tp_size; ++tp_rank) {
        BestToken of_rank;
        std::memcpy(&of_rank, part(tp_rank, row).data(), sizeof of_rank);
        best = better(best, of_rank);
    }
    if (best.value == kNoValue && processor_) throw NothingToSay();
    if (!std::isfinite(best.value))
        throw std::runtime_error("the largest logit of row " + std::to_string(row) + " is infinite or no number");
    return best;
}

model::VerifiedRow SequenceRows::verified(std::size_t row) const {
    model::VerifiedRow verified;
    std::memcpy(&verified, part(0, row).data(), sizeof verified);
    return verified;
}

std::span<const float> SequenceRows::logits(std::size_t row) const {
    return rows_.subspan(row * row_stride_, static_cast<std::size_t>(setting_->options.vocab_size));
}

} // namespace entrodraft::spec
