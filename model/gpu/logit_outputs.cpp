#include "model/gpu/logit_outputs.h"

#include <algorithm>
#include <bit>

namespace entrodraft::model::gpu {

LogitOutputs::LogitOutputs(const GpuWorkspace& workspace)
    : w_(workspace), stats_parts_(index(kMaxRows) * kStatsBlocks), stats_(kMaxRows),
      noisy_parts_(index(kMaxRows) * kStatsBlocks), noisy_(kMaxRows), host_logits_(index(kMaxRows) * outputs()),
      host_stats_(kMaxRows), host_noisy_(kMaxRows) {}

LogitForm LogitOutputs::form_of(const Pass& pass) const {
    LogitForm form;
    form.rows_too = pass.needs.rows;
    if (pass.logit_rows.empty()) return form;
    form.n_rows = static_cast<int>(std::bit_ceil(pass.logit_rows.size()));
    form.summary = pass.needs.summary;
    form.has_noise = !pass.needs.noises.empty();
    if (form.is_summarized() || pass.needs.extension != nullptr) {
        form.known = pass.summary_vocab > 0 ? pass.summary_vocab : w_.config.n_outputs();
        form.counted =
            static_cast<int>(std::clamp<std::int64_t>(form.known - w_.shard.outputs.begin, 0, w_.shard.outputs.size()));
    }
    return form;
}

DeviceLogits LogitOutputs::logits(const LogitForm& form) const {
    return {w_.stream,   w_.tp,      w_.config.n_outputs(),   w_.shard.outputs, w_.logits.data(),
            form.n_rows, form.known, w_.output_tokens.data(), stats_.data()};
}

void LogitOutputs::summarize(const LogitForm& form, const PassTable& table) const {
    if (!form.is_summarized()) return;
    SummarizeCall call;
    call.logits = w_.logits.data();
    call.stride = outputs();
    call.rows = form.n_rows;
    call.count = form.counted;
    call.first_token = static_cast<int>(w_.shard.outputs.begin);
    call.tokens = w_.output_tokens.data();
    call.partial = stats_parts_.data();
    call.stats = stats_.data();
    if (form.has_noise) {
        call.noises = table.noises;
        call.noisy_partial = noisy_parts_.data();
        call.noisy = noisy_.data();
    }
    summarize_logits(w_.stream.handle(), call);
}

void LogitOutputs::copy_out(const LogitForm& form) const {
    const std::size_t rows = index(form.n_rows);
    if (rows == 0) return;
    if (form.rows_too) copy(w_.stream, host_logits_.data(), w_.logits.data(), rows * outputs() * sizeof(float));
    if (form.summary != LogitSummary::none)
        copy_by_kernel(w_.stream, host_stats_.data(), stats_.data(), rows * sizeof(DeviceLogitStats));
    if (form.has_noise) copy_by_kernel(w_.stream, host_noisy_.data(), noisy_.data(), rows * sizeof(DeviceNoisy));
}

PassResult LogitOutputs::result(const LogitForm& form, const Pass& pass, const LoopState* loop,
                                std::span<const float> hidden) {
    const int n_rows = loop ? loop->n_rows : static_cast<int>(pass.logit_rows.size());
    summaries_.clear();
    noisy_tokens_.clear();
    for (int i = 0; i < n_rows; ++i) {
        const DeviceLogitStats& stats = loop ? loop->rows[i].stats : host_stats_.data()[i];
        const DeviceNoisy& noisy = loop ? loop->rows[i].noisy : host_noisy_.data()[i];
        if (form.summary != LogitSummary::none)
            summaries_.push_back({stats.max, stats.arg_max, stats.sum_exp, stats.sum_shifted_exp, stats.runner_up});
        if (form.has_noise) noisy_tokens_.push_back({noisy.value, noisy.token, noisy.logit, noisy.runner_up});
    }
    return {{host_logits_.data(), form.rows_too ? pass.logit_rows.size() * outputs() : 0},
            outputs(),
            summaries_,
            noisy_tokens_,
            hidden};
}

} // namespace entrodraft::model::gpu
