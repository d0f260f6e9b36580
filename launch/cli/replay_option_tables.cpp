// The options of record, simulate and tune, declared once. Data only; replay_options.cpp checks the values.
#include "launch/cli/choices.h"
#include "launch/cli/option_groups.h"
#include "launch/cli/replay_options.h"
#include "launch/cli/stop_rule_options.h"

#include <string>

namespace entrodraft::launch {

const std::vector<OptionGroup>& record_groups() {
    static const std::vector<OptionGroup> groups = {
        general_group(),
        joined("Models", {bench_model_options("checkpoint of what would draft; several are recorded beside each other, "
                                              "the first is what texts are decoded with")}),
        {"Record",
         {{"input", "FILE|-", "JSON lines of prompts, as for generate"},
          {"output", "FILE", "the recording"},
          {"resume", "", help_of_generate("resume")},
          {"prompts", "N", "only the first N of them [all]"},
          {"max-new-tokens", "N", help_of_generate("max-new-tokens")},
          {"ignore-eos", "", help_of_generate("ignore-eos")},
          {"stop", "STRING", help_of_generate("stop"), true},
          {"max-draft-tokens", "N", "longest draft that can be replayed, 1 to 127 [15]"},
          {"entropy-of", "raw", "what recordings hold; adjusted is for generate and bench compare"},
          {"costs", "FILE", "costs of passes, as bench latency writes them; of each --draft [measured first]", true},
          {"quiet", "", help_of_generate("quiet")}}},
        sampling_group(),
        chat_group()};
    return groups;
}

const std::vector<OptionGroup>& simulate_groups() {
    static const std::string rules_help =
        stop_rule_forms(", ", ", ") +
        ", all of these, none, oracle, grid (many settings of each); a number may be a range FROM..TO..STEP "
        "[all,oracle]";
    static const std::vector<OptionGroup> groups = {
        general_group(),
        {"Simulate",
         {positional({"recording", "FILE", "made by record; several: their texts together, of the same models", true}),
          choosing({"rules", "RULE,RULE", rules_help.c_str()}, replayed_rule_choices, ","),
          {"best", "", "show only the fastest setting of each rule"},
          {"draft", "D", "only the D-th draft of the recording, from 1 [each]"},
          {"max-draft-tokens", "N", "most drafted tokens a round, up to what was recorded [15]"},
          {"min-draft-tokens", "N", help_of_generate("min-draft-tokens")},
          {"drop-stop-token", "", help_of_generate("drop-stop-token")},
          {"entropy-of", "raw", "what recordings hold; adjusted is for generate and bench compare"},
          {"threads", "N", "[OMP_NUM_THREADS or SLURM_CPUS_PER_TASK, else all cores]"},
          {"output", "FILE", "write the results as JSON"},
          {"trace", "FILE", "the rounds of one setting, a JSON line each, as generate --trace writes them"},
          {"json", "", "results as JSON on stdout, not as tables"}}},
        {"What if",
         {{"costs", "FILE", "other costs than the recording's, as bench latency writes them"},
          {"t-draft", "MS", "of a draft pass"},
          {"t-first-draft", "MS", "of a round's first [with --t-draft: the same]"},
          {"t-target", "MS,MS", "of target passes of 1, 2, ... rows; wider ones as the last"},
          {"t-round", "MS", "of a round beside its passes: messages, verification"},
          choosing({"draft-placement", "WHERE",
                    "{}: with dedicated the draft drafts ahead on a rank of its own, an estimate [colocated]"},
                   replayed_placement_choices),
          {"draft-ahead", "F", "with dedicated, outcomes of a round that are drafted for, up to 32; 0: none [8]"}}}};
    return groups;
}

const std::vector<OptionGroup>& tune_groups() {
    static const std::vector<OptionGroup> groups = {
        general_group(),
        joined("Models", {bench_model_options("checkpoint of the draft to tune for")}),
        {"Tune",
         {{"input", "FILE|-",
           "JSON lines of prompts, as for generate: settings are chosen on one half of them, every "
           "other line, and confirmed on the other"},
          {"recording", "FILE", "choose on this recording instead, and confirm on all of --input"},
          {"output", "FILE", "the best setting, as a file for --config"},
          {"report", "FILE", "all that was tried and measured, as JSON"},
          {"prompts", "N", "only the first N prompts [all]"},
          {"repetitions", "N", "real runs of the best setting of each rule [3]"},
          {"max-new-tokens", "N", help_of_generate("max-new-tokens")},
          {"ignore-eos", "", help_of_generate("ignore-eos")},
          {"stop", "STRING", help_of_generate("stop"), true},
          {"max-draft-tokens", "N", "most drafted tokens a round, of all settings [15]"},
          {"entropy-of", "raw", "what recordings hold; adjusted is for generate and bench compare"},
          {"costs", "FILE", "costs of passes, as bench latency writes them [measured first]", true},
          {"quiet", "", "no progress"}}},
        sampling_group()};
    return groups;
}

} // namespace entrodraft::launch
