// Timing passes: see pass_timer.h.
#include "launch/cmd/bench/pass_timer.h"

#include <algorithm>

namespace entrodraft::launch {

PassTimer::PassTimer(model::Decoder& decoder, const dist::Clock& clock, int context)
    : decoder_(decoder), clock_(clock), context_(context) {
    decoder_.cache().truncate(kSlot, 0);
    for (int done = 0; done < context;) {
        const int rows = std::min(context - done, decoder_.max_rows());
        make_rows(done, rows);
        decoder_.forward({.rows = rows_, .logit_rows = {}, .hidden_layers = {}, .mask = model::Mask::causal});
        done += rows;
    }
}

double PassTimer::time(int rows) {
    make_rows(context_, rows);
    const double begin = clock_.now_seconds();
    decoder_.forward({.rows = rows_,
                      .logit_rows = logit_rows_,
                      .hidden_layers = {},
                      .mask = model::Mask::causal,
                      .window = 0,
                      .needs = {model::LogitSummary::max, false}});
    decoder_.cache().truncate(kSlot, context_);
    return clock_.now_seconds() - begin;
}

void PassTimer::make_rows(int first_position, int rows) {
    rows_.clear();
    logit_rows_.clear();
    for (int i = 0; i < rows; ++i) {
        const int position = first_position + i;
        const int token = (position * 37 + 11) % decoder_.config().vocab_size;
        rows_.push_back({token, kSlot, position, i - 1});
        logit_rows_.push_back(i);
    }
}

} // namespace entrodraft::launch
