// What a GPU does of a round by itself: drafting on under a stop rule as numbers, and verifying the target's rows by
// those of the draft. Each is an extension of a model's pass.
//
// One for all models of a rank that are on its GPU: spec/gpu/device_verifier.cpp makes it; elsewhere there is none.
// Called by drafters (chain.h) and by the gather of the target's rows (target_rows.h).
#pragma once

#include "model/logit_needs.h"
#include "spec/stop/device_stop_rule.h"
#include "spec/verify/device_rows.h"

#include <span>

namespace entrodraft::spec {

class DeviceVerifier {
  public:
    static constexpr int kMaxKept = 128; // rows
    virtual ~DeviceVerifier() = default;

    // Of a pass over a single text, of a whole draft model: the token of its last row is read as the next row, and so
    // on, while the rule says so. With `first_kept` >= 0 rows stay on the device, as those that the drafted tokens from
    // this number on are drawn from. Throws std::invalid_argument where there is no room for the row. Until the next
    // call. Local.
    virtual model::DeviceExtension* draft(const DeviceStopRule& rule, int first_kept) = 0;

    // Of a pass of the target: verifies its rows of logits by those that draft() kept on this rank. Until the next
    // call. Local.
    virtual model::DeviceExtension* verify(std::span<const DraftedRow> rows) = 0;
    // What that pass made of them; those of tp rank 0 count. Until the next pass.
    virtual std::span<const VerifiedRow> verified() const = 0;
};

} // namespace entrodraft::spec
