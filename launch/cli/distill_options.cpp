// Options of distill: see options.h.
#include "launch/cli/shared_options.h"

namespace entrodraft::launch {

namespace {

void declare_texts(OptionSet& set, DistillOptions& options) {
    set.group("Texts");
    set.add(
        "input", "FILE|-", options.input,
        "JSON lines of prompts, as for generate: the target continues each, and the draft learns what it had there");
    set.add("prompts", "N", options.max_prompts, at_least(1), "only the first N prompts [all]");
    set.add("texts", "FILE", options.texts,
            "learn from these texts instead: training/texts.safetensors of another run's --output");
    set.check([&options](const ParsedOptions&) {
        refuse_if(options.input.empty() == options.texts.empty(),
                  "name --input FILE, prompts to continue, or --texts FILE of an earlier run");
    });
    declare_new_tokens(set, options.requests.max_new_tokens);
    set.add("ignore-eos", options.requests.ignore_eos, "do not stop at the end-of-text token");
    set.add("temperatures", "T,T", options.temperatures, at_least(0), "each prompt is continued at each of them");
    options.requests.given.insert("temperature");
    set.check([&options](const ParsedOptions&) { // existing texts are not made again
        if (!options.texts.empty()) options.requests.generation_config = GenerationConfigUse::none;
    });
    declare_generation_config(set, options.requests);
    set.add("batch-size", "B", options.batch_size, {1, spec::kMaxSlots}, "texts decoded together");
    set.add("top-tokens", "N", options.top_tokens, {1, 1 << 16},
            "most likely tokens of a place whose probabilities are kept; all others are one token to the loss");
    set.add("held-out", "N", options.held_out_one_in, at_least(2),
            "one in N prompts is not learned: on these the draft is measured");
    for (const char* option : {"max-new-tokens", "ignore-eos", "temperatures", "batch-size", "top-tokens", "held-out",
                               "prompts", "generation-config"})
        set.check([&options, option](const ParsedOptions& given) {
            given.refuse_without_effect(option, options.texts.empty(), "with --texts, which are there already");
        });
}

void declare_training(OptionSet& set, DistillOptions& options) {
    spec::TrainingPlan& plan = options.plan;
    set.group("Training");
    set.add("loss", "NAME", options.loss, names_up_to(model::torch::DistillLoss::log_alpha),
            "distance of the target's distribution p from the draft's q: {}");
    set.add("steps", "N", plan.steps, at_least(1), "steps of AdamW, at most");
    set.add(
        "own-texts", "N", options.own_texts, at_least(0),
        "so many times, evenly over the steps, the draft as it is by then samples texts of its own at temperature 1, "
        "which the target reads and which are learned beside the target's");
    set.check([&options](const ParsedOptions&) {
        refuse_if(options.own_texts >= options.plan.steps, "--own-texts wants more --steps than times");
    });
    set.add("texts-a-step", "N", plan.texts_a_step, at_least(1), "texts that a step learns from, of all ranks");
    set.add("texts-a-pass", "N", plan.texts_a_pass, at_least(1),
            "of these, how many a rank passes through the draft at once: fewer take less memory, for the same step");
    set.add("learning-rate", "RATE", plan.learning_rate, {1e-9, 1}, "at its highest; it falls to a tenth of it");
    set.add("warmup-steps", "N", plan.warmup_steps, at_least(0), "in which it rises");
    set.add("weight-decay", "W", options.weight_decay, {0, 10}, "of matrices");
    set.add("max-gradient-norm", "N", options.max_gradient_norm, {1e-9, kNoLimit}, "longer gradients are cut to it");
    set.add("bfloat16", options.half, "compute passes in bfloat16; parameters stay float32");
    set.add("evaluate-every", "N", plan.evaluate_every, at_least(1),
            "steps between measurements on held-out texts, after each of which the run can be resumed");
    set.add("patience", "N", plan.patience, at_least(1), "end after so many measurements without a better one");
    declare_seed(set, plan.seed);
}

} // namespace

void declare(OptionSet& set, DistillOptions& options) {
    declare_measured_models(set, options.models, "checkpoint of the draft to train further");
    set.add("layers", "N", options.layers, at_least(1), "in place of --draft: begin with the target's first N layers");
    set.add(
        "hidden", "H", options.hidden_size, at_least(8),
        "with --layers: begin with random weights, in the target's family, so wide; other sizes follow in proportion");
    set.check([&options](const ParsedOptions& given) {
        refuse_if(options.models.drafts.size() > 1, "--draft is given more than once; distil one draft at a time");
        refuse_if(options.models.drafts.empty() != given.given("layers"),
                  "name --draft DIR, the draft to train, or --layers N of the target");
        given.refuse_without_effect("hidden", given.given("layers"), "without --layers");
        given.refuse_without_effect("random-weights", false, "here: a target of random weights has nothing to teach");
        options.models.needs_same_vocabulary = "distill";
    });
    set.add("output", "DIR", options.output, "the trained draft, as transformers and this program load it")
        .required("the directory that the draft goes to");
    set.add("resume", options.resume, "go on with the run that --output holds, with the same options");
    declare_texts(set, options);
    declare_training(set, options);
    set.add("quiet", options.quiet, "no progress");
}

} // namespace entrodraft::launch
