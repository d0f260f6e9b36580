// See distill_texts.h.
#include "launch/cmd/distill_texts.h"

#include "launch/cmd/continued_texts.h"
#include "launch/io/progress.h"
#include "launch/load/pair_engine.h"
#include "launch/start/counted.h"
#include "launch/start/failure.h"
#include "launch/start/phase.h"
#include "launch/start/signals.h"
#include "spec/distill/target_scorer.h"
#include "spec/protocol/packet.h"
#include "spec/verify/random.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <stdexcept>
#include <unistd.h>

namespace entrodraft::launch {

using spec::ScoredText;
using spec::ScoredTexts;

std::vector<std::vector<spec::TokenId>> continue_all(dist::Session& session, ModelPair& models,
                                                     const std::vector<spec::Request>& requests, bool quiet,
                                                     ContinuedTexts* continued) {
    const Drafters drafters(session, models, {}, session.timeout_seconds());
    PairEngine::Setting setting;
    if (!models.loaded.drafts.empty()) setting.drafter = draft_alone(models, 0);
    setting.rules = {spec::StopRuleOptions(kDefaultStopRule)};
    setting.costs = {std::nullopt};
    PairEngine engine(session, models, drafters, setting);
    std::vector<std::vector<spec::TokenId>> texts(requests.size());
    std::vector<std::size_t> missing; // numbers of texts
    for (std::size_t i = 0; i < requests.size(); ++i) {
        if (continued && continued->found().contains(i))
            texts[i] = continued->found().at(i);
        else
            missing.push_back(i);
    }
    std::size_t next = 0;
    std::int64_t done = std::ssize(requests) - std::ssize(missing), new_tokens = 0;
    Progress progress(quiet || !models.placed.layout.is_coordinator());
    spec::EngineCallbacks callbacks;
    callbacks.next_request = [&]() -> std::optional<spec::Request> {
        if (next == missing.size()) return std::nullopt;
        spec::Request request = requests[missing[next]];
        request.id = std::to_string(missing[next++]); // on_complete() finds the text by this number
        return request;
    };
    callbacks.on_complete = [&](const spec::Request& request, spec::Completion completion) {
        const std::size_t number = std::stoull(request.id);
        if (continued) continued->add(number, completion.tokens);
        ++done;
        new_tokens += std::ssize(completion.tokens);
        texts[number] = std::move(completion.tokens);
        progress.update(static_cast<double>(done) / static_cast<double>(requests.size()), done, new_tokens);
    };
    if (engine.engine().run(callbacks, stop_signal()) == spec::RunEnd::interrupted)
        throw OrderlyFailure(kStopped, "stopped before all prompts were continued; --resume goes on");
    return texts;
}

void add_text(const spec::Request& request, const std::vector<spec::TokenId>& continued,
              std::vector<ScoredText>& texts) {
    if (request.prompt.empty() || continued.empty()) return;
    ScoredText& text = texts.emplace_back();
    text.tokens = request.prompt;
    text.source = request.source;
    text.n_prompt = static_cast<int>(text.tokens.size());
    text.temperature = static_cast<float>(request.sampling.temperature);
    text.tokens.insert(text.tokens.end(), continued.begin(), continued.end());
}

namespace {

// Copies the first rank's texts to all ranks. Collective over the world.
void share_all(dist::Session& session, std::vector<ScoredText>& texts) {
    texts.resize(static_cast<std::size_t>(from_writer(session, std::ssize(texts))));
    for (ScoredText& text : texts)
        spec::broadcast(text, session.world(), session.deadline());
}

// If the digest differs, texts that were continued earlier do not belong to these requests.
std::uint64_t digest_of(const std::vector<spec::Request>& requests) {
    std::uint64_t digest = 0;
    const auto add = [&](const void* data, std::size_t bytes) { digest = spec::hash_bytes(data, bytes, digest); };
    for (const spec::Request& request : requests) {
        const std::vector<std::byte> admission = spec::pack_admission(request, false);
        const std::string& constraint = request.processing.constraint.text;
        const int ends[] = {request.max_new_tokens, request.ignore_eos ? 1 : 0};
        add(admission.data(), admission.size());
        add(constraint.data(), constraint.size());
        add(ends, sizeof ends);
        for (const std::string& stop : request.stop_strings)
            add(stop.data(), stop.size());
    }
    return digest;
}

} // namespace

void require_source_of_texts(const DistillOptions& options) {
    const std::string& file = options.texts.empty() ? options.input : options.texts;
    if (file != "-" && ::access(file.c_str(), R_OK) != 0)
        throw std::runtime_error(file + ": cannot be opened: " + std::strerror(errno));
}

DistillTexts::DistillTexts(dist::Session& session, const DistillOptions& options, const DistillFiles& files,
                           int vocab_size)
    : session_(session), options_(options), files_(files), draft_vocab_size_(vocab_size) {}

void DistillTexts::find() {
    const std::string from = file();
    if (from_writer(session_, from.empty()) == 1) {
        make();
    } else {
        texts_ = read(from);
        in_agreement(session_, [&] { require_both(from); });
    }
    require_same_target();
    share_description();
}

// Returns the file of the texts, on the first rank; empty: the texts have to be made.
std::string DistillTexts::file() const {
    std::error_code ignored;
    if (!writes()) return "";
    if (options_.resume && std::filesystem::exists(files_.texts(), ignored)) return files_.texts();
    return options_.texts;
}

void DistillTexts::require_both(const std::string& file) const {
    if (learned().empty() || held_out().empty())
        throw std::runtime_error(
            fmt::format("{}: there must be texts to learn from and held-out ones; there are {} and {}", file,
                        learned().size(), held_out().size()));
}

// Throws if the texts are known to be another target's.
void DistillTexts::require_same_target() const {
    in_agreement(session_, [&] {
        if (!writes()) return;
        const Json made = Json::parse(texts_.description);
        if (made.at("target") != options_.models.target)
            throw std::runtime_error(fmt::format("the texts were made by --target {}; name that target",
                                                 made.at("target").get<std::string>()));
        refuse_if(options_.texts.empty() && made != made_by(made.at("vocab_size")),
                  fmt::format("--resume: the texts were made with other options ({}); give those", compact(made)));
    });
}

void DistillTexts::share_description() {
    std::string& text = texts_.description;
    text.resize(static_cast<std::size_t>(from_writer(session_, std::ssize(text))));
    if (!text.empty()) session_.world().broadcast(text.data(), text.size(), 0, session_.deadline());
    description_ = Json::parse(text);
}

ScoredTexts DistillTexts::read(const std::string& file) const {
    ScoredTexts texts;
    in_agreement(session_, [&] {
        if (writes()) texts = spec::scored_texts(model::Checkpoint::open_file(file), file, draft_vocab_size_);
    });
    share_all(session_, texts.learned);
    share_all(session_, texts.held_out);
    return texts;
}

Json DistillTexts::made_by(int vocab_size) const {
    return {{"target", options_.models.target},
            {"input", options_.input},
            {"vocab_size", vocab_size},
            {"temperatures", options_.temperatures},
            {"max_new_tokens", options_.requests.max_new_tokens},
            {"seed", options_.plan.seed}};
}

void DistillTexts::make() {
    const auto models = open_models(session_, options_.models, {.batch_size = options_.batch_size});
    const int vocab_size = std::min(models->opened.vocab_size, draft_vocab_size_);
    std::vector<spec::Request> requests;
    std::vector<bool> is_held_out;
    std::unique_ptr<ContinuedTexts> continued;
    in_agreement(session_, [&] {
        if (!models->placed.layout.is_coordinator()) return;
        const std::vector<spec::Request> prompts =
            read_all_prompts(options_.input, options_.requests, options_.max_prompts, models->prompt_limits());
        for (std::size_t i = 0; i < prompts.size(); ++i)
            for (const double temperature : options_.temperatures) {
                requests.push_back(prompts[i]);
                requests.back().sampling.temperature = temperature;
                requests.back().sampling.seed = options_.plan.seed;
                is_held_out.push_back(i % static_cast<std::size_t>(options_.held_out_one_in) == 0);
            }
        Json settings = made_by(vocab_size);
        settings["dtype"] = options_.models.dtype ? to_string(*options_.models.dtype) : "";
        settings["prompts"] = fmt::format("{:016x}", digest_of(requests));
        continued = std::make_unique<ContinuedTexts>(files_.continued(), settings, requests.size());
        if (!continued->found().empty() && !options_.quiet)
            log_line(fmt::format("{} of {} were continued before", continued->found().size(),
                                 counted(requests.size(), "text")));
    });
    const auto texts = continue_all(session_, *models, requests, options_.quiet, continued.get());
    in_agreement(session_, [&] {
        for (std::size_t i = 0; i < requests.size(); ++i)
            add_text(requests[i], texts[i], is_held_out[i] ? texts_.held_out : texts_.learned);
        if (writes()) require_both(options_.input);
    });
    texts_.description = compact(made_by(vocab_size));
    description_ = made_by(vocab_size);
    score(*models, texts_.learned);
    score(*models, texts_.held_out);
    in_agreement(session_, [&] {
        if (!writes()) return;
        write_tensors(files_.texts(), spec::to_tensors(texts_));
        continued.reset();
        std::filesystem::remove(files_.continued());
        std::int64_t places = 0;
        for (const ScoredText& text : learned())
            places += text.places();
        if (!options_.quiet)
            log_line(fmt::format("{} of the target, {} to learn, {} held out",
                                 counted(learned().size() + held_out().size(), "text"), counted(places, "token"),
                                 counted(held_out().size(), "text")));
    });
}

void DistillTexts::score(ModelPair& models, std::vector<ScoredText>& texts) const {
    share_all(session_, texts);
    spec::ScorerOptions options;
    options.vocab_size = vocab_size();
    options.n_top = std::min(options_.top_tokens, options.vocab_size);
    options.seed = options_.plan.seed;
    options.timeout_seconds = session_.timeout_seconds();
    spec::TargetScorer scorer(options, models.loaded.target.get(), *models.placed.replica);
    StatusLine line(options_.quiet || !models.placed.layout.is_coordinator());
    for (std::size_t i = 0; i < texts.size(); ++i) {
        scorer.score(texts[i], i);
        line.update(static_cast<double>(i + 1) / static_cast<double>(texts.size()),
                    [&](double) { return fmt::format("{} of {} texts read again", i + 1, texts.size()); });
    }
}

} // namespace entrodraft::launch
