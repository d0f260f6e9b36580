// Options of generate: see options.h.
#include "launch/cli/shared_options.h"
#include "spec/draft/drafter.h"

#include <algorithm>
#include <fmt/format.h>

namespace entrodraft::launch {

namespace {

// Reads "3/16": chunk 3, from 0, of 16.
InputShard input_shard(const GivenValue& shard) {
    const std::size_t slash = shard.text.find('/');
    refuse_if(slash == std::string::npos,
              "--shard " + shard.text + ": must be I/N, chunk I of N, from 0, such as 0/16");
    int index = 0, of = 1;
    read_value(shard.part(shard.text.substr(0, slash)), at_least(0), index);
    read_value(shard.part(shard.text.substr(slash + 1)), at_least(1), of);
    refuse_if(index >= of, fmt::format("--shard {}: chunks count from 0, so that the last of {} is {}/{}", shard.text,
                                       of, of - 1, of));
    return {index, of};
}

// Declares the constraints on all texts whose lines ask for nothing else.
void declare_constraint(OptionSet& set, GenerateOptions& options) {
    using model::grammar::Language;
    model::grammar::Source& constraint = options.requests.processing.constraint;
    set.add("json-schema", "FILE", "texts are JSON that is valid by the schema in this file",
            [&](const GivenValue& given) {
                constraint = {Language::json_schema, read_named_file(given)};
            });
    set.add("regex", "REGEX", "texts match this regular expression as a whole", [&](const GivenValue& given) {
        constraint = {Language::regex, given.text};
    });
    set.add("grammar", "FILE", "texts are as the rule root of this file says, a grammar as llama.cpp writes it (GBNF)",
            [&](const GivenValue& given) {
                constraint = {Language::grammar, read_named_file(given)};
            });
    set.check([&](const ParsedOptions& parsed) {
        const Names names = {"json-schema", "regex", "grammar"};
        refuse_if(std::ranges::count_if(names, [&](const std::string& name) { return parsed.given(name); }) > 1,
                  "--json-schema, --regex and --grammar do not go together; give one");
        if (!constraint.is_on()) return;
        for (const std::string& name : names)
            if (parsed.given(name)) options.models.needs_text = "--" + name;
        refuse_if(options.requests.ignore_eos,
                  options.models.needs_text + " does not go with --ignore-eos; leave one out");
        try {
            (void)model::grammar::compile(constraint);
        } catch (const model::grammar::BadGrammar& error) {
            throw BadOption(fmt::format("{}: {}", options.models.needs_text, error.what()));
        }
    });
}

void declare_text(OptionSet& set, GenerateOptions& options) {
    set.group("Text");
    set.add("prompt", "TEXT", options.prompt, "one prompt, its continuation streamed to stdout").also("p");
    set.add("input", "FILE|-", options.input,
            "JSON lines with \"id\" and \"prompt\", \"messages\" or \"prompt_token_ids\", or a batch file of OpenAI's "
            "API; -: stdin");
    const Names formats = {"auto", "lines", "openai"};
    set.add("format", "NAME",
            "of input and output: our own lines, or requests and responses of OpenAI's batch files: {}. auto: openai, "
            "if the first line has \"custom_id\" and \"body\"",
            [&options, formats](const GivenValue& given) {
                options.requests.format = static_cast<InputFormat>(index_among(formats, given));
            })
        .choosing(formats);
    set.add("output", "FILE|-", options.output, "JSON lines, in input order [-: stdout]").is_written = true;
    set.add("shard", "I/N", "only the I-th, from 0, of N contiguous chunks of --input: for job arrays",
            [&options](const GivenValue& given) { options.shard = input_shard(given); })
        .also("share");
    set.add("resume", options.resume, kResumeHelp);
    set.add(
        "resume-anyway", options.resume_anyway,
        "with --resume: go on also where settings that make the text, or lines that were served, have changed since "
        "(see OUTPUT.settings in docs/formats.md)");
    declare_new_tokens(set, options.requests.max_new_tokens).also("n max-tokens n-predict");
    declare_ends(set, options.requests);
    set.add(
        "num-samples", "N", options.requests.num_samples, {1, spec::kMaxSlots},
        "texts of a line, in \"sequences\": those of the line with the seeds from --seed on; its prompt is read once");
    set.add("logprobs", "N",
            "log-probabilities of each new token and of the N most likely ones, up to 20, by the target's "
            "own distribution, before penalties, temperature and filters [none]",
            [&options](const GivenValue& given) {
                read_value(given, {0, spec::Request::kMaxLogprobs}, options.requests.logprobs.emplace());
            });
    declare_constraint(set, options);
    set.add("check", options.check,
            "decode every greedy or gumbel text again without drafting, and compare; a difference: exit code 1");
    set.add_output("trace", options.trace,
                   "a JSON line for each round: tokens drafted, with what probabilities, number accepted",
                   kStdoutIsForText);
    set.add_output("timeline", options.timeline, "when each rank began each step, for trace viewers such as Perfetto",
                   kStdoutIsForText);
    set.add_output("summary", options.summary, "figures of the run as JSON: throughput, TTFT, TPOT, acceptance",
                   kStdoutIsForText);
    set.add("verbose", options.verbose, "all figures on stderr at the end, not two lines of them");
    set.add("quiet", options.quiet, kQuietHelp);
}

void declare_drafters(OptionSet& set, GenerateOptions& options) {
    DrafterChoice& drafter = options.speculation.drafter;
    set.group("Drafters");
    set.add("drafter", "LIST",
            fmt::format("{}. Of several, separated by commas, the first with anything to propose [model with --draft, "
                        "head with --head]",
                        proposals_of_drafters()))
        .choosing(spec::drafter_names(), ",")
        .detailed(drafter_values_help());
    declare_sources(set, options.speculation.sources);
    set.check([&](const ParsedOptions& given) {
        const std::size_t n_drafts = options.models.drafts.size();
        const bool has_head = !options.models.head.empty();
        const GivenValue list = {"drafter", given.text("drafter", default_drafter(options.models))};
        if (given.given("drafter") || !list.text.empty()) drafter = parse_drafter(list, ',', options.models);
        refuse_if(
            has_head && !drafter.has("head"),
            fmt::format("--drafter {} drafts without a head; leave out --head, or add head to the list", list.text));
        refuse_if(
            n_drafts > 0 && !drafter.has("model"),
            fmt::format("--drafter {} drafts without a model; leave out --draft, or add model to the list", list.text));
        check_sources(given, {drafter}, options.speculation.sources);
    });
}

// Plain decoding samples by Gumbel noise, so --acceptance gumbel changes nothing. The cap may be given alone: a plain
// run can have the same widest pass as a run that it is compared with.
void refuse_without_drafter(const ParsedOptions& given) {
    constexpr const char* kWhy = "without --draft DIR, --head DIR or --drafter NAME";
    given.refuse_without_effect("draft-placement", false, kWhy);
    for (const OptionGroup& group : groups_of<GenerateOptions>())
        for (const OptionSpec& option : group.options) {
            const bool has_effect = group.title != "Speculation" || option.name == "max-draft-tokens" ||
                                    (option.name == "acceptance" && given.text(option.name) == "gumbel");
            given.refuse_without_effect(option.name, has_effect, kWhy);
        }
}

void declare_beams(OptionSet& set, GenerateOptions& options) {
    spec::BeamOptions& beams = options.requests.beams;
    set.group("Beam search");
    const auto read = [&options, &beams](const GivenValue& given) {
        const Range range = {1, spec::BeamOptions::kMaxBeams};
        const Names whens = names_up_to(spec::EarlyStopping::never);
        read_value(given.head(), range, beams.num_beams);
        std::vector<ValueKey> keys = {number_key("length-penalty", beams.length_penalty, {-kNoLimit, kNoLimit}),
                                      {"early-stopping",
                                       [&beams, whens](const GivenValue& when) {
                                           beams.early_stopping =
                                               static_cast<spec::EarlyStopping>(index_among(whens, when));
                                       }},
                                      number_key("num-return-sequences", beams.num_return_sequences, range)};
        for (ValueKey& key : keys) // what is given goes before the target's generation_config.json
            key.read = [&options, name = key.name, read_it = key.read](const GivenValue& value) {
                options.requests.given.insert(name);
                read_it(value);
            };
        read_keys(given, keys);
        refuse_if(beams.num_beams == 1 && given.text != "1",
                  fmt::format("--num-beams {}: its values have no effect without K above 1", given.text));
        if (beams.num_beams == 1) beams.num_beams = 0;
    };
    set.add("num-beams", "K",
            fmt::format("beam search as transformers has it, with so many beams, up to {} [1: none]",
                        spec::BeamOptions::kMaxBeams),
            read)
        .detailed(fmt::format(
            "Values follow K, as in 4:length-penalty=0.8. Key length-penalty [{}]: a finished text's score is its "
            "log-probability / length^P. Key early-stopping [{}]: with K finished texts, false ends where no beam "
            "beats "
            "them at its present length, true at once, never where none can at any length. Key num-return-sequences "
            "[{}]: texts of a line, the best first, in \"sequences\"",
            beams.length_penalty, to_string(beams.early_stopping), beams.num_return_sequences));
}

void declare_speculation(OptionSet& set, GenerateOptions& options) {
    SpeculationOptions& speculation = options.speculation;
    spec::AcceptanceOptions& acceptance = speculation.acceptance;
    set.group("Speculation");
    set.check([&](const ParsedOptions& given) {
        if (speculation.drafter.kinds.empty()) refuse_without_drafter(given);
    });
    declare_stop_rules(set, speculation);
    set.add("acceptance", "WHICH", std::string(kAcceptanceHelp) + " [gumbel]",
            [&acceptance](const GivenValue& given) { acceptance = read_acceptance(given); })
        .choosing(names_up_to(spec::Acceptance::bild))
        .detailed(acceptance_values_help());
    set.add("tree", "SHAPE",
            fmt::format("drafts a tree, not a chain: {}; --max-draft-tokens is that of its tokens [of a fixed one "
                        "its own, else {}]",
                        spec::kTreeNames, kTreeTokens));
    set.check([&](const ParsedOptions& given) {
        read_stop_rules(given, speculation.drafter.has("model") ? options.models.drafts.size() : 1, speculation);
        for (const spec::StopRuleOptions& rule : speculation.stop_rules)
            if (const std::string why = why_biased(rule, acceptance.kind); !why.empty()) throw BadOption(why);
        read_tree(given, acceptance, speculation);
        read_own_trees(given, acceptance, speculation);
        const bool drafts_chains = !speculation.drafter.kinds.empty() && !speculation.drafter.drafts_trees();
        if (drafts_chains && !options.requests.beams.is_on())
            options.requests.stop_rules = {speculation.stop_rules.front().max_tokens, acceptance.kind};
    });
}

// Refuses, by name, options that do not go with beam search.
void check_beams(const ParsedOptions& given, GenerateOptions& options) {
    const spec::BeamOptions& beams = options.requests.beams;
    if (!beams.is_on()) return;
    if (const std::string why = spec::why_invalid(beams); !why.empty())
        throw BadOption(fmt::format("--num-beams {}: {}", given.text("num-beams"), why));
    refuse_if(!options.requests.sampling.greedy(),
              "--num-beams takes the most probable tokens, and --temperature above 0 samples; give one of them");
    for (const char* option : {"acceptance", "tree", "head", "stop", "trace", "num-samples", "logprobs", "json-schema",
                               "regex", "grammar", "draft-window", "draft-vocab"})
        refuse_if(given.given(option), fmt::format("--num-beams does not go with --{}; leave one out", option));
    const DrafterChoice& drafter = options.speculation.drafter;
    refuse_if(!drafter.kinds.empty() && !drafter.is_one_model(),
              "--num-beams is drafted for by one --draft, without other drafters");
    for (const OptionGroup& group : groups_of<GenerateOptions>())
        for (const OptionSpec& option : group.options) {
            const bool has_effect = group.title != "Speculation" || option.name == "costs";
            given.refuse_without_effect(option.name, has_effect, "with --num-beams, whose drafts end by expected gain");
        }
    refuse_if(given.given("draft-ahead"), "--num-beams drafts nothing ahead; leave out --draft-ahead");
    constexpr int kMaxRows = spec::Packet::kMaxDraftTokens;
    refuse_if(options.batch_size * beams.num_beams > kMaxRows,
              fmt::format("--num-beams times --batch-size are the rows of a pass: at most {}, not {}", kMaxRows,
                          options.batch_size * beams.num_beams));
    refuse_if(options.prompt && beams.num_return_sequences > 1,
              "num-return-sequences of --num-beams goes with --input; a --prompt streams one text");
    options.speculation.drafter.ahead.reset();
}

void declare_draft_vocabulary(OptionSet& set, GenerateOptions& options) {
    ModelOptions& models = options.models;
    models.draft_vocabulary = DraftVocabulary::automatic;
    set.add("draft-vocabulary", "HOW", models.draft_vocabulary, {"auto", "same", "intersection", "retokenize"},
            "a draft of another vocabulary: {}. intersection drafts tokens that both know; retokenize what the draft "
            "writes, in the target's tokens; same refuses it; auto: intersection");
}

void check_draft_vocabulary(const ParsedOptions& given, GenerateOptions& options) {
    ModelOptions& models = options.models;
    given.refuse_without_effect("draft-vocabulary", !models.drafts.empty(), "without --draft DIR");
    const bool retokenizes = models.draft_vocabulary == DraftVocabulary::retokenize;
    refuse_if(retokenizes && options.speculation.drafter.tree,
              "--draft-vocabulary retokenize drafts chains; leave out --tree");
    refuse_if(retokenizes && models.drafts.size() > 1,
              "--draft-vocabulary retokenize is for one --draft; leave out the others");
    if (options.requests.beams.num_beams > 0) models.needs_same_vocabulary = "--num-beams";
    const auto is_on = [](const auto& setting) { return setting.has_value(); };
    if (std::ranges::any_of(options.ahead, is_on)) models.needs_same_vocabulary = "--draft-ahead";
}

void declare_ranks(OptionSet& set, GenerateOptions& options) {
    DrafterChoice& drafter = options.speculation.drafter;
    set.group("Ranks");
    declare_placement(set, options.placement);
    set.add(
        "draft-ahead", "F",
        fmt::format("with dedicated, outcomes of a round that are drafted for during its verification, up to {}; of "
                    "--batch-size 1 and one model that drafts last [auto]. {}",
                    spec::AheadOptions::kMaxOutcomes, kAheadHelp),
        [&](const GivenValue& given) { options.ahead.push_back(read_ahead(given)); });
    set.add("replicas", "R", options.replicas, at_least(1),
            "groups of equal size that share the prompts; divides the ranks");
    set.add("batch-size", "N", options.batch_size, {1, spec::kMaxSlots},
            fmt::format("sequences decoded together, up to {}; each text is the one that it is alone [1; with "
                        "--num-samples as many]",
                        spec::kMaxSlots));
    declare_max_context(set, options.models.max_context).also("max-model-len");
    declare_timeout(set, options.models.collective_timeout_seconds);
    set.check([&](const ParsedOptions& given) {
        const int n_samples = options.requests.num_samples;
        if (n_samples > 1 && !given.given("batch-size")) options.batch_size = n_samples;
        drafter = with_ahead({drafter}, given, options.placement, options.batch_size, options.ahead,
                             "--draft-placement dedicated, --batch-size 1 and one --draft, which drafts last")
                      .front();
    });
}

void check_generate(const ParsedOptions& given, GenerateOptions& options) {
    const spec::AcceptanceOptions& acceptance = options.speculation.acceptance;
    if (!acceptance.is_lossy()) note_sampling_options(given, {"acceptance"}, options.requests);
    if (options.prompt || options.requests.beams.is_on()) refuse_no_sampling(options.requests);
    refuse_if(options.prompt && given.given("format"), "--format goes with --input; a --prompt streams its text");
    refuse_if(options.quiet && options.verbose, "--quiet and --verbose exclude each other; give one");
    refuse_if(options.shard && (!given.given("input") || options.input == "-"),
              "--shard needs --input FILE: what to take a chunk of");
    refuse_if(given.given("prompt") == given.given("input"),
              given.given("prompt") ? "--prompt and --input exclude each other; give one"
                                    : "nothing to decode: give --prompt TEXT or --input FILE");
    refuse_if(options.prompt && options.prompt->empty(), "--prompt is empty; give some text");
    refuse_if(options.prompt && given.given("output"), "--output goes with --input; a --prompt streams to stdout");
    refuse_if(options.prompt && options.requests.num_samples > 1,
              "--num-samples goes with --input; a --prompt streams one text");
    refuse_if(options.prompt && options.requests.logprobs, "--logprobs goes with --input; a --prompt streams its text");
    refuse_if(options.requests.num_samples > 1 && options.requests.sampling.greedy() &&
                  options.requests.generation_config != GenerationConfigUse::all,
              "--num-samples needs --temperature above 0: greedy texts are all the same");
    refuse_if(options.requests.num_samples > 1 && options.check,
              "--num-samples does not go with --check; leave one out");
    refuse_if(options.prompt && options.replicas > 1,
              "--replicas shares out the prompts of --input; one --prompt needs one replica");
    refuse_if(options.prompt && options.batch_size > 1,
              "--batch-size decodes prompts of --input together; one --prompt is decoded alone");
    refuse_if(options.resume && (options.output == "-" || options.prompt),
              "--resume needs --output FILE: what to go on with");
    given.refuse_without_effect("resume-anyway", options.resume, "without --resume");
    options.models.takes_digests = !options.prompt && options.output != "-";
    if (!options.check) return;
    refuse_if(options.speculation.drafter.kinds.empty(),
              "--check compares with decoding without a draft; it needs --draft DIR or --drafter NAME");
    refuse_if(!options.requests.sampling.greedy() && acceptance.kind != spec::Acceptance::gumbel,
              "--check compares texts that a draft must not change; with --acceptance " + to_string(acceptance.kind) +
                  " it needs --temperature 0");
    refuse_if(acceptance.is_lossy(),
              "--check compares with the target's own text, which a lossy acceptance is not after");
}

// Declares the models, what drafts for them, and their device.
void declare_pair(OptionSet& set, GenerateOptions& options) {
    options.requests.has_results = true;
    declare_models(set, options.models,
                   "smaller checkpoint that proposes; several, the largest first: a cascade, each drafts for the one "
                   "before it; self, with a --draft-window, or self:layers=N: the target, or its first N layers; none: "
                   "plain decoding");
    declare_draft_vocabulary(set, options);
    declare_head(set, options.models);
    declare_draft_window(set, options.models);
    declare_draft_vocab(set, options.models);
    declare_drafters(set, options);
}

// Checks that do not depend on where requests come from.
void check_decoding(const ParsedOptions& given, GenerateOptions& options) {
    options.given = given;
    if (given.given("temperature")) options.requests.body_temperature = options.requests.sampling.temperature;
    if (given.given("max-new-tokens")) options.requests.body_new_tokens = options.requests.max_new_tokens;
    check_draft_vocabulary(given, options);
    const int rows = options.speculation.drafter.own_tree_tokens() + 1;
    refuse_if(options.batch_size * rows > model::Decoder::kMaxRows,
              fmt::format("--drafter lookahead makes passes of up to {} rows a sequence, and a pass has {}: lower "
                          "--batch-size, or window, ngram or candidates of lookahead",
                          rows, model::Decoder::kMaxRows));
}

} // namespace

void declare(OptionSet& set, GenerateOptions& options) {
    declare_pair(set, options);
    declare_text(set, options);
    declare_chat(set, options.models, options.requests);
    declare_sampling(set, options.requests);
    declare_beams(set, options);
    declare_speculation(set, options);
    declare_ranks(set, options);
    set.show_first({"help",    "config",    "target",     "draft",     "head",   "device",      "dtype",
                    "threads", "drafter",   "prompt",     "input",     "output", "resume",      "max-new-tokens",
                    "stop",    "check",     "summary",    "quiet",     "chat",   "temperature", "top-p",
                    "seed",    "stop-rule", "acceptance", "batch-size"});
    set.check([&options](const ParsedOptions& given) {
        check_decoding(given, options);
        check_beams(given, options);
        check_generate(given, options);
    });
}

void declare(OptionSet& set, ServeOptions& options) {
    options.requests.format = InputFormat::openai;
    options.batch_size = 8;
    declare_pair(set, options);
    set.group("Serve");
    set.add("host", "ADDRESS", options.address,
            "address that clients reach; any other than 127.0.0.1 and ::1 needs --api-key-file [127.0.0.1]");
    set.add("port", "N", options.port, {0, 65535}, "port that clients reach; 0: a free one, which stderr names");
    set.add("api-key-file", "FILE", options.api_key_file,
            "keys, a line each; clients give one as Authorization: Bearer KEY [none is asked for]");
    set.add("served-model-name", "NAME", options.served_name, "model that clients ask for [the last part of --target]");
    set.add("max-waiting", "N", options.max_waiting, at_least(0),
            "requests that wait for a free place; more are refused with status 429");
    declare_new_tokens(set, options.requests.max_new_tokens).help = "new tokens of a text that says nothing [16 of a "
                                                                    "completion, the rest of the context of a chat]";
    declare_chat_template(set, options.models, options.requests);
    set.add("quiet", options.quiet, "nothing on stderr but failures");
    declare_sampling(set, options.requests);
    declare_speculation(set, options);
    declare_ranks(set, options);
    set.check([&options](const ParsedOptions& given) {
        check_decoding(given, options);
        options.models.needs_text = "entrodraft serve";
        refuse_if(options.address != "127.0.0.1" && options.address != "::1" && options.api_key_file.empty(),
                  fmt::format("--host {}: others can reach it, so it needs --api-key-file FILE", options.address));
    });
}

} // namespace entrodraft::launch
