// The prompts that a bench runs on: all lines of a file must be good ones.
//
// Called by the benches that decode, on all ranks, and by tune.
#pragma once

#include "launch/load/model_pair.h"

#include <string>
#include <vector>

namespace entrodraft::launch {

struct BenchPrompts {
    std::string input; // file
    RequestDefaults defaults;
    int max_prompts = 0; // 0: all
};

// Throws std::runtime_error naming the file and its first bad line. Local.
std::vector<spec::Request> read_all_prompts(const BenchPrompts& wanted, const PromptLimits& limits);

// The same on the coordinator; empty elsewhere. Throws OrderlyFailure. Collective over the world.
std::vector<spec::Request> read_bench_prompts(dist::Session& session, const ModelPair& models,
                                              const BenchPrompts& wanted, double timeout_seconds);

} // namespace entrodraft::launch
