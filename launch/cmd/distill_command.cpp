// entrodraft distill: trains a draft on the target's distributions. The engine continues the prompts, the target reads
// the texts again (spec/distill/target_scorer.h), and a trainer on libtorch learns them (spec/distill/training.h).
#include "launch/cli/command_options.h"
#include "launch/cli/options.h"
#include "launch/cmd/distill_files.h"
#include "launch/cmd/distill_texts.h"
#include "launch/cmd/round_costs.h"
#include "launch/commands.h"
#include "launch/counted.h"
#include "launch/failure.h"
#include "launch/io/progress.h"
#include "launch/load/launch_check.h"
#include "launch/pair_engine.h"
#include "launch/replaced_file.h"
#include "launch/signals.h"
#include "model/families/names.h"

#include <algorithm>
#include <fmt/format.h>
#include <stdexcept>

namespace entrodraft::launch {

namespace {

using model::torch::Trainer;
using model::torch::TrainerOptions;
using spec::Evaluation;
using spec::ScoredText;
using spec::ScoredTexts;
using spec::TrainingProgress;

constexpr const char* kProgress = "progress"; // of the training, in its state

Json to_json(const Evaluation& made) {
    return {{"step", made.step},       {"training_loss", made.training_loss}, {"loss", made.loss},
            {"overlap", made.overlap}, {"greedy_agreement", made.agreement},  {"acceptance", made.acceptance}};
}
Evaluation evaluation_of(const Json& json) {
    return {json.at("step"),    json.at("training_loss"),    json.at("loss"),
            json.at("overlap"), json.at("greedy_agreement"), json.at("acceptance")};
}

// The speed-up over plain decoding that drafts of the best length give where each token is accepted with probability
// alpha.
struct ExpectedSpeedup {
    int drafted = 0;
    double speedup = 1;
};
ExpectedSpeedup expected_speedup(double alpha, const spec::Costs& costs) {
    ExpectedSpeedup best;
    for (int k = 1; k < static_cast<int>(costs.t_target.size()); ++k) {
        const double round = costs.draft_seconds(k) + costs.target_seconds(k + 1) + costs.t_round.value_or(0);
        const double tokens = spec::expected_tokens(std::clamp(alpha, 0.0, 1.0), k);
        const double speedup = tokens * spec::predicted_plain_seconds(1, costs) / round;
        if (speedup > best.speedup) best = {k, speedup};
    }
    return best;
}

// The first rank's text on all. Collective over the world.
std::string shared(dist::Session& session, std::string text) {
    text.resize(static_cast<std::size_t>(from_writer(session, std::ssize(text))));
    if (!text.empty()) session.world().broadcast(text.data(), text.size(), 0, session.deadline());
    return text;
}

class Distillation {
  public:
    Distillation(dist::Session& session, const DistillOptions& options)
        : session_(session), options_(options), files_(options.output) {
        in_agreement(session, [&] {
            if (const std::string why = model::torch::why_missing(); !why.empty())
                throw BadOption("distill trains with libtorch: " + why);
            const bool is_target = options.layers > 0;
            begun_ = is_target ? open_model("target", options.models.target)
                               : open_model("draft", options.models.drafts.front());
            const model::ModelConfig& config = begun_.config;
            refuse_if(
                options.layers > config.n_layers && options.hidden_size == 0,
                fmt::format("--layers {}: {} has {}", options.layers, begun_.name, counted(config.n_layers, "layer")));
            refuse_if(config.has_encoder() || config.is_draft_head(),
                      begun_.name + ": models with encoders and draft heads are not distilled");
            refuse_if(options.hidden_size > 0 && config.experts.n_experts > 0,
                      "--hidden: " + begun_.name +
                          " has experts, whose shape the draft is not to have; give a --draft");
            refuse_if(config.quantization || !std::filesystem::is_regular_file(begun_.path / "config.json"),
                      begun_.name + " holds quantised weights or GGUF; name the checkpoint that they were made of");
            if (const std::string what = model::what_torch_lacks(config); !what.empty())
                throw BadOption(begun_.name + ": a model with " + what + " cannot be trained");
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

    // Texts of an earlier run, or those that this run's target makes.
    void find_texts() {
        const std::string file = texts_file();
        if (from_writer(session_, file.empty()) == 1) {
            make_texts();
        } else {
            read_texts(file, texts_);
        }
        require_same_target();
        description_ = Json::parse(shared(session_, texts_.description));
        vocab_size_ = description_.at("vocab_size");
    }

    // False where a signal came first: the run can be resumed.
    bool train() {
        const RankDevice device = choose_device(session_, options_.models.device, options_.models.backend);
        const int threads = check_launch(session_, options_.models.threads, true);
        in_agreement(session_, [&] { load_trainer(device, threads); });
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
        spec::TrainingEnd end = spec::TrainingEnd::finished;
        for (int phase = phase_of(progress_.step); phase <= options_.own_texts && end == spec::TrainingEnd::finished;
             ++phase) {
            std::vector<ScoredText> learned = texts_.learned;
            if (phase > 0) {
                const std::vector<ScoredText> own = own_texts(phase);
                learned.insert(learned.end(), own.begin(), own.end());
            }
            end = spec::train(*trainer_, plan, {learned, texts_.held_out, begin_of(phase + 1)}, session_.world(),
                              progress_, callbacks, stop_signal());
        }
        trainer_.reset();
        return end != spec::TrainingEnd::interrupted;
    }

    // What the draft is worth, at the costs of its passes beside the target's.
    void report() {
        ModelOptions pair = options_.models;
        pair.drafts = {options_.output};
        const auto models = open_models(session_, pair, {});
        const Drafters drafters(session_, *models, {}, session_.timeout_seconds());
        std::vector<spec::Request> prompts;
        for (std::size_t i = 0; i < texts_.held_out.size() && i < kMaxCostPrompts; ++i) {
            const std::vector<spec::TokenId>& tokens = texts_.held_out[i].tokens;
            spec::Request& request = prompts.emplace_back();
            request.prompt.assign(tokens.begin(), tokens.begin() + texts_.held_out[i].n_prompt);
            request.ignore_eos = true;
        }
        const auto costs = measure_round_costs(session_, *models, drafters, prompts, kMaxDrafted, false, kNoSignal);
        in_agreement(session_, [&] {
            if (writes()) write_report(costs->front());
        });
    }

  private:
    static constexpr int kMaxDrafted = 8; // of drafts whose costs are measured

    DraftShape shape() const { return {options_.layers, options_.hidden_size}; }
    bool writes() const { return session_.world_rank() == 0; }
    void say(const std::string& line) const {
        if (writes() && !options_.quiet) log_line(line);
    }

    // On the first rank; empty: they are made.
    std::string texts_file() const {
        std::error_code ignored;
        if (!writes()) return "";
        if (options_.resume && std::filesystem::exists(files_.texts(), ignored)) return files_.texts();
        return options_.texts;
    }

    void require_both(const std::string& file) const {
        if (texts_.learned.empty() || texts_.held_out.empty())
            throw std::runtime_error(
                fmt::format("{}: there must be texts to learn from and held-out ones; there are {} and {}", file,
                            texts_.learned.size(), texts_.held_out.size()));
    }

    // That the texts are of this target, as far as that is known.
    void require_same_target() const {
        in_agreement(session_, [&] {
            if (!writes()) return;
            const std::string made_by = Json::parse(texts_.description).at("target");
            if (made_by != options_.models.target)
                throw std::runtime_error(fmt::format("the texts were made by --target {}; name that target", made_by));
        });
    }

    void read_texts(const std::string& file, ScoredTexts& texts) {
        in_agreement(session_, [&] {
            if (!writes()) return;
            texts = spec::scored_texts(model::Checkpoint::open_file(file), file, begun_.config.vocab_size);
        });
        share_all(session_, texts.learned);
        share_all(session_, texts.held_out);
        in_agreement(session_, [&] { require_both(file); });
    }

    spec::ScorerOptions scorer_options(int vocab_size) const {
        spec::ScorerOptions options;
        options.vocab_size = vocab_size;
        options.n_top = std::min(options_.top_tokens, vocab_size);
        options.seed = options_.plan.seed;
        options.timeout_seconds = session_.timeout_seconds();
        return options;
    }

    void make_texts() {
        const auto models = open_models(session_, options_.models, {.batch_size = options_.batch_size});
        const int vocab_size = std::min(models->vocab_size, begun_.config.vocab_size);
        std::vector<spec::Request> requests;
        std::vector<bool> is_held_out;
        in_agreement(session_, [&] {
            if (!models->layout.is_coordinator()) return;
            const std::vector<spec::Request> prompts =
                read_all_prompts(options_.input, options_.requests, options_.max_prompts, models->prompt_limits());
            for (std::size_t i = 0; i < prompts.size(); ++i)
                for (const double temperature : options_.temperatures) {
                    requests.push_back(prompts[i]);
                    requests.back().sampling.temperature = temperature;
                    requests.back().sampling.seed = options_.plan.seed;
                    is_held_out.push_back(i % static_cast<std::size_t>(options_.held_out_one_in) == 0);
                }
        });
        const auto continued = continue_all(session_, *models, requests, options_.quiet);
        in_agreement(session_, [&] {
            for (std::size_t i = 0; i < requests.size(); ++i)
                add_text(requests[i], continued[i], is_held_out[i] ? texts_.held_out : texts_.learned);
            if (writes()) require_both(options_.input);
        });
        score_all(session_, *models, scorer_options(vocab_size), texts_.learned, options_.quiet);
        score_all(session_, *models, scorer_options(vocab_size), texts_.held_out, options_.quiet);
        in_agreement(session_, [&] {
            if (!writes()) return;
            texts_.description = compact(Json{{"target", options_.models.target},
                                              {"input", options_.input},
                                              {"vocab_size", vocab_size},
                                              {"temperatures", options_.temperatures},
                                              {"max_new_tokens", options_.requests.max_new_tokens},
                                              {"seed", options_.plan.seed}});
            write_tensors(files_.texts(), spec::to_tensors(texts_));
            std::int64_t places = 0;
            for (const ScoredText& text : texts_.learned)
                places += text.places();
            say(fmt::format("{} of the target, {} to learn, {} held out",
                            counted(texts_.learned.size() + texts_.held_out.size(), "text"), counted(places, "token"),
                            counted(texts_.held_out.size(), "text")));
        });
    }

    static void add_text(const spec::Request& request, const std::vector<spec::TokenId>& continued,
                         std::vector<ScoredText>& texts) {
        if (request.prompt.empty() || continued.empty()) return; // nothing to learn
        ScoredText& text = texts.emplace_back();
        text.tokens = request.prompt;
        text.n_prompt = static_cast<int>(text.tokens.size());
        text.temperature = static_cast<float>(request.sampling.temperature);
        text.tokens.insert(text.tokens.end(), continued.begin(), continued.end());
    }

    // ---- texts of the draft's own: phase 0 has none, and the others begin evenly over the steps ----

    int begin_of(int phase) const {
        return static_cast<int>(std::int64_t{options_.plan.steps} * phase / (options_.own_texts + 1));
    }
    int phase_of(int step) const {
        int phase = 0;
        while (phase < options_.own_texts && begin_of(phase + 1) <= step)
            ++phase;
        return phase;
    }

    // Those of a phase that has begun, as a run that was killed left them, or made by the draft as it is.
    std::vector<ScoredText> own_texts(int phase) {
        bool is_there = false;
        in_agreement(session_, [&] {
            std::error_code ignored;
            if (!writes() || !std::filesystem::exists(files_.own_texts(), ignored)) return;
            const model::Checkpoint file = model::Checkpoint::open_file(files_.own_texts());
            is_there = spec::text_of(file, "description") == std::to_string(phase);
        });
        ScoredTexts own;
        if (from_writer(session_, is_there) == 1) {
            in_agreement(session_, [&] {
                if (writes())
                    own = spec::scored_texts(model::Checkpoint::open_file(files_.own_texts()),
                                             files_.own_texts().string(), begun_.config.vocab_size);
            });
            share_all(session_, own.learned);
            return own.learned;
        }
        in_agreement(session_, [&] {
            if (writes()) files_.write_current_draft(trainer_->parameters(stored_type()));
        });
        sample_own_texts(phase, own.learned);
        const auto models = open_models(session_, target_alone(options_.models.target), {});
        score_all(session_, *models, scorer_options(vocab_size_), own.learned, options_.quiet);
        in_agreement(session_, [&] {
            own.description = std::to_string(phase);
            if (writes()) write_tensors(files_.own_texts(), spec::to_tensors(own));
        });
        return own.learned;
    }

    ModelOptions target_alone(const std::string& directory) const {
        ModelOptions alone = options_.models;
        alone.target = directory;
        alone.drafts.clear();
        alone.quiet = true;
        return alone;
    }

    // At temperature 1, behind the prompts that are learned.
    void sample_own_texts(int phase, std::vector<ScoredText>& own) {
        const auto models =
            open_models(session_, target_alone(files_.current_draft()), {.batch_size = options_.batch_size});
        std::vector<spec::Request> requests;
        for (std::size_t i = 0; writes() && i < texts_.learned.size(); ++i) {
            const ScoredText& text = texts_.learned[i];
            spec::Request& request = requests.emplace_back();
            request.prompt.assign(text.tokens.begin(), text.tokens.begin() + text.n_prompt);
            request.max_new_tokens = description_.at("max_new_tokens");
            request.sequence_key = i;
            request.sampling.temperature = 1;
            request.sampling.seed = options_.plan.seed + static_cast<std::uint64_t>(phase);
        }
        const auto continued = continue_all(session_, *models, requests, options_.quiet);
        in_agreement(session_, [&] {
            for (std::size_t i = 0; i < requests.size(); ++i)
                add_text(requests[i], continued[i], own);
        });
        say(fmt::format("{} of the draft's own, at step {}", counted(own.size(), "text"), progress_.step));
    }

    // ---- the trainer and its state ----

    void load_trainer(const RankDevice& device, int threads) {
        TrainerOptions options;
        options.weight_type = options_.half ? model::WeightType::bfloat16 : model::WeightType::float32;
        options.loss = options_.loss;
        options.max_texts = options_.plan.texts_a_pass;
        options.vocab_size = vocab_size_;
        options.weight_decay = options_.weight_decay;
        options.max_gradient_norm = options_.max_gradient_norm;
        options.timeout_seconds = session_.timeout_seconds();
        const int max_new_tokens = description_.at("max_new_tokens"); // of texts of the draft's own, too
        for (const auto* texts : {&texts_.learned, &texts_.held_out})
            for (const ScoredText& text : *texts)
                options.max_tokens = std::max({options.max_tokens, static_cast<int>(text.tokens.size()),
                                               options_.own_texts > 0 ? text.n_prompt + max_new_tokens : 0});
        refuse_if(options.max_tokens > begun_.config.max_positions,
                  fmt::format("{}: its context of {} is shorter than the texts' {}; give a smaller --max-context",
                              begun_.name, counted(begun_.config.max_positions, "position"), options.max_tokens));
        const std::string place = !device.torch.empty() ? device.torch
                                  : device.is_gpu       ? fmt::format("cuda:{}", device.number)
                                                        : "cpu";
        trainer_ =
            model::torch::load_trainer(*begun_.checkpoint, begun_.config, options, session_.world(), {place, threads});
    }

    // The state of an earlier run, where this one goes on.
    void restore() {
        std::error_code ignored;
        const bool goes_on =
            from_writer(session_, options_.resume && std::filesystem::exists(files_.state(), ignored)) == 1;
        if (!goes_on) return;
        in_agreement(session_, [&] { // ranks of other hosts see the same directory
            const model::Checkpoint state = model::Checkpoint::open_file(files_.state());
            const Json json = Json::parse(spec::text_of(state, kProgress));
            if (json.at("settings") != settings())
                throw BadOption(fmt::format("--resume: {} was begun with other options ({}); give those",
                                            options_.output, compact(json.at("settings"))));
            progress_.step = json.at("step");
            for (const Json& each : json.at("evaluations"))
                progress_.evaluations.push_back(evaluation_of(each));
            trainer_->restore(state);
        });
    }

    // What must stay as it is for a run to go on.
    Json settings() const {
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

    // The draft before what says that it was saved, so that no measurement is lost.
    void save(const TrainingProgress& progress, bool is_best) const {
        const Evaluation& last = progress.evaluations.back();
        say(fmt::format("step {}: held-out loss {:.4f}, sum min(p, q) {:.4f}, greedy agreement {:.4f}{}", last.step,
                        last.loss, last.overlap, last.agreement, is_best ? "" : " (an earlier one was better)"));
        if (is_best) files_.write_weights(trainer_->parameters(stored_type()));
        Json json = {{"settings", settings()}, {"step", progress.step}, {"evaluations", Json::array()}};
        for (const Evaluation& each : progress.evaluations)
            json["evaluations"].push_back(to_json(each));
        std::vector<model::TensorBytes> state = trainer_->state();
        state.push_back(spec::text_tensor(kProgress, compact(json)));
        write_tensors(files_.state(), state);
    }
    model::WeightType stored_type() const {
        return begun_.config.stored_type == model::WeightType::float32 ||
                       begun_.config.stored_type == model::WeightType::float16
                   ? begun_.config.stored_type
                   : model::WeightType::bfloat16;
    }

    void write_report(const spec::Costs& costs) const {
        const Evaluation &before = progress_.evaluations.front(), &after = *progress_.best();
        const auto figures = [&](const char* when, const Evaluation& made) {
            Json json = to_json(made);
            const ExpectedSpeedup sampled = expected_speedup(made.overlap, costs),
                                  greedy = expected_speedup(made.agreement, costs);
            json["expected_speedup"] = {{"temperature_1", sampled.speedup}, {"greedy", greedy.speedup}};
            say(fmt::format(
                "{}: sum min(p, q) {:.4f}, greedy agreement {:.4f}; expected speed-up {:.2f} at temperature "
                "1 (drafts of {}), {:.2f} greedily (of {})",
                when, made.overlap, made.agreement, sampled.speedup, sampled.drafted, greedy.speedup, greedy.drafted));
            return json;
        };
        Json json = {{"command", "distill"}, {"settings", settings()}, {"texts", description_}};
        json["before"] = figures("before", before);
        json["after"] = figures("after", after);
        json["costs"] = Json::parse(spec::to_json(costs));
        for (const Evaluation& each : progress_.evaluations)
            json["evaluations"].push_back(to_json(each));
        replace_file(files_.report(), indented(json));
    }

    dist::Session& session_;
    const DistillOptions& options_;
    DistillFiles files_;
    OpenedModel begun_; // what the draft is made of
    int vocab_size_ = 0;
    ScoredTexts texts_; // on all ranks, but for the description
    Json description_;  // of them, on all ranks
    std::unique_ptr<Trainer> trainer_;
    TrainingProgress progress_;
};

} // namespace

int run_distill(dist::Session& session, const Arguments& arguments) {
    const auto options = read_options<DistillOptions>(session, arguments, page_of("distill"));
    if (!options) return kAllServed;
    install_signal_handlers(session.world_rank() == 0);
    session.set_timeout(options->models.collective_timeout_seconds);
    Distillation distillation(session, *options);
    distillation.find_texts();
    if (!distillation.train()) return kStopped;
    cancel_abort_timer();
    distillation.report();
    return kAllServed;
}

} // namespace entrodraft::launch
