#include "model/gpu/logit_outputs.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace entrodraft::model::gpu {

LogitOutputs::LogitOutputs(const GpuWorkspace& workspace)
    : w_(workspace), stats_parts_(index(kMaxRows) * kStatsBlocks), stats_(kMaxRows),
      noisy_parts_(index(kMaxRows) * kStatsBlocks), noisy_(kMaxRows), host_logits_(index(kMaxRows) * vocab()),
      host_stats_(kMaxRows), host_noisy_(kMaxRows) {}

LogitForm LogitOutputs::form_of(const Pass& pass) const {
    LogitForm form;
    form.rows_too = pass.needs.rows;
    if (pass.logit_rows.empty()) return form;
    form.n_rows = static_cast<int>(std::bit_ceil(pass.logit_rows.size()));
    form.summary = pass.needs.summary;
    form.has_noise = !pass.needs.noises.empty();
    form.keeps = pass.needs.keep_from >= 0;
    form.verifies = !pass.needs.drafted.empty();
    if (form.is_summarized() || form.verifies) {
        form.known = pass.summary_vocab > 0 ? pass.summary_vocab : w_.config.vocab_size;
        form.counted =
            static_cast<int>(std::clamp<std::int64_t>(form.known - w_.shard.vocab.begin, 0, w_.shard.vocab.size()));
    }
    return form;
}

void LogitOutputs::make_room_for(const LogitForm& form, const Pass& pass, dist::Deadline deadline) {
    if (form.keeps && kept_.size() == 0) kept_ = DeviceArray<float>(index(Decoder::kMaxKept) * vocab());
    if (form.keeps && index(pass.needs.keep_from) + pass.logit_rows.size() > index(Decoder::kMaxKept))
        throw std::invalid_argument("more rows are to be kept than there is room for");
    if (!form.verifies || verified_.size() > 0) return;
    mass_parts_ = DeviceArray<VerifyMasses>(index(kMaxRows) * kStatsBlocks);
    masses_ = DeviceArray<VerifyMasses>(kMaxRows);
    verify_parts_ = DeviceArray<VerifyPart>(index(kMaxRows) * kStatsBlocks);
    verified_ = DeviceArray<VerifiedRow>(kMaxRows);
    host_verified_ = PinnedArray<VerifiedRow>(kMaxRows);
    if (w_.tp.size() > 1) whole_rows_ = SummedArray(w_.tp, index(kMaxRows) * index(w_.config.vocab_size), deadline);
}

void LogitOutputs::compute(const LogitForm& form, const PassTable& table) const {
    if (form.keeps)
        keep_rows(w_.stream.handle(), {w_.logits.data(), vocab(), form.n_rows, table.kept_rows, kept_.data()});
    if (form.is_summarized()) summarize(form, table);
    if (form.verifies) verify(form, table);
}

void LogitOutputs::summarize(const LogitForm& form, const PassTable& table) const {
    SummarizeCall call;
    call.logits = w_.logits.data();
    call.stride = vocab();
    call.rows = form.n_rows;
    call.count = form.counted;
    call.first_token = static_cast<int>(w_.shard.vocab.begin);
    call.partial = stats_parts_.data();
    call.stats = stats_.data();
    if (form.has_noise) {
        call.noises = table.noises;
        call.noisy_partial = noisy_parts_.data();
        call.noisy = noisy_.data();
    }
    summarize_logits(w_.stream.handle(), call);
}

// Rows that are sharded across ranks are put together first, as a sum of which each rank has a part; the draft's rows
// are on rank 0 alone, and so is a verification that counts.
void LogitOutputs::verify(const LogitForm& form, const PassTable& table) const {
    VerifyCall call;
    call.logits = w_.logits.data();
    call.stride = vocab();
    if (w_.tp.size() > 1) {
        call.logits = whole_rows_.data();
        call.stride = index(w_.config.vocab_size);
        widen_rows(w_.stream.handle(), {w_.logits.data(), w_.vocab(), static_cast<int>(w_.shard.vocab.begin),
                                        whole_rows_.data(), w_.config.vocab_size, form.n_rows});
        w_.sum_over_ranks(whole_rows_.data(), form.n_rows, w_.config.vocab_size);
    }
    call.rows = form.n_rows;
    call.count = form.known;
    call.drafted = table.drafted;
    call.mass_parts = mass_parts_.data();
    call.masses = masses_.data();
    call.parts = verify_parts_.data();
    call.verified = verified_.data();
    verify_rows(w_.stream.handle(), call);
}

void LogitOutputs::copy_out(const LogitForm& form) const {
    const std::size_t rows = index(form.n_rows);
    if (rows == 0) return;
    if (form.rows_too) copy(w_.stream, host_logits_.data(), w_.logits.data(), rows * vocab() * sizeof(float));
    if (form.summary != LogitSummary::none)
        copy(w_.stream, host_stats_.data(), stats_.data(), rows * sizeof(DeviceLogitStats));
    if (form.has_noise) copy(w_.stream, host_noisy_.data(), noisy_.data(), rows * sizeof(DeviceNoisy));
    if (form.verifies) copy(w_.stream, host_verified_.data(), verified_.data(), rows * sizeof(VerifiedRow));
}

PassResult LogitOutputs::result(const LogitForm& form, const Pass& pass, const ChainState* chain,
                                std::span<const float> hidden) {
    const int n_rows = chain ? chain->n_rows : static_cast<int>(pass.logit_rows.size());
    summaries_.clear();
    noisy_tokens_.clear();
    kept_rows_.clear();
    for (int i = 0; i < n_rows; ++i) {
        const DeviceLogitStats& stats = chain ? chain->rows[i].stats : host_stats_.data()[i];
        const DeviceNoisy& noisy = chain ? chain->rows[i].noisy : host_noisy_.data()[i];
        if (form.summary != LogitSummary::none)
            summaries_.push_back({stats.max, stats.arg_max, stats.sum_exp, stats.sum_shifted_exp});
        if (form.has_noise) noisy_tokens_.push_back({noisy.value, noisy.token, noisy.logit});
        if (form.keeps) kept_rows_.push_back(kept_.data() + index(pass.needs.keep_from + i) * vocab());
    }
    return {{host_logits_.data(), form.rows_too ? pass.logit_rows.size() * vocab() : 0},
            vocab(),
            summaries_,
            noisy_tokens_,
            hidden,
            kept_rows_,
            {host_verified_.data(), form.verifies ? pass.logit_rows.size() : 0}};
}

} // namespace entrodraft::model::gpu
