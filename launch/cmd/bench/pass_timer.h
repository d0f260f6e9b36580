// Passes of a decoder over made-up tokens after a fixed context, timed one by one.
//
// Called by bench latency.
#pragma once

#include "dist/clock.h"
#include "model/decoder.h"

#include <vector>

namespace entrodraft::launch {

class PassTimer {
  public:
    static constexpr int kSlot = 0;
    // Draft passes after every target pass, as in a round: the first finds its weights driven out of the caches.
    static constexpr int kDraftRun = 3;

    // Fills the slot with `context` tokens. All outlive this. Collective over the decoder's group.
    PassTimer(model::Decoder& decoder, const dist::Clock& clock, int context);

    // Seconds of a pass of `rows` rows with the largest logit of each, as a greedy round has it, and of cutting the
    // cache back. Collective over its group.
    double time(int rows);

  private:
    void make_rows(int first_position, int rows);

    model::Decoder& decoder_;
    const dist::Clock& clock_;
    int context_;
    std::vector<model::Row> rows_;
    std::vector<int> logit_rows_;
};

} // namespace entrodraft::launch
