// Where tensors of ATen are: a device and its threads. Includes nothing of torch's.
#pragma once

#include <string>

namespace entrodraft::model::torch {

// Where a decoder computes.
struct Place {
    std::string device = "cpu"; // as ATen names it: "cuda:1"
    int threads = 1;            // on a CPU, of all decoders of the process
};

struct Devices {
    int count = 0;
    std::string why_none; // in a few words; empty: there are some
};

} // namespace entrodraft::model::torch
