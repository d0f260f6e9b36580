// The options of every command, declared once: their names, what stands for a value, and what --help says.
//
// Data only; options.cpp checks the values.
#include "launch/cli/choices.h"
#include "launch/cli/option_groups.h"
#include "launch/cli/options.h"
#include "launch/cli/stop_rule_options.h"
#include "spec/draft/drafter_type.h"

#include <string>

#include <stdexcept>
#include <string>

namespace entrodraft::launch {

namespace {

const OptionGroup kGeneral = {"General",
                              {{"help", "", "show this and exit; -h likewise"},
                               {"config", "FILE", "read 'option = value' lines; the command line goes first"}}};

constexpr const char* kTargetAliases = "m model";
constexpr const char* kDraftAliases = "md draft-model model-draft";
constexpr const char* kPlacementHelp =
    "{}: the draft on the first rank, which also holds a shard of the target; on a rank of its own; or sharded across "
    "ranks like the target [colocated]";
constexpr const char* kThreadsHelp =
    "threads of each rank [OMP_NUM_THREADS or SLURM_CPUS_PER_TASK, else cores / local ranks]";

const OptionGroup kModels = {
    "Models",
    {with_aliases({"target", "DIR",
                   "checkpoint whose text is wanted: a directory, or the name of a model in the Hugging Face cache"},
                  kTargetAliases),
     with_aliases(
         {"draft", "DIR",
          "smaller checkpoint with the same vocabulary that proposes; several, the largest first: a cascade, each "
          "drafts for the one before it; none: plain decoding",
          true},
         kDraftAliases),
     choosing({"device", "DEVICE", "what computes: {}; gpu is cuda [auto: cpu]"}, device_choices),
     choosing({"dtype", "TYPE",
               "the weights' type in memory: {} (GPUs); also fp32, bf16, fp16, half, fp8 [auto: the file's]"},
              dtype_choices),
     choosing({"draft-dtype", "TYPE", "the same for the draft [as --dtype]"}, dtype_choices),
     {"threads", "N", kThreadsHelp}}};

// "model: --draft; without a model ngram, suffix: what followed the text's end before; ...": neighbours that propose
// the same are named together.
std::string drafters_and_what_they_propose() {
    std::string text, last_help;
    for (const spec::DrafterType& drafter : spec::all_drafters()) {
        const std::string help = *drafter.help ? std::string(": ") + drafter.help : "";
        if (!help.empty() && help == last_help)
            text.insert(text.size() - help.size(), ", " + drafter.name);
        else
            text += (text.empty()                  ? ""
                     : text.find(';') == text.npos ? "; without a model "
                                                   : "; ") +
                    drafter.name + help;
        last_help = help;
    }
    return text;
}

std::string listed_drafters() {
    std::string text;
    for (const std::string& name : spec::drafter_names())
        text += name + (name == "model" ? ", draft2 (the second --draft alone), " : ", ");
    return text;
}

const OptionGroup& drafters_group() {
    static const std::string help =
        drafters_and_what_they_propose() +
        "; of several, separated by commas, the first with anything to propose [model, with --draft]";
    static const OptionGroup group = {
        "Drafters",
        {choosing({"drafter", "LIST", help.c_str()}, drafter_choices, ","),
         {"ngram-max", "N", "most tokens that ngram matches [4]"},
         {"ngram-min", "N", "least tokens that ngram and suffix match [1; of several drafters 3]"},
         choosing({"ngram-match", "WHICH", "{}: of several matches of ngram [latest]"}, ngram_match_choices),
         {"ngram-full", "N", "only matches of ngram that N tokens follow; at most these N are drafted [any]"},
         {"lookup-corpus", "FILE", "UTF-8 text in which suffix looks as well"},
         {"draft-table", "FILE", "of bigram and unigram, made by build-table with the target's tokenizer"}}};
    return group;
}

const OptionGroup kRanks = {
    "Ranks",
    {choosing({"draft-placement", "WHERE", kPlacementHelp}, placement_choices),
     {"draft-ahead", "F",
      "with dedicated, outcomes of a round that are drafted for during its verification, up to 32; 0: none; of "
      "--batch-size 1 and one model that drafts last [as many as fit]"},
     {"draft-ahead-passes", "N",
      "hidden draft passes of a round, exactly, however long the target takes: for study [as many as fit]"},
     {"replicas", "R", "groups of equal size that share the prompts; divides the ranks [1]"},
     {"batch-size", "N", "sequences decoded together, up to 128; each text is the one that it is alone [1]"},
     with_aliases({"max-context", "N", "positions kept for a sequence, prompt and text [all that the target has]"},
                  "max-model-len"),
     {"collective-timeout", "SECONDS",
      "how long a rank waits for the others, or works on one step, before the job ends [300]"}}};

const OptionGroup kText = {
    "Text",
    {with_aliases({"prompt", "TEXT", "one prompt, its continuation streamed to stdout"}, "p"),
     {"input", "FILE|-", "JSON lines with \"id\" and \"prompt\", \"messages\" or \"prompt_token_ids\"; -: stdin"},
     {"output", "FILE|-", "JSON lines, in input order [-: stdout]"},
     with_aliases({"shard", "I/N", "only the I-th, from 0, of N contiguous chunks of --input: for job arrays"},
                  "share"),
     {"resume", "", "go on where --output FILE ends, with the same input; a file that does not exist is begun"},
     with_aliases({"max-new-tokens", "N", "new tokens of a text, at most [128]"}, "n max-tokens n-predict"),
     {"ignore-eos", "", "do not stop at the end-of-text token"},
     {"stop", "STRING", "end the text before this string, token_ids after the token that completed it; repeatable",
      true},
     {"check", "", "decode every greedy or gumbel text again without drafting, and compare; a difference: exit code 1"},
     {"trace", "FILE", "a JSON line for each round: tokens drafted, with what probabilities, number accepted"},
     {"timeline", "FILE", "when each rank began each step, for trace viewers such as Perfetto"},
     {"summary", "FILE", "figures of the run as JSON: throughput, TTFT, TPOT, acceptance"},
     {"verbose", "", "all figures on stderr at the end, not two lines of them"},
     {"quiet", "", "no progress, no warnings, no summary"}}};

const OptionGroup kChat = {
    "Chat",
    {{"chat", "", "a prompt is a message of a user, put into the target's chat template"},
     {"system", "TEXT", "system message of conversations that bring none; with --chat"},
     choosing({"chat-template", "NAME", "a named template in place of the target's own"}, chat_template_choices),
     {"chat-date", "TEXT", "today's date in templates that write one [26 Jul 2024]"}}};

const OptionGroup kSampling = {
    "Sampling",
    {{"temperature", "T", "0 is greedy [0]"},
     {"top-k", "K", "only the K most likely tokens [0: off]"},
     {"top-p", "P", "only the most likely tokens that together have probability P [1: off]"},
     {"min-p", "P", "only tokens with at least P times the probability of the most likely one [0: off]"},
     {"seed", "N",
      "of sampled text: the same seed, the same text; with --acceptance rejection or block only where the draft is the "
      "same, see --costs [0]"},
     {"repetition-penalty", "R", "of tokens in prompt and text, as in transformers [1: off]"},
     {"presence-penalty", "A", "of tokens in the text, as in vLLM, from -2 to 2 [0: off]"},
     {"frequency-penalty", "F", "the same, for each time they occur [0: off]"},
     {"no-repeat-ngram-size", "N", "no N tokens in a row occur twice in prompt and text [0: off]"},
     {"logit-bias", "TOKEN:BIAS", "added to a token's logit; repeatable", true},
     {"banned-tokens", "ID,ID", "tokens that are never emitted"},
     {"min-new-tokens", "N", "no end of text before so many new tokens [0]"}}};

const OptionGroup& speculation_group() {
    static const std::string unit_help = "{}: of " + options_in_entropy_units() + " [nats]";
    static const std::string cap_help =
        "most drafted tokens a round, 1 to 127 [15; with " + options_without_a_cap() + " 127]";
    static const std::string costs_help =
        "of " + rules_that_weigh_costs() +
        ": costs of passes from bench latency, for repeatable runs [measured in the run]";
    static const OptionGroup group = joined(
        "Speculation",
        {{choosing({"stop-rule", "RULE",
                    "when drafting stops: {}; with values as in static:2.25; repeated, as its options below: of each "
                    "level of a cascade [expected-gain]",
                    true},
                   stop_rule_choices)},
         stop_rule_parameter_options(),
         {choosing({"entropy-unit", "UNIT", unit_help.c_str()}, entropy_unit_choices),
          choosing({"entropy-of", "WHICH",
                    "raw, adjusted (by penalties, temperature and filters): the distribution that rules look at [raw]"},
                   entropy_of_choices),
          with_aliases({"max-draft-tokens", "N", cap_help.c_str(), true}, "draft-max"),
          with_aliases({"min-draft-tokens", "N", "drafted tokens before which no rule fires [1]", true}, "draft-min"),
          {"drop-stop-token", "", "drop the token that fired a threshold rule (for study; slower)"},
          {"costs", "FILE", costs_help.c_str(), true},
          choosing({"acceptance", "WHICH",
                    "gumbel: sampled text that no draft changes; rejection, block: more tokens accepted, but another "
                    "text at the same seed; typical: LOSSY, not the target's own text [gumbel; with --lenience below 1 "
                    "rejection]"},
                   acceptance_choices),
          {"lenience", "L", "of rejection, in (0, 1]; below 1 the text is no longer the target's [1]"},
          {"typical-epsilon", "E", "of typical: most probability that is asked of a token [0.09]"},
          {"typical-delta", "D", "of typical: that share of exp(-entropy) [0.3]"}}});
    return group;
}

} // namespace

const char* help_of_generate(const std::string& name) {
    for (const OptionGroup& group : generate_groups())
        for (const OptionSpec& option : group.options)
            if (option.name == name) return option.help;
    throw std::logic_error("generate has no option --" + name);
}

const OptionGroup& general_group() {
    return kGeneral;
}
const OptionGroup& sampling_group() {
    return kSampling;
}
const OptionGroup& chat_group() {
    return kChat;
}

std::vector<OptionSpec> bench_model_options(const char* draft_help) {
    return {with_aliases({"target", "DIR", help_of_generate("target")}, kTargetAliases),
            with_aliases({"draft", "DIR", draft_help, true}, kDraftAliases),
            choosing({"device", "DEVICE", help_of_generate("device")}, device_choices),
            choosing({"dtype", "TYPE", help_of_generate("dtype")}, dtype_choices),
            choosing({"draft-dtype", "TYPE", help_of_generate("draft-dtype")}, dtype_choices),
            {"threads", "N", kThreadsHelp},
            {"max-context", "N", help_of_generate("max-context")},
            {"collective-timeout", "SECONDS", help_of_generate("collective-timeout")}};
}

const std::vector<OptionSpec>& placement_options() {
    static const std::vector<OptionSpec> options = {
        choosing({"draft-placement", "WHERE", kPlacementHelp}, placement_choices)};
    return options;
}

const std::vector<OptionSpec>& bench_prompt_options() {
    static const std::vector<OptionSpec> options = {{"input", "FILE|-", "JSON lines of prompts, as for generate"},
                                                    {"prompts", "N", "only the first N of them [all]"},
                                                    {"max-new-tokens", "N", help_of_generate("max-new-tokens")},
                                                    {"temperatures", "T,T", "each measured by itself [0,1]"},
                                                    {"seed", "N", help_of_generate("seed")}};
    return options;
}

const std::vector<OptionSpec>& drafter_source_options() {
    static const std::vector<OptionSpec> options = {
        {"ngram-max", "N", help_of_generate("ngram-max")},
        {"ngram-min", "N", help_of_generate("ngram-min")},
        choosing({"ngram-match", "WHICH", help_of_generate("ngram-match")}, ngram_match_choices),
        {"ngram-full", "N", help_of_generate("ngram-full")},
        {"lookup-corpus", "FILE", help_of_generate("lookup-corpus")},
        {"draft-table", "FILE", help_of_generate("draft-table")}};
    return options;
}

const std::vector<OptionSpec>& bench_result_options() {
    static const std::vector<OptionSpec> options = {{"output", "FILE", "write the results as JSON"},
                                                    {"json", "", "results as JSON on stdout, not as tables"},
                                                    {"quiet", "", "no progress"}};
    return options;
}

OptionGroup joined(const char* title, std::initializer_list<std::vector<OptionSpec>> parts) {
    OptionGroup group{title, {}};
    for (const std::vector<OptionSpec>& part : parts)
        group.options.insert(group.options.end(), part.begin(), part.end());
    return group;
}

const std::vector<OptionGroup>& generate_groups() {
    static const std::vector<OptionGroup> groups = {kGeneral, kModels,   drafters_group(),    kText,
                                                    kChat,    kSampling, speculation_group(), kRanks};
    return groups;
}

const std::vector<OptionGroup>& tokenize_groups() {
    static const std::vector<OptionGroup> groups = {
        kGeneral,
        {"Tokenize",
         {with_aliases({"model", "DIR", "directory with the tokenizer, or a name in the Hugging Face cache"}, "m"),
          {"text", "TEXT", "one text; its ids go to stdout"},
          {"input", "FILE|-", "JSON lines {\"id\", \"text\"}, or {\"id\", \"token_ids\"} with --decode"},
          {"decode", "", "from ids to text"},
          {"add-special-tokens", "", "apply the tokenizer's template when encoding"},
          {"skip-special-tokens", "", "leave special tokens out when decoding"}}}};
    return groups;
}

const std::vector<OptionGroup>& build_table_groups() {
    static const std::vector<OptionGroup> groups = {
        kGeneral,
        {"Build a table",
         {with_aliases({"model", "DIR", "directory with the tokenizer, or a name in the Hugging Face cache"}, "m"),
          {"input", "FILE|-", "UTF-8 text to count: the more it is like what will be generated, the better"},
          {"output", "FILE", "the table; a file of that name is replaced once the new one is whole"},
          {"quiet", "", "no progress and no summary"}}}};
    return groups;
}

const std::vector<OptionGroup>& latency_groups() {
    static const std::vector<OptionGroup> groups = {
        kGeneral,
        joined("Models", {bench_model_options("checkpoint of the draft"), placement_options()}),
        {"Latency",
         {{"rows", "R", "time passes of 1 to R rows, up to 128 [16]"},
          {"context", "N", "tokens in the cache before each pass [64]"},
          {"repetitions", "N", "passes of each kind; collectives are timed five times as often [200]"},
          {"shards", "N,N",
           "on one rank: time a shard of each N ranks by itself too, for bench/scaling_model.py [none]"},
          {"output", "FILE", "write the costs file"},
          {"json", "", "results as JSON on stdout, not as tables"}}}};
    return groups;
}

const std::vector<OptionGroup>& compare_groups() {
    static const std::string rules_help =
        stop_rule_forms(", ", ", ") + ", all of these, none; of a cascade RULE/RULE; plain decoding always runs [all]";
    static const std::string drafters_help = listed_drafters() + "or several in turn as in ngram+model [model]";
    static const std::vector<OptionGroup> groups = {
        kGeneral,
        joined("Models",
               {bench_model_options("checkpoint of the draft; several: a cascade, the largest first, unless --drafters "
                                    "names one alone"),
                placement_options()}),
        joined(
            "Compare",
            {bench_prompt_options(),
             {choosing({"drafters", "LIST", drafters_help.c_str()}, drafter_choices, ",+"),
              choosing({"rules", "RULE,RULE", rules_help.c_str()}, compared_rule_choices, ",/"),
              choosing({"acceptances", "LIST", "{}; greedy text knows no difference [gumbel]"}, acceptance_choices,
                       ","),
              choosing({"entropy-of", "WHICH", "{}: the distribution that rules look at [raw]"}, entropy_of_choices),
              {"lenience", "L", help_of_generate("lenience")},
              {"max-draft-tokens", "N", "most drafted tokens a round, 1 to 127 [15]"},
              {"min-draft-tokens", "N", help_of_generate("min-draft-tokens")},
              {"drop-stop-token", "", help_of_generate("drop-stop-token")},
              {"draft-ahead", "F,F", "with dedicated: each number of outcomes drafted for, 0: none [as many as fit]"},
              {"draft-ahead-passes", "N", "with dedicated: hidden draft passes a round, exactly [as many as fit]"},
              {"tune", "", "try a grid of settings of every rule and show the best of each"},
              {"synthetic-acceptance", "A",
               "drafted tokens are accepted with this probability, whatever they are: whole rounds of random weights"},
              {"costs", "FILE", "costs of passes, as bench latency writes them; of each level [measured first]", true}},
             drafter_source_options(),
             bench_result_options()})};
    return groups;
}

const std::vector<OptionGroup>& doctor_groups() {
    static const std::vector<OptionGroup> groups = {
        kGeneral,
        {"Doctor",
         {positional(
              with_aliases({"target", "DIR",
                            "checkpoint that is to be sharded across the ranks: its files and heads are checked too"},
                           kTargetAliases)),
          with_aliases({"draft", "DIR", "checkpoint that is to draft for it", true}, kDraftAliases),
          {"threads", "N", kThreadsHelp},
          {"repetitions", "N", "of every collective [1000]"},
          {"collective-timeout", "SECONDS", help_of_generate("collective-timeout")},
          {"json", "", "all of it as JSON on stdout"}}}};
    return groups;
}

const std::vector<OptionGroup>& inspect_groups() {
    static const std::vector<OptionGroup> groups = {
        kGeneral,
        {"Inspect",
         {positional(with_aliases(
              {"model", "DIR", "checkpoint to look at: a directory, or a name in the Hugging Face cache"}, "m")),
          with_aliases({"draft", "DIR", "checkpoint that is to draft for it: whether it can, and its share of memory"},
                       kDraftAliases),
          {"json", "", "all of it as JSON on stdout"}}},
        {"What each rank would hold",
         {with_aliases({"tensor-parallel", "N", "ranks that the model is sharded across [1]"},
                       "tp tensor-parallel-size"),
          choosing({"dtype", "TYPE", "in memory: {} [auto: the file's]"}, cpu_dtype_choices),
          choosing({"draft-dtype", "TYPE", "the same for the draft [as --dtype]"}, cpu_dtype_choices),
          {"batch-size", "B", "sequences decoded together [1]"},
          {"length", "L", "positions of each sequence, prompt included [the model's context]"},
          {"threads", "N", "threads of each rank; each has buffers of its own [1]"},
          {"memory", "SIZE", "of each rank: 80GiB, 24GB; says whether it fits, and up to what length"}}}};
    return groups;
}

} // namespace entrodraft::launch
