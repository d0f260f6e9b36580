// See distill_files.h.
#include "launch/cmd/distill_files.h"

#include "launch/counted.h"
#include "launch/failure.h"
#include "launch/io/json_line.h"
#include "launch/model_directory.h"
#include "launch/replaced_file.h"
#include "model/checkpoint/json_file.h"

#include <algorithm>
#include <fmt/format.h>
#include <stdexcept>

namespace entrodraft::launch {

namespace fs = std::filesystem;

void write_tensors(const fs::path& file, std::span<const model::TensorBytes> tensors) {
    ReplacedFile replaced(file);
    const std::string beginning = model::safetensors_beginning(tensors);
    replaced.write(std::as_bytes(std::span(beginning)));
    for (const model::TensorBytes& tensor : tensors)
        replaced.write(tensor.bytes);
    replaced.commit();
}

namespace {

// Of a tensor's name the first number, which is its layer's; -1: there is none.
int layer_in(const std::string& name) {
    for (std::size_t begin = 0; begin < name.size();) {
        const std::size_t end = std::min(name.find('.', begin), name.size());
        const std::string part = name.substr(begin, end - begin);
        if (!part.empty() && part.size() < 6 && std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; }))
            return std::stoi(part);
        begin = end + 1;
    }
    return -1;
}

} // namespace

void keep_first_layers(OpenedModel& opened, int layers) {
    model::ModelConfig& config = opened.config;
    refuse_if(layers > config.n_layers,
              fmt::format("--layers {}: the target has {}", layers, counted(config.n_layers, "layer")));
    config.n_layers = layers;
    const auto cut = [&](auto& of_layers) {
        of_layers.resize(std::min(of_layers.size(), static_cast<std::size_t>(layers)));
    };
    cut(config.windows);
    cut(config.layer_ropes);
    std::erase_if(config.experts.dense_layers, [&](int layer) { return layer >= layers; });
    const model::Checkpoint whole = *opened.checkpoint;
    std::vector<model::Checkpoint::Part> parts;
    for (const auto& [name, tensor] : whole.tensors())
        if (layer_in(name) < layers) parts.push_back({name, &whole, name});
    opened.checkpoint = model::Checkpoint::composed(opened.path, parts);
}

void DistillFiles::prepare(bool resume) const {
    std::error_code ignored;
    if (fs::exists(directory_, ignored) && !fs::is_directory(directory_, ignored))
        throw BadOption("--output " + directory_.string() + " is a file; name a directory");
    if (!resume && fs::exists(directory_, ignored) && !fs::is_empty(directory_, ignored))
        throw BadOption("--output " + directory_.string() +
                        " holds something; name a new directory, or go on with it by --resume");
    fs::create_directories(directory_ / "training");
}

void DistillFiles::write_small_files(const OpenedModel& begun, int layers, const fs::path& to) {
    for (const char* name : kSmallFiles)
        if (fs::exists(begun.path / name) && std::string(name) != "config.json")
            fs::copy_file(begun.path / name, to / name, fs::copy_options::overwrite_existing);
    nlohmann::json fields = model::read_object(begun.path / "config.json");
    bool has_number = false;
    for (const char* name : {"num_hidden_layers", "n_layer", "num_layers", "n_layers"})
        if (layers > 0 && fields.contains(name)) {
            fields[name] = layers;
            has_number = true;
        }
    for (const char* name : {"layer_types", "mlp_layer_types", "no_rope_layers"}) // by layer
        if (layers > 0 && fields.contains(name) && fields[name].is_array() &&
            fields[name].size() > static_cast<std::size_t>(layers))
            fields[name].erase(fields[name].begin() + layers, fields[name].end());
    replace_file(to / "config.json", fields.dump(2) + "\n");
    const model::ModelConfig written = model::read_config(to), &config = begun.config;
    if (written.n_layers != config.n_layers || written.windows != config.windows ||
        written.layer_ropes != config.layer_ropes || written.experts.dense_layers != config.experts.dense_layers ||
        (layers > 0 && !has_number))
        throw std::runtime_error(fmt::format("{}: a config of {} cannot be made of this one; give a --draft",
                                             begun.name, counted(layers, "layer")));
}

void DistillFiles::write_model_files(const OpenedModel& begun, int layers) const {
    write_small_files(begun, layers, directory_);
}

void DistillFiles::write_weights(std::span<const model::TensorBytes> tensors) const {
    write_tensors(directory_ / "model.safetensors", tensors);
}

void DistillFiles::write_current_draft(const OpenedModel& begun, int layers,
                                       std::span<const model::TensorBytes> tensors) const {
    fs::create_directories(current_draft());
    write_small_files(begun, layers, current_draft());
    write_tensors(current_draft() / "model.safetensors", tensors);
}

} // namespace entrodraft::launch
