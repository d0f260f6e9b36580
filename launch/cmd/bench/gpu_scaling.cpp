// Passes over GPUs by the scaling model: see gpu_scaling.h.
#include "launch/cmd/bench/gpu_scaling.h"

#include "launch/model_shapes.h"
#include "model/inspection.h"

#include <algorithm>
#include <cmath>

namespace entrodraft::launch {

double all_reduce_seconds(const Hardware& hardware, int gpus, double bytes) {
    const int in_node = std::min(gpus, hardware.node_gpus);
    const int nodes = (gpus + hardware.node_gpus - 1) / hardware.node_gpus;
    double seconds = 0;
    if (in_node > 1) seconds += hardware.node_latency + 2.0 * (in_node - 1) / in_node * bytes / hardware.node_bandwidth;
    if (nodes > 1)
        seconds += 2 * std::ceil(std::log2(nodes)) * hardware.hop_latency +
                   2.0 * (nodes - 1) / nodes * (bytes / in_node) / hardware.net_bandwidth;
    return seconds;
}

GpuPass gpu_pass(const Hardware& hardware, const model::ModelConfig& config, int gpus, double bandwidth_share) {
    const double bytes = pass_bytes(config, gpus);
    const double weights = bytes / static_cast<double>(bytes_of(config.stored_type));
    const auto all_reduces = static_cast<double>(model::all_reduces_of(config, gpus).count);
    // On GPUs activations are in the weights' type.
    const double row = static_cast<double>(bytes_of(config.stored_type)) * config.hidden_size;
    GpuPass pass;
    pass.reading = bytes / (bandwidth_share * hardware.memory_bandwidth);
    pass.arithmetic = 2 * weights / hardware.operations_per_second;
    pass.communication = all_reduces * all_reduce_seconds(hardware, gpus, row);
    pass.around = 2 * all_reduce_seconds(hardware, gpus, 0);
    const model::RankNeeds needs = model::needs_of(config, {.ranks = gpus, .type = config.stored_type}, 0);
    pass.fits = static_cast<double>(needs.weight_bytes) < hardware.memory_bytes;
    return pass;
}

} // namespace entrodraft::launch
