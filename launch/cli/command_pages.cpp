// The text of --help without the options: see command_pages.h.
#include "launch/cli/command_pages.h"

#include "launch/cli/options.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace entrodraft::launch {

std::string version_text() {
    return "entrodraft " ENTRODRAFT_VERSION;
}

namespace {

struct Term {
    const char* name;
    const char* meaning;
};

// Arguments that can replace a command.
constexpr Term kOtherCommands[] = {
    {"help COMMAND", "the same as COMMAND --help; help --json: all commands and their options as JSON"}};

constexpr Term kExitCodes[] = {
    {"0", "done; everything served"},
    {"1", "failure: a file that cannot be used, a text that differs from plain decoding, a rank that died or did "
          "not answer"},
    {"2", "bad options; also a model that is not there, too little memory, ranks that cannot be laid out as asked"},
    {"3", "some lines of the input had errors, all others are served (generate, record, tokenize)"},
    {"75", "stopped by a signal after a clean flush: run again with --resume (generate, record, distill)"}};

} // namespace

// NOLINTNEXTLINE(readability-function-size): a table
const std::vector<CommandPage>& command_pages() {
    static const std::vector<CommandPage> pages = {
        {"generate",
         "decode one --prompt, or a JSONL file of them",
         {"entrodraft generate --target DIR [--draft DIR] (--prompt TEXT | --input FILE) [options]"},
         R"(Without --draft and --drafter the target decodes alone. Greedy text and the text of --acceptance
gumbel are the same with and without a draft; rejection and block keep the target's distribution.
Logits: biases, penalties and banned tokens, then temperature, top-k, top-p, min-p.
Repeated --stop-rule, --max-draft-tokens and --costs go to the levels of a cascade in order. The last
value counts for later levels, too.
)",
         {"entrodraft generate --target model/demo/target --draft model/demo/draft --prompt \"It was a dark night\"",
          "mpirun -n 2 --bind-to none entrodraft generate --target model/demo/target --draft model/demo/draft "
          "--input prompts.jsonl --output results.jsonl --summary summary.json",
          "entrodraft generate --target DIR --draft DIR --stop-rule static:2.25 --temperature 1 "
          "--seed 3 --prompt \"Once upon a time\""},
         groups_of<GenerateOptions>,
         run_generate},
        {"serve",
         "answer HTTP requests in OpenAI's dialect",
         {"entrodraft serve --target DIR [--draft DIR] [--port N] [options]"},
         R"(The first rank serves /v1/chat/completions, /v1/completions, /v1/models, /tokenize, /detokenize,
/tokenizer_info, /health, /version and /metrics. The port takes connections when all ranks are ready.
Greedy text and the text of --acceptance gumbel are those of generate --prompt with the request's seed,
whatever else is under way. SIGUSR1 and SIGTERM to the first rank let it finish what it has taken, and
end it with code 0. TLS is left to a proxy.
)",
         {"entrodraft serve --target model/demo/target --draft model/demo/draft --port 8000",
          "mpirun -n 2 --bind-to none entrodraft serve --target DIR --draft DIR --batch-size 8",
          "entrodraft serve --target DIR --host 0.0.0.0 --api-key-file keys.txt"},
         groups_of<ServeOptions>,
         run_serve},
        {"record",
         "decode prompts once and keep what every stop rule could have seen",
         {"entrodraft record --target DIR --draft DIR --input FILE|- --output FILE [options]"},
         R"(Texts are greedy, or at a --temperature sampled with the acceptance gumbel: both are the same
whatever is drafted.
Before the first text, what rounds cost is measured for at most 15 s a draft, and passes of trees
for at most 15 s more. With --costs only collectives are measured, within a second.
)",
         {"entrodraft record --target model/demo/target --draft model/demo/draft --input model/demo/prompts.jsonl "
          "--prompts 8 --output pair.edr",
          "entrodraft record --target DIR --draft LARGE --draft SMALL --input prompts.jsonl --output drafts.edr",
          "mpirun -n 4 entrodraft record --target DIR --draft DIR --temperature 1 --input prompts.jsonl --output "
          "sampled.edr --resume"},
         groups_of<RecordOptions>,
         run_record},
        {"simulate",
         "replay any stop rules over a recording: exact counts, times from costs",
         {"entrodraft simulate FILE... [--rules LIST] [options]"},
         R"(Counts of passes are those of real runs with these rules (one sequence at a time, one replica,
nothing drafted ahead, expected-gain with fixed costs). Times are these counts times costs;
speed-ups are over plain decoding, which is always among the settings.
)",
         {"entrodraft simulate pair.edr",
          "entrodraft simulate pair.edr --rules static:1..6..0.25,constant:1..8..1,oracle --best",
          "entrodraft simulate pair.edr --t-draft 8 --t-target 51 --output simulated.json"},
         groups_of<SimulateOptions>,
         run_simulate,
         true},
        {"tune",
         "the best setting of every stop rule, confirmed by real runs, as a --config file",
         {"entrodraft tune --target DIR --draft DIR --input FILE|- --output FILE [options]",
          "entrodraft generate --config FILE ... uses what it writes"},
         R"(It records every other prompt, searches settings of all rules on that recording, and runs the best
setting of each rule on the other prompts. The winner is the fastest by simulation among those that
the runs do not tell from the fastest (95 %). Where none beats plain decoding, the file says so and
has expected-gain. At a --temperature all is measured with the acceptance gumbel; the temperature
itself is not in the file.
Before the first text, what rounds cost is measured for at most 15 s, and wider passes of trees or
heads for at most 15 s more, unless --costs has it.
)",
         {"entrodraft tune --target model/demo/target --draft model/demo/draft --input model/demo/prompts.jsonl "
          "--prompts 16 --output best.conf",
          "mpirun -n 2 --bind-to none entrodraft tune --target DIR --draft DIR --input prompts.jsonl --output "
          "best.conf "
          "--report tune.json",
          "entrodraft generate --config best.conf --target DIR --draft DIR --input prompts.jsonl --output "
          "results.jsonl"},
         groups_of<TuneOptions>,
         run_tune},
        {"distill",
         "train a draft on what the target has at each place of its texts",
         {"entrodraft distill --target DIR (--draft DIR | --layers N) --input FILE|- --output DIR [options]"},
         R"(The target continues the prompts, reads its texts again and keeps its most likely tokens of each
place. The draft learns these by AdamW, on all ranks; what share of drafted tokens is accepted is
measured on held-out prompts: in sampled texts sum min(p, q), in greedy ones the agreement of the
most likely tokens. --output holds the best draft so far, a report (distill.json), and in
training/ the texts and what --resume goes on from: on one rank to the same weights bit for bit.
Needs a build with -DENTRODRAFT_TORCH=ON.
)",
         {"entrodraft distill --target model/demo/target --draft model/demo/draft --input prompts.jsonl --output draft",
          "mpirun -n 2 --bind-to none entrodraft distill --target DIR --layers 2 --input prompts.jsonl --output draft",
          "entrodraft distill --target DIR --draft DIR --texts draft/training/texts.safetensors --loss jsd --output "
          "jsd"},
         groups_of<DistillOptions>,
         run_distill},
        {"tokenize",
         "text to token ids and back",
         {"entrodraft tokenize --model DIR (--text TEXT | --input FILE [--decode]) [options]"},
         R"(generate encodes a prompt as with --add-special-tokens. On a terminal --text shows a line for each
token.
)",
         {"entrodraft tokenize --model model/demo/target --text \"It was a dark night\"",
          "entrodraft tokenize --model DIR --input texts.jsonl --add-special-tokens",
          "entrodraft tokenize --model DIR --input ids.jsonl --decode"},
         groups_of<TokenizeOptions>,
         run_tokenize,
         true},
        {"build-table",
         "count a text's tokens and pairs, for --drafter bigram and unigram",
         {"entrodraft build-table --model DIR --input FILE|- --output FILE"},
         "--model is the target's: a target with another vocabulary refuses the table.\n",
         {"entrodraft build-table --model model/demo/target --input texts.txt --output pairs.table",
          "entrodraft generate --target model/demo/target --drafter bigram --draft-table pairs.table --prompt "
          "\"It was\""},
         groups_of<BuildTableOptions>,
         run_build_table,
         true},
        {"build-corpus",
         "index texts and results of earlier runs, for --drafter suffix",
         {"entrodraft build-corpus --model DIR [--input FILE|-] [--results FILE] --output FILE"},
         R"(Both may be given several times. --model is the target's: a target with another vocabulary refuses
the file. It takes 8 bytes a token, and 20 in memory while it is made. Drafts do not go on from one text
to the next.
)",
         {"entrodraft build-corpus --model DIR --results monday.jsonl --output answers.corpus",
          "entrodraft build-corpus --model DIR --input answers.corpus --results tuesday.jsonl --output both.corpus",
          "entrodraft generate --target DIR --drafter suffix --lookup-corpus both.corpus --input prompts.jsonl"},
         groups_of<BuildCorpusOptions>,
         run_build_corpus,
         true},
        {"inspect",
         "what a checkpoint is and what each rank would hold; loads nothing",
         {"entrodraft inspect DIR [--draft DIR] [--tensor-parallel N] [--memory SIZE] [options]"},
         R"(Reads config.json, the tokenizer and headers of weights. A draft that does not fit, or too little
memory, is an answer: exit code 0.
)",
         {"entrodraft inspect model/demo/target",
          "entrodraft inspect DIR --draft DIR --tensor-parallel 8 --memory 80GiB --dtype int8",
          "entrodraft inspect DIR --json"},
         groups_of<InspectOptions>,
         run_inspect,
         true},
        {"doctor",
         "whether the ranks find each other, their cores and their files; times every collective",
         {"mpirun -n N entrodraft doctor [DIR] [options]"},
         R"(All ranks must be of one build and see the same files: weights are compared by digests, read once
for each copy. The cores are watched for a second at least. What gets a "warning" works, slowly.
Exit codes: 0 it will work, 1 it will not, 2 bad options.
)",
         {"mpirun -n 2 --bind-to none entrodraft doctor",
          "mpirun -n 2 --bind-to none entrodraft doctor model/demo/target --draft model/demo/draft",
          "srun --mpi=pmix entrodraft doctor DIR --repetitions 100"},
         groups_of<DoctorOptions>,
         run_doctor},
        {"bench latency",
         "time passes and collectives; write the costs file",
         {"entrodraft bench latency --target DIR [--draft DIR] [options]"},
         R"(Passes of all row counts take turns; each target pass is followed by three draft passes, of which
the first, whose weights are out of the caches, is timed apart. All figures are of the slowest rank.
Without --repetitions passes are timed for at most 30 s a context, and collectives for at most 10 s.
Where that is too short, some row counts are left out: they are null in the costs file.
)",
         {"entrodraft bench latency --target model/demo/target --draft model/demo/draft --output costs.json",
          "mpirun -n 2 --bind-to none entrodraft bench latency --target DIR --draft DIR --rows 9 --json",
          "entrodraft generate --target DIR --draft DIR --costs costs.json --prompt \"It was\""},
         groups_of<LatencyOptions>,
         run_bench_latency},
        {"bench compare",
         "stop rules side by side on a file of prompts",
         {"entrodraft bench compare --target DIR [--draft DIR] --input FILE|- [options]"},
         R"(Settings take turns on every prompt. Texts that must be those of plain decoding (greedy, gumbel) are
compared first: if one differs, no figure is shown and the exit code is 1.
Before the first text, passes are timed for at most 15 s, unless --costs has what they take, and the
stop decisions of two rules for at most 10 s.
)",
         {"entrodraft bench compare --target model/demo/target --draft model/demo/draft --input "
          "model/demo/prompts.jsonl --prompts 6 --temperatures 0",
          "entrodraft bench compare --target DIR --draft DIR --input prompts.jsonl --rules static:2,constant:5 --costs "
          "costs.json --output compare.json",
          "entrodraft bench compare --target DIR --drafters ngram,suffix --input prompts.jsonl"},
         groups_of<CompareOptions>,
         run_bench_compare},
    };
    return pages;
}

