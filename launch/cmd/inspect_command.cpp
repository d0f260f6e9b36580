// entrodraft inspect: shows a checkpoint, the drafters that are possible for it, and the share of each rank. It reads
// the config, the tokenizer and the headers of the weights. It reads weights only of an output head that is stored
// although the config says that it is tied. The first rank does all of it alone.
#include "launch/cli/command_options.h"
#include "launch/cli/command_pages.h"
#include "launch/cli/options.h"
#include "launch/cmd/model_description.h"
#include "launch/io/progress.h"
#include "launch/io/report.h"
#include "launch/io/results.h"
#include "launch/load/opened_model.h"
#include "launch/load/placed_pair.h"
#include "launch/start/failure.h"
#include "launch/start/model_directory.h"
#include "model/families/names.h"
#include "model/families/read_config.h"
#include "model/files/bad_file.h"
#include "model/files/checkpoint.h"
#include "model/files/json_file.h"
#include "model/footprint/inspection.h"
#include "model/text/tokenizer/tokenizer.h"
#include "model/weights/layer_plan.h"
#include "model/weights/tensor_shapes.h"
#include "spec/protocol/packet.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fmt/format.h>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

namespace entrodraft::launch {

namespace {

namespace fs = std::filesystem;

struct ModelFacts {
    std::string name; // as the option gives it
    std::string directory;
    model::ModelConfig config;
    Vocabulary vocabulary;
    std::optional<model::Tokenizer> opened_tokenizer;
    Json weights, tokenizer; // as in docs/formats.md; "error" says what is missing or cannot be read
    model::RunShape run;
};

// A model that drafts on the first rank, unsharded: a draft model, or a module of a head.
struct Drafting {
    model::ModelConfig config;
    model::RunShape run;
};

struct RankShare {
    model::RankNeeds needs;
    std::uint64_t draft_bytes = 0; // bytes of all that drafts, on the rank that drafts
    std::optional<int> longest;    // number of positions that fit the memory
    std::uint64_t total_bytes() const { return needs.total_bytes() + draft_bytes; }
};

struct Inspection {
    ModelFacts model;
    std::optional<ModelFacts> draft;
    std::optional<OpenedHead> head;
    std::vector<Drafting> drafting;
    Json pair;                                 // model and draft as a pair, as in docs/formats.md
    std::optional<std::uint64_t> memory_bytes; // memory of a rank
    std::vector<RankShare> ranks;
    model::AllReduces all_reduces;
    std::string first_broken; // the message at the end; a file that does not exist is not a failure

