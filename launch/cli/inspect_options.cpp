// Options of the commands that decode nothing: tokenize, build-table, build-corpus, doctor, inspect. See options.h.
#include "launch/cli/shared_options.h"

#include <cstdlib>

namespace entrodraft::launch {

namespace {

// Reads "80GiB", "24GB", "512MiB" or "1000000". K, M, G and T alone are powers of 1024, as in Slurm.
std::uint64_t byte_size(const std::string& text) {
    static const std::map<std::string, double> units = {
        {"", 1},         {"b", 1},        {"kb", 1e3},     {"mb", 1e6},    {"gb", 1e9},
        {"tb", 1e12},    {"k", 0x1p10},   {"m", 0x1p20},   {"g", 0x1p30},  {"t", 0x1p40},
        {"kib", 0x1p10}, {"mib", 0x1p20}, {"gib", 0x1p30}, {"tib", 0x1p40}};
    const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
    std::string unit = text.substr(std::min(text.find_first_not_of(' ', digits), text.size()));
    for (char& c : unit)
        c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    const auto found = units.find(unit);
    char* end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    const bool is_whole = digits > 0 && end == text.c_str() + digits;
    const double bytes = is_whole && found != units.end() ? number * found->second : 0;
    refuse_if(!(bytes >= 1 && bytes <= 0x1p62), "--memory " + text + ": must be a size such as 80GiB, 24GB or 512MiB");
    return static_cast<std::uint64_t>(bytes);
}

void declare_tokenizer(OptionSet& set, std::string& model) {
    set.add("model", "DIR", model, "directory with the tokenizer, or a name in the Hugging Face cache")
        .also("m")
        .required("the directory that holds tokenizer.json");
}

} // namespace

void declare(OptionSet& set, TokenizeOptions& options) {
    set.group("Tokenize");
    declare_tokenizer(set, options.model);
    set.add("text", "TEXT", options.text, "one text; its ids go to stdout");
    set.add("input", "FILE|-", options.input,
            "JSON lines {\"id\", \"text\"}, {\"id\", \"messages\"} for the model's chat template, or {\"id\", "
            "\"token_ids\"} with --decode");
    set.add("decode", options.decode, "from ids to text");
    set.add("add-special-tokens", options.add_special_tokens, "apply the tokenizer's template when encoding");
    set.add("skip-special-tokens", options.skip_special_tokens, "leave special tokens out when decoding");
    set.check([&options](const ParsedOptions& given) {
        refuse_if(given.given("text") == given.given("input"), given.given("text")
                                                                   ? "--text and --input exclude each other; give one"
                                                                   : "nothing to do: give --text TEXT or --input FILE");
        refuse_if(options.decode && options.text, "--decode goes with --input: JSON lines {\"id\", \"token_ids\"}");
        given.refuse_without_effect("add-special-tokens", !options.decode, "with --decode; --skip-special-tokens does");
        given.refuse_without_effect("skip-special-tokens", options.decode, "without --decode");
    });
}

void declare(OptionSet& set, BuildTableOptions& options) {
    set.group("Build a table");
    declare_tokenizer(set, options.model);
    set.add("input", "FILE|-", options.input,
            "UTF-8 text to count: the more it is like what will be generated, the better")
        .required("the text to count, or - for stdin");
    set.add_output("output", options.output, "the table; a file of that name is replaced once the new one is whole",
                   " -: a table goes to a file; name one")
        .required("where the table goes");
    set.add("quiet", options.quiet, "no progress and no summary");
}

void declare(OptionSet& set, BuildCorpusOptions& options) {
    set.group("Build a corpus");
    declare_tokenizer(set, options.model);
    set.add("input", "FILE|-", options.inputs, "UTF-8 text, or an earlier corpus");
    set.add("results", "FILE", options.results, "results of generate, whose texts are added without their prompts");
    set.add_output("output", options.output, "the corpus; a file of that name is replaced once the new one is whole",
                   " -: a corpus goes to a file; name one")
        .required("where the corpus goes");
    set.add("quiet", options.quiet, "no summary");
    set.check([&options](const ParsedOptions&) {
        refuse_if(options.inputs.empty() && options.results.empty(),
                  "nothing to do: give --input FILE, --results FILE, or several");
    });
}

void declare(OptionSet& set, DoctorOptions& options) {
    set.group("Doctor");
    set.add("target", "DIR", options.target,
            "checkpoint that is to be sharded across the ranks: its files and heads are checked too")
        .also(kTargetAliases)
        .is_positional = true;
    set.add("draft", "DIR", options.drafts, "checkpoint that is to draft for it").also(kDraftAliases);
    set.add("gpu", options.gpu,
            "GPUs too: which rank has which, peer access, the rate of reading, sums, and kernels against the CPU's");
    set.add("threads", "N", options.threads, kThreads, kThreadsHelp);
    set.add("repetitions", "N", options.repetitions, {1, 1'000'000}, "of every collective");
    declare_timeout(set, options.collective_timeout_seconds);
    set.add("json", options.json, "all of it as JSON on stdout");
    set.check([&options](const ParsedOptions& given) {
        given.refuse_without_effect("draft", !options.target.empty(), "without --target DIR");
    });
}

void declare(OptionSet& set, InspectOptions& options) {
    set.group("Inspect");
    set.add("model", "DIR", options.model, "checkpoint to look at: a directory, or a name in the Hugging Face cache")
        .also("m")
        .required("the directory of the checkpoint")
        .is_positional = true;
    set.add("draft", "DIR", options.draft,
            "checkpoint that is to draft for it: whether it can, and its share of memory")
        .also(kDraftAliases);
    declare_head(set, options.head, "draft head of it: what it reads, and its share of memory");
    set.add("json", options.json, "all of it as JSON on stdout");
    set.group("What each rank would hold");
    set.add("tensor-parallel", "N", options.ranks, {1, 65536}, "ranks that the model is sharded across")
        .also("tp tensor-parallel-size");
    const Names devices = {"cpu", "cuda"};
    const auto read_device = [&options, devices](const GivenValue& given) {
        options.on_gpu = index_among(devices, given.meant({{"gpu", "cuda"}})) == 1;
    };
    set.add("device", "DEVICE", "whose memory: {}; gpu is cuda [cpu]", read_device).choosing(devices);
    declare_weight_types(set, options.dtype, options.draft_dtype, "in memory: {} [auto: the file's]");
    declare_kv_type(set, options.kv_type);
    set.check([&options](const ParsedOptions&) {
        refuse_weight_types_of_others(options.dtype, options.draft_dtype, options.on_gpu);
        refuse_if(options.kv_type && options.on_gpu, "--kv-dtype is for CPUs: leave --device cuda or the type out");
    });
    set.add("batch-size", "B", options.batch, at_least(1), "sequences decoded together");
    set.add("length", "L", options.length, at_least(1),
            "positions of each sequence, prompt included [the model's context]");
    set.add("threads", "N", options.threads, kThreads, "threads of each rank; each has buffers of its own");
    set.add("memory", "SIZE", "of each rank: 80GiB, 24GB; says whether it fits, and up to what length",
            [&options](const GivenValue& given) { options.memory_bytes = byte_size(given.text); });
}

} // namespace entrodraft::launch
