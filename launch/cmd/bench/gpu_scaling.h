// Passes over GPUs that nobody has measured here: the scaling model with a hardware file's figures. Pure arithmetic.
//
//   pass(n)       = bytes of weights of a GPU / (share * memory bandwidth) + all-reduces * reduce(n, row)
//   reduce(n, b)  = node_latency + 2 (g - 1) / g * b / node_bandwidth                    among the g GPUs of a node
//                 + 2 ceil(log2 m) * hop_latency + 2 (m - 1) / m * (b / g) / net_bandwidth   over the m nodes
//   token(n)      = pass(n) + announce + gather, each of them as an all-reduce of no bytes
//
// The hierarchical all-reduce: ranks of a node sum up and keep a g-th each, a tree over the nodes sums these through
// the GPU's own network port, then they are handed round the node. Keys and values, norms and what starts a kernel are
// left out: it is a bound from figures, no promise. Called by scaling_report.
#pragma once

#include "model/config.h"

#include <string>
#include <vector>

namespace entrodraft::launch {

// Bytes and seconds throughout.
struct Hardware {
    std::string name;
    double memory_bandwidth = 0;
    double memory_bytes = 0;
    double operations_per_second = 0; // bfloat16, dense
    int node_gpus = 8;
    double node_latency = 0;   // of an all-reduce of little among the GPUs of a node
    double node_bandwidth = 0; // of a GPU in one direction
    double hop_latency = 0;    // of a message between nodes
    double net_bandwidth = 0;  // of a GPU's network port in one direction
};

struct GpuPass {
    double reading = 0;
    double arithmetic = 0; // hidden behind reading where that takes longer
    double communication = 0;
    double around = 0; // announce and gather
    bool fits = false; // the weights, in the GPU's memory

    double pass() const { return (reading > arithmetic ? reading : arithmetic) + communication; }
    double token() const { return pass() + around; }
};

// Local.
double all_reduce_seconds(const Hardware& hardware, int gpus, double bytes);
// A pass of one row over `gpus` GPUs, a multiple of a node or part of one. Throws std::invalid_argument that names the
// most ranks possible. Local.
GpuPass gpu_pass(const Hardware& hardware, const model::ModelConfig& config, int gpus, double bandwidth_share);

} // namespace entrodraft::launch
