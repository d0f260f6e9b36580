// Options of the benches that only reckon: bench theory and bench scaling. See options.h; option_tables.cpp declares
// them.
#include "entrodraft/launch/bench/model_shapes.h"
#include "entrodraft/launch/failure.h"
#include "entrodraft/launch/options/options.h"
#include "entrodraft/launch/options/shared_options.h"

namespace entrodraft::launch {

namespace {

constexpr double kNoLimit = 1e300;

std::vector<std::string> listed_shapes(const ParsedOptions& given) {
    std::vector<std::string> known, listed;
    for (const ModelShape& shape : model_shapes())
        known.push_back(shape.name);
    if (!given.given("shapes")) return known;
    for (const std::string& one : split_list(given.text("shapes", ""))) {
        ParsedOptions single;
        single.add("shapes", one, "");
        listed.push_back(known[single.choice("shapes", 0, known)]);
    }
    if (listed.empty()) throw BadOption("--shapes is empty; give names separated by commas");
    return listed;
}

} // namespace

TheoryOptions theory_options(const ParsedOptions& given) {
    TheoryOptions options;
    options.alphas = given.numbers("alpha", options.alphas, 0, 1);
    options.cs = given.numbers("c", options.cs, 0, kNoLimit);
    options.c_operations = given.numbers("c-operations", options.cs, 0, kNoLimit);
    if (options.c_operations.size() == 1) options.c_operations.resize(options.cs.size(), options.c_operations[0]);
    if (options.c_operations.size() != options.cs.size())
        throw BadOption("--c-operations has " + std::to_string(options.c_operations.size()) + " numbers and --c has " +
                        std::to_string(options.cs.size()) + "; give one for all or one for each");
    options.most_tokens = given.integer("most-tokens", options.most_tokens, 1, 1000);
    options.output = json_output(given);
    options.json = given.on("json");
    return options;
}

ScalingOptions scaling_options(const ParsedOptions& given) {
    ScalingOptions options;
    options.inputs = given.texts("input");
    for (const std::string& input : options.inputs)
        if (input.empty()) throw BadOption("--input is empty; name a file");
    options.hardware = given.file("hardware");
    if (options.inputs.empty() && options.hardware.empty())
        throw BadOption("nothing to do: name files of bench latency --output, or --hardware FILE");
    for (const char* option : {"shapes", "bandwidth-share"})
        if (given.given(option) && options.hardware.empty())
            throw BadOption(std::string("--") + option + " has no effect without --hardware FILE");
    options.shapes = listed_shapes(given);
    options.bandwidth_share = given.number("bandwidth-share", options.bandwidth_share, 1e-6, 1);
    options.output = json_output(given);
    options.json = given.on("json");
    return options;
}

} // namespace entrodraft::launch