const CommandPage& page_of(std::string_view name) {
    for (const CommandPage& page : command_pages())
        if (page.name == name) return page;
    throw std::invalid_argument(fmt::format("there is no command {}", name));
}

std::string overview_text() {
    std::string text = "Usage: entrodraft COMMAND [options]      entrodraft COMMAND --help\n\n";
    const auto add = [&](const auto& term, const char* meaning) {
        text += fmt::format("  {:<17}{}\n", term.name, meaning);
    };
    for (const CommandPage& page : command_pages())
        add(page, page.summary);
    text += "\n";
    for (const Term& term : kOtherCommands)
        add(term, term.meaning);
    text += "\nExit codes:\n";
    for (const Term& code : kExitCodes)
        add(code, code.meaning);
    return text + "\n  --help or -h, --version\n\nOn several ranks: mpirun -n N entrodraft ...\n";
}

std::string help_text(const CommandPage& page, bool all) {
    std::string text = fmt::format("Usage: {}\n", fmt::join(page.usage, "\n       "));
    if (*page.remarks != '\0') text += fmt::format("\n{}", page.remarks);
    const std::string options = options_text(page.groups(), all);
    text += options;
    if (!all && options != options_text(page.groups(), true))
        text += fmt::format("\nentrodraft {} --help=all shows every option.\n", page.name);
    if (!page.examples.empty()) text += fmt::format("\nExamples:\n  {}\n", fmt::join(page.examples, "\n  "));
    return text;
}

std::string declarations_as_json(const std::string& version) {
    using Json = nlohmann::ordered_json;
    Json json = {{"version", version}};
    for (const CommandPage& page : command_pages()) {
        Json groups;
        for (const OptionGroup& group : page.groups()) {
            Json options;
            for (const OptionSpec& option : group.options)
                options.push_back({{"name", option.name},
                                   {"value", option.value},
                                   {"help", help_of(option)},
                                   {"repeatable", option.repeatable},
                                   {"common", option.is_common},
                                   {"choices", option.choices},
                                   {"separators", option.separators}});
            groups.push_back({{"title", group.title}, {"options", options}});
        }
        json["commands"].push_back({{"name", page.name},
                                    {"summary", page.summary},
                                    {"usage", page.usage},
                                    {"remarks", page.remarks},
                                    {"groups", groups},
                                    {"examples", page.examples}});
    }
    for (const Term& term : kOtherCommands)
        json["other_commands"][term.name] = term.meaning;
    for (const Term& code : kExitCodes)
        json["exit_codes"][code.name] = code.meaning;
    return json.dump(2) + "\n";
}

} // namespace entrodraft::launch
