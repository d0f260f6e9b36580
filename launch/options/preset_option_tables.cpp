// The options of bench preset and bench alpha, declared once. Data only; preset_options.cpp checks the values.
#include "entrodraft/launch/options/choices.h"
#include "entrodraft/launch/options/option_groups.h"
#include "entrodraft/launch/options/preset_options.h"

namespace entrodraft::launch {

const std::vector<OptionGroup>& preset_groups() {
    static const std::vector<OptionGroup> groups = {
        general_group(),
        {"Preset",
         {{"name", "NAME", "the preset; NAME right behind the command is the same"},
          {"list", "", "all presets, a line each"},
          {"seed", "N", "of texts, synthetic or sampled [0]"},
          {"output", "FILE", "write the results as JSON"},
          {"json", "", "results as JSON on stdout"}}},
        {"Without models: a replay with synthetic acceptance",
         {{"alpha", "A", "mean acceptance [the preset's]"}, {"texts", "N", "[as many as make 20000 tokens]"}}},
        joined("Models", {bench_model_options("checkpoint of the draft, where the preset drafts with a model; of a "
                                              "cascade twice, the larger first"),
                          placement_options()}),
        {"With --target: runs on these models, with the preset's rules and lengths",
         {{"input", "FILE|-", "JSON lines of prompts, as for generate"},
          {"prompts", "N", "only the first N of them [all]"},
          {"max-new-tokens", "N", "[the preset's]"},
          {"draft-table", "FILE", "of the presets of drafters: bigram and unigram too, from this table of build-table"},
          {"quiet", "", "no progress"}}}};
    return groups;
}

const std::vector<OptionGroup>& alpha_groups() {
    static const std::vector<OptionGroup> groups = {
        general_group(),
        joined("Models",
               {bench_model_options("checkpoint of a draft; several are measured in turn"), placement_options()}),
        joined("Alpha",
               {bench_prompt_options(),
                {choosing({"drafters", "LIST",
                           "model, draft2 (the second --draft alone), ngram, suffix, bigram, unigram, random, or "
                           "several in turn as in "
                           "ngram+model [each --draft alone]"},
                          drafter_choices, ",+")},
                drafter_source_options(),
                bench_result_options()})};
    return groups;
}

} // namespace entrodraft::launch
