// See inspection_report.h.
#include "launch/cmd/inspection_report.h"

#include "launch/io/report.h"

#include <algorithm>
#include <fmt/format.h>

namespace entrodraft::launch {

namespace {

using model::ModelConfig;

std::string shortest(double number) {
    return fmt::format("{:.7g}", number);
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
    std::vector<std::string> names;
    if (config.qkv_bias) names.emplace_back("query, key and value");
    if (config.output_bias) names.emplace_back("attention output");
    if (config.mlp_bias) names.emplace_back("MLP");
    if (config.head_bias) names.emplace_back("head");
    return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

// ---- text ----

std::string attention_line(const ModelConfig& config) {
    std::string text = fmt::format("{} of {}, {}", format_count(config.n_heads, "head"), config.head_dim,
                                   format_count(config.n_kv_heads, "KV head"));
    if (config.query_key_norm) text += ", queries and keys normed";
    if (config.attention_soft_cap > 0) text += ", scores capped at " + shortest(config.attention_soft_cap);
    const WindowFacts windows = windows_of(config);
    if (windows.n_layers > 0)
        text += fmt::format("; {} layers see a window of {}",
                            windows.n_layers == config.n_layers ? "all" : std::to_string(windows.n_layers),
                            windows.positions);
    return text;
}

std::string positions_line(const ModelConfig& config) {
    std::string text = positions_name(config.positions);
    const model::Rope& rope = config.rope;
    if (config.positions != model::Positions::rotary) return text;
    text += ", theta " + shortest(rope.theta);
    if (rope.dims != config.head_dim) text += fmt::format(", the first {} of a head's {}", rope.dims, config.head_dim);
    if (rope.scaling != model::RopeScaling::none)
        text += fmt::format(", stretched {} times ({}) from {}", shortest(rope.factor), scaling_name(rope.scaling),
                            shortest(rope.original_positions));
    return text;
}

std::string files_line(const ModelFacts& facts) {
    if (!facts.weights) return facts.no_weights;
    const WeightFacts& weights = *facts.weights;
    std::vector<std::pair<std::uint64_t, std::string>> types;
    for (const auto& [dtype, bytes] : weights.bytes_by_type)
        types.emplace_back(bytes, type_name(dtype));
    std::sort(types.rbegin(), types.rend());
    std::string text = fmt::format("{}, {}, {}, ", format_count(weights.n_files, weights.format + " file"),
                                   format_bytes(weights.file_bytes), format_count(weights.n_tensors, "tensor"));
    for (std::size_t i = 0; i < types.size(); ++i)
        text += (i == 0 ? "" : i == 1 ? " with some " : ", ") + types[i].second;
    return text;
}

std::string model_text(const ModelFacts& facts) {
    const ModelConfig& config = facts.config;
    std::string text = fmt::format("{}: {}{}\n", facts.name, config.family,
                                   facts.directory == facts.name ? "" : " in " + facts.directory);
    const auto line = [&](const char* name, const std::string& value) {
        text += fmt::format("  {:<12} {}\n", name, value);
    };
    line("parameters", format_count(facts.n_parameters));
    line("layers", fmt::format("{}, {}, {} (epsilon {})", config.n_layers, block_name(config), norm_name(config.norm),
                               shortest(config.norm_epsilon)));
    line("hidden", fmt::format("{}{}", config.hidden_size,
                               config.embedding_size == config.hidden_size
                                   ? ""
                                   : fmt::format(", embeddings of {}", config.embedding_size)));
    line("MLP", fmt::format("{}, {}{}", config.intermediate_size, activation_name(config.activation),
                            config.gated_mlp ? ", gated" : ""));
    line("attention", attention_line(config));
    line("biases", biases_of(config));
    line("positions", positions_line(config));
    line("context", format_count(config.max_positions));
    line("vocabulary", format_count(config.vocab_size) +
                           (config.tied_embeddings ? ", head and embedding are one" : ", a head of its own") +
                           (config.logit_soft_cap > 0 ? ", logits capped at " + shortest(config.logit_soft_cap) : ""));
    line("tokenizer", facts.tokenizer ? facts.tokenizer->kind + ", " + format_count(facts.tokenizer->n_tokens, "token")
                                      : facts.no_tokenizer);
    line("files", files_line(facts));
    line("in memory", to_string(config.stored_type) + ", where --dtype says nothing");
    return text;
}

Json slice_json(dist::Slice slice) {
    return {slice.begin, slice.end};
}

Columns rank_row(const Inspection& inspection, std::size_t rank) {
    const RankShare& facts = inspection.ranks[rank];
    const model::RankNeeds& needs = facts.needs;
    const model::RankShard& shard = needs.shard;
    const bool fits = facts.longest && facts.total_bytes() <= *inspection.memory_bytes;
    Columns row = {{"rank", "rank", rank},
                   {"query_heads", "heads", slice_json(shard.heads.query_heads), std::to_string(shard.n_query_heads())},
                   {"kv_heads", "KV heads", slice_json(shard.heads.kv_heads),
                    fmt::format("{}{}", shard.n_kv_heads(), needs.shares_kv_heads ? " (copies)" : "")},
                   {"shares_kv_heads", "", needs.shares_kv_heads},
                   {"mlp", "MLP", slice_json(shard.mlp), std::to_string(shard.mlp.size())},
                   {"vocab", "vocabulary", slice_json(shard.vocab), std::to_string(shard.vocab.size())},
                   {"weight_bytes", "weights", needs.weight_bytes, format_bytes(needs.weight_bytes)},
                   {"kv_cache_bytes", "KV cache", needs.cache_bytes, format_bytes(needs.cache_bytes)},
                   {"buffer_bytes", "buffers", needs.activation_bytes, format_bytes(needs.activation_bytes)},
                   {"draft_bytes", inspection.draft_run ? "draft" : "", facts.draft_bytes,
                    facts.draft_bytes > 0 ? format_bytes(facts.draft_bytes) : ""},
                   {"total_bytes", "total", facts.total_bytes(), format_bytes(facts.total_bytes())}};
    if (!facts.longest) return row;
    row.emplace_back("fits", "fits", fits, fits ? "yes" : "no");
    row.emplace_back("longest_length", "", *facts.longest);
    return row;
}

// Ranks that look the same share a row: "0-3".
std::string ranks_table(const Inspection& inspection) {
    std::vector<Columns> rows;
    std::size_t first = 0;
    for (std::size_t rank = 0; rank < inspection.ranks.size(); ++rank) {
        Columns row = rank_row(inspection, rank);
        const auto looks_same = [](const Column& a, const Column& b) { return a.text == b.text || a.heading.empty(); };
        if (rank > 0 && std::equal(row.begin() + 1, row.end(), rows.back().begin() + 1, looks_same)) {
            rows.back().front().text = fmt::format("{}-{}", first, rank);
        } else {
            first = rank;
            rows.push_back(std::move(row));
        }
    }
    return table_of(rows, "  ");
}

std::string memory_line(const Inspection& inspection) {
    const std::uint64_t memory = *inspection.memory_bytes, needed = inspection.largest_rank_bytes();
    const int longest = *inspection.longest();
    std::string text = needed <= memory ? fmt::format("  fits in {} a rank", format_bytes(memory))
                                        : fmt::format("  does not fit in {} a rank: a rank needs {}",
                                                      format_bytes(memory), format_bytes(needed));
    if (longest == 0) return text + "; no length does: shard across more ranks, or choose a smaller --dtype\n";
    return fmt::format("{}; the longest that fits: {} positions{}\n", text, format_count(longest),
                       longest == inspection.model.config.max_positions ? ", the model's context" : "");
}

std::string run_text(const Inspection& inspection) {
    const model::RunShape& run = inspection.run;
    std::string text =
        fmt::format("On {} of {}: weights in {}, {} of {} positions, KV cache in float32\n{}",
                    format_count(run.ranks, "rank"), format_count(run.threads, "thread"), to_string(run.type),
                    format_count(run.batch, "sequence"), format_count(run.length), ranks_table(inspection));
    if (inspection.all_reduces.count > 0)
        text += fmt::format("  a pass of one row takes {} of together {}\n",
                            format_count(inspection.all_reduces.count, "all-reduce"),
                            format_bytes(static_cast<std::uint64_t>(inspection.all_reduces.bytes)));
    return inspection.memory_bytes ? text + memory_line(inspection) : text;
}

// ---- JSON ----

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
                 {"family", facts.config.family},
                 {"parameters", facts.n_parameters},
                 {"shape", config_json(facts.config)}};
    json["weights"] = {{"error", facts.no_weights}};
    if (facts.weights)
        json["weights"] = {{"format", facts.weights->format},
                           {"files", facts.weights->n_files},
                           {"file_bytes", facts.weights->file_bytes},
                           {"tensors", facts.weights->n_tensors},
                           {"bytes_by_type", facts.weights->bytes_by_type},
                           {"header_seconds", facts.weights->header_seconds}};
    json["tokenizer"] = {{"error", facts.no_tokenizer}};
    if (facts.tokenizer) json["tokenizer"] = {{"kind", facts.tokenizer->kind}, {"tokens", facts.tokenizer->n_tokens}};
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
    const std::string& name = inspection.model.name;
    const std::string also = inspection.not_compared.empty() ? "" : " " + inspection.not_compared + ".";
    if (inspection.draft)
        text += model_text(*inspection.draft) + "\n" +
                (inspection.may_pair ? fmt::format("It can draft for {}.{}\n\n", name, also)
                                     : fmt::format("It cannot draft for {}: {}\n\n", name, inspection.no_pair));
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
    for (std::size_t rank = 0; rank < inspection.ranks.size(); ++rank)
        json["ranks"].push_back(json_of(rank_row(inspection, rank)));
    json["all_reduces_a_row"] = {{"count", inspection.all_reduces.count}, {"bytes", inspection.all_reduces.bytes}};
    if (!inspection.memory_bytes) return json;
    json["memory_bytes"] = *inspection.memory_bytes;
    json["fits"] = inspection.largest_rank_bytes() <= *inspection.memory_bytes;
    json["longest_length"] = *inspection.longest();
    return json;
}

} // namespace entrodraft::launch
