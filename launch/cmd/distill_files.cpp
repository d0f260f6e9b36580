// See distill_files.h.
#include "launch/cmd/distill_files.h"

#include "launch/start/counted.h"
#include "launch/start/failure.h"
#include "launch/start/model_directory.h"
#include "launch/start/replaced_file.h"
#include "model/families/read_config.h"
#include "model/files/json_file.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <initializer_list>

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

using Fields = nlohmann::json;

// Returns the first number in a tensor's name, which is the number of its layer; -1: the name has none.
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

// Families name such a field differently. Sets it under each of the names that the config has.
void set_fields(Fields& fields, std::initializer_list<const char*> names, int value) {
    for (const char* name : names)
        if (fields.contains(name) && fields[name].is_number()) fields[name] = value;
}

void set_layers(Fields& fields, int layers) {
    set_fields(fields, {"num_hidden_layers", "n_layer", "num_layers", "n_layers"}, layers);
    for (const char* name : {"layer_types", "mlp_layer_types", "no_rope_layers"}) // one entry for each layer
        if (fields.contains(name) && fields[name].is_array() && fields[name].size() > static_cast<std::size_t>(layers))
            fields[name].erase(fields[name].begin() + layers, fields[name].end());
}

// Keeps the width of heads, or about it if it follows from the model's. The same number of heads share a KV head.
void set_hidden_size(Fields& fields, const model::ModelConfig& config, int hidden_size) {
    int head_dim = config.head_dim;
    if (!fields.contains("head_dim") || !fields["head_dim"].is_number()) {
        const int wanted = head_dim;
        head_dim = hidden_size;
        for (int dim = 2; dim <= hidden_size; dim += 2)
            if (hidden_size % dim == 0 && std::abs(dim - wanted) < std::abs(head_dim - wanted)) head_dim = dim;
    }
    const int n_heads = std::max(1, hidden_size / head_dim), group = config.n_heads / config.n_kv_heads;
    const int n_kv_heads = n_heads % group == 0 ? n_heads / group : n_heads;
    const double ratio = static_cast<double>(hidden_size) / config.hidden_size;
    const int inner = std::max(8, static_cast<int>(std::lround(config.intermediate_size * ratio / 8)) * 8);
    set_fields(fields, {"hidden_size", "n_embd", "d_model", "word_embed_proj_dim"}, hidden_size);
    set_fields(fields, {"num_attention_heads", "n_head", "n_heads"}, n_heads);
    set_fields(fields, {"num_key_value_heads"}, n_kv_heads);
    set_fields(fields, {"intermediate_size", "ffn_dim", "n_inner"}, inner);
}

void copy_small_files(const fs::path& from, const fs::path& to) {
    for (const char* name : kSmallFiles)
        if (fs::exists(from / name)) fs::copy_file(from / name, to / name, fs::copy_options::overwrite_existing);
}

} // namespace

model::Checkpoint first_layers(const OpenedModel& opened, int layers) {
    std::vector<model::Checkpoint::Part> parts;
    for (const auto& [name, tensor] : opened.checkpoint->tensors())
        if (layer_in(name) < layers) parts.push_back({name, &*opened.checkpoint, name});
    return model::Checkpoint::composed(opened.path, parts);
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

void DistillFiles::write_model_files(const OpenedModel& source, const DraftShape& shape) const {
    Fields fields = model::read_object(source.path / "config.json");
    if (shape.layers > 0) set_layers(fields, shape.layers);
    if (shape.hidden_size > 0) set_hidden_size(fields, source.config, shape.hidden_size);
    copy_small_files(source.path, directory_);
    replace_file(directory_ / "config.json", fields.dump(2) + "\n");
}

model::ModelConfig DistillFiles::draft_config(const DraftShape& shape) const {
    model::ModelConfig config = model::read_config(directory_);
    if ((shape.layers > 0 && config.n_layers != shape.layers) ||
        (shape.hidden_size > 0 && config.hidden_size != shape.hidden_size))
        throw BadOption(fmt::format("a config of {} cannot be made of the target's, of the family {}; give a --draft",
                                    counted(shape.layers, "layer"), config.family));
    return config;
}

void DistillFiles::write_weights(std::span<const model::TensorBytes> tensors) const {
    write_tensors(directory_ / "model.safetensors", tensors);
}

void DistillFiles::write_current_draft(std::span<const model::TensorBytes> tensors) const {
    fs::create_directories(current_draft());
    copy_small_files(directory_, current_draft());
    write_tensors(current_draft() / "model.safetensors", tensors);
}

} // namespace entrodraft::launch
