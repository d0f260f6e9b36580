#include "spec/plan/pass_times.h"

#include <algorithm>
#include <cmath>

namespace entrodraft::spec {

namespace {

constexpr double kRowCost = 0.03; // of a further row, in passes of one row, before anything is measured

double squared(double x) {
    return x * x;
}

// The weight of an error, 1 / variance. Outliers, for which another process took the core, count less the further out
// they are. `noise`: a usual error, relative to the expected time.
double curvature_of(double error, double expected, double noise) {
    constexpr double kOutlier = 2; // usual errors
    return 1 / squared(std::max(noise * expected, std::abs(error) / kOutlier));
}

// The features of a round's draft passes.
std::array<double, 3> features_of(double passes, double further_rows) {
    return {passes, std::min(passes, 1.0), further_rows};
}

} // namespace

PassTimes::PassTimes(double draft_to_target_cost)
    : target_(first_target_weights()), draft_(first_draft_weights()), draft_unit_(draft_to_target_cost) {
    refresh_costs();
}

PassTimes::TargetWeights PassTimes::first_target_weights() {
    constexpr double kSlownessStep = 0.05, kCostStep = 1e-4; // standard deviations of the wander in a step
    constexpr double kRowSpread = 0.3, kNarrowSpread = 0.03, kWideSpread = 0.02;
    TargetWeights::Vector first{}, variance, wander;
    variance.fill(squared(kNarrowSpread));
    std::fill(variance.begin() + kFirstSegment + kNarrow, variance.end(), squared(kWideSpread));
    wander.fill(squared(kCostStep));
    variance[0] = 1;
    wander[0] = squared(kSlownessStep);
    first[kRow] = kRowCost;
    variance[kRow] = squared(kRowSpread);
    return {first, variance, wander};
}

PassTimes::DraftWeights PassTimes::first_draft_weights() {
    constexpr double kStep = 1e-3, kFirstSpread = 0.5;
    return {{1, 0, kRowCost}, {1, squared(kFirstSpread), 1}, {squared(kStep), squared(kStep), squared(kStep)}};
}

int PassTimes::first_row(std::size_t segment) {
    return segment <= kNarrow ? static_cast<int>(segment) + 1 : static_cast<int>((kNarrow + 1) << (segment - kNarrow));
}

std::size_t PassTimes::segment_behind(int rows) {
    if (rows <= first_row(kNarrow)) return static_cast<std::size_t>(rows) - 1;
    std::size_t segment = kNarrow;
    while (segment + 1 < kSegments && rows >= first_row(segment + 1))
        ++segment;
    return segment;
}

// The features of the cost of a pass beyond the cost of a single row.
PassTimes::TargetWeights::Vector PassTimes::features_of(int rows) {
    TargetWeights::Vector features{};
    const std::size_t last = segment_behind(rows);
    features[kRow] = rows - 1;
    for (std::size_t i = 0; i < last; ++i)
        features[kFirstSegment + i] = first_row(i + 1) - first_row(i);
    features[kFirstSegment + last] = rows - first_row(last);
    return features;
}

double PassTimes::row_cost(std::size_t segment) const {
    return target_.values()[kRow] + target_.values()[kFirstSegment + segment];
}

void PassTimes::refresh_costs() {
    cost_[0] = 1;
    for (std::size_t i = 1; i < kSegments; ++i)
        cost_[i] = cost_[i - 1] + (first_row(i) - first_row(i - 1)) * row_cost(i - 1);
}

double PassTimes::own_cost(int rows) const {
    const std::size_t segment = segment_behind(rows);
    return cost_[segment] + (rows - first_row(segment)) * row_cost(segment);
}

// For the usual number of rows this is the observed time: the extra cost of those rows is in the slowness.
double PassTimes::target_seconds(int rows) const {
    const auto in_all = [](double cost) { return 1 + (1 + kBehind) * (cost - 1); };
    return target_unit_ * usual_cost_ * in_all(own_cost(rows)) / in_all(usual_cost_);
}

double PassTimes::draft_seconds(double passes, double further_rows) const {
    return target_unit_ * draft_unit_ * draft_.product(spec::features_of(passes, further_rows));
}

// One observation of slowness * (1 + features . costs).
void PassTimes::learn_target(int rows, double seconds, double share) {
    if (!(seconds > 0)) return;
    constexpr double kUsualStep = 0.05;
    if (target_timed_ == 0) {
        target_unit_ = seconds / own_cost(rows);
        usual_cost_ = own_cost(rows);
    }
    if (target_timed_ < kFirst && seconds < slowness() * target_unit_ * own_cost(rows)) {
        target_ = first_target_weights();
        refresh_costs();
        target_.set(0, std::log(seconds / (target_unit_ * own_cost(rows))));
        draft_timed_ = 0;
    }
    target_timed_ += share;
    const double own = own_cost(rows);
    usual_cost_ += share * kUsualStep * (own - usual_cost_);
    constexpr double kNoise = 0.1; // relative to the speed of the moment
    TargetWeights::Vector slopes = features_of(rows);
    const double now = slowness(), expected = now * own;
    for (double& slope : slopes)
        slope *= now;
    slopes[0] = expected;
    const double error = seconds / target_unit_ - expected, curvature = curvature_of(error, expected, kNoise);
    target_.learn(slopes, curvature * error, curvature, share);

    const double row = std::max(target_.values()[kRow], 0.0);
    target_.set(kRow, row);
    for (std::size_t i = kFirstSegment; i < slopes.size(); ++i)
        target_.set(i, std::max(target_.values()[i], -row)); // so that no row has a negative cost
    refresh_costs();
}

void PassTimes::learn_draft(double passes, double further_rows, double seconds) {
    if (!(seconds > 0)) return;
    const DraftWeights::Vector features = spec::features_of(passes, further_rows);
    const double taken = seconds / (slowness() * target_unit_);
    if (draft_timed_ == 0 || (draft_timed_ < kFirst && taken < draft_unit_ * draft_.product(features))) {
        draft_ = first_draft_weights();
        draft_unit_ = taken / draft_.product(features); // the ratio of the weights' bytes may be far from it
    }
    ++draft_timed_;
    constexpr double kNoise = 0.1; // relative; a draft pass finds more or less of its weights in the caches
    const double expected = draft_.product(features), error = taken / draft_unit_ - expected;
    const double curvature = curvature_of(error, expected, kNoise);
    draft_.learn(features, curvature * error, curvature);

    constexpr double kMin = 1e-3;
    const double pass = std::max(draft_.values()[0], kMin);
    draft_.set(0, pass);
    draft_.set(1, std::max(draft_.values()[1], 0.0)); // later passes find weights in the caches
    draft_.set(2, std::clamp(draft_.values()[2], 0.0, pass));
}

} // namespace entrodraft::spec
