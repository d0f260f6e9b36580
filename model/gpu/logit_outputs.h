// What is made of a pass's rows of logits on the device (LogitNeeds), and what of that the host gets: summaries,
// samples, rows that stay for a later pass, verified rows.
//
// Not the logits' multiplication. Called by gpu/decoder.
#pragma once

#include "dist/comm/communicator.h"
#include "model/decoder.h"
#include "model/gpu/chain.h"
#include "model/gpu/kernels.h"
#include "model/gpu/memory.h"
#include "model/gpu/ops.h"
#include "model/gpu/pass_table.h"
#include "model/gpu/summed_array.h"

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
    bool keeps = false;
    bool verifies = false;
    bool is_summarized() const { return summary != LogitSummary::none || has_noise; }
    auto operator<=>(const LogitForm&) const = default;
};

class LogitOutputs {
  public:
    // `workspace` has the logits and outlives it. Throws dist::Error. Local.
    explicit LogitOutputs(const GpuWorkspace& workspace);

    LogitForm form_of(const Pass& pass) const;
    // Memory that only some passes need, before the first of them. Throws std::invalid_argument where more rows are to
    // be kept than there is room for. Collective over tp where rows are verified.
    void make_room_for(const LogitForm& form, const Pass& pass, dist::Deadline deadline);
    // Behind the logits, on the stream. Collective over tp where rows are verified.
    void compute(const LogitForm& form, const PassTable& table) const;
    void copy_out(const LogitForm& form) const;
    // What has been copied out; of a chain, as far as it came. Summaries and noise are those of the chain then.
    PassResult result(const LogitForm& form, const Pass& pass, const ChainState* chain, std::span<const float> hidden);

    const DeviceLogitStats* stats() const { return stats_.data(); } // [kMaxRows]
    const DeviceNoisy* noisy() const { return noisy_.data(); }      // [kMaxRows]

  private:
    void summarize(const LogitForm& form, const PassTable& table) const;
    void verify(const LogitForm& form, const PassTable& table) const;
    std::size_t vocab() const { return index(w_.vocab()); }

    const GpuWorkspace& w_;
    DeviceArray<DeviceLogitStats> stats_parts_, stats_; // [kMaxRows][kStatsBlocks], [kMaxRows]
    DeviceArray<DeviceNoisy> noisy_parts_, noisy_;      // as these
    DeviceArray<float> kept_;                           // [kMaxKept][own vocabulary]
    SummedArray whole_rows_; // [kMaxRows][vocab_size], of verified rows that are sharded across ranks
    DeviceArray<VerifyMasses> mass_parts_, masses_;
    DeviceArray<VerifyPart> verify_parts_;
    DeviceArray<VerifiedRow> verified_;
    PinnedArray<float> host_logits_;
    PinnedArray<DeviceLogitStats> host_stats_;
    PinnedArray<DeviceNoisy> host_noisy_;
    PinnedArray<VerifiedRow> host_verified_;
    std::vector<kernels::LogitStats> summaries_;
    std::vector<NoisyToken> noisy_tokens_;
    std::vector<const float*> kept_rows_;
};

} // namespace entrodraft::model::gpu
