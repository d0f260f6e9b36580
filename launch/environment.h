// What a bench ran on and how its samples are summed up.
#pragma once

#include "launch/io/json_line.h"
#include "launch/load/model_pair.h"

#include <span>
#include <string>
#include <vector>

namespace entrodraft::launch {

// CPU, cores, ranks, threads, types, version, compiler: as fields and as one line.
Json environment_of(const dist::Session& session, const ModelPair& models);
std::string environment_line(const Json& environment);
// Throws BadOption where a costs file says that it was measured with other ranks, threads or types. Local.
void require_costs_of(const Json& environment, const std::string& costs_file);

struct Quantiles {
    double median = 0;
    double p90 = 0;
    double p99 = 0;
    double mean = 0;
    double deviation = 0; // standard, of the samples
};
Quantiles quantiles_of(std::vector<double> samples);
double total_of(std::span<const double> samples);

// Element by element the largest of all ranks, on the writer. Collective over the world.
std::vector<double> largest_over_ranks(dist::Session& session, std::vector<double> values, double timeout_seconds);
Quantiles of_slowest_rank(dist::Session& session, const Quantiles& mine, double timeout_seconds);

// Columns of text, each as wide as its widest cell; the first is aligned left, the others right.
std::string format_table(const std::vector<std::vector<std::string>>& rows);
std::string format_number(double value, int decimals);

} // namespace entrodraft::launch
