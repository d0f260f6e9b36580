#include "spec/plan/gain_model.h"

namespace entrodraft::spec {

void GainModel::learn(const RoundRecord& round) {
    acceptance.learn(round);
    costs.learn(round);
    const double pass = costs.target_seconds(round.n_rows() + round.batch_load.rows_beside);
    const double drafting = costs.draft_seconds(round.draft_passes, round.further_draft_rows);
    pace.learn(round.n_emitted(), drafting + pass / round.batch_load.sequences);
    policy.learn(round, costs);
}

DraftWorth GainModel::worth() const {
    const int sequences = policy.last_sequences();
    const double pass = costs.target_seconds(sequences), token = pass / sequences;
    return {policy.n_declined(),
            policy.n_declined_for_reading(),
            costs.draft_seconds(1) / token,
            costs.knows_draft(),
            (costs.target_seconds(sequences + 1) - pass) / token,
            costs.reading_seconds(1) / token,
            acceptance.mean(),
            costs.row_costs()};
}

} // namespace entrodraft::spec
