// constant: drafts the same number of tokens in every round.
//
// Paper: Leviathan et al. 2023, "Fast Inference from Transformers via Speculative Decoding" (their gamma).
// Formula: t >= k.
// On a device: a chain of k rows.
#include "spec/stop/shared.h"

namespace entrodraft::spec {

StopRuleType constant_rule() {
    return {.name = "constant",
            .position = 40,
            .looks_at = LooksAt::nothing,
            .parameters = {draft_length(5, {1, 2, 3, 4, 5, 6, 7, 8})},
            .make = make_stop_condition<DraftLength>,
            .other_names = "fixed always"};
}

} // namespace entrodraft::spec
