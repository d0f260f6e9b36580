"""Options of run.py, refused where they are wrong or would have no effect: one line and exit code 2."""

import argparse
import pathlib
import shlex
import sys

import items
import loaders

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Parser(argparse.ArgumentParser):
    def error(self, message):
        sys.stderr.write(f"{self.prog}: {message}; --help says more\n")
        sys.exit(2)


def at_least(least):
    def number(text):
        value = int(text)
        if value < least:
            raise ValueError
        return value
    number.__name__ = f"whole number from {least}"
    return number


def names(text):
    return [part for part in text.split(",") if part]


def rule_arguments(rule):
    """Of --rules: generate takes static:2.25 as it is, and refuses what it does not know."""
    if not all(rule.split(":")):
        raise ValueError(f"--rules: {rule} has an empty part")
    return ["--stop-rule", rule]


def parser():
    p = Parser(prog="run.py", description=__doc__.splitlines()[0], allow_abbrev=False)
    g = p.add_argument_group("models")
    g.add_argument("--target", required=True, metavar="DIR")
    g.add_argument("--draft", metavar="DIR")
    g.add_argument("--drafter", metavar="LIST", help="as generate's: ngram needs no --draft")
    g.add_argument("--dtype", help="as generate's")
    g.add_argument("--chat", action="store_true", help="prompts are messages, put into the target's chat template")
    g.add_argument("--chat-template", metavar="FILE|NAME", help="as generate's, with --chat [the target's own]")
    g = p.add_argument_group("bundled prompts")
    g.add_argument("--tasks", type=names, help=f"of {', '.join(items.BUNDLED)} [all]")
    g.add_argument("--categories", type=names, help="of these alone, such as qa,persuasion [all]")
    g.add_argument("--turns", type=int, choices=(1, 2), default=1, help="2: also second turns of Spec-Bench [1]")
    g = p.add_argument_group("a file of one's own")
    g.add_argument("--task", choices=loaders.TASKS)
    g.add_argument("--file", type=pathlib.Path, help="its prompts; a folder for .story and .summary files")
    g.add_argument("--reference", type=pathlib.Path, help="translations, of wmt and iwslt")
    g.add_argument("--languages", type=names, help="of wmt and iwslt: German,English")
    g.add_argument("--template", help="with {text} where the text goes [translations: \"Translate German to English: "
                                      "{text}\\n\", summaries: \"Summarize: {text}\\n\"]; \\n is a line end")
    g.add_argument("--prompt-words", type=at_least(1), metavar="N", help="of c4, words of a prompt [64]")
    g.add_argument("--prompt-tokens", type=at_least(1), metavar="N", help="of c4, tokens of a prompt instead")
    g = p.add_argument_group("amounts")
    g.add_argument("--prompts", type=at_least(0), default=10, help="the first N of each category, 0: all [10]")
    g.add_argument("--max-new-tokens", type=at_least(1), default=128, metavar="N", help="[128]")
    g.add_argument("--max-prompt-tokens", type=at_least(1), metavar="N",
                   help="cut longer prompts to their last N tokens")
    g.add_argument("--samples", type=at_least(1), default=1, help="texts for each prompt, for pass@k [1]")
    g.add_argument("--repetitions", type=at_least(1), default=1, help="of everything, to calm the times [1]")
    g.add_argument("--chunk", type=at_least(1), default=16, metavar="N", help="prompts of one call [16]")
    g = p.add_argument_group("decoding")
    g.add_argument("--rules", type=names, default=["expected-gain"],
                   help="stop rules, static:2.25,heuristic [expected-gain]")
    g.add_argument("--temperature", type=float, default=0.0, help="[0: greedy]")
    g.add_argument("--top-p", type=float)
    g.add_argument("--seed", type=at_least(0))
    g.add_argument("--acceptance", choices=("rejection", "block", "gumbel", "typical", "bild"),
                   help="[gumbel above temperature 0: the same text with and without a draft]")
    g = p.add_argument_group("where")
    g.add_argument("--binary", type=pathlib.Path, default=ROOT / "build/entrodraft")
    g.add_argument("--launcher", type=shlex.split, default=[], help="such as \"mpirun -n 2 --bind-to none\"")
    g.add_argument("--threads", type=at_least(1), help="of each rank")
    g.add_argument("--output", type=pathlib.Path, metavar="DIR", help="a new folder for texts, results and samples")
    return p


