// The text of --help but for the options: see command_pages.h.
#include "launch/cli/command_pages.h"

#include "launch/cli/options.h"
#include "launch/cli/replay_options.h"

#include <algorithm>
#include <stdexcept>

namespace entrodraft::launch {

namespace {

const char* const kOverviewBegin = "Usage: entrodraft COMMAND [options]      entrodraft COMMAND --help\n\n";
const char* const kOverviewEnd = R"(
  completion       bash or zsh: a script that completes commands, options and values
  help COMMAND     the same as COMMAND --help; help --man: the manual page

  --help or -h, --version

On several ranks: mpirun -n N entrodraft ...
)";

} // namespace

// NOLINTNEXTLINE(readability-function-size): a table
const std::vector<CommandPage>& command_pages() {
    static const std::vector<CommandPage> pages = {
        {"generate",
         "decode one --prompt, or a JSONL file of them",
         {"entrodraft generate --target DIR [--draft DIR] (--prompt TEXT | --input FILE) [options]"},
         "Exit codes: 0 all served; 1 failure; 2 bad options; 3 some lines had errors;\n"
         "75 stopped by a signal after a clean flush: run again with --resume.\n",
         {"entrodraft generate --target model/demo/target --draft model/demo/draft --prompt \"It was a dark night\"",
          "mpirun -n 2 --bind-to none entrodraft generate --target model/demo/target --draft model/demo/draft "
          "--input prompts.jsonl --output results.jsonl --summary summary.json",
          "entrodraft generate --target DIR --draft DIR --stop-rule static --entropy-threshold 2.25 --temperature 1 "
          "--seed 3 --prompt \"Once upon a time\""},
         generate_groups},
        {"record",
         "decode prompts once and keep what every stop rule could have seen",
         {"entrodraft record --target DIR --draft DIR --input FILE|- --output FILE [options]"},
         "Texts are greedy, or at a --temperature sampled with the acceptance gumbel: both are the same whatever is "
         "drafted.\nExit codes as of generate: 75 stopped by a signal, run again with --resume.\n",
         {"entrodraft record --target model/demo/target --draft model/demo/draft --input model/demo/prompts.jsonl "
          "--prompts 8 --output pair.edr",
          "entrodraft record --target DIR --draft LARGE --draft SMALL --input prompts.jsonl --output drafts.edr",
          "mpirun -n 4 entrodraft record --target DIR --draft DIR --temperature 1 --input prompts.jsonl --output "
          "sampled.edr --resume"},
         record_groups},
        {"simulate",
         "replay any stop rules over a recording: exact counts, times from costs",
         {"entrodraft simulate FILE... [--rules LIST] [options]"},
         "",
         {"entrodraft simulate pair.edr",
          "entrodraft simulate pair.edr --rules static:1..6..0.25,constant:1..8..1,oracle --best",
          "entrodraft simulate pair.edr --t-draft 8 --t-target 51 --output simulated.json"},
         simulate_groups},
        {"tune",
         "the best setting of every stop rule, confirmed by real runs, as a --config file",
         {"entrodraft tune --target DIR --draft DIR --input FILE|- --output FILE [options]",
          "entrodraft generate --config FILE ... uses what it writes"},
         "",
         {"entrodraft tune --target model/demo/target --draft model/demo/draft --input model/demo/prompts.jsonl "
          "--prompts 16 --output best.conf",
          "mpirun -n 2 --bind-to none entrodraft tune --target DIR --draft DIR --input prompts.jsonl --output "
          "best.conf "
          "--report tune.json",
          "entrodraft generate --config best.conf --target DIR --draft DIR --input prompts.jsonl --output "
          "results.jsonl"},
         tune_groups},
        {"tokenize",
         "text to token ids and back",
         {"entrodraft tokenize --model DIR (--text TEXT | --input FILE [--decode]) [options]"},
         "",
         {"entrodraft tokenize --model model/demo/target --text \"It was a dark night\"",
          "entrodraft tokenize --model DIR --input texts.jsonl --add-special-tokens",
          "entrodraft tokenize --model DIR --input ids.jsonl --decode"},
         tokenize_groups},
        {"build-table",
         "count a text's tokens and pairs, for --drafter bigram and unigram",
         {"entrodraft build-table --model DIR --input FILE|- --output FILE"},
         "",
         {"entrodraft build-table --model model/demo/target --input texts.txt --output pairs.table",
          "entrodraft generate --target model/demo/target --drafter bigram --draft-table pairs.table --prompt "
          "\"It was\""},
         build_table_groups},
        {"inspect",
         "what a checkpoint is and what each rank would hold; loads nothing",
         {"entrodraft inspect DIR [--draft DIR] [--tensor-parallel N] [--memory SIZE] [options]"},
         "",
         {"entrodraft inspect model/demo/target",
          "entrodraft inspect DIR --draft DIR --tensor-parallel 8 --memory 80GiB --dtype int8",
          "entrodraft inspect DIR --json"},
         inspect_groups},
        {"doctor",
         "whether the ranks find each other, their cores and their files; times every collective",
         {"mpirun -n N entrodraft doctor [DIR] [options]"},
         "Exit codes: 0 it will work, whatever is said of its speed; 1 it will not; 2 bad options.\n",
         {"mpirun -n 2 --bind-to none entrodraft doctor",
          "mpirun -n 2 --bind-to none entrodraft doctor model/demo/target --draft model/demo/draft",
          "srun --mpi=pmix entrodraft doctor DIR --repetitions 100"},
         doctor_groups},
        {"bench latency",
         "time passes and collectives; write the costs file",
         {"entrodraft bench latency --target DIR [--draft DIR] [options]"},
         "",
         {"entrodraft bench latency --target model/demo/target --draft model/demo/draft --output costs.json",
          "mpirun -n 2 --bind-to none entrodraft bench latency --target DIR --draft DIR --rows 9 --json",
          "entrodraft generate --target DIR --draft DIR --costs costs.json --prompt \"It was\""},
         latency_groups},
        {"bench compare",
         "stop rules side by side on a file of prompts",
         {"entrodraft bench compare --target DIR [--draft DIR] --input FILE|- [options]"},
         "",
         {"entrodraft bench compare --target model/demo/target --draft model/demo/draft --input "
          "model/demo/prompts.jsonl --prompts 6 --temperatures 0",
          "entrodraft bench compare --target DIR --draft DIR --input prompts.jsonl --rules static:2,constant:5 --costs "
          "costs.json --output compare.json",
          "entrodraft bench compare --target DIR --drafters ngram,suffix --input prompts.jsonl"},
         compare_groups},
    };
    return pages;
}

const CommandPage& page_of(std::string_view name) {
    const auto& pages = command_pages();
    const auto found =
        std::find_if(pages.begin(), pages.end(), [&](const CommandPage& page) { return page.name == name; });
    if (found == pages.end()) throw std::invalid_argument("there is no command " + std::string(name));
    return *found;
}

std::string overview_text() {
    constexpr std::size_t kWidth = 17;
    std::string text = kOverviewBegin;
    for (const CommandPage& page : command_pages()) {
        const std::string name = page.name;
        text += "  " + name + std::string(kWidth - name.size(), ' ') + page.summary + "\n";
    }
    return text + kOverviewEnd;
}

std::string help_text(const CommandPage& page) {
    std::string text;
    for (const char* line : page.usage)
        text += (text.empty() ? "Usage: " : "       ") + std::string(line) + "\n";
    if (*page.remarks != '\0') text += "\n" + std::string(page.remarks);
    text += options_text(page.groups());
    if (!page.examples.empty()) text += "\nExamples:\n";
    for (const char* example : page.examples)
        text += "  " + std::string(example) + "\n";
    return text;
}

} // namespace entrodraft::launch
