// Options of models, requests and sampling: see shared_options.h.
#include "launch/cli/shared_options.h"

#include "model/text/chat/chat_template.h"

#include <fmt/format.h>

namespace entrodraft::launch {

namespace {

using WeightType = model::WeightType;

// Declares a weight type from float32 up to `last`.
void declare_weight_type(OptionSet& set, const char* name, std::optional<WeightType>& field, WeightType last,
                         const char* help) {
    Names names = names_up_to(last);
    names.insert(names.begin(), "auto");
    const auto read = [&field, names](const GivenValue& given) {
        const GivenValue usual = given.meant({{"fp32", "float32"},
                                              {"float", "float32"},
                                              {"bf16", "bfloat16"},
                                              {"fp16", "float16"},
                                              {"half", "float16"},
                                              {"fp8", "float8"}});
        const std::size_t index = index_among(names, usual);
        field = index == 0 ? std::nullopt : std::optional(static_cast<WeightType>(index - 1));
    };
    set.add(name, "TYPE", help, read).choosing(names);
}

// For an option that only our CPU kernels honour: --device auto becomes the CPU, and other devices are refused.
void require_cpu_kernels(ModelOptions& models, const std::string& option) {
    const bool may_be_cpu = models.device == DeviceChoice::automatic || models.device == DeviceChoice::cpu;
    refuse_if(models.backend == Backend::torch || !may_be_cpu,
              option + " runs on our CPU kernels alone so far: give --device cpu, without --backend torch");
    if (models.device == DeviceChoice::automatic) models.needs_cpu = option;
}

} // namespace

// ---- models ----

void declare_weight_types(OptionSet& set, std::optional<WeightType>& target, std::optional<WeightType>& draft,
                          const char* help) {
    declare_weight_type(set, "dtype", target, WeightType::float8, help);
    set.check([&](const ParsedOptions& given) {
        draft = target;
        given.refuse_without_effect("draft-dtype", given.given("draft") || given.given("head"),
                                    "without --draft DIR or --head DIR");
    });
    declare_weight_type(
        set, "draft-dtype", draft, WeightType::float8,
        "the same for the draft [as --dtype; on CPUs int4 of a GGUF file of more than 5.5 bits a weight]");
}

void declare_kv_type(OptionSet& set, std::optional<WeightType>& field) {
    declare_weight_type(
        set, "kv-dtype", field, WeightType::int8,
        "what CPUs keep keys and values in: {}; int8 has a scale for each key and value of a head [auto: "
        "float32 beside weights of float32, else float16]");
}

void declare_head(OptionSet& set, std::string& head, const char* help) {
    set.add("head", "DIR", head, help);
    set.check([](const ParsedOptions& given) {
        refuse_if(given.given("head") && given.given("draft"), "--head and --draft: give one of them");
    });
}

void declare_head(OptionSet& set, ModelOptions& models) {
    declare_head(
        set, models.head,
        "draft head of the target, which reads its hidden states: EAGLE 1 to 3, HASS, Medusa, ...; see docs/models.md");
    set.check([&models](const ParsedOptions&) {
        refuse_if(!models.head.empty() && models.random_weights, "--random-weights makes up no --head");
    });
}

void refuse_sharded_head(dist::DraftPlacement placement, bool has_head) {
    refuse_if(placement == dist::DraftPlacement::sharded && has_head,
              "--draft-placement sharded is for one --draft; a --head lies on one rank");
}

std::string default_drafter(const ModelOptions& models) {
    return !models.head.empty() ? "head" : !models.drafts.empty() ? "model" : "";
}

void refuse_weight_types_of_others(std::optional<WeightType> target, std::optional<WeightType> draft, bool on_gpu) {
    const auto any = [&](WeightType type) { return target == type || draft == type; };
    refuse_if(any(WeightType::float8) && !on_gpu, "float8 weights are for --device cuda; CPUs have int8 and int4");
}

void declare_models(OptionSet& set, ModelOptions& models, const char* draft_help) {
    set.group("Models");
    set.add("target", "DIR", models.target,
            "checkpoint whose text is wanted: a directory, or the name of a model in the Hugging Face cache")
        .also(kTargetAliases)
        .required("the directory of the checkpoint to decode with");
    set.add("draft", "DIR", models.drafts, draft_help).also(kDraftAliases);
    set.check([&models](const ParsedOptions& given) {
        for (const char* option : {"prompt", "chat", "stop", "lookup-corpus", "draft-table"})
            if (given.given(option)) models.needs_text = std::string("--") + option;
        models.quiet = given.given("quiet");
    });
    set.add("random-weights", "SEED", models.random_weights, {},
            "weights made up where they are used, the same on any number of any devices: the directories of target and "
            "draft need hold config.json alone. For measurements: the text means nothing");
    const Names devices = {"auto", "cpu", "cuda", "xpu"};
    const auto read_device = [&models, devices](const GivenValue& given) {
        models.device = static_cast<DeviceChoice>(index_among(devices, given.meant({{"gpu", "cuda"}})));
    };
    set.add("device", "DEVICE",
            "what computes: {} (with --backend torch); gpu is cuda. auto: GPUs, where every rank sees one, which hold "
            "the "
            "models and compute three rows as another implementation does; else, and with --backend torch, the CPU",
            read_device)
        .choosing(devices);
    set.add("backend", "NAME", models.backend, {"native", "torch"},
            "{}: this program's kernels, or libtorch (builds with -DENTRODRAFT_TORCH=ON), with which a text may depend "
            "on what is batched with it");
    set.add(
        "tensor-parallel-sum", "HOW", models.sum, {"auto", "all-reduce", "ordered"},
        "how GPUs sum over the ranks of the target: {}. auto: ordered (by rank) beyond two ranks; all-reduce is NCCL's "
        "order, in which text depends on batch and draft sizes beyond two ranks");
    set.check([&models](const ParsedOptions& given) {
        const bool sums_on_gpus = models.device == DeviceChoice::cuda && models.backend == Backend::native;
        given.refuse_without_effect("tensor-parallel-sum", sums_on_gpus, "without --device cuda and our own kernels");
    });
    declare_weight_types(set, models.dtype, models.draft_dtype,
                         "the weights' type in memory: {}; float8 on GPUs alone; also fp32, bf16, fp16, "
                         "half, fp8 [auto: the file's]");
    set.add("activation-dtype", "TYPE", models.activations, {"auto", "int24", "int16", "int8"},
            "what activations are rounded to where CPUs multiply weights of 8 bits or fewer: {}; whole numbers, 32 of "
            "which share a scale; auto is int8. --device auto uses the CPU where another is given");
    declare_kv_type(set, models.kv_type);
    set.check([&models](const ParsedOptions& given) {
        if (given.given("activation-dtype") && models.activations != model::ActivationType::automatic)
            require_cpu_kernels(models, "--activation-dtype");
        if (models.kv_type) require_cpu_kernels(models, "--kv-dtype");
        const auto is_scaled = [](std::optional<WeightType> type) { return type && model::is_scaled(*type); };
        const bool is_torch = models.backend == Backend::torch;
        refuse_if(is_torch && (is_scaled(models.dtype) || is_scaled(models.draft_dtype)),
                  "--backend torch has weights in float32, bfloat16 and float16; others are for --backend native");
        refuse_if(models.device == DeviceChoice::xpu && !is_torch, "--device xpu is for --backend torch");
        refuse_weight_types_of_others(models.dtype, models.draft_dtype, models.device == DeviceChoice::cuda);
    });
    set.add("threads", "N", models.threads, kThreads, kThreadsHelp);
}

std::optional<SelfDraft> self_draft_of(const std::string& draft) {
    constexpr std::string_view kSelf = "self", kLayers = "self:layers=";
    if (draft == kSelf) return SelfDraft{};
    if (!draft.starts_with(kLayers)) return std::nullopt;
    SelfDraft self;
    read_value(GivenValue{"draft", draft}.part(draft.substr(kLayers.size())), at_least(1), self.n_layers);
    return self;
}

void declare_draft_window(OptionSet& set, ModelOptions& models) {
    spec::DraftWindow& window = models.draft_window;
    const auto read = [&window](const GivenValue& given) {
        read_value(given.head(), {1, spec::DraftWindow::kMaxPositions}, window.positions);
        read_keys(given, {number_key("sinks", window.sinks, {0, spec::DraftWindow::kMaxSinks}),
                          number_key("chunks", window.chunks, {0, spec::DraftWindow::kMaxChunks})});
    };
    set.add("draft-window", "W",
            "the draft's cache keeps, and its passes read, no more of a text than its last W tokens, or up to W / 8 "
            "more, and its first ones; on CPUs, of one --draft [all of it]",
            read)
        .detailed(fmt::format("W:sinks=S keeps S first ones ({}); W:chunks=N reads the N chunks of 8 tokens between "
                              "them, too, that are best by the attention to their mean keys",
                              window.sinks));
    set.check([&models, &window](const ParsedOptions& given) {
        refuse_if(window.is_on() && models.drafts.size() != 1, "--draft-window is for one --draft");
        const auto is_self = [](const std::string& draft) { return self_draft_of(draft).has_value(); };
        const bool has_self = std::ranges::any_of(models.drafts, is_self);
        if (!window.is_on() && !has_self) return;
        const std::string name = has_self ? "--draft self" : "--draft-window";
        refuse_if(has_self && models.drafts.size() > 1, "--draft self is the only --draft; leave the others out");
        refuse_if(has_self && !window.is_on() && self_draft_of(models.drafts[0])->n_layers == 0,
                  "--draft self drafts at the target's own cost: add --draft-window W, or name --draft self:layers=N");
        given.refuse_without_effect("draft-vocabulary", !has_self, "with --draft self, which has the target's");
        refuse_if(has_self && given.given("draft-dtype"), "--draft self has the target's weights, so no --draft-dtype");
        refuse_if(has_self && given.text("draft-placement") == "dedicated",
                  "--draft self reads the target's weights, and the rank of a dedicated draft has none: use colocated "
                  "on one rank, or sharded");
        require_cpu_kernels(models, name);
    });
}

void declare_draft_vocab(OptionSet& set, ModelOptions& models) {
    const auto read = [&models](const GivenValue& given) {
        const std::size_t colon = given.text.find(':');
        const std::string number = given.text.substr(0, colon);
        read_value(given.part(number), at_least(1), models.draft_vocab);
        if (colon == std::string::npos) return;
        models.draft_vocab_counts = given.text.substr(colon + 1);
        refuse_if(models.draft_vocab_counts.empty(),
                  "--draft-vocab " + given.text + ": a file of build-table goes behind the colon");
    };
    set.add(
        "draft-vocab", "N[:FILE]",
        "tokens that the --draft may propose: the N most frequent in FILE, of build-table, or with the lowest ids, "
        "and ends and special ones. Its passes read so much less; texts stay the same; on CPUs, of one --draft [all]",
        read);
    set.check([&models](const ParsedOptions& given) {
        if (models.draft_vocab == 0) return;
        refuse_if(models.drafts.size() != 1 || self_draft_of(models.drafts[0]), "--draft-vocab is for one --draft DIR");
        refuse_if(given.given("draft-placement") && given.text("draft-placement") == "sharded",
                  "--draft-vocab is for a draft on one rank; leave --draft-placement sharded out");
        models.needs_same_vocabulary = "--draft-vocab";
        require_cpu_kernels(models, "--draft-vocab");
    });
}

void refuse_self_draft(const ModelOptions& models, const char* command) {
    for (const std::string& draft : models.drafts)
        refuse_if(self_draft_of(draft).has_value(),
                  fmt::format("--draft {}: {} takes a checkpoint of its own; name its directory", draft, command));
}

void declare_measured_models(OptionSet& set, ModelOptions& models, const char* draft_help) {
    declare_models(set, models, draft_help);
    declare_max_context(set, models.max_context);
    declare_timeout(set, models.collective_timeout_seconds);
}

OptionSpec& declare_max_context(OptionSet& set, int& positions) {
    return set.add("max-context", "N", positions, at_least(2),
                   "positions kept for a sequence, prompt and text [all that the target has]");
}

void declare_timeout(OptionSet& set, double& seconds) {
    set.add("collective-timeout", "SECONDS", seconds, {0.001, 1e9},
            "how long a rank waits for the others, or works on one step, before the job ends");
}

void declare_placement(OptionSet& set, dist::DraftPlacement& placement) {
    set.add("draft-placement", "WHERE", placement, names_up_to(dist::DraftPlacement::sharded),
            "{}: the draft on the first rank, which also holds a shard of the target; on a rank of its own; or sharded "
            "across ranks like the target");
}

// ---- requests ----

OptionSpec& declare_new_tokens(OptionSet& set, int& new_tokens) {
    return set.add("max-new-tokens", "N", new_tokens, at_least(1), "new tokens of a text, at most");
}

void declare_ends(OptionSet& set, RequestDefaults& requests) {
    set.add("ignore-eos", requests.ignore_eos, "do not stop at the end-of-text token");
    set.add("stop", "STRING", requests.stop_strings,
            "end the text before this string, token_ids after the token that completed it; repeatable");
    set.check([&requests](const ParsedOptions&) {
        for (const std::string& stop : requests.stop_strings)
            if (const std::string why = spec::why_no_stop_string(stop); !why.empty()) throw BadOption("--stop " + why);
    });
}

void declare_seed(OptionSet& set, std::uint64_t& seed) {
    set.add("seed", "N", seed, {},
            "of sampled text: the same seed, the same text; with --acceptance rejection or block only where the draft "
            "is the same, see --costs");
}

void declare_sampling(OptionSet& set, RequestDefaults& requests) {
    spec::SamplingOptions& sampling = requests.sampling;
    spec::LogitProcessing& logits = requests.processing;
    constexpr Range kAnyNumber = {-kNoLimit, kNoLimit};
    set.group("Sampling");
    set.add("temperature", "T", sampling.temperature, at_least(0), "0 is greedy");
    set.add("top-k", "K", sampling.top_k, at_least(0), "only the K most likely tokens [{}: off]");
    set.add("top-p", "P", sampling.top_p, {0, 1},
            "only the most likely tokens that together have probability P [{}: off]");
    set.add("min-p", "P", sampling.min_p, {0, 1},
            "only tokens with at least P times the probability of the most likely one [{}: off]");
    declare_seed(set, sampling.seed);
    set.add("repetition-penalty", "R", logits.repetition_penalty, at_least(0),
            "of tokens in prompt and text, as in transformers [{}: off]");
    set.add("presence-penalty", "A", logits.presence_penalty, kAnyNumber,
            "of tokens in the text, as in vLLM, from -2 to 2 [{}: off]");
    set.add("frequency-penalty", "F", logits.frequency_penalty, kAnyNumber,
            "the same, for each time they occur [{}: off]");
    set.add("no-repeat-ngram-size", "N", logits.no_repeat_ngram_size, at_least(0),
            "no N tokens in a row occur twice in prompt and text [{}: off]");
    set.add("logit-bias", "TOKEN:BIAS", "added to a token's logit; repeatable",
            [&](const GivenValue& given) {
                const std::size_t colon = given.text.find(':');
                refuse_if(colon == std::string::npos,
                          "--logit-bias " + given.text + ": must be TOKEN:BIAS, such as 220:-1.5");
                double bias = 0;
                auto& [token, added] = logits.logit_bias.emplace_back();
                read_value(given.part(given.text.substr(0, colon)), at_least(0), token);
                read_value(given.part(given.text.substr(colon + 1)), {-1e30, 1e30}, bias);
                added = static_cast<float>(bias);
            })
        .repeatable = true;
    set.add("banned-tokens", "ID,ID", logits.banned_tokens, at_least(0), "tokens that are never emitted");
    set.add("min-new-tokens", "N", logits.min_new_tokens, at_least(0), "no end of text before so many new tokens");
    declare_generation_config(set, requests);
    // The checks that need the vocabulary come later, request by request.
    set.check([&](const ParsedOptions& given) {
        if (const char* why = spec::why_invalid(sampling); *why != '\0') throw BadOption(why);
        if (const std::string why = spec::why_invalid(logits, INT32_MAX); !why.empty()) throw BadOption(why);
        note_sampling_options(given, {"top-k", "top-p", "min-p", "seed"}, requests);
    });
}

void declare_generation_config(OptionSet& set, RequestDefaults& requests) {
    set.add("generation-config", "WHAT", requests.generation_config, {"greedy", "all", "none"},
            "what of the target's generation_config.json holds where lines and options say nothing: {}; greedy: what "
            "changes greedy text in transformers; all: sampling and lengths too");
    set.check([&requests](const ParsedOptions& given) {
        for (const char* option :
             {"max-new-tokens", "min-new-tokens", "temperature", "top-k", "top-p", "min-p", "repetition-penalty",
              "no-repeat-ngram-size", "logit-bias", "banned-tokens", "stop", "num-beams"})
            if (given.given(option)) requests.given.insert(option);
        if (given.given("num-samples")) requests.given.insert("num-return-sequences");
    });
}

void note_sampling_options(const ParsedOptions& given, const Names& options, RequestDefaults& requests) {
    if (!requests.sampling.greedy()) return;
    for (const std::string& option : options)
        if (given.given(option)) requests.of_sampled_text.push_back("--" + option);
}

void refuse_no_sampling(RequestDefaults& requests) {
    requests.only_file_can_sample = requests.generation_config == GenerationConfigUse::all;
    if (requests.only_file_can_sample) return;
    if (const std::string why = why_no_sampling(requests); !why.empty()) throw BadOption(why);
}

std::string why_no_sampling(const RequestDefaults& requests, const char* what_is_greedy) {
    const Names& options = requests.of_sampled_text;
    return options.empty() || !requests.sampling.greedy()
               ? ""
               : fmt::format("{} {} no effect at temperature 0{}: give --temperature T above 0, or leave {} "
                             "out",
                             listed(options, "and"), options.size() == 1 ? "has" : "have", what_is_greedy,
                             options.size() == 1 ? "it" : "them");
}

void declare_chat_template(OptionSet& set, ModelOptions& models, RequestDefaults& requests) {
    ChatTemplateOptions& chat = models.chat_template;
    set.add("system", "TEXT", requests.system, "system message of conversations that bring none");
    set.add("chat-template", "FILE|NAME", chat.name,
            fmt::format("a .jinja file, or one of {}, in place of the target's own",
                        fmt::join(model::chat_template_names(), ", ")));
    set.add("chat-date", "DATE", chat.date,
            "today's date in templates that write one, such as 1 Nov 2026 [26 Jul 2024]");
    set.check([](const ParsedOptions& given) {
        for (const char* option : {"chat-template", "chat-date"})
            refuse_if(given.given(option) && given.text(option).empty(),
                      fmt::format("--{} is empty; give some text or leave it out", option));
    });
}

void declare_chat(OptionSet& set, ModelOptions& models, RequestDefaults& requests) {
    set.group("Chat");
    set.add("chat", requests.chat, "a prompt is a message of a user, put into the target's chat template");
    declare_chat_template(set, models, requests);
    set.check([&](const ParsedOptions& given) {
        models.chat_template.is_needed = requests.chat;
        given.refuse_without_effect("system", requests.chat, "without --chat");
        for (const char* option : {"chat-template", "chat-date"})
            given.refuse_without_effect(option, requests.chat || !given.given("prompt"),
                                        "on a --prompt without --chat");
    });
}

} // namespace entrodraft::launch
