// What bench scaling says: measured passes beside the scaling model, the best numbers of ranks, and the extrapolation
// to GPUs. Formatting and choosing; the arithmetic is scaling_model's and gpu_scaling's. Pure.
#pragma once

#include "launch/cmd/bench/hardware_file.h"
#include "launch/cmd/bench/scaling_files.h"
#include "launch/io/json_line.h"

#include <optional>
#include <string>
#include <vector>

namespace entrodraft::launch {

// A run beside what the model makes of it.
struct ScalingRow {
    const LatencyRun* run = nullptr;
    const CompareRun* compare = nullptr; // null: none
    PredictedPass predicted;
    double speedup = 1;    // over the base
    double efficiency = 1; // of that, what each core kept

    double over_predicted() const { return run->pass.seconds / predicted.seconds(); }
    double over_reading() const { return run->pass.seconds / predicted.by_reading(); }
    double over_division() const { return run->pass.seconds / predicted.by_division(); }
    // Tokens a second.
    double plain_rate() const { return 1 / (run->pass.seconds + run->around()); }
    double drafting_rate() const { return compare ? compare->drafting_tokens_per_second : 0; }
};

// What was measured, in order of ranks. Its rows point into `files`.
struct MeasuredScaling {
    std::vector<ScalingRow> rows;
    std::size_t base = 0;
    // Of those within the cores; none: there are none.
    std::optional<std::size_t> best_latency;
    std::optional<std::size_t> best_throughput; // as replicas on throughput_cores
    int throughput_cores = 0;                   // the most that were measured: ranks times threads
    bool by_drafting = false;                   // tokens a second are with the draft, since all were compared

    double rate(std::size_t row) const { return by_drafting ? rows[row].drafting_rate() : rows[row].plain_rate(); }
};

// A model over GPUs of a kind.
struct ExtrapolatedRow {
    std::string hardware;
    std::string shape;
    int gpus = 0;
    std::optional<GpuPass> pass; // none: it cannot be cut over so many
    std::string why_none;
    const PublishedRate* published = nullptr; // null: none
};

// 8, 16, ... 512.
constexpr int kFewestGpus = 8;
constexpr int kMostGpus = 512;

// The first of the fewest ranks that fit their cores, or of the fewest at all; there must be one. Local.
std::size_t base_of(const ScalingFiles& files);
// Throws std::invalid_argument where the base's all-reduces take longer than its pass. Local.
MeasuredScaling measured_scaling(const ScalingFiles& files);
// The shapes must be known. Local.
std::vector<ExtrapolatedRow> extrapolate(const HardwareFile& file, const std::vector<std::string>& shapes,
                                         double bandwidth_share);

// Local, all of them.
std::string to_text(const MeasuredScaling& measured);
std::string to_text(const std::vector<ExtrapolatedRow>& rows, double bandwidth_share);
Json measured_json(const MeasuredScaling& measured);
Json model_json(const MeasuredScaling& measured);
Json extrapolated_json(const std::vector<ExtrapolatedRow>& rows);

} // namespace entrodraft::launch
