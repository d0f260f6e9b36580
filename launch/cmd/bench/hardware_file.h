// Figures of GPUs and links from a JSON file, each with its source: see bench/hardware.json.
#pragma once

#include "launch/cmd/bench/gpu_scaling.h"

#include <string>
#include <vector>

namespace entrodraft::launch {

// What somebody measured of plain decoding, one text at a time: the extrapolation's touchstone.
struct PublishedRate {
    std::string hardware;
    std::string shape;
    int gpus = 1;
    double tokens_per_second = 0;
    std::string source;
};

struct HardwareFile {
    std::vector<Hardware> hardware;
    std::vector<PublishedRate> published;
};

// Throws model::BadFile with file, field and reason; a figure without a source is refused. Local.
HardwareFile read_hardware(const std::string& file);

} // namespace entrodraft::launch
