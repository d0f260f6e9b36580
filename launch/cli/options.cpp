// Options of every command: checked, and turned into structs. See options.h; option_tables.cpp declares them.
#include "launch/cli/options.h"
#include "launch/cli/choices.h"

#include "launch/cli/shared_options.h"
#include "launch/failure.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <map>

namespace entrodraft::launch {

namespace {

// Options of later work: known, and refused by name. `values` are those refused, separated by '|'.
// In words: "--OPTION VALUE is not supported yet: this version REST".
struct NotYet {
    const char* option;
    const char* values;
    const char* rest;
};

constexpr NotYet kNotYet[] = {
    {"dtype", "int4", "has float32, bfloat16, float16, int8 and float8"},
    {"draft-dtype", "int4", "has float32, bfloat16, float16, int8 and float8"},
};

bool is_refused(const NotYet& row, const std::string& value) {
    const std::vector<std::string> refused = split_list(row.values, '|');
    return std::find(refused.begin(), refused.end(), value) != refused.end();
}

std::optional<model::WeightType> weight_type(const ParsedOptions& given, const std::string& name,
                                             std::optional<model::WeightType> default_value,
                                             const Names& choices = dtype_choices()) {
    if (!given.given(name)) return default_value;
    using Type = model::WeightType;
    static const std::map<std::string, std::optional<Type>> types = {
        {"auto", std::nullopt},   {"float32", Type::float32}, {"bfloat16", Type::bfloat16}, {"float16", Type::float16},
        {"int8", Type::int8},     {"float8", Type::float8},   {"fp32", Type::float32},      {"float", Type::float32},
        {"bf16", Type::bfloat16}, {"fp16", Type::float16},    {"half", Type::float16},      {"fp8", Type::float8}};
    if (const auto found = types.find(given.text(name, "")); found != types.end()) return found->second;
    throw BadOption(given.spelled(name) + " " + must_be_one_of(choices, given.text(name, "")));
}

spec::SamplingOptions sampling_options(const ParsedOptions& given) {
    spec::SamplingOptions sampling;
    sampling.temperature = given.number("temperature", 0, 0, kNoLimit);
    sampling.top_k = given.integer("top-k", 0, 0, INT_MAX);
    sampling.top_p = given.number("top-p", 1, 0, 1);
    sampling.seed = given.unsigned_integer("seed", 0);
    sampling.min_p = given.number("min-p", 0, 0, 1);
    if (const char* why = spec::why_invalid(sampling); *why != '\0') throw BadOption(why);
    return sampling;
}

// "220:-1.5": a token and what is added to its logit.
std::pair<spec::TokenId, float> logit_bias(const std::string& text) {
    const std::size_t colon = text.find(':');
    if (colon == std::string::npos) throw BadOption("--logit-bias " + text + ": must be TOKEN:BIAS, such as 220:-1.5");
    ParsedOptions one;
    one.add_part("token", text.substr(0, colon), "--logit-bias " + text);
    one.add_part("bias", text.substr(colon + 1), "--logit-bias " + text);
    return {one.integer("token", 0, 0, INT_MAX), static_cast<float>(one.number("bias", 0, -1e30, 1e30))};
}

// What the vocabulary has to do with is checked when that is known, request by request.
spec::LogitProcessing processing_options(const ParsedOptions& given) {
    spec::LogitProcessing processing;
    processing.repetition_penalty = given.number("repetition-penalty", 1, 0, kNoLimit);
    processing.presence_penalty = given.number("presence-penalty", 0, -kNoLimit, kNoLimit);
    processing.frequency_penalty = given.number("frequency-penalty", 0, -kNoLimit, kNoLimit);
    processing.no_repeat_ngram_size = given.integer("no-repeat-ngram-size", 0, 0, INT_MAX);
    processing.min_new_tokens = given.integer("min-new-tokens", 0, 0, INT_MAX);
    for (const std::string& bias : given.texts("logit-bias"))
        processing.logit_bias.push_back(logit_bias(bias));
    processing.banned_tokens = given.integers("banned-tokens", 0, INT_MAX);
    if (const std::string why = spec::why_invalid(processing, INT_MAX); !why.empty()) throw BadOption(why);
    return processing;
}

// "3/16": piece 3, from 0, of 16.
std::optional<InputShard> input_shard(const ParsedOptions& given) {
    if (!given.given("shard")) return std::nullopt;
    const std::string text = given.text("shard", "");
    const std::size_t slash = text.find('/');
    if (slash == std::string::npos)
        throw BadOption("--shard " + text + ": must be I/N, piece I of N, from 0, such as 0/16");
    ParsedOptions one;
    one.add_part("piece", text.substr(0, slash), "--shard " + text);
    one.add_part("pieces", text.substr(slash + 1), "--shard " + text);
    const InputShard shard = {one.integer("piece", 0, 0, INT_MAX), one.integer("pieces", 1, 1, INT_MAX)};
    if (shard.index >= shard.of)
        throw BadOption("--shard " + text + ": pieces count from 0, so that the last of " + std::to_string(shard.of) +
                        " is " + std::to_string(shard.of - 1) + "/" + std::to_string(shard.of));
    if (!given.given("input") || given.text("input", "") == "-")
        throw BadOption("--shard needs --input FILE: what to take a piece of");
    return shard;
}

void check_generate(const ParsedOptions& given, const GenerateOptions& options) {
    if (given.given("prompt") == given.given("input"))
        throw BadOption(given.given("prompt") ? "--prompt and --input exclude each other; give one"
                                              : "nothing to decode: give --prompt TEXT or --input FILE");
    if (options.prompt && options.prompt->empty()) throw BadOption("--prompt is empty; give some text");
    if (options.prompt && given.given("output"))
        throw BadOption("--output goes with --input; a --prompt streams to stdout");
    if (options.prompt && options.replicas > 1)
        throw BadOption("--replicas shares out the prompts of --input; one --prompt needs one replica");
    if (options.prompt && options.batch_size > 1)
        throw BadOption("--batch-size decodes prompts of --input together; one --prompt is decoded alone");
    if (given.given("output") && options.output.empty()) throw BadOption("--output is empty; name a file or -");
    if (given.given("input") && options.input.empty()) throw BadOption("--input is empty; name a file or -");
    if (options.resume && (options.output == "-" || options.prompt))
        throw BadOption("--resume needs --output FILE: what to go on with");
    const spec::AcceptanceOptions& acceptance = options.speculation.acceptance;
    if (options.check && options.speculation.drafter.kinds.empty())
        throw BadOption("--check compares with decoding without a draft; it needs --draft DIR or --drafter NAME");
    if (options.check && !options.requests.sampling.greedy() && acceptance.kind != spec::Acceptance::gumbel)
        throw BadOption("--check compares texts that a draft must not change; with --acceptance " +
                        to_string(acceptance.kind) + " it needs --temperature 0");
    if (options.check && acceptance.is_lossy())
        throw BadOption("--check compares with the target's own text, which a lossy acceptance is not after");
}

std::string model_of(const ParsedOptions& given) {
    std::string model = given.text("model", "");
    if (model.empty()) throw BadOption("--model DIR is missing: the directory of the checkpoint");
    return model;
}

// "80GiB", "24GB", "512MiB", "1000000"; K, M, G and T alone are powers of 1024, as in Slurm.
std::uint64_t byte_size(const ParsedOptions& given, const std::string& name) {
    static const std::map<std::string, double> units = {
        {"", 1},         {"b", 1},        {"kb", 1e3},     {"mb", 1e6},    {"gb", 1e9},
        {"tb", 1e12},    {"k", 0x1p10},   {"m", 0x1p20},   {"g", 0x1p30},  {"t", 0x1p40},
        {"kib", 0x1p10}, {"mib", 0x1p20}, {"gib", 0x1p30}, {"tib", 0x1p40}};
    const std::string text = given.text(name, "");
    const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
    std::string unit = text.substr(std::min(text.find_first_not_of(' ', digits), text.size()));
    for (char& c : unit)
        c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    const auto found = units.find(unit);
    char* end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    const bool is_whole = digits > 0 && end == text.c_str() + digits;
    const double bytes = is_whole && found != units.end() ? number * found->second : 0;
    if (!(bytes >= 1 && bytes <= 0x1p62))
        throw BadOption("--" + name + " " + text + ": must be a size such as 80GiB, 24GB or 512MiB");
    return static_cast<std::uint64_t>(bytes);
}

} // namespace

std::string beside_stdout(const ParsedOptions& given, const std::string& option) {
    std::string file = given.file(option);
    if (file == "-") throw BadOption("--" + option + " writes a file; stdout is for text");
    return file;
}

std::string json_output(const ParsedOptions& given) {
    std::string output = given.file("output");
    if (output == "-") throw BadOption("--output writes a file; for stdout there is --json");
    return output;
}

dist::DraftPlacement draft_placement(const ParsedOptions& given) {
    using Placement = dist::DraftPlacement;
    constexpr Placement kPlacements[] = {Placement::colocated, Placement::dedicated, Placement::sharded};
    return kPlacements[given.choice("draft-placement", 0, placement_choices())];
}

void refuse_later_work(const ParsedOptions& given) {
    for (const NotYet& row : kNotYet)
        for (const std::string& value : given.texts(row.option))
            if (is_refused(row, value))
                throw BadOption(std::string("--") + row.option + " " + value + " is not supported yet: this version " +
                                row.rest);
}

ModelOptions model_options(const ParsedOptions& given) {
    ModelOptions models;
    models.target = given.text("target", "");
    if (models.target.empty())
        throw BadOption("--target DIR is missing: the directory of the checkpoint to decode with");
    models.drafts = given.texts("draft");
    for (const std::string& draft : models.drafts)
        if (draft.empty()) throw BadOption("--draft is empty; name a directory or leave it out");
    const bool is_gpu = given.text("device", "") == "gpu"; // cuda, as other programs have it
    models.device =
        is_gpu ? DeviceChoice::cuda : static_cast<DeviceChoice>(given.choice("device", 0, device_choices()));
    models.dtype = weight_type(given, "dtype", std::nullopt);
    models.draft_dtype = weight_type(given, "draft-dtype", models.dtype);
    if (given.given("draft-dtype") && models.drafts.empty())
        throw BadOption("--draft-dtype has no effect without --draft DIR");
    const bool any_float8 =
        models.dtype == model::WeightType::float8 || models.draft_dtype == model::WeightType::float8;
    if (any_float8 && models.device != DeviceChoice::cuda)
        throw BadOption("float8 weights are for --device cuda; CPUs have int8");
    models.threads = given.integer("threads", 0, 1, 1024);
    models.max_context = given.integer("max-context", 0, 2, INT_MAX);
    for (const char* option : {"prompt", "chat", "stop", "lookup-corpus", "draft-table"})
        if (given.given(option)) models.needs_text = std::string("--") + option;
    models.quiet = given.on("quiet");
    models.collective_timeout_seconds = given.number("collective-timeout", 300, 0.001, 1e9);
    return models;
}

std::vector<double> number_list(const ParsedOptions& given, const std::string& name,
                                const std::vector<double>& default_value) {
    return given.numbers(name, default_value, 0, kNoLimit);
}

RequestDefaults request_defaults(const ParsedOptions& given) {
    RequestDefaults requests;
    requests.sampling = sampling_options(given);
    requests.processing = processing_options(given);
    requests.max_new_tokens = given.integer("max-new-tokens", 128, 1, INT_MAX);
    requests.ignore_eos = given.on("ignore-eos");
    requests.stop_strings = given.texts("stop");
    for (const std::string& stop : requests.stop_strings)
        if (const std::string why = spec::why_no_stop_string(stop); !why.empty()) throw BadOption("--stop " + why);
    return requests;
}

void read_chat(const ParsedOptions& given, bool has_prompt, ModelOptions& models, RequestDefaults& requests) {
    requests.chat = models.chat_template.is_needed = given.on("chat");
    if (given.given("system")) requests.system = given.text("system", "");
    if (requests.system && !requests.chat) throw BadOption("--system has no effect without --chat");
    for (const char* option : {"chat-template", "chat-date"}) {
        if (given.given(option) && given.text(option, "").empty())
            throw BadOption(std::string("--") + option + " is empty; give some text or leave it out");
        if (given.given(option) && has_prompt && !requests.chat)
            throw BadOption(std::string("--") + option + " has no effect on a --prompt without --chat");
    }
    models.chat_template.name = given.text("chat-template", "");
    models.chat_template.date = given.text("chat-date", "");
}

GenerateOptions generate_options(const ParsedOptions& given) {
    refuse_later_work(given);
    GenerateOptions options;
    options.models = model_options(given);
    options.speculation = speculation_options(given, options.models.drafts.size());
    options.requests = request_defaults(given);
    if (given.given("prompt")) options.prompt = given.text("prompt", "");
    options.input = given.text("input", "");
    options.shard = input_shard(given);
    options.output = given.text("output", "-");
    options.trace = beside_stdout(given, "trace");
    options.timeline = beside_stdout(given, "timeline");
    options.summary = beside_stdout(given, "summary");
    options.given = given;
    options.resume = given.on("resume");
    options.check = given.on("check");
    options.quiet = given.on("quiet");
    options.verbose = given.on("verbose");
    if (options.quiet && options.verbose) throw BadOption("--quiet and --verbose exclude each other; give one");
    options.replicas = given.integer("replicas", 1, 1, INT_MAX);
    options.batch_size = given.integer("batch-size", 1, 1, spec::kMaxSlots);
    options.placement = draft_placement(given);
    read_ahead(given, options);
    check_generate(given, options);
    read_chat(given, options.prompt.has_value(), options.models, options.requests);
    return options;
}

TokenizeOptions tokenize_options(const ParsedOptions& given) {
    TokenizeOptions options;
    options.model = given.text("model", "");
    if (options.model.empty()) throw BadOption("--model DIR is missing: the directory that holds tokenizer.json");
    if (given.given("text") == given.given("input"))
        throw BadOption(given.given("text") ? "--text and --input exclude each other; give one"
                                            : "nothing to do: give --text TEXT or --input FILE");
    if (given.given("text")) options.text = given.text("text", "");
    options.input = given.text("input", "");
    if (given.given("input") && options.input.empty()) throw BadOption("--input is empty; name a file or -");
    options.decode = given.on("decode");
    options.add_special_tokens = given.on("add-special-tokens");
    options.skip_special_tokens = given.on("skip-special-tokens");
    if (options.decode && options.text)
        throw BadOption("--decode goes with --input: JSON lines {\"id\", \"token_ids\"}");
    if (options.decode && options.add_special_tokens)
        throw BadOption("--add-special-tokens has no effect with --decode; --skip-special-tokens does");
    if (!options.decode && options.skip_special_tokens)
        throw BadOption("--skip-special-tokens has no effect without --decode");
    return options;
}

BuildTableOptions build_table_options(const ParsedOptions& given) {
    BuildTableOptions options;
    options.model = given.text("model", "");
    if (options.model.empty()) throw BadOption("--model DIR is missing: the directory that holds tokenizer.json");
    options.input = given.text("input", "");
    if (options.input.empty()) throw BadOption("--input FILE is missing: the text to count, or - for stdin");
    options.output = given.file("output");
    if (options.output.empty()) throw BadOption("--output FILE is missing: where the table goes");
    if (options.output == "-") throw BadOption("--output -: a table goes to a file; name one");
    options.quiet = given.on("quiet");
    return options;
}

// Of commands that know the CPU alone.
std::optional<model::WeightType> cpu_weight_type(const ParsedOptions& given, const std::string& name,
                                                 std::optional<model::WeightType> default_value) {
    const auto type = weight_type(given, name, default_value, cpu_dtype_choices());
    if (type == model::WeightType::float8)
        throw BadOption("--" + name + " " + given.text(name, "") +
                        " is for GPUs, and this command knows CPUs alone; they have int8");
    return type;
}

DoctorOptions doctor_options(const ParsedOptions& given) {
    DoctorOptions options;
    options.target = given.text("target", "");
    options.drafts = given.texts("draft");
    if (options.target.empty() && !options.drafts.empty())
        throw BadOption("--draft has no effect without --target DIR");
    options.threads = given.integer("threads", 0, 1, 1024);
    options.repetitions = given.integer("repetitions", 1000, 1, 1'000'000);
    options.collective_timeout_seconds = given.number("collective-timeout", 300, 0.001, 1e9);
    options.json = given.on("json");
    return options;
}

InspectOptions inspect_options(const ParsedOptions& given) {
    InspectOptions options;
    options.model = model_of(given);
    options.draft = given.text("draft", "");
    if (given.given("draft") && options.draft.empty())
        throw BadOption("--draft is empty; name a directory or leave it out");
    if (given.given("draft-dtype") && options.draft.empty())
        throw BadOption("--draft-dtype has no effect without --draft DIR");
    options.dtype = cpu_weight_type(given, "dtype", std::nullopt);
    options.draft_dtype = cpu_weight_type(given, "draft-dtype", options.dtype);
    options.ranks = given.integer("tensor-parallel", 1, 1, 65536);
    options.threads = given.integer("threads", 1, 1, 1024);
    options.batch = given.integer("batch-size", 1, 1, INT_MAX);
    options.length = given.integer("length", 0, 1, INT_MAX);
    if (given.given("memory")) options.memory_bytes = byte_size(given, "memory");
    options.json = given.on("json");
    return options;
}

} // namespace entrodraft::launch
