// entrodraft inspect: what a checkpoint is, what would draft for it, and what each rank would hold, from config,
// tokenizer and the headers of the weights, and a look at a head that is stored though it is tied. On several ranks the
// first one does it.
#include "launch/cli/command_options.h"
#include "launch/cli/options.h"
#include "launch/cmd/inspection_report.h"
#include "launch/commands.h"
#include "launch/failure.h"
#include "launch/io/progress.h"
#include "launch/load/opened_model.h"
#include "launch/model_directory.h"
#include "model/checkpoint/bad_file.h"
#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/json_file.h"
#include "model/families/names.h"
#include "model/tokenizer/tokenizer.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fmt/format.h>
#include <set>
#include <stdexcept>

namespace entrodraft::launch {

namespace {

namespace fs = std::filesystem;

bool has_any(const fs::path& directory, std::initializer_list<const char*> names) {
    return std::any_of(names.begin(), names.end(),
                       [&](const char* name) { return model::file_exists(directory / name); });
}

// Unties the head in `config` where the files store another one, and says so of the model that `option` names.
WeightFacts weight_facts(const std::string& option, const fs::path& directory, model::ModelConfig& config) {
    const auto begin = std::chrono::steady_clock::now();
    const model::Checkpoint checkpoint = model::Checkpoint::open(directory);
    model::check_shapes(config, checkpoint);
    WeightFacts facts;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    facts.header_seconds = seconds.count();
    if (model::untie_stored_head(config, checkpoint)) { // reads both tensors
        model::check_shapes(config, checkpoint);
        log_line(stored_head_warning(option));
    }
    const model::ModelNames names = names_of(config, checkpoint);
    std::set<std::string> files;
    for (const auto& [name, tensor] : checkpoint.tensors()) {
        files.insert(*tensor.file);
        if (names.ignores(name)) continue;
        facts.bytes_by_type[tensor.dtype] += tensor.bytes.size();
        ++facts.n_tensors;
    }
    facts.n_files = static_cast<std::int64_t>(files.size());
    for (const std::string& file : files)
        facts.file_bytes += fs::file_size(file);
    facts.format = !files.empty() && files.begin()->ends_with(".safetensors") ? "safetensors" : "torch";
    return facts;
}

// What is broken, as the message at the end has it; what is merely not there is no failure.
struct Findings {
    std::string first_broken;
    void note(bool is_there, const std::string& what) {
        if (is_there && first_broken.empty()) first_broken = what;
    }
};

ModelFacts look_at(const std::string& name, const char* option, Findings& findings) {
    ModelFacts facts;
    facts.name = name;
    facts.directory = resolve_checkpoint_directory(name, option);
    facts.config = model::read_config(facts.directory);
    const fs::path directory = facts.directory;
    try {
        facts.weights = weight_facts(std::string(option) + " " + name, directory, facts.config);
    } catch (const model::BadFile& error) {
        facts.no_weights = error.what();
        findings.note(has_any(directory, {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
                                          "pytorch_model.bin.index.json"}),
                      error.what());
    }
    facts.n_parameters = parameter_count(facts.config);
    try {
        const model::Tokenizer tokenizer = model::Tokenizer::open(directory);
        facts.tokenizer = {std::string(tokenizer.kind()), tokenizer.size(), tokenizer.fingerprint()};
    } catch (const model::BadFile& error) {
        facts.no_tokenizer = error.what();
        findings.note(has_any(directory, {"tokenizer.json", "vocab.json"}), error.what());
    }
    return facts;
}

void look_at_pair(Inspection& inspection) {
    const auto vocabulary = [](const char* option, const ModelFacts& facts) {
        Vocabulary known = {std::string(option) + " " + facts.name, std::nullopt, 0, facts.config.vocab_size};
        if (facts.tokenizer) {
            known.fingerprint = facts.tokenizer->fingerprint;
            known.n_tokens = facts.tokenizer->n_tokens;
        }
        return known;
    };
    for (const ModelFacts* facts : {&inspection.model, &*inspection.draft})
        if (!facts->tokenizer && has_tokenizer_files(facts->directory)) inspection.no_pair = facts->no_tokenizer;
    if (!inspection.no_pair.empty()) return;
    const Vocabulary target = vocabulary("--model", inspection.model), draft = vocabulary("--draft", *inspection.draft);
    const auto why = why_no_pair(target, draft);
    inspection.may_pair = !why;
    inspection.no_pair = why.value_or("");
    if (!why) inspection.not_compared = not_compared(target, draft);
}

// The draft runs whole on the first rank, over as many positions as it has.
std::uint64_t draft_bytes(const Inspection& inspection, int rank, int length) {
    if (!inspection.draft_run || rank != 0) return 0;
    model::RunShape run = *inspection.draft_run;
    run.length = std::min(length, inspection.draft->config.max_positions);
    return needs_of(inspection.draft->config, run, 0).total_bytes();
}

void look_at_ranks(Inspection& inspection) {
    const model::ModelConfig& config = inspection.model.config;
    for (int rank = 0; rank < inspection.run.ranks; ++rank) {
        RankShare facts;
        facts.needs = needs_of(config, inspection.run, rank);
        facts.draft_bytes = draft_bytes(inspection, rank, inspection.run.length);
        const auto bytes_of = [&](int length) {
            model::RunShape run = inspection.run;
            run.length = length;
            return needs_of(config, run, rank).total_bytes() + draft_bytes(inspection, rank, length);
        };
        if (inspection.memory_bytes) facts.longest = longest_that_fits(config, bytes_of, *inspection.memory_bytes);
        inspection.ranks.push_back(facts);
    }
    inspection.all_reduces = all_reduces_of(config, inspection.run.ranks);
}

Inspection inspect(const InspectOptions& options, Findings& findings) {
    Inspection inspection;
    inspection.model = look_at(options.model, "--model", findings);
    const model::ModelConfig& config = inspection.model.config;
    if (options.length > config.max_positions)
        throw BadOption(fmt::format("--length {}: the model has {} positions", options.length, config.max_positions));
    inspection.run = {options.ranks, options.threads, options.batch,
                      options.length > 0 ? options.length : config.max_positions,
                      options.dtype.value_or(config.stored_type)};
    inspection.memory_bytes = options.memory_bytes;
    if (!options.draft.empty()) {
        inspection.draft = look_at(options.draft, "--draft", findings);
        look_at_pair(inspection);
        inspection.draft_run = inspection.run;
        inspection.draft_run->ranks = 1;
        inspection.draft_run->type = options.draft_dtype.value_or(inspection.draft->config.stored_type);
    }
    try {
        look_at_ranks(inspection);
    } catch (const std::invalid_argument& error) {
        throw BadOption(fmt::format("--model {} on {} ranks: {}", options.model, options.ranks, error.what()));
    }
    return inspection;
}

} // namespace

int run_inspect(dist::Session& session, const Arguments& arguments) {
    const auto options = read_options<InspectOptions>(session, arguments, page_of("inspect"));
    if (!options) return kAllServed;
    in_agreement(session, 600, [&] { // the other ranks have nothing to do
        if (session.world_rank() != 0) return;
        Findings findings;
        const Inspection inspection = inspect(*options, findings);
        print(session, options->json ? indented(to_json(inspection)) : to_text(inspection));
        if (!findings.first_broken.empty()) throw model::BadFile(findings.first_broken);
    });
    return kAllServed;
}

} // namespace entrodraft::launch
