// See distillation.h.
#include "launch/cmd/distillation.h"

#include "launch/cmd/round_costs.h"
#include "launch/io/progress.h"
#include "launch/load/launch_check.h"
#include "launch/load/pair_engine.h"
#include "launch/start/counted.h"
#include "launch/start/failure.h"
#include "launch/start/phase.h"
#include "launch/start/replaced_file.h"
#include "launch/start/signals.h"
#include "model/torch/plugin.h"
#include "model/weights/tensor_shapes.h"
#include "spec/distill/worth.h"

#include <algorithm>
#include <fmt/format.h>

namespace entrodraft::launch {

using model::torch::TrainerOptions;
using spec::Evaluation;
using spec::ScoredText;
using spec::ScoredTexts;
using spec::TrainingProgress;

namespace {

constexpr const char* kProgress = "progress";    // name of the progress in the training's state
constexpr int kMaxDrafted = 8, kCostTokens = 64; // longest draft and length of texts for measuring costs

Json to_json(const Evaluation& made) {
    return {{"step", made.step},       {"training_loss", made.training_loss}, {"loss", made.loss},
            {"overlap", made.overlap}, {"greedy_agreement", made.agreement},  {"acceptance", made.acceptance}};
}
Evaluation evaluation_of(const Json& json) {
    return {json.at("step"),    json.at("training_loss"),    json.at("loss"),
            json.at("overlap"), json.at("greedy_agreement"), json.at("acceptance")};
}

// Throws BadOption if the draft's encoder cannot read the text's source.
void require_readable_source(const OpenedModel& draft, const ScoredText& text) {
    const model::EncoderConfig& encoder = draft.config.encoder;
    refuse_if(text.source.empty(), draft.name + " has an encoder, and the texts were made by a target without one");
    refuse_if(std::ssize(text.source) > encoder.max_positions,
              fmt::format("{}: its encoder's context of {} is shorter than a source of {}; leave out longer prompts",
                          draft.name, counted(encoder.max_positions, "position"), text.source.size()));
    refuse_if(std::ranges::max(text.source) >= encoder.vocab_size,
              fmt::format("{}: its encoder has {}, and a source has token {}; name a draft of the target's tokenizer",
                          draft.name, counted(encoder.vocab_size, "token"), std::ranges::max(text.source)));
}

} // namespace

Distillation::Distillation(dist::Session& session, const DistillOptions& options)
    : session_(session), options_(options), files_(options.output) {
    in_agreement(session, [&] {
        if (const std::string why = model::torch::why_missing(); !why.empty())
            throw BadOption("distill trains with libtorch: " + why);
        const bool is_target = options.layers > 0;
        begun_ = is_target ? open_model("target", options.models.target)
                           : open_model("draft", options.models.drafts.front());
        const model::ModelConfig& config = begun_.config;
        refuse_if(options.layers > config.n_layers && options.hidden_size == 0,
                  fmt::format("{} layers: {} has {}", options.layers, begun_.name, counted(config.n_layers, "layer")));
        refuse_if(config.is_draft_head(), begun_.name + ": draft heads are not distilled");
        refuse_if(config.has_encoder() && is_target,
                  begun_.name + " has an encoder, of which no part is made into a draft; give a --draft alone");
        refuse_if(options.hidden_size > 0 && config.experts.n_experts > 0,
                  begun_.name + " has experts, whose shape a draft of another width is not to have; give a --draft");
        refuse_if(config.quantization || !std::filesystem::is_regular_file(begun_.path / "config.json"),
                  begun_.name + " holds quantised weights or GGUF; name the checkpoint that they were made of");
        if (const std::string what = model::what_torch_lacks(config); !what.empty())
            throw BadOption(begun_.name + ": a model with " + what + " cannot be trained");
    });
    in_agreement(session, [&] {
        if (!writes()) return;
        files_.prepare(options.resume);
        files_.write_model_files(begun_, shape());
    });
    in_agreement(session, [&] {
        begun_.config = files_.draft_config(shape());
        if (options.hidden_size > 0)
            begun_.checkpoint = model::random_checkpoint(begun_.config, options.plan.seed);
        else if (options.layers > 0)
            begun_.checkpoint = first_layers(begun_, options.layers);
    });
}

void Distillation::say(const std::string& line) const {
    if (writes() && !options_.quiet) log_line(line);
}

bool Distillation::train(const DistillTexts& texts) {
    const RankDevice device = choose_device(session_, options_.models.device, options_.models.backend);
    const int threads = check_launch(session_, options_.models.threads, true);
    in_agreement(session_, [&] { load_trainer(texts, device, threads); });
    description_of_texts_ = texts.description();
    restore();
    StatusLine line(options_.quiet || !writes());
    spec::TrainingCallbacks callbacks;
    callbacks.on_step = [&](const TrainingProgress& progress) {
        line.update(static_cast<double>(progress.step) / options_.plan.steps,
                    [&](double) { return fmt::format("step {} of {}", progress.step, options_.plan.steps); });
    };
    callbacks.on_evaluation = [&](const TrainingProgress& progress, bool is_best) {
        line.clear();
        if (writes()) save(progress, is_best);
    };
    spec::TrainingPlan plan = options_.plan;
    plan.timeout_seconds = session_.timeout_seconds();
    spec::TrainingEnd how = spec::TrainingEnd::finished;
    const int last_phase = phase_of(plan.steps - 1);
    for (int phase = phase_of(progress_.step); phase <= last_phase && how == spec::TrainingEnd::finished; ++phase) {
        std::vector<ScoredText> learned = texts.learned();
        if (phase > 0) {
            const std::vector<ScoredText> own = own_texts(texts, phase);
            learned.insert(learned.end(), own.begin(), own.end());
        }
        how = spec::train(*trainer_, plan, {learned, texts.held_out(), std::min(begin_of(phase + 1), plan.steps)},
                          session_.world(), progress_, callbacks, stop_signal());
    }
    trainer_.reset();
    return how != spec::TrainingEnd::interrupted;
}

spec::Costs Distillation::measure_costs(const DistillTexts& texts) {
    ModelOptions pair = options_.models;
    pair.drafts = {options_.output};
    const auto models = open_models(session_, pair, {});
    const Drafters drafters(session_, *models, {}, session_.timeout_seconds());
    std::vector<spec::Request> prompts;
    for (std::size_t i = 0; i < texts.held_out().size() && i < kMaxCostPrompts; ++i) {
        const ScoredText& text = texts.held_out()[i];
        spec::Request& request = prompts.emplace_back();
        request.prompt.assign(text.tokens.begin(), text.tokens.begin() + text.n_prompt);
        request.source = text.source;
        request.max_new_tokens = kCostTokens;
        request.ignore_eos = true;
    }
    const auto costs =
        measure_round_costs({session_, *models, drafters, prompts, kMaxDrafted, false, options_.quiet, kNoSignal});
    return writes() ? costs->front() : spec::Costs();
}

// ---- the draft's own texts: phase 0 has none, and the other phases begin evenly over the steps ----

int Distillation::begin_of(int phase) const {
    return static_cast<int>(std::int64_t{options_.plan.steps} * phase / (options_.own_texts + 1));
}
int Distillation::phase_of(int step) const {
    int phase = 0;
    while (phase < options_.own_texts && begin_of(phase + 1) <= step)
        ++phase;
    return phase;
}

// Returns the texts of a phase that has begun. A run that was killed has left them; else the current draft makes them.
std::vector<ScoredText> Distillation::own_texts(const DistillTexts& texts, int phase) {
    bool is_there = false;
    in_agreement(session_, [&] {
        std::error_code ignored;
        if (!writes() || !std::filesystem::exists(files_.own_texts(), ignored)) return;
        const model::Checkpoint file = model::Checkpoint::open_file(files_.own_texts());
        is_there = spec::text_of(file, "description") == std::to_string(phase);
    });
    if (from_writer(session_, is_there) == 1) return texts.read(files_.own_texts()).learned;
    in_agreement(session_, [&] {
        if (writes()) files_.write_current_draft(trainer_->parameters(stored_type()));
    });
    ScoredTexts own;
    sample_own_texts(texts, phase, own.learned);
    const auto models = open_models(session_, target_alone(options_.models.target), {});
    texts.score(*models, own.learned);
    in_agreement(session_, [&] {
        own.description = std::to_string(phase);
        if (writes()) write_tensors(files_.own_texts(), spec::to_tensors(own));
    });
    return own.learned;
}

ModelOptions Distillation::target_alone(const std::string& directory) const {
    ModelOptions alone = options_.models;
    alone.target = directory;
    alone.drafts.clear();
    alone.quiet = true;
    return alone;
}

// Samples at temperature 1, after the prompts of the learned texts.
void Distillation::sample_own_texts(const DistillTexts& texts, int phase, std::vector<ScoredText>& own) {
    const auto models =
        open_models(session_, target_alone(files_.current_draft()), {.batch_size = options_.batch_size});
    std::vector<spec::Request> requests;
    for (std::size_t i = 0; writes() && i < texts.learned().size(); ++i) {
        const ScoredText& text = texts.learned()[i];
        spec::Request& request = requests.emplace_back();
        request.prompt.assign(text.tokens.begin(), text.tokens.begin() + text.n_prompt);
        if (begun_.config.has_encoder()) request.source = text.source;
        request.max_new_tokens = texts.max_new_tokens();
        request.sequence_key = i;
        request.sampling.temperature = 1;
        request.sampling.seed = options_.plan.seed + static_cast<std::uint64_t>(phase);
    }
    const auto continued = continue_all(session_, *models, requests, options_.quiet);
    in_agreement(session_, [&] {
        for (std::size_t i = 0; i < requests.size(); ++i) {
            requests[i].source = texts.learned()[i].source; // for the target
            add_text(requests[i], continued[i], own);
        }
    });
    say(fmt::format("{} of the draft's own, at step {}", counted(own.size(), "text"), progress_.step));
}

// ---- the trainer and its state ----

void Distillation::load_trainer(const DistillTexts& texts, const RankDevice& device, int threads) {
    TrainerOptions options;
    options.weight_type = options_.half ? model::WeightType::bfloat16 : model::WeightType::float32;
    options.loss = options_.loss;
    options.max_texts = options_.plan.texts_a_pass;
    options.vocab_size = texts.vocab_size();
    options.weight_decay = options_.weight_decay;
    options.max_gradient_norm = options_.max_gradient_norm;
    options.timeout_seconds = session_.timeout_seconds();
    const int max_new_tokens = texts.max_new_tokens(); // the draft's own texts have this limit, too
    for (const auto* some : {&texts.learned(), &texts.held_out()})
        for (const ScoredText& text : *some) {
            if (begun_.config.has_encoder()) require_readable_source(begun_, text);
            options.max_source = std::max(options.max_source, static_cast<int>(text.source.size()));
            options.max_tokens = std::max({options.max_tokens, static_cast<int>(text.tokens.size()),
                                           options_.own_texts > 0 ? text.n_prompt + max_new_tokens : 0});
        }
    refuse_if(options.max_tokens > begun_.config.max_positions,
              fmt::format("{}: its context of {} is shorter than the texts' {}; give a smaller --max-context",
                          begun_.name, counted(begun_.config.max_positions, "position"), options.max_tokens));
    const std::string place = !device.torch.empty() ? device.torch
                              : device.is_gpu       ? fmt::format("cuda:{}", device.number)
                                                    : "cpu";
    trainer_ =
        model::torch::load_trainer(*begun_.checkpoint, begun_.config, options, session_.world(), {place, threads});
}

// Loads the state of an earlier run, if this run goes on from one.
void Distillation::restore() {
    std::error_code ignored;
    const bool goes_on =
        from_writer(session_, options_.resume && std::filesystem::exists(files_.state(), ignored)) == 1;
    if (!goes_on) return;
    in_agreement(session_, [&] { // ranks of other hosts see the same directory
        const model::Checkpoint state = model::Checkpoint::open_file(files_.state());
        const Json json = Json::parse(spec::text_of(state, kProgress));
        if (json.at("settings") != settings())
            throw BadOption(fmt::format("--resume: {} was begun with other options ({}); give those", options_.output,
                                        compact(json.at("settings"))));
        refuse_if(json.at("texts") != description_of_texts_,
                  fmt::format("--resume: {} was begun with other texts ({}); give those", options_.output,
                              compact(json.at("texts"))));
        progress_.step = json.at("step");
        for (const Json& each : json.at("evaluations"))
            progress_.evaluations.push_back(evaluation_of(each));
        trainer_->restore(state);
    });
}

// Returns the settings that must not change when a run goes on.
Json Distillation::settings() const {
    const spec::TrainingPlan& plan = options_.plan;
    return {{"draft", options_.layers > 0 ? options_.models.target : options_.models.drafts.front()},
            {"layers", options_.layers},
            {"hidden", options_.hidden_size},
            {"loss", to_string(options_.loss)},
            {"steps", plan.steps},
            {"warmup_steps", plan.warmup_steps},
            {"texts_a_step", plan.texts_a_step},
            {"texts_a_pass", plan.texts_a_pass},
            {"learning_rate", plan.learning_rate},
            {"weight_decay", options_.weight_decay},
            {"max_gradient_norm", options_.max_gradient_norm},
            {"bfloat16", options_.half},
            {"evaluate_every", plan.evaluate_every},
            {"patience", plan.patience},
            {"own_texts", options_.own_texts},
            {"seed", plan.seed}};
}

// Writes the draft before the state that says that it was saved. No measurement is lost then.
void Distillation::save(const TrainingProgress& progress, bool is_best) const {
    const Evaluation& last = progress.evaluations.back();
    say(fmt::format("step {}: held-out loss {:.4f}, sum min(p, q) {:.4f}, greedy agreement {:.4f}{}", last.step,
                    last.loss, last.overlap, last.agreement, is_best ? "" : " (an earlier one was better)"));
    if (is_best) files_.write_weights(trainer_->parameters(stored_type()));
    Json json = {{"settings", settings()},
                 {"texts", description_of_texts_},
                 {"step", progress.step},
                 {"evaluations", Json::array()}};
    for (const Evaluation& each : progress.evaluations)
        json["evaluations"].push_back(to_json(each));
    std::vector<model::TensorBytes> state = trainer_->state();
    state.push_back(spec::text_tensor(kProgress, compact(json)));
    write_tensors(files_.state(), state);
}

model::WeightType Distillation::stored_type() const {
    return begun_.config.stored_type == model::WeightType::float32 ||
                   begun_.config.stored_type == model::WeightType::float16
               ? begun_.config.stored_type
               : model::WeightType::bfloat16;
}

void Distillation::write_report(const DistillTexts& texts, const spec::Costs& costs) const {
    const Evaluation &before = progress_.evaluations.front(), &after = *progress_.best();
    const auto figures = [&](const char* when, const Evaluation& made) {
        Json json = to_json(made);
        const spec::ExpectedSpeedup sampled = spec::expected_speedup(made.overlap, costs),
                                    greedy = spec::expected_speedup(made.agreement, costs);
        json["expected_speedup"] = {{"temperature_1", sampled.speedup}, {"greedy", greedy.speedup}};
        say(fmt::format("{}: sum min(p, q) {:.4f}, greedy agreement {:.4f}; expected speed-up {:.2f} at temperature "
                        "1 (drafts of {}), {:.2f} greedily (of {})",
                        when, made.overlap, made.agreement, sampled.speedup, sampled.drafted, greedy.speedup,
                        greedy.drafted));
        return json;
    };
    Json json = {{"command", "distill"}, {"settings", settings()}, {"texts", texts.description()}};
    json["before"] = figures("before", before);
    json["after"] = figures("after", after);
    json["costs"] = Json::parse(spec::to_json(costs));
    for (const Evaluation& each : progress_.evaluations)
        json["evaluations"].push_back(to_json(each));
    replace_file(files_.report(), indented(json));
}

} // namespace entrodraft::launch
