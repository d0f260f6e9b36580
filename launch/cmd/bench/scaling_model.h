// The scaling model of docs/DESIGN.md section 10: what a pass over more ranks should take, from a pass over fewer, what
// these ranks could read, and what their all-reduces cost. Pure arithmetic; no file, no text.
//
//   t(n) = compute(n) + all-reduces * (alpha(n) + bytes * beta(n)), and announce + gather beside a pass
//   compute(n) by reading:  compute(base) * limit(n) / limit(base), limits of `bench latency`: what the ranks could
//                           read and compute at best, all of them at once
//   compute(n) by division: compute(base) * base / n
//   compute(n) by shard:    shard(n) * limit(n) / limit(shard(n) alone), where the base's rank has timed a shard of n
//                           by itself; what does not shrink and what the caches hold once it is cut is in it
//
// Ranks of one host share its caches and its memory's bandwidth, which division leaves out; ranks with a device of
// their own do not. Nothing is fitted to the pass that is predicted. Called by scaling_report.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace entrodraft::launch {

// A collective of so many bytes a rank takes alpha + bytes * beta seconds.
struct Link {
    double alpha = 0; // seconds
    double beta = 0;  // seconds a byte

    double seconds(double bytes) const { return alpha + bytes * beta; }
};

struct LinkSample {
    double bytes = 0;
    double seconds = 0;
};

// Least squares of the relative errors, so that small messages count as much as large ones; neither part below 0.
// Throws std::invalid_argument with fewer than two sizes or a time that is not above 0. Local.
Link fit_link(std::span<const LinkSample> samples);

// A pass of one row that was measured over `tensor_parallel` ranks.
struct MeasuredPass {
    int tensor_parallel = 1;
    double seconds = 0;
    double limit = 0; // seconds
    double all_reduces = 0;
    double all_reduce_bytes = 0; // of each
    Link link;                   // of the all-reduces among these ranks

    double communication() const { return all_reduces * link.seconds(all_reduce_bytes); }
    // What is left without the all-reduces. Throws std::invalid_argument where nothing is.
    double compute() const;
};

// A shard of so many ranks, timed on one rank by itself.
struct ShardPass {
    int of = 1;
    double seconds = 0;
    double limit = 0;
};

struct PredictedPass {
    std::optional<double> compute_by_shard; // none: no such shard was timed
    double compute_by_reading = 0;
    double compute_by_division = 0;
    double communication = 0;

    // The best founded one: by shard, else by reading.
    double seconds() const { return compute_by_shard.value_or(compute_by_reading) + communication; }
    double by_reading() const { return compute_by_reading + communication; }
    double by_division() const { return compute_by_division + communication; }
};

// Of `measured` only the limit, the all-reduces and the link are looked at; of `shards` that of as many ranks. Local.
PredictedPass predict(const MeasuredPass& base, std::span<const ShardPass> shards, const MeasuredPass& measured);

// Tokens a second of `cores` cores in groups of `group` that decode by themselves, none slowing another down; 0 where
// they do not come out whole. Local.
double throughput_of_replicas(int cores, int group, double seconds_per_token);

} // namespace entrodraft::launch
