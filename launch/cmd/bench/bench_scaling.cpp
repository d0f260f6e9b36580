// entrodraft bench scaling: measured passes of several rank counts beside a model of them, and the model on GPUs.
//
// A running job cannot change its ranks: bench/scaling.py and slurm/scaling.sbatch measure, one job a rank count, and
// this reads what they left. Needs no models and no ranks.
#include "launch/cli/command_options.h"
#include "launch/cli/options.h"
#include "launch/cmd/bench/scaling_report.h"
#include "launch/commands.h"
#include "launch/failure.h"
#include "launch/replaced_file.h"
#include "model/checkpoint/bad_file.h"

#include <stdexcept>

namespace entrodraft::launch {

namespace {

MeasuredScaling scaling_of(const ScalingFiles& files, const ScalingOptions& options) {
    if (files.latencies.empty())
        throw BadOption("--input " + options.inputs.front() + ": holds no costs; give files of bench latency --output");
    try {
        return measured_scaling(files);
    } catch (const std::invalid_argument& error) { // figures of a file, not of an option
        throw model::BadFile(files.latencies[base_of(files)].file + ": " + error.what());
    }
}

void report(dist::Session& session, const ScalingOptions& options) {
    Json json = {{"command", "scaling"}, {"measured", Json::array()}, {"model", Json()}};
    std::string text;
    const ScalingFiles files = read_scaling_files(options.inputs);
    if (!options.inputs.empty()) {
        const MeasuredScaling measured = scaling_of(files, options);
        json["measured"] = measured_json(measured);
        json["model"] = model_json(measured);
        text += to_text(measured);
    }
    json["extrapolated"] = Json::array();
    if (!options.hardware.empty()) {
        const HardwareFile hardware = read_hardware(options.hardware);
        const auto rows = extrapolate(hardware, options.shapes, options.bandwidth_share);
        json["bandwidth_share"] = options.bandwidth_share;
        json.update(extrapolated_json(rows));
        if (!text.empty()) text += '\n';
        text += to_text(rows, options.bandwidth_share);
    }
    if (!options.output.empty()) replace_file(options.output, indented(json));
    print(session, options.json ? indented(json) : text);
}

} // namespace

int run_bench_scaling(dist::Session& session, const Arguments& arguments) {
    const auto options = read_options(session, arguments, page_of("bench scaling"), scaling_options);
    if (!options) return kAllServed;
    in_agreement(session, session.start_seconds(), [&] {
        if (session.world_rank() == 0) report(session, *options);
    });
    return kAllServed;
}

} // namespace entrodraft::launch
