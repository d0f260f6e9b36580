// The commands of the binary: each takes what follows its name, and returns the exit code on every rank.
//
// Failures that all ranks know of are thrown as OrderlyFailure; anything else is one rank's own (program.cpp).
#pragma once

#include "dist/session.h"

#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::launch {

using Arguments = std::vector<std::string>;

// True where the first rank alone does what the arguments ask for: it prints help, says that there is no such command,
// or runs a command that needs no other rank. Local.
bool is_for_one_rank(const Arguments& arguments);

// Collective over the world, all of them.
int run_command(dist::Session& session, const Arguments& arguments); // arguments[0] is the command
int run_generate(dist::Session& session, const Arguments& arguments);
int run_tokenize(dist::Session& session, const Arguments& arguments);
int run_build_table(dist::Session& session, const Arguments& arguments);
int run_build_corpus(dist::Session& session, const Arguments& arguments);
int run_record(dist::Session& session, const Arguments& arguments);
int run_simulate(dist::Session& session, const Arguments& arguments);
int run_tune(dist::Session& session, const Arguments& arguments);
int run_distill(dist::Session& session, const Arguments& arguments);
int run_doctor(dist::Session& session, const Arguments& arguments);
int run_inspect(dist::Session& session, const Arguments& arguments);
int run_bench_latency(dist::Session& session, const Arguments& arguments);
int run_bench_compare(dist::Session& session, const Arguments& arguments);

// "entrodraft 0.1.0".
std::string version_text();

// Text to stdout, on the writer only. Throws std::runtime_error when it cannot be written.
void print(dist::Session& session, std::string_view text);

} // namespace entrodraft::launch
