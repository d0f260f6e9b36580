// Reading a hardware file: see hardware_file.h.
#include "launch/cmd/bench/hardware_file.h"

#include "launch/io/json_fields.h"
#include "launch/model_shapes.h"

#include <algorithm>

namespace entrodraft::launch {

namespace {

constexpr double kGiga = 1e9, kTera = 1e12, kMicro = 1e-6;

double figure(const JsonFields& fields, const std::string& name) {
    const JsonFields figure = fields.object(name);
    figure.text("source"); // no figure stands by itself
    return figure.positive("value");
}

Hardware read_one(const JsonFields& fields) {
    Hardware hardware;
    hardware.name = fields.text("name");
    hardware.memory_bandwidth = figure(fields, "memory_gb_per_s") * kGiga;
    hardware.memory_bytes = figure(fields, "memory_gb") * kGiga;
    hardware.operations_per_second = figure(fields, "bfloat16_tflop_per_s") * kTera;
    hardware.node_gpus = fields.object("gpus_per_node").count("value");
    figure(fields, "gpus_per_node");
    hardware.node_latency = figure(fields, "node_all_reduce_us") * kMicro;
    hardware.node_bandwidth = figure(fields, "nvlink_gb_per_s_each_way") * kGiga;
    hardware.hop_latency = figure(fields, "network_hop_us") * kMicro;
    hardware.net_bandwidth = figure(fields, "network_gb_per_s_each_way") * kGiga;
    return hardware;
}

PublishedRate read_published(const JsonFields& fields, const HardwareFile& file) {
    PublishedRate rate = {fields.text("hardware"), fields.text("shape"), fields.count("gpus"),
                          fields.positive("tokens_per_second"), fields.text("source")};
    if (std::none_of(file.hardware.begin(), file.hardware.end(),
                     [&](const Hardware& hardware) { return hardware.name == rate.hardware; }))
        fields.bad("hardware", "names none of the file's hardware: " + rate.hardware);
    if (std::none_of(model_shapes().begin(), model_shapes().end(),
                     [&](const ModelShape& shape) { return shape.name == rate.shape; }))
        fields.bad("shape", "names no shape that is known: " + rate.shape);
    return rate;
}

} // namespace

HardwareFile read_hardware(const std::string& file) {
    const JsonFields fields = JsonFields::read(file);
    if (fields.count("schema_version") != 1) fields.bad("schema_version", "must be 1");
    HardwareFile read;
    for (const JsonFields& one : fields.objects("hardware")) {
        read.hardware.push_back(read_one(one));
        for (std::size_t i = 0; i + 1 < read.hardware.size(); ++i)
            if (read.hardware[i].name == read.hardware.back().name) one.bad("name", "stands twice");
    }
    if (read.hardware.empty()) fields.bad("hardware", "is empty");
    if (fields.has("published"))
        for (const JsonFields& one : fields.objects("published"))
            read.published.push_back(read_published(one, read));
    return read;
}

} // namespace entrodraft::launch
