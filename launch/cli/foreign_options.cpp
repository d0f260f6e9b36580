// Options of other programs, and options that no longer exist, with remedies: see remedy_for_foreign_option() in
// option_set.h.
#include "launch/cli/option_set.h"

#include <algorithm>

namespace entrodraft::launch {

namespace {

struct ForeignOption {
    const char* names;  // separated by blanks
    const char* needed; // options that the remedy names, separated by blanks; "": it names none
    const char* remedy;
    bool was_ours = false; // an option of earlier versions
};

constexpr ForeignOption kForeignOptions[] = {
    {"tensor-parallel-size tp tp-size", "target",
     "the target is sharded over the ranks; start N of them: mpirun -n N entrodraft ..."},
    {"pipeline-parallel-size pp", "target",
     "there is no pipeline parallelism; every rank holds a part of each layer: mpirun -n N entrodraft ..."},
    {"data-parallel-size dp", "replicas", "use --replicas R, of mpirun's ranks"},
    {"model model-path m hf-repo hf", "target", "use --target DIR"},
    {"target", "model", "use --model DIR"},
    {"assistant-model speculative-model speculative-draft-model-path hf-repo-draft hfd", "draft", "use --draft DIR"},
    {"speculative-config speculative", "draft stop-rule",
     "use --draft DIR, and for a fixed number of draft tokens --stop-rule constant:tokens=K"},
    {"draft-n num-assistant-tokens speculative-num-steps speculative-num-draft-tokens num-speculative-tokens "
     "num-draft-tokens",
     "stop-rule", "use --stop-rule constant:tokens=K; heuristic and adaptive take tokens=K, too"},
    {"assistant-confidence-threshold draft-p-min confidence-threshold", "stop-rule",
     "use --stop-rule confidence:threshold=P"},
    {"entropy-threshold", "stop-rule", "use --stop-rule static:threshold=X, or cumulative:threshold=X", true},
    {"entropy-factor", "stop-rule", "use --stop-rule moving-average:factor=X", true},
    {"entropy-window", "stop-rule", "use --stop-rule moving-average:window=N, or cumulative:window=N", true},
    {"heuristic-persistent", "stop-rule", "use --stop-rule heuristic:persistent", true},
    {"svip-threshold", "stop-rule", "use --stop-rule svip:threshold=X", true},
    {"adaedl-gamma", "stop-rule", "use --stop-rule adaedl:gamma=X", true},
    {"disco-threshold disco-bias disco-entropy disco-probability disco-position", "stop-rule",
     "use --stop-rule disco:threshold=H:bias=B:entropy=E:probability=P:position=N", true},
    {"entropy-unit", "stop-rule", "it is gone; thresholds are in nats: a bit is 0.6931 nats", true},
    {"entropy-of", "stop-rule", "use --stop-rule RULE:of=adjusted", true},
    {"min-draft-tokens draft-min", "stop-rule", "use --stop-rule RULE:min=N", true},
    {"drop-stop-token", "stop-rule", "use --stop-rule RULE:drop", true},
    {"speculative-algorithm speculative-method spec-type", "drafter",
     "use --draft DIR for a draft model, or --drafter ngram, suffix or bigram"},
    {"prompt-lookup-num-tokens prompt-lookup", "drafter stop-rule",
     "use --drafter ngram, and for a fixed number of tokens --stop-rule constant:tokens=K"},
    {"prompt-lookup-max ngram-prompt-lookup-max", "drafter", "use --drafter ngram:max=N"},
    {"prompt-lookup-min ngram-prompt-lookup-min", "drafter", "use --drafter ngram:min=N, or suffix:min=N"},
    {"ngram-max", "drafter", "use --drafter ngram:max=N", true},
    {"ngram-min", "drafter", "use --drafter ngram:min=N, or suffix:min=N", true},
    {"ngram-match", "drafter", "use --drafter ngram:match=first", true},
    {"ngram-full", "drafter", "use --drafter ngram:full=N", true},
    {"lookup-texts", "drafter", "use --drafter ngram:texts=run, or suffix:texts=run", true},
    {"lookahead-window lookahead-ngram lookahead-candidates", "drafter",
     "use --drafter lookahead:window=W:ngram=N:candidates=G", true},
    {"ngram-max ngram-min ngram-match ngram-full lookup-texts lookahead-window lookahead-ngram lookahead-candidates",
     "drafters", "values of a drafter follow its name: --drafters ngram:max=N:min=N, or lookahead:window=W", true},
    {"lenience", "acceptance", "use --acceptance rejection:lenience=L", true},
    {"lenience", "acceptances", "use --acceptances rejection:lenience=L", true},
    {"typical-epsilon typical-delta", "acceptance", "use --acceptance typical:epsilon=E:delta=D", true},
    {"rollback-distance", "acceptance", "use --acceptance bild:distance=D", true},
    {"draft-sinks draft-chunks", "draft-window", "use --draft-window W:sinks=S:chunks=N", true},
    {"draft-ahead-passes", "draft-ahead", "use --draft-ahead F:passes=N, or auto:passes=N", true},
    {"length-penalty early-stopping num-return-sequences", "num-beams",
     "use --num-beams K:length-penalty=P:early-stopping=WHEN:num-return-sequences=N", true},
    {"max-length max-seq-len", "max-new-tokens", "use --max-new-tokens N, which leaves the prompt out of the count"},
    {"ctx-size c", "max-context", "use --max-context N"},
    {"do-sample", "temperature", "use --temperature T; 0 is greedy"},
    {"use-beam-search", "", "give --num-beams N"},
    {"best-of", "input", "use --num-samples N, or --num-beams K:num-return-sequences=N"},
    {"stop-strings stop-sequences reverse-prompt r", "stop", "use --stop STRING"},
    {"file f", "input", "use --input FILE, of JSON lines such as {\"prompt\": \"...\"}"},
    {"max-num-seqs parallel np", "batch-size", "use --batch-size N with --input"},
    {"n-gpu-layers gpu-layers ngl", "device", "use --device cuda; all layers are on the GPU"},
    {"gpu-memory-utilization", "max-context", "memory is planned before loading; --max-context N bounds the cache"},
    {"quantization q load-in-8bit", "dtype", "use --dtype int8, or on GPUs float8"},
    {"load-in-4bit", "dtype", "use --dtype int4"},
    {"t", "threads", "use --threads N"},
    {"temp", "temperature", "use --temperature T"},
    {"num-prompts", "prompts", "use --prompts N"},
    {"tokenizer", "", "the tokenizer is the one in the model's directory; leave it out"},
    {"revision", "", "name the directory of that revision: hf download NAME --revision R prints it"},
    {"trust-remote-code", "", "no code of a model is run; leave it out"},
    {"expert-placement", "", "it is gone; every expert is sharded over all ranks, so leave it out"},
    {"host port", "input", "generate reads prompts by --prompt or --input; entrodraft serve is the server"},
    {"api-key", "", "use entrodraft serve with --api-key-file FILE"},
};

} // namespace

std::string remedy_for_foreign_option(std::string_view name,
                                      const std::function<bool(std::string_view name)>& has_option, bool of_ours) {
    std::string spelled(name);
    std::replace(spelled.begin(), spelled.end(), '_', '-');
    for (const ForeignOption& foreign : kForeignOptions) {
        if (of_ours && !foreign.was_ours) continue;
        if (std::ranges::count(split_list(foreign.names, ' '), spelled) == 0) continue;
        if (std::ranges::all_of(split_list(foreign.needed, ' '), has_option)) return foreign.remedy;
    }
    return "";
}

} // namespace entrodraft::launch
