// What is made of a pass's rows of logits on the device (LogitNeeds), and what of that the host gets: summaries and
// Gumbel-max samples.
//
// Not the logits' multiplication. Called by gpu/decoder.
#pragma once

#include "dist/comm/communicator.h"
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

// What of it makes one graph unlike another.
struct LogitForm {
    int n_rows = 0; // padded; 0: no logits
    LogitSummary summary = LogitSummary::none;
    int known = 0;        // tokens that count in it
    int counted = 0;      // of these, the rank's own
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
    // Behind the logits, on the stream.
    void summarize(const LogitForm& form, const PassTable& table) const;
    void copy_out(const LogitForm& form) const;
    // What has been copied out; of a loop, as far as it came. Summaries and noise are those of the loop then.
    PassResult result(const LogitForm& form, const Pass& pass, const LoopState* loop, std::span<const float> hidden);

    const DeviceLogitStats* stats() const { return stats_.data(); } // [kMaxRows]
    const DeviceNoisy* noisy() const { return noisy_.data(); }      // [kMaxRows]

  private:
    std::size_t outputs() const { return index(w_.outputs()); }

    const GpuWorkspace& w_;
    DeviceArray<DeviceLogitStats> stats_parts_, stats_; // [kMaxRows][kStatsBlocks], [kMaxRows]
    DeviceArray<DeviceNoisy> noisy_parts_, noisy_;      // as these
    PinnedArray<float> host_logits_;
    PinnedArray<DeviceLogitStats> host_stats_;
    PinnedArray<DeviceNoisy> host_noisy_;
    std::vector<LogitStats> summaries_;
    std::vector<NoisyToken> noisy_tokens_;
};

} // namespace entrodraft::model::gpu