def problems(options):
    """Why these options cannot be taken, in the order in which to say it."""
    o = options
    bundled = o.task is None
    translates = o.task in loaders.NEED_REFERENCE
    acts_on_tokens = "--max-prompt-tokens" if o.max_prompt_tokens else "--prompt-tokens" if o.prompt_tokens else ""
    yield not (o.draft or o.drafter), "nothing to draft with: give --draft DIR or, for instance, --drafter ngram"
    yield o.task and (o.tasks or o.categories), "--task reads a file: no --tasks and no --categories"
    for task in o.tasks or []:
        yield task not in items.BUNDLED, f"--tasks: no task {task}; there are {', '.join(items.BUNDLED)}"
    yield o.tasks is not None and len(set(o.tasks)) != len(o.tasks or ()), "--tasks names a task twice"
    yield o.tasks == [] or o.categories == [] or o.rules == [], "--tasks, --categories and --rules need a name each"
    yield o.task and not o.file, f"--task {o.task} needs --file"
    yield bundled and (o.file or o.reference or o.template or o.languages), \
        "--file, --reference, --languages and --template need --task"
    yield translates and not o.reference, f"--task {o.task} needs --reference, the file of translations"
    yield o.reference and not translates, f"--reference has no effect on {o.task}"
    yield translates and not o.template and (not o.languages or len(o.languages) != 2), \
        f"--task {o.task} needs --languages FROM,TO or a --template"
    yield o.languages and (o.template or not translates), "--languages is for wmt and iwslt without a --template"
    yield o.template and o.template.count("{text}") != 1, "--template must hold {text} once"
    yield (o.prompt_words or o.prompt_tokens) and o.task != "c4", "--prompt-words and --prompt-tokens are for c4"
    yield o.prompt_words and o.prompt_tokens, "--prompt-words or --prompt-tokens, not both"
    yield o.prompt_tokens and (o.max_prompt_tokens or o.template), \
        "--prompt-tokens already says what a prompt is: no --max-prompt-tokens and no --template beside it"
    yield o.chat and acts_on_tokens, f"{acts_on_tokens} cuts a conversation's template: not with --chat"
    yield o.chat_template and not o.chat, "--chat-template has no effect without --chat"
    yield o.turns == 2 and not (bundled and "spec-bench" in (o.tasks or items.BUNDLED)), \
        "--turns 2: only spec-bench has second turns"
    yield not o.temperature >= 0, "--temperature must be 0 or more"
    yield o.temperature == 0 and (o.top_p is not None or o.seed is not None or o.samples > 1), \
        "--top-p, --seed and --samples have no effect at temperature 0"
    yield o.temperature == 0 and o.acceptance not in (None, "typical", "bild"), \
        f"--acceptance {o.acceptance} has no effect at temperature 0"
    yield len(set(o.rules)) != len(o.rules), "--rules names a rule twice"
    yield not o.binary.is_file(), f"--binary: no program {o.binary}"
    yield o.output and o.output.exists() and (not o.output.is_dir() or any(o.output.iterdir())), \
        f"--output: {o.output} is there already and not empty"


def parse(arguments=None):
    p = parser()
    options = p.parse_args(arguments)
    message = next((text for holds, text in problems(options) if holds), None)
    if message:
        p.error(message)
    try:
        options.rule_arguments = {rule: rule_arguments(rule) for rule in options.rules}
    except ValueError as error:
        p.error(str(error))
    if options.temperature > 0 and options.acceptance is None:
        options.acceptance = "gumbel"
    if options.template:
        options.template = options.template.replace("\\n", "\n")
    return options, p
