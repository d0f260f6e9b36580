// A clock for tests of code that measures.
#pragma once

#include "dist/rank/clock.h"

namespace entrodraft::dist {

// Advances only by advance().
class ManualClock final : public Clock {
  public:
    double now_seconds() const override { return now_; }
    void advance(double seconds) { now_ += seconds; }

  private:
    double now_ = 0;
};

} // namespace entrodraft::dist