    std::uint64_t largest_rank_bytes() const {
        return std::ranges::max_element(ranks, {}, &RankShare::total_bytes)->total_bytes();
    }
    // Returns the greatest length with which every rank fits.
    int longest() const { return std::ranges::min_element(ranks, {}, &RankShare::longest)->longest.value(); }
};

// ---- looking at the files ----

// Unties the head in `config` if the files store a head of other values, and warns of it, naming `option`.
Json weights_json(const std::string& option, const fs::path& directory, model::ModelConfig& config) {
    const auto begin = std::chrono::steady_clock::now();
    const model::Checkpoint checkpoint = model::Checkpoint::open(directory);
    model::check_shapes(config, checkpoint);
    const std::chrono::duration<double> header_seconds = std::chrono::steady_clock::now() - begin;
    if (model::untie_stored_head(config, checkpoint)) { // reads both tensors
        model::check_shapes(config, checkpoint);
        log_line(stored_head_warning(option));
    }
    const model::ModelNames names = names_of(config, checkpoint);
    std::set<std::string> files;
    std::map<std::string, std::uint64_t> bytes_by_type; // only tensors that the model reads, by safetensors' type names
    std::int64_t n_tensors = 0;
    for (const auto& [name, tensor] : checkpoint.tensors()) {
        files.insert(*tensor.file);
        if (names.ignores(name)) continue;
        bytes_by_type[tensor.dtype] += tensor.bytes.size();
        ++n_tensors;
    }
    std::uint64_t file_bytes = 0;
    for (const std::string& file : files)
        file_bytes += fs::file_size(file);
    const auto is_all = [&](const char* ending) { return !files.empty() && files.begin()->ends_with(ending); };
    return {{"format", is_all(".safetensors") ? "safetensors"
                       : is_all(".gguf")      ? "gguf"
                                              : "torch"},
            {"files", files.size()},
            {"file_bytes", file_bytes},
            {"tensors", n_tensors},
            {"bytes_by_type", bytes_by_type},
            {"header_seconds", header_seconds.count()}};
}

ModelFacts look_at(const std::string& name, const std::string& option, std::string& first_broken) {
    ModelFacts facts;
    facts.name = name;
    facts.directory = resolve_checkpoint_directory(name, option);
    facts.config = model::read_config(facts.directory);
    const fs::path directory = facts.directory;
    const std::string model = option + " " + name;
    const auto attempt = [&](std::initializer_list<const char*> files, const std::function<Json()>& read) -> Json {
        try {
            return read();
        } catch (const model::BadFile& error) {
            const bool is_there = std::any_of(files.begin(), files.end(),
                                              [&](const char* file) { return model::file_exists(directory / file); });
            if (is_there && first_broken.empty()) first_broken = error.what();
            return {{"error", error.what()}};
        }
    };
    facts.weights = attempt(
        {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json"},
        [&] { return weights_json(model, directory, facts.config); });
    facts.vocabulary = {model, std::nullopt, 0, facts.config.vocab_size};
    facts.tokenizer =
        attempt({"tokenizer.json", "vocab.json", "tokenizer.model", "tekken.json", "qwen.tiktoken"}, [&]() -> Json {
            const model::Tokenizer& tokenizer = facts.opened_tokenizer.emplace(model::Tokenizer::open(directory));
            facts.vocabulary.fingerprint = tokenizer.fingerprint();
            facts.vocabulary.n_tokens = tokenizer.size();
            return {{"kind", tokenizer.kind()}, {"tokens", tokenizer.size()}};
        });
    return facts;
}

bool can_differ(const ModelFacts& target, const ModelFacts& draft) {
    return target.opened_tokenizer && draft.opened_tokenizer && !target.config.has_encoder() &&
           !draft.config.has_encoder();
}

// The "pair" of models with different vocabularies.
Json other_vocabulary_json(const ModelFacts& target, const ModelFacts& draft) {
    const model::VocabularyMap map(model_vocabulary(*target.opened_tokenizer, target.config),
                                   model_vocabulary(*draft.opened_tokenizer, draft.config));
    return {{"possible", true},
            {"shared_tokens", map.shared().size()},
            {"target_tokens", map.n_target_tokens()},
            {"draft_tokens", map.n_draft_tokens()},
            {"doubt", fmt::format("It has a vocabulary of its own, with {} of the target's", describe_shared(map))}};
}

Json pair_json(const ModelFacts& target, const ModelFacts& draft) {
    for (const ModelFacts* facts : {&draft, &target})
        if (facts->tokenizer.contains("error") && has_tokenizer_files(facts->directory))
            return {{"possible", false}, {"why_not", facts->tokenizer["error"]}};
    if (const auto why_not = why_no_pair(target.vocabulary, draft.vocabulary))
        return can_differ(target, draft) ? other_vocabulary_json(target, draft)
                                         : Json{{"possible", false}, {"why_not", *why_not}};
    Json json = {{"possible", true}};
    const std::string not_looked_at = not_compared(target.vocabulary, draft.vocabulary);
    if (!not_looked_at.empty()) json["not_compared"] = not_looked_at;
    return json;
}

// Opens the head. If it cannot be read, the pair says why it cannot draft.
void look_at_head(const std::string& name, Inspection& inspection) {
    const ModelFacts& target = inspection.model;
    try {
        inspection.head = open_head(name, target.config, model::Checkpoint::open(target.directory));
        inspection.pair = {{"possible", true}};
        const std::string doubt = name_doubt(*inspection.head, "--model " + target.name, target.directory);
        if (!doubt.empty()) inspection.pair["doubt"] = doubt;
    } catch (const model::BadFile& error) {
        inspection.pair = {{"possible", false}, {"why_not", error.what()}};
    }
}

void add_drafting(Inspection& inspection, const model::ModelConfig& config,
                  const std::optional<model::WeightType>& type) {
    model::RunShape run = inspection.model.run;
    run.ranks = 1;
    run.type = type.value_or(automatic_type(config, run.on_gpu));
    inspection.drafting.push_back({config, run});
}

// Returns the additional positions of each sequence for the tree of a round; 0 if nothing drafts.
int tree_room(const Inspection& inspection) {
    return inspection.drafting.empty() ? 0 : spec::Packet::kMaxDraftTokens;
}

// Returns the share of a rank whose sequences have `length` positions. Drafts have the same number or fewer.
RankShare share_of(const Inspection& inspection, int rank, int length) {
    RankShare share;
    model::RunShape run = inspection.model.run;
    run.length = length + tree_room(inspection);
    share.needs = needs_of(inspection.model.config, run, rank);
    if (rank != 0) return share;
    for (const Drafting& each : inspection.drafting) {
        run = each.run;
        run.length = std::min(length, each.config.max_positions) + tree_room(inspection);
        share.draft_bytes += needs_of(each.config, run, 0).total_bytes();
    }
    return share;
}

void look_at_ranks(Inspection& inspection) {
    const model::ModelConfig& config = inspection.model.config;
    const model::RunShape& run = inspection.model.run;
    for (int rank = 0; rank < run.ranks; ++rank) {
        RankShare& share = inspection.ranks.emplace_back(share_of(inspection, rank, run.length));
        const auto bytes_of = [&](int length) { return share_of(inspection, rank, length).total_bytes(); };
        if (inspection.memory_bytes) share.longest = longest_that_fits(config, bytes_of, *inspection.memory_bytes);
    }
    inspection.all_reduces = all_reduces_of(config, run);
}

void require_kv_type(const ModelFacts& facts, std::optional<model::WeightType> type) {
    if (const std::string why = why_no_kv_type(facts.name, facts.config, type); !why.empty()) throw BadOption(why);
}

Inspection inspect(const InspectOptions& options) {
    Inspection inspection;
    inspection.model = look_at(options.model, "--model", inspection.first_broken);
    model::stretch_context(inspection.model.config, options.length);
    const model::ModelConfig& config = inspection.model.config;
    if (options.length > config.max_positions)
        throw BadOption(fmt::format("--length {}: the model has {} positions", options.length, config.max_positions));
    inspection.model.run = {options.ranks,
                            options.threads,
                            options.batch,
                            options.length > 0 ? options.length : config.max_positions,
                            options.dtype.value_or(automatic_type(config, options.on_gpu)),
                            options.on_gpu,
                            0,
                            options.kv_type};
    require_kv_type(inspection.model, options.kv_type);
    inspection.memory_bytes = options.memory_bytes;
    if (!options.draft.empty()) {
        inspection.draft = look_at(options.draft, "--draft", inspection.first_broken);
        model::stretch_context(inspection.draft->config, options.length);
        require_kv_type(*inspection.draft, options.kv_type);
        inspection.pair = pair_json(inspection.model, *inspection.draft);
        const HeldDraft held = held_draft(inspection.draft->config, options.draft_dtype, !options.on_gpu);
        add_drafting(inspection, held.config, held.type);
    }
    if (!options.head.empty()) look_at_head(options.head, inspection);
    if (inspection.head)
        for (const model::HeadModule& module : inspection.head->head.modules)
            add_drafting(inspection, module.config, options.draft_dtype);
    try {
        look_at_ranks(inspection);
    } catch (const std::invalid_argument& error) {
        throw BadOption(fmt::format("--model {} on {} ranks: {}", options.model, options.ranks, error.what()));
    }
    return inspection;
}

// ---- showing the results ----

std::string files_line(const Json& weights) {
    if (weights.contains("error")) return weights["error"];
    std::vector<std::pair<std::uint64_t, std::string>> types;
    for (const auto& [dtype, bytes] : weights["bytes_by_type"].items())
        types.emplace_back(bytes, dtype == "F32"    ? "float32"
                                  : dtype == "F16"  ? "float16"
                                  : dtype == "BF16" ? "bfloat16"
                                                    : dtype);
    std::ranges::sort(types, std::ranges::greater{});
    std::string text =
        fmt::format("{}, {}, {}, ", format_count(weights["files"], weights["format"].get<std::string>() + " file"),
                    format_bytes(weights["file_bytes"]), format_count(weights["tensors"], "tensor"));
    for (std::size_t i = 0; i < types.size(); ++i)
        text += (i == 0 ? "" : i == 1 ? " with some " : ", ") + types[i].second;
    return text;
}

std::string tokenizer_line(const Json& tokenizer) {
    if (tokenizer.contains("error")) return tokenizer["error"];
    return tokenizer["kind"].get<std::string>() + ", " + format_count(tokenizer["tokens"], "token");
}

std::string ends_line(const ModelFacts& facts) {
    std::vector<std::string> ends;
    for (const std::int64_t id : facts.config.eos_token_ids) {
        const bool is_named = facts.opened_tokenizer && id >= 0 && id < facts.opened_tokenizer->size();
        ends.push_back(std::to_string(id));
        if (is_named) ends.back() += " " + facts.opened_tokenizer->token(static_cast<model::TokenId>(id));
    }
    return ends.empty() ? "no token" : fmt::format("{}", fmt::join(ends, ", "));
}

// Returns the facts of a model: its JSON object, and a line for each column with a heading.
Columns columns_of(const ModelFacts& facts) {
    const model::ModelConfig& config = facts.config;
    const std::int64_t n_parameters = parameter_count(config), n_active = active_parameter_count(config);
    const std::string of_token =
        n_active < n_parameters ? fmt::format(", {} of them for a token", format_count(n_active)) : "";
    const Columns shape = description_of(config);
    Columns columns = {{"name", "", facts.name},
                       {"directory", "", facts.directory},
                       {"family", "", config.family},
                       {"parameters", "parameters", n_parameters, format_count(n_parameters) + of_token},
                       {"active_parameters", "", n_active},
                       {"shape", "", json_of(shape)}};
    for (const Column& column : shape)
        columns.emplace_back("", column.heading, Json(), column.text);
    columns.emplace_back("tokenizer", "tokenizer", facts.tokenizer, tokenizer_line(facts.tokenizer));
    columns.emplace_back("", "texts end at", Json(), ends_line(facts));
    columns.emplace_back("weights", "files", facts.weights, files_line(facts.weights));
    columns.emplace_back("", "in memory", Json(),
                         describe_weights(config, config.stored_type) + ", where --dtype says nothing");
    return columns;
}

std::string lines_of(const Columns& columns) {
    std::string text;
    for (const Column& column : columns)
        if (!column.heading.empty()) text += fmt::format("  {:<12} {}\n", column.heading, column.text);
    return text + "\n";
}

std::string model_text(const ModelFacts& facts) {
    std::string text = fmt::format("{}: {}{}\n", facts.name, facts.config.family,
                                   facts.directory == facts.name ? "" : " in " + facts.directory);
    return text + lines_of(columns_of(facts));
}

// Returns the facts of a head, like columns_of() of a model.
Columns columns_of(const OpenedHead& opened) {
    const model::DraftHead& head = opened.head;
    const model::ModelConfig& config = head.config();
    const std::string vocabulary =
        config.output_tokens.empty()
            ? "the model's"
            : fmt::format("{} of {} tokens", format_count(config.n_outputs()), config.vocab_size);
    return {{"name", "", opened.name},
            {"directory", "", opened.path.string()},
            {"format", "", head.format},
            {"modules", "modules", head.modules.size(),
             fmt::format("{}, of {}", head.modules.size(), format_count(head.modules.back().config.n_layers, "layer"))},
            {"layers", "", head.modules.back().config.n_layers},
            {"target_layers", "reads", head.target_layers,
             fmt::format("the model's states behind layers {}", fmt::join(head.target_layers, ", "))},
            {"max_tokens", "drafts", head.max_tokens,
             (head.max_tokens == 0 ? "any number of tokens" : "at most " + format_count(head.max_tokens, "token")) +
                 (head.block > 1 ? fmt::format(", {} a pass", head.block) : "")},
            {"tokens", "vocabulary", config.n_outputs(), vocabulary},
            {"trained_for", head.trained_for.empty() ? "" : "trained for", head.trained_for},
            {"dtype", "in memory", to_string(config.stored_type),
             to_string(config.stored_type) + ", where --draft-dtype says nothing"}};
}

std::string head_text(const OpenedHead& head) {
    return fmt::format("{}: {} head\n", head.name, head.head.format) + lines_of(columns_of(head));
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
                   {"draft_bytes", inspection.drafting.empty() ? "" : "draft", facts.draft_bytes,
                    facts.draft_bytes > 0 ? format_bytes(facts.draft_bytes) : ""},
                   {"total_bytes", "total", facts.total_bytes(), format_bytes(facts.total_bytes())}};
    const model::ExpertsConfig& experts = inspection.model.config.experts;
    if (experts.n_experts > 0) {
        const auto place = std::ranges::find(row, std::string("vocab"), &Column::key);
        row.emplace(place, "expert_width", "experts", slice_json(shard.expert),
                    fmt::format("{} x {}", experts.n_experts, shard.expert.size()));
    }
    if (!facts.longest) return row;
    row.emplace_back("fits", "fits", fits, fits ? "yes" : "no");
    row.emplace_back("longest_length", "", *facts.longest);
    return row;
}

// Ranks with the same columns share a row: "0-3".
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
    const int longest = inspection.longest();
    std::string text = needed <= memory ? fmt::format("  fits in {} a rank", format_bytes(memory))
                                        : fmt::format("  does not fit in {} a rank: a rank needs {}",
                                                      format_bytes(memory), format_bytes(needed));
    if (longest == 0) return text + "; no length does: shard across more ranks, or choose a smaller --dtype\n";
    return fmt::format("{}; the longest that fits: {} positions{}\n", text, format_count(longest),
                       longest == inspection.model.config.max_positions ? ", the model's context" : "");
}

std::string run_text(const Inspection& inspection) {
    const model::RunShape& run = inspection.model.run;
    std::string text =
        fmt::format("On {} of {}: weights in {}{}, {} of {} positions{}, KV cache in {}\n{}",
                    format_count(run.ranks, "rank"), run.on_gpu ? "a GPU" : format_count(run.threads, "thread"),
                    inspection.model.config.quantization ? "the file's codes, others in " : "", to_string(run.type),
                    format_count(run.batch, "sequence"), format_count(run.length),
                    tree_room(inspection) == 0 ? "" : fmt::format(" and {} for --tree", tree_room(inspection)),
                    to_string(cache_type(inspection.model.config, run)), ranks_table(inspection));
    if (inspection.all_reduces.count > 0)
        text += fmt::format("  a pass of one row takes {} of together {}\n",
                            format_count(inspection.all_reduces.count, "all-reduce"),
                            format_bytes(static_cast<std::uint64_t>(inspection.all_reduces.bytes)));
    return inspection.memory_bytes ? text + memory_line(inspection) : text;
}

std::string pair_text(const Json& pair, const std::string& target) {
    if (!pair["possible"].get<bool>())
        return fmt::format("It cannot draft for {}: {}\n\n", target, pair["why_not"].get<std::string>());
    const std::string also = pair.value("not_compared", pair.value("doubt", ""));
    return fmt::format("It can draft for {}.{}\n\n", target, also.empty() ? "" : " " + also + ".");
}

std::string to_text(const Inspection& inspection) {
    std::string text = model_text(inspection.model);
    if (inspection.draft) text += model_text(*inspection.draft);
    if (inspection.head) text += head_text(*inspection.head);
    if (!inspection.pair.is_null()) text += pair_text(inspection.pair, inspection.model.name);
    return text + run_text(inspection);
}

Json to_json(const Inspection& inspection) {
    Json json = {{"schema_version", 1}, {"model", json_of(columns_of(inspection.model))}};
    if (inspection.draft) json["draft"] = json_of(columns_of(*inspection.draft));
    if (inspection.head) json["head"] = json_of(columns_of(*inspection.head));
    if (!inspection.pair.is_null()) json["pair"] = inspection.pair;
    const model::RunShape& run = inspection.model.run;
    json["run"] = {{"tensor_parallel", run.ranks},
                   {"threads", run.threads},
                   {"batch_size", run.batch},
                   {"length", run.length},
                   {"dtype", to_string(run.type)},
                   {"device", run.on_gpu ? "cuda" : "cpu"},
                   {"kv_cache_dtype", to_string(cache_type(inspection.model.config, run))}};
    if (!inspection.drafting.empty()) json["run"]["draft_dtype"] = to_string(inspection.drafting.front().run.type);
    for (std::size_t rank = 0; rank < inspection.ranks.size(); ++rank)
        json["ranks"].push_back(json_of(rank_row(inspection, rank)));
    json["all_reduces_a_row"] = {{"count", inspection.all_reduces.count}, {"bytes", inspection.all_reduces.bytes}};
    if (!inspection.memory_bytes) return json;
    json["memory_bytes"] = *inspection.memory_bytes;
    json["fits"] = inspection.largest_rank_bytes() <= *inspection.memory_bytes;
    json["longest_length"] = inspection.longest();
    return json;
}

ExitCode show_inspection(const InspectOptions& options) {
    const Inspection inspection = inspect(options);
    ResultWriter("-", Existing::refuse).write_text(options.json ? indented(to_json(inspection)) : to_text(inspection));
    if (!inspection.first_broken.empty()) throw model::BadFile(inspection.first_broken);
    return kAllServed;
}

} // namespace

int run_inspect(dist::Session& session, const Arguments& arguments) {
    return run_on_first_rank(session, arguments, page_of("inspect"), show_inspection);
}

} // namespace entrodraft::launch
