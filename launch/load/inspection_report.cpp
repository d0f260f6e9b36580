// See inspection_report.h.
#include "launch/load/inspection_report.h"

#include "launch/environment.h"

#include <algorithm>
#include <cstdio>

namespace entrodraft::launch {

namespace {

using model::ModelConfig;

std::string counted_with_separators(std::int64_t count, const std::string& thing) {
    return format_count(count) + " " + thing + (count == 1 ? "" : "s");
}

std::string shortest(double number) {
    char text[32];
    std::snprintf(text, sizeof text, "%.7g", number);
    return text;
}

std::string block_name(const ModelConfig& config) {
    switch (config.block) {
    case model::Block::pre_norm:
        return "pre-norm";
    case model::Block::post_norm:
        return "post-norm";
    case model::Block::sandwich:
        return "norms on both sides of each half";
    case model::Block::parallel:
        return config.shared_norm ? "attention and MLP side by side, one norm" : "attention and MLP side by side";
    }
    return "?";
}

std::string activation_name(model::Activation activation) {
    switch (activation) {
    case model::Activation::silu:
        return "silu";
    case model::Activation::gelu:
        return "gelu";
    case model::Activation::gelu_tanh:
        return "gelu (tanh)";
    case model::Activation::relu:
        return "relu";
    }
    return "?";
}

std::string positions_name(model::Positions positions) {
    return positions == model::Positions::rotary    ? "rotary"
           : positions == model::Positions::learned ? "learned"
                                                    : "ALiBi";
}

std::string scaling_name(model::RopeScaling scaling) {
    switch (scaling) {
    case model::RopeScaling::none:
        return "none";
    case model::RopeScaling::linear:
        return "linear";
    case model::RopeScaling::dynamic:
        return "dynamic";
    case model::RopeScaling::llama3:
        return "llama3";
    case model::RopeScaling::yarn:
        return "yarn";
    }
    return "?";
}

std::string norm_name(model::Norm norm) {
    return norm == model::Norm::rms ? "RMSNorm" : "LayerNorm";
}

std::string type_name(const std::string& dtype) {
    return dtype == "F32" ? "float32" : dtype == "F16" ? "float16" : dtype == "BF16" ? "bfloat16" : dtype;
}

// The largest window of any layer and how many layers have one.
struct WindowFacts {
    int positions = 0;
    int n_layers = 0;
};
WindowFacts windows_of(const ModelConfig& config) {
    WindowFacts facts;
    for (const int window : config.windows) {
        facts.positions = std::max(facts.positions, window);
        facts.n_layers += window > 0;
    }
    return facts;
}

std::string biases_of(const ModelConfig& config) {
    std::string text;
    const std::pair<bool, const char*> all[] = {{config.qkv_bias, "query, key and value"},
                                                {config.output_bias, "attention output"},
                                                {config.mlp_bias, "MLP"},
                                                {config.head_bias, "head"}};
    for (const auto& [has, name] : all)
        if (has) text += (text.empty() ? "" : ", ") + std::string(name);
    return text.empty() ? "none" : text;
}

// ---- text ----

using Lines = std::vector<std::pair<std::string, std::string>>;

std::string aligned(const Lines& lines) {
    std::string text;
    for (const auto& [name, value] : lines)
        text += "  " + name + std::string(name.size() < 13 ? 13 - name.size() : 1, ' ') + value + "\n";
    return text;
}

std::string attention_line(const ModelConfig& config) {
    std::string text = counted_with_separators(config.n_heads, "head") + " of " + std::to_string(config.head_dim) +
                       ", " + counted_with_separators(config.n_kv_heads, "KV head");
    if (config.query_key_norm) text += ", queries and keys normed";
    if (config.attention_soft_cap > 0) text += ", scores capped at " + shortest(config.attention_soft_cap);
    const WindowFacts windows = windows_of(config);
    if (windows.n_layers > 0)
        text += "; " + (windows.n_layers == config.n_layers ? "all" : std::to_string(windows.n_layers)) +
                " layers see a window of " + std::to_string(windows.positions);
    return text;
}

std::string positions_line(const ModelConfig& config) {
    std::string text = positions_name(config.positions);
    if (config.positions != model::Positions::rotary) return text;
    text += ", theta " + shortest(config.rope.theta);
    if (config.rope.dims != config.head_dim)
        text += ", the first " + std::to_string(config.rope.dims) + " of a head's " + std::to_string(config.head_dim);
    if (config.rope.scaling != model::RopeScaling::none)
        text += ", stretched " + shortest(config.rope.factor) + " times (" + scaling_name(config.rope.scaling) +
                ") from " + shortest(config.rope.original_positions);
    return text;
}

std::string files_line(const ModelFacts& facts) {
    if (!facts.weights) return facts.no_weights;
    const WeightFacts& weights = *facts.weights;
    std::string text = counted_with_separators(weights.n_files, weights.format + " file") + ", " +
                       format_bytes(weights.file_bytes) + ", " + counted_with_separators(weights.n_tensors, "tensor") +
                       ", ";
    std::vector<std::pair<std::uint64_t, std::string>> types;
    for (const auto& [dtype, bytes] : weights.bytes_by_type)
        types.emplace_back(bytes, type_name(dtype));
    std::sort(types.rbegin(), types.rend());
    for (std::size_t i = 0; i < types.size(); ++i)
        text += (i == 0 ? "" : i == 1 ? " with some " : ", ") + types[i].second;
    return text;
}

std::string model_text(const ModelFacts& facts) {
    const ModelConfig& config = facts.config;
    Lines lines;
    lines.emplace_back("parameters", format_count(facts.n_parameters));
    lines.emplace_back("layers", std::to_string(config.n_layers) + ", " + block_name(config) + ", " +
                                     norm_name(config.norm) + " (epsilon " + shortest(config.norm_epsilon) + ")");
    lines.emplace_back("hidden", std::to_string(config.hidden_size) +
                                     (config.embedding_size == config.hidden_size
                                          ? ""
                                          : ", embeddings of " + std::to_string(config.embedding_size)));
    lines.emplace_back("MLP", std::to_string(config.intermediate_size) + ", " + activation_name(config.activation) +
                                  (config.gated_mlp ? ", gated" : ""));
    lines.emplace_back("attention", attention_line(config));
    lines.emplace_back("biases", biases_of(config));
    lines.emplace_back("positions", positions_line(config));
    lines.emplace_back("context", format_count(config.max_positions));
    lines.emplace_back("vocabulary",
                       format_count(config.vocab_size) +
                           (config.tied_embeddings ? ", head and embedding are one" : ", a head of its own") +
                           (config.logit_soft_cap > 0 ? ", logits capped at " + shortest(config.logit_soft_cap) : ""));
    lines.emplace_back("tokenizer", facts.tokenizer ? facts.tokenizer->kind + ", " +
                                                          counted_with_separators(facts.tokenizer->n_tokens, "token")
                                                    : facts.no_tokenizer);
    lines.emplace_back("files", files_line(facts));
    lines.emplace_back("in memory", to_string(config.stored_type) + ", where --dtype says nothing");
    return facts.name + ": " + to_string(config.family) +
           (facts.directory == facts.name ? "" : " in " + facts.directory) + "\n" + aligned(lines);
}

// Everything that a row of the table says, so that equal ranks share one.
std::vector<std::string> rank_cells(const Inspection& inspection, const RankShare& rank) {
    const model::RankShard& shard = rank.needs.shard;
    std::vector<std::string> cells = {std::to_string(shard.n_query_heads()),
                                      std::to_string(shard.n_kv_heads()) +
                                          (rank.needs.shares_kv_heads ? " (copies)" : ""),
                                      std::to_string(shard.mlp.size()),
                                      std::to_string(shard.vocab.size()),
                                      format_bytes(rank.needs.weight_bytes),
                                      format_bytes(rank.needs.cache_bytes),
                                      format_bytes(rank.needs.activation_bytes)};
    if (inspection.draft_run) cells.push_back(rank.draft_bytes > 0 ? format_bytes(rank.draft_bytes) : "");
    cells.push_back(format_bytes(rank.total_bytes()));
    if (rank.longest) cells.push_back(rank.total_bytes() <= *inspection.memory_bytes ? "yes" : "no");
    return cells;
}

std::string ranks_table(const Inspection& inspection) {
    std::vector<std::vector<std::string>> table = {
        {"  rank", "heads", "KV heads", "MLP", "vocabulary", "weights", "KV cache", "buffers"}};
    if (inspection.draft_run) table[0].push_back("draft");
    table[0].push_back("total");
    if (inspection.memory_bytes) table[0].push_back("fits");
    for (std::size_t first = 0; first < inspection.ranks.size();) {
        const std::vector<std::string> cells = rank_cells(inspection, inspection.ranks[first]);
        std::size_t end = first + 1;
        while (end < inspection.ranks.size() && rank_cells(inspection, inspection.ranks[end]) == cells)
            ++end;
        table.push_back({"  " + std::to_string(first) + (end - first > 1 ? "-" + std::to_string(end - 1) : "")});
        table.back().insert(table.back().end(), cells.begin(), cells.end());
        first = end;
    }
    return format_table(table);
}

std::string memory_line(const Inspection& inspection) {
    const std::uint64_t memory = *inspection.memory_bytes, needed = inspection.largest_rank_bytes();
    const int longest = *inspection.longest();
    std::string text = needed <= memory ? "  fits in " + format_bytes(memory) + " a rank"
                                        : "  does not fit in " + format_bytes(memory) + " a rank: a rank needs " +
                                              format_bytes(needed);
    if (longest == 0) return text + "; no length does: shard across more ranks, or choose a smaller --dtype\n";
    return text + "; the longest that fits: " + format_count(longest) + " positions" +
           (longest == inspection.model.config.max_positions ? ", the model's context\n" : "\n");
}

std::string run_text(const Inspection& inspection) {
    const model::RunShape& run = inspection.run;
    std::string text = "On " + counted_with_separators(run.ranks, "rank") + " of " +
                       counted_with_separators(run.threads, "thread") + ": weights in " + to_string(run.type) + ", " +
                       counted_with_separators(run.batch, "sequence") + " of " + format_count(run.length) +
                       " positions, KV cache in float32\n" + ranks_table(inspection);
    if (inspection.all_reduces.count > 0)
        text += "  a pass of one row takes " + counted_with_separators(inspection.all_reduces.count, "all-reduce") +
                " of together " + format_bytes(static_cast<std::uint64_t>(inspection.all_reduces.bytes)) + "\n";
    return inspection.memory_bytes ? text + memory_line(inspection) : text;
}

// ---- JSON ----

Json slice_json(dist::Slice slice) {
    return {slice.begin, slice.end};
}

Json rope_json(const model::Rope& rope) {
    Json json = {{"theta", rope.theta}, {"dims", rope.dims}, {"scaling", scaling_name(rope.scaling)}};
    if (rope.scaling == model::RopeScaling::none) return json;
    json["factor"] = rope.factor;
    json["original_positions"] = rope.original_positions;
    return json;
}

Json config_json(const ModelConfig& config) {
    Json json = {{"layers", config.n_layers},
                 {"hidden_size", config.hidden_size},
                 {"embedding_size", config.embedding_size},
                 {"intermediate_size", config.intermediate_size},
                 {"heads", config.n_heads},
                 {"kv_heads", config.n_kv_heads},
                 {"head_dim", config.head_dim},
                 {"vocab_size", config.vocab_size},
                 {"context", config.max_positions},
                 {"block", block_name(config)},
                 {"norm", norm_name(config.norm)},
                 {"norm_epsilon", Json::parse(shortest(config.norm_epsilon))},
                 {"activation", activation_name(config.activation)},
                 {"gated_mlp", config.gated_mlp},
                 {"biases",
                  {{"query_key_value", config.qkv_bias},
                   {"attention_output", config.output_bias},
                   {"mlp", config.mlp_bias},
                   {"head", config.head_bias}}},
                 {"query_key_norm", config.query_key_norm},
                 {"positions", positions_name(config.positions)}};
    if (config.positions == model::Positions::rotary) json["rope"] = rope_json(config.rope);
    const WindowFacts windows = windows_of(config);
    json["window"] = windows.positions > 0 ? Json(windows.positions) : Json();
    json["layers_with_window"] = windows.n_layers;
    json["attention_soft_cap"] = config.attention_soft_cap > 0 ? Json(config.attention_soft_cap) : Json();
    json["logit_soft_cap"] = config.logit_soft_cap > 0 ? Json(config.logit_soft_cap) : Json();
    json["tied_embeddings"] = config.tied_embeddings;
    json["eos_token_ids"] = config.eos_token_ids;
    json["dtype"] = to_string(config.stored_type);
    return json;
}

Json model_json(const ModelFacts& facts) {
    Json json = {{"name", facts.name},
                 {"directory", facts.directory},
                 {"family", to_string(facts.config.family)},
                 {"parameters", facts.n_parameters},
                 {"shape", config_json(facts.config)}};
    if (facts.weights) {
        json["weights"] = {{"format", facts.weights->format},
                           {"files", facts.weights->n_files},
                           {"file_bytes", facts.weights->file_bytes},
                           {"tensors", facts.weights->n_tensors},
                           {"bytes_by_type", facts.weights->bytes_by_type},
                           {"header_seconds", facts.weights->header_seconds}};
    } else {
        json["weights"] = {{"error", facts.no_weights}};
    }
    if (facts.tokenizer)
        json["tokenizer"] = {{"kind", facts.tokenizer->kind}, {"tokens", facts.tokenizer->n_tokens}};
    else
        json["tokenizer"] = {{"error", facts.no_tokenizer}};
    return json;
}

Json rank_json(const Inspection& inspection, int rank) {
    const RankShare& facts = inspection.ranks[static_cast<std::size_t>(rank)];
    const model::RankShard& shard = facts.needs.shard;
    Json json = {{"rank", rank},
                 {"query_heads", slice_json(shard.heads.query_heads)},
                 {"kv_heads", slice_json(shard.heads.kv_heads)},
                 {"shares_kv_heads", facts.needs.shares_kv_heads},
                 {"mlp", slice_json(shard.mlp)},
                 {"vocab", slice_json(shard.vocab)},
                 {"weight_bytes", facts.needs.weight_bytes},
                 {"kv_cache_bytes", facts.needs.cache_bytes},
                 {"buffer_bytes", facts.needs.activation_bytes},
                 {"draft_bytes", facts.draft_bytes},
                 {"total_bytes", facts.total_bytes()}};
    if (!facts.longest) return json;
    json["fits"] = facts.total_bytes() <= *inspection.memory_bytes;
    json["longest_length"] = *facts.longest;
    return json;
}

} // namespace

std::uint64_t Inspection::largest_rank_bytes() const {
    std::uint64_t largest = 0;
    for (const RankShare& rank : ranks)
        largest = std::max(largest, rank.total_bytes());
    return largest;
}

std::optional<int> Inspection::longest() const {
    std::optional<int> least;
    for (const RankShare& rank : ranks)
        if (rank.longest) least = std::min(least.value_or(*rank.longest), *rank.longest);
    return least;
}

std::string to_text(const Inspection& inspection) {
    std::string text = model_text(inspection.model) + "\n";
    if (inspection.draft) {
        text += model_text(*inspection.draft) + "\n";
        text += inspection.may_pair
                    ? "It can draft for " + inspection.model.name + "." +
                          (inspection.not_compared.empty() ? "" : " " + inspection.not_compared + ".") + "\n\n"
                    : "It cannot draft for " + inspection.model.name + ": " + inspection.no_pair + "\n\n";
    }
    return text + run_text(inspection);
}

Json to_json(const Inspection& inspection) {
    Json json = {{"schema_version", 1}, {"model", model_json(inspection.model)}};
    if (inspection.draft) {
        json["draft"] = model_json(*inspection.draft);
        json["pair"] = {{"possible", inspection.may_pair}};
        if (!inspection.may_pair) json["pair"]["why_not"] = inspection.no_pair;
        if (!inspection.not_compared.empty()) json["pair"]["not_compared"] = inspection.not_compared;
    }
    const model::RunShape& run = inspection.run;
    json["run"] = {{"tensor_parallel", run.ranks}, {"threads", run.threads},       {"batch_size", run.batch},
                   {"length", run.length},         {"dtype", to_string(run.type)}, {"kv_cache_dtype", "float32"}};
    if (inspection.draft_run) json["run"]["draft_dtype"] = to_string(inspection.draft_run->type);
    json["ranks"] = Json::array();
    for (int rank = 0; rank < run.ranks; ++rank)
        json["ranks"].push_back(rank_json(inspection, rank));
    json["all_reduces_a_row"] = {{"count", inspection.all_reduces.count}, {"bytes", inspection.all_reduces.bytes}};
    if (!inspection.memory_bytes) return json;
    json["memory_bytes"] = *inspection.memory_bytes;
    json["fits"] = inspection.largest_rank_bytes() <= *inspection.memory_bytes;
    json["longest_length"] = *inspection.longest();
    return json;
}

std::string format_bytes(std::uint64_t bytes) {
    const auto number = static_cast<double>(bytes);
    if (bytes >= std::uint64_t{1} << 30) return format_number(number / 0x1p30, 2) + " GiB";
    if (bytes >= std::uint64_t{1} << 20) return format_number(number / 0x1p20, 1) + " MiB";
    if (bytes >= std::uint64_t{1} << 10) return format_number(number / 0x1p10, 1) + " KiB";
    return std::to_string(bytes) + " bytes";
}

std::string format_count(std::int64_t count) {
    std::string text = std::to_string(count);
    for (std::size_t at = text.size(); at > 3; at -= 3)
        text.insert(at - 3, ",");
    return text;
}

} // namespace entrodraft::launch
