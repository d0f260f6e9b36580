#include "model/pass/logit_stats.h"

#include <algorithm>
#include <cmath>

namespace entrodraft::model {

double LogitStats::log_sum_exp() const {
    return static_cast<double>(max) + std::log(sum_exp);
}

double LogitStats::entropy_nats() const {
    return std::log(sum_exp) - sum_shifted_exp / sum_exp;
}

double LogitStats::probability(float logit) const {
    if (logit == max) return 1 / sum_exp;
    return std::exp(static_cast<double>(logit) - static_cast<double>(max)) / sum_exp;
}

LogitStats merge(const LogitStats& left, const LogitStats& right) {
    const bool keep_left = !(right.max > left.max) && !std::isnan(right.max); // ties go to the lower index, NaN stays
    LogitStats merged = keep_left ? left : right;
    const LogitStats& other = keep_left ? right : left;
    merged.runner_up = std::max(merged.runner_up, other.max);
    const double shift = static_cast<double>(other.max) - static_cast<double>(merged.max);
    if (!std::isfinite(shift)) return merged; // a part with nothing but minus infinity
    const double scale = std::exp(shift);
    merged.sum_exp += other.sum_exp * scale;
    merged.sum_shifted_exp += (other.sum_shifted_exp + shift * other.sum_exp) * scale;
    return merged;
}

} // namespace entrodraft::model
