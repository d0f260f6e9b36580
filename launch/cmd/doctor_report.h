// The results of doctor and their forms: lines and tables for people, one object for programs. Pure. Implemented in
// doctor.cpp.
#pragma once

#include "launch/cmd/bench/latency.h"
#include "launch/io/json_line.h"
#include "launch/io/machine_load.h"
#include "launch/io/report.h"
#include "launch/load/launch_check.h"
#include "launch/load/rank_device.h"

#include <cstdint>
#include <string>
#include <vector>

namespace entrodraft::launch {

// A rank's GPU; goes through a collective as it is.
struct RankGpu {
    char name[64] = {}; // zero-terminated
    int number = 0;     // the number under which the rank sees it
    int sharers = 1;    // ranks that it serves
    std::uint64_t identity = 0;
    std::uint64_t free_bytes = 0;
    double read_rate = 0; // bytes a second
    GpuLinks links;
};

struct DoctorReport {
    struct Check {
        std::string status; // "ok", "warning" or "failed"
        std::string text;   // one line; if the status is not ok, with the remedy
    };
    struct Transport {
        std::string name; // "node", "mpi"
        std::vector<CollectiveTime> times;
    };

    std::vector<RankFacts> ranks;
    std::vector<RankGpu> gpus; // by rank; empty: not looked at, or there are none
    std::vector<Check> checks;
    std::vector<Transport> transports;
    MachineLoad machine; // load while collectives were timed, and for a second at least
    std::string target;  // checkpoint that was checked; empty: none
    std::vector<std::string> drafts;

    void good(const std::string& text) { checks.push_back({"ok", text}); }
    void add(const Finding& finding) { checks.push_back({finding.is_error ? "failed" : "warning", finding.text}); }
    void add(const MachineLoad& load);
    bool has_errors() const;

    std::string text() const;
    Json json() const; // docs/formats.md
};

} // namespace entrodraft::launch
