// Results that the device makes from a pass's rows of logits (LogitNeeds), and the results that the host gets:
// summaries and Gumbel-max samples.
//
// The product that makes the logits is elsewhere. Called by gpu/decoder.
#pragma once

#include "model/gpu/device_extension.h"
#include "model/gpu/kernels.h"
#include "model/gpu/memory.h"
#include "model/gpu/ops.h"
#include "model/gpu/pass_table.h"
#include "model/pass/decoder.h"

#include <cstddef>
#include <span>
#include <vector>

namespace entrodraft::model::gpu {

// The properties of logit results that tell one graph from another.
struct LogitForm {
    int n_rows = 0; // padded; 0: no logits
    LogitSummary summary = LogitSummary::none;
    int known = 0;        // tokens that count in the summary
    int counted = 0;      // the rank's own among these
    bool rows_too = true; // logits go to the host
    bool has_noise = false;
    bool is_summarized() const { return summary != LogitSummary::none || has_noise; }
    auto operator<=>(const LogitForm&) const = default;
};

class LogitOutputs {
  public:
    // `workspace` has the logits and outlives it. Throws dist::Error.
    explicit LogitOutputs(const GpuWorkspace& workspace);

    LogitForm form_of(const Pass& pass) const;
    DeviceLogits logits(const LogitForm& form) const;
    // Runs after the logits, on the stream.
    void summarize(const LogitForm& form, const PassTable& table) const;
    void copy_out(const LogitForm& form) const;
    // Returns what was copied out. Given a loop, returns the summaries and noisy tokens of all its rows so far.
    PassResult result(const LogitForm& form, const Pass& pass, const LoopState* loop, std::span<const float> hidden);

    const DeviceLogitStats* stats() const { return stats_.data(); } // [kMaxRows]
    const DeviceNoisy* noisy() const { return noisy_.data(); }      // [kMaxRows]

  private:
    std::size_t outputs() const { return index(w_.outputs()); }

    const GpuWorkspace& w_;
    DeviceArray<DeviceLogitStats> stats_parts_, stats_; // [kMaxRows][kStatsBlocks], [kMaxRows]
    DeviceArray<DeviceNoisy> noisy_parts_, noisy_;      // shaped likewise
    PinnedArray<float> host_logits_;
    PinnedArray<DeviceLogitStats> host_stats_;
    PinnedArray<DeviceNoisy> host_noisy_;
    std::vector<LogitStats> summaries_;
    std::vector<NoisyToken> noisy_tokens_;
};

} // namespace entrodraft::model::gpu
