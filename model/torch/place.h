// The place of ATen's tensors: a device and its threads. Includes nothing from torch.
#pragma once

#include <string>

namespace entrodraft::model::torch {

// The place where a decoder computes.
struct Place {
    std::string device = "cpu"; // as ATen names it: "cuda:1"
    int threads = 1;            // on a CPU, for all decoders of the process
};

struct Devices {
    int count = 0;
    std::string why_none; // in a few words; empty if there are some
};

} // namespace entrodraft::model::torch
