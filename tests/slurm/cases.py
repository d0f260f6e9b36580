"""What is done to the scripts of slurm/ on a real Slurm, and what must come of it. Called by run.py.

A case submits a script, lets something happen to the job, and holds the results to those of an uninterrupted run:
the same ids in the same order, each once, with the same text, token_ids and finish_reason.
"""

import json
import os
import subprocess
import time

from cluster import Failure, kill, wait_for

COMPARED = ("id", "text", "token_ids", "finish_reason", "error", "line")


def read_results(file):
    with open(file, encoding="utf-8") as lines:
        text = lines.read()
    if text and not text.endswith("\n"):
        raise Failure(f"{file} ends within a line")
    return [{field: line[field] for field in COMPARED if field in line} for line in map(json.loads, text.splitlines())]


def count_lines(file):
    try:
        with open(file, "rb") as lines:
            return lines.read().count(b"\n")
    except FileNotFoundError:
        return 0


def require_equal(results, reference, what):
    for number, (result, expected) in enumerate(zip(results, reference)):
        if result != expected:
            raise Failure(f"{what} line {number + 1} is {json.dumps(result)[:200]}, not {json.dumps(expected)[:200]}")
    if len(results) != len(reference):
        raise Failure(f"{what} has {len(results)} lines, not {len(reference)}")


class Bench:
    """What the cases share: the cluster, the program, prompts, and results of runs that nothing happens to."""

    def __init__(self, cluster, source, binary, directory):
        self.cluster = cluster
        self.source = source
        self.binary = binary
        self.directory = directory
        self.models = ["--target", f"{source}/model/demo/target", "--draft", f"{source}/model/demo/draft"]
        self.environment = {"ENTRODRAFT": binary}
        self.seconds = {}  # that the runs to compare with took
        self._references = {}

    def script(self, name):
        return f"{self.source}/slurm/{name}.sbatch"

    def case_directory(self, name):
        path = f"{self.directory}/{name}"
        os.makedirs(path)
        return path

    def prompts(self, count):
        """A file of so many prompts."""
        file = f"{self.directory}/prompts-{count}.jsonl"
        if not os.path.exists(file):
            with open(f"{self.source}/model/demo/prompts.jsonl", encoding="utf-8") as all_of_them:
                lines = all_of_them.readlines()
            with open(file, "w", encoding="utf-8") as some:
                some.writelines(lines[:count])
        return file

    def awkward_prompts(self):
        """Without ids, with blank lines, a line that is none, an id that comes twice in different pieces."""
        with open(f"{self.source}/model/demo/prompts.jsonl", encoding="utf-8") as lines:
            texts = [json.dumps({"prompt_token_ids": json.loads(line)["prompt_token_ids"]}) for line in lines]
        texts[1] = texts[1].replace("{", '{"id": "twice", ', 1)
        texts[21] = texts[21].replace("{", '{"id": "twice", ', 1)
        texts[7:7] = ["", "no JSON"]
        file = f"{self.directory}/awkward.jsonl"
        with open(file, "w", encoding="utf-8") as some:
            some.write("\n".join(texts[:26]))
        return file

    def reference(self, ranks, prompts, options):
        """Results of one run by mpirun that nothing happens to."""
        key = (ranks, prompts, tuple(options))
        if key not in self._references:
            output = f"{self.directory}/reference-{len(self._references)}.jsonl"
            root = ["--allow-run-as-root"] if os.getuid() == 0 else []
            began = time.monotonic()
            done = subprocess.run(
                ["mpirun", *root, "--oversubscribe", "--bind-to", "none", "-n", str(ranks), self.binary, "generate",
                 *self.models, "--input", prompts, "--output", output, "--quiet", *options],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                start_new_session=True)
            if done.returncode not in (0, 3):
                raise Failure(f"the run to compare with gave {done.returncode}: {done.stdout}")
            self._references[key] = read_results(output)
            self.seconds[key] = time.monotonic() - began
        return self._references[key]


    def options_lasting(self, seconds):
        """Options with which all prompts take about so long, or longer."""
        options = ("--max-new-tokens", "400")
        self.reference(2, self.prompts(64), options)
        factor = max(1.0, seconds / self.seconds[(2, self.prompts(64), options)])
        return ("--max-new-tokens", str(min(3900, int(400 * factor))))


class Job:
    """A script submitted with prompts, and what is to be seen of it."""

    def __init__(self, bench, name, *, script="entrodraft", prompts=64, options=("--max-new-tokens", "400"),
                 sbatch=(), ranks=2, environment=None):
        self.bench = bench
        self.cluster = bench.cluster
        self.directory = bench.case_directory(name)
        self.output = f"{self.directory}/results.jsonl"
        self.prompts = bench.prompts(prompts) if isinstance(prompts, int) else prompts
        self.options = list(options)
        self.ranks = ranks
        self.environment = {**bench.environment, **(environment or {})}
        self.command = ["--ntasks-per-node=2", "--cpus-per-task=1", "--time=30", *sbatch, bench.script(script), self.prompts,
                        self.output, *bench.models, *self.options, "--quiet"]
        self.id = None
        self.submit()

    def submit(self):
        self.id = self.cluster.submit(*self.command, cwd=self.directory, environment=self.environment)

    def await_lines(self, count=2, seconds=240):
        """Waits until so many more lines are written; what follows finds the job at work."""
        before = count_lines(self.output)
        wait_for(lambda: count_lines(self.output) >= before + count, seconds, f"no {count} lines from job {self.id}")
        if self.cluster.state(self.id) != "RUNNING":
            raise Failure(f"job {self.id} was too quick for this case: {self.cluster.state(self.id)}")

    def await_restart(self, seconds=120, least=1):
        wait_for(lambda: int(self.cluster.job(self.id).get("Restarts", 0)) >= 1, seconds,
                 f"job {self.id} is not requeued")
        lines = count_lines(self.output)
        if lines < least:
            raise Failure(f"{lines} lines were served before the requeue, not {least}")
        return lines

    def log(self):
        text = ""
        for name in sorted(os.listdir(self.directory)):
            if name.endswith(".log"):
                with open(f"{self.directory}/{name}", encoding="utf-8", errors="replace") as file:
                    text += file.read()
        return text

    def require_results(self):
        require_equal(read_results(self.output), self.bench.reference(self.ranks, self.prompts, self.options),
                      self.output)

    def finish(self, seconds=600):
        self.cluster.wait_end(self.id, seconds)
        self.require_results()


def entrodraft_script(bench):
    Job(bench, "entrodraft", prompts=16, options=("--max-new-tokens", "64")).finish()
    return "16 lines"


def several_nodes(bench):
    job = Job(bench, "several-nodes", prompts=16, options=("--max-new-tokens", "64"),
              sbatch=("--nodes=2", "--ntasks-per-node=1"))
    job.finish()
    nodes = bench.cluster.job(job.id)["NodeList"]
    return f"16 lines on {nodes}"


def four_ranks_on_two_nodes(bench):
    job = Job(bench, "four-ranks", prompts=16, options=("--max-new-tokens", "64"), ranks=4,
              sbatch=("--nodes=2", "--ntasks-per-node=2"))
    job.finish()
    return "16 lines"


# In place of the program: says which GPUs its rank sees, and computes on the CPU.
RANK_WITH_GPUS = """#!/bin/bash
echo "$SLURMD_NODENAME $SLURM_LOCALID ${{CUDA_VISIBLE_DEVICES:-none}} $ENTRODRAFT_SITE $*" >>"{seen}"
exec "{binary}" "${{@/#cuda/cpu}}"
"""


def program_with_gpus(bench, name):
    """(environment of a job, the file in which each rank says what it sees)."""
    directory = bench.case_directory(f"{name}-program")
    program, setup, seen = (f"{directory}/{each}" for each in ("entrodraft", "setup.sh", "seen"))
    with open(program, "w", encoding="utf-8") as file:
        file.write(RANK_WITH_GPUS.format(seen=seen, binary=bench.binary))
    os.chmod(program, 0o755)
    with open(setup, "w", encoding="utf-8") as file:
        file.write("export ENTRODRAFT_SITE=known\n")  # as `module load` would
    return {"ENTRODRAFT": program, "ENTRODRAFT_SETUP": setup}, seen


def what_ranks_saw(seen):
    with open(seen, encoding="utf-8") as lines:
        return sorted(line.split(maxsplit=4) for line in lines)


def run_with_gpus(bench, name, nodes):
    """Runs gpus.sbatch over nodes of two GPUs each; returns what each rank saw, in order."""
    environment, seen = program_with_gpus(bench, name)
    Job(bench, name, script="gpus", prompts=16, options=("--max-new-tokens", "64"), ranks=2 * nodes,
        sbatch=(f"--nodes={nodes}", "--gpus-per-node=2"), environment=environment).finish()
    return what_ranks_saw(seen)


def gpus_script(bench):
    """Every rank of a node sees all of its GPUs, and is told to use one."""
    seen = run_with_gpus(bench, "gpus", 1)
    for rank, (_, local, gpus, site, arguments) in enumerate(seen):
        if (local, gpus, site) != (str(rank), "0,1", "known") or "--device cuda" not in arguments:
            raise Failure(f"rank {rank} has {local}, {gpus}, {site}, {arguments}")
    if len(seen) != 2:
        raise Failure(f"{len(seen)} ranks, not 2")
    return "2 ranks, each sees GPUs 0,1"


def gpus_of_several_nodes(bench):
    seen = run_with_gpus(bench, "gpus-of-nodes", 2)
    places = [(local, gpus) for _, local, gpus, *_ in seen]
    if places != [("0", "0,1"), ("1", "0,1")] * 2 or len({node for node, *_ in seen}) != 2:
        raise Failure(f"ranks are not two on each of two nodes: {seen}")
    return "4 ranks on 2 nodes"


def array_script(bench):
    """Pieces, put together, are the output of one run over the whole file, errors included."""
    cluster, directory, prompts = bench.cluster, bench.case_directory("array"), bench.awkward_prompts()
    options = ["--max-new-tokens", "64"]
    job = cluster.submit("--array=0-2", "--ntasks-per-node=2", "--cpus-per-task=1", "--time=30",
                         bench.script("array"), prompts, f"{directory}/pieces", *bench.models, *options, "--quiet",
                         cwd=directory, environment=bench.environment)
    for task in range(3):
        cluster.wait_end(f"{job}_{task}", 300, ("COMPLETED", "FAILED"))
    pieces = sorted(os.listdir(f"{directory}/pieces"))
    together = [result for piece in pieces for result in read_results(f"{directory}/pieces/{piece}")]
    require_equal(together, bench.reference(2, prompts, options), "the pieces together")
    errors = sum("error" in result for result in together)
    if pieces != [f"{i}-of-3.jsonl" for i in range(3)] or errors != 2:
        raise Failure(f"{errors} error lines in {pieces}, not 2 in three pieces")
    return f"{len(together)} lines in {len(pieces)} pieces, {errors} of them errors"


def array_task_requeued(bench):
    """One task of an array is told to stop: it alone starts again, with its own piece."""
    cluster, directory = bench.cluster, bench.case_directory("array-requeued")
    options = ["--max-new-tokens", "400"]
    job = cluster.submit("--array=0-1", "--ntasks-per-node=2", "--cpus-per-task=1", "--time=30",
                         bench.script("array"), bench.prompts(64), f"{directory}/pieces", *bench.models, *options,
                         "--quiet", cwd=directory, environment=bench.environment)
    for task in (1, 0):  # one of them is the record of the array itself
        wait_for(lambda: count_lines(f"{directory}/pieces/{task}-of-2.jsonl") >= 2, 240, f"no lines from task {task}")
        cluster.command("scancel", "--signal=USR1", f"{job}_{task}")
        wait_for(lambda: int(cluster.job(f"{job}_{task}").get("Restarts", 0)) == 1, 60, f"task {task} is not requeued")
    for task in range(2):
        cluster.wait_end(f"{job}_{task}", 600)
    together = [result for task in range(2) for result in read_results(f"{directory}/pieces/{task}-of-2.jsonl")]
    require_equal(together, bench.reference(2, bench.prompts(64), options), "the pieces together")
    restarts = [cluster.job(f"{job}_{task}").get("Restarts") for task in range(2)]
    if restarts != ["1", "1"]:
        raise Failure(f"restarts of the tasks: {restarts}, not 1 and 1")
    return "both tasks, once each"


def scaling_script(bench):
    directory = bench.case_directory("scaling")
    job = bench.cluster.submit("--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=1", "--time=30",
                               bench.script("scaling"), bench.prompts(16), f"{directory}/scaling", *bench.models,
                               cwd=directory, environment={**bench.environment, "PROMPTS": "4"})
    bench.cluster.wait_end(job, 900)
    with open(f"{directory}/scaling/latency-2.txt", encoding="utf-8") as latency:
        if "2 ranks of 1 thread over mpi" not in latency.read():
            raise Failure("two nodes were taken for one: latency-2.txt does not say 'over mpi'")
    with open(f"{directory}/scaling/scaling.json", encoding="utf-8") as scaling:
        measured = json.load(scaling)["measured"]
    if [row["ranks"] for row in measured] != [1, 2] or not measured[1]["predicted_ms"] > 0:
        raise Failure(f"scaling.json does not hold 1 and 2 ranks beside the model: {measured}")
    rates = ("plain_tokens_per_second", "drafting_tokens_per_second")
    if not all(row.get(rate, 0) > 0 for row in measured for rate in rates):
        raise Failure(f"scaling.json does not hold tokens/s without and with the draft: {measured}")
    return "1 and 2 ranks; two nodes talk over mpi"


def scaling_on_gpus(bench):
    """One GPU, then two, each a rank's: steps of a part of the job see the GPUs of their node."""
    directory, (environment, seen) = bench.case_directory("scaling-on-gpus"), program_with_gpus(bench, "scaling-on-gpus")
    os.symlink(f"{bench.source}/bench", f"{directory}/bench")
    job = bench.cluster.submit("--ntasks-per-node=2", "--gpus-per-node=2", "--cpus-per-task=1", "--time=30", bench.script("scaling"),
                               bench.prompts(16), f"{directory}/scaling", *bench.models, cwd=directory,
                               environment={**bench.environment, **environment, "PROMPTS": "2"})
    bench.cluster.wait_end(job, 900)
    ranks = [(local, gpus, "latency" in arguments) for _, local, gpus, _, arguments in what_ranks_saw(seen)]
    expected = [("0", "0,1", is_latency) for is_latency in (False, False, True, True)] + [("1", "0,1", False), ("1", "0,1", True)]
    if sorted(ranks) != sorted(expected):
        raise Failure(f"ranks of the steps saw {ranks}")
    with open(f"{directory}/scaling/scaling.json", encoding="utf-8") as scaling:
        result = json.load(scaling)
    if [row["ranks"] for row in result["measured"]] != [1, 2] or not result["gpu_path"]:
        raise Failure("scaling.json does not hold 1 and 2 ranks, and what kernels should take")
    return "1 and 2 ranks; each step sees GPUs 0,1"


def scaling_requeued(bench):
    """Told to stop in the second bench: the first one's results are kept, the others are made after the requeue."""
    directory, cluster = bench.case_directory("scaling-requeued"), bench.cluster
    first = f"{directory}/scaling/latency-1.txt"
    job = cluster.submit("--ntasks-per-node=2", "--cpus-per-task=1", "--time=30", bench.script("scaling"),
                         bench.prompts(16), f"{directory}/scaling", *bench.models, cwd=directory,
                         environment={**bench.environment, "PROMPTS": "8"})
    wait_for(lambda: os.path.exists(first), 300, "no latency-1.txt")
    made = os.stat(first).st_mtime_ns
    wait_for(lambda: cluster.ranks_of(job, bench.binary), 60, "no second bench")
    cluster.command("scancel", "--signal=USR1", job)
    wait_for(lambda: int(cluster.job(job).get("Restarts", 0)) == 1, 60, "the job is not requeued")
    cluster.wait_end(job, 900)
    if os.stat(first).st_mtime_ns != made or not os.path.exists(f"{directory}/scaling/scaling.txt"):
        raise Failure("latency-1.txt was made twice, or there is no scaling.txt")
    return "the first bench once, the others after it"


def told_to_stop(bench):
    """USR1, as --signal sends it: flushed, requeued by the script, resumed."""
    job = Job(bench, "told-to-stop", prompts=24)
    job.await_lines()
    bench.cluster.command("scancel", "--signal=USR1", job.id)
    lines = job.await_restart()
    job.finish()
    return f"{lines} lines, then the rest"


def requeued_by_operator(bench):
    job = Job(bench, "requeued")
    job.await_lines()
    bench.cluster.command("scontrol", "requeue", job.id)
    lines = job.await_restart()
    job.finish()
    return f"{lines} lines, then the rest"


def preempted(bench, partition):
    job = Job(bench, f"preempted-{partition}",
              sbatch=(f"--partition={partition}", "--nodelist=n1", "--exclusive"))
    job.await_lines()
    other = bench.cluster.submit("--partition=urgent", "--nodelist=n1", "--exclusive", "--time=5", "--output=/dev/null",
                                 "--wrap=sleep 2", cwd=job.directory)
    lines = job.await_restart()
    bench.cluster.wait_end(other, 120)
    job.finish()
    return f"{lines} lines, then the rest"


def preempted_at_once(bench):
    return preempted(bench, "work")


def preempted_with_grace(bench):
    return preempted(bench, "graceful")


def finish_anew(job, *seconds):
    """Submits the ended job once more and waits until all is there."""
    lines = count_lines(job.output)
    job.submit()
    job.finish(*seconds)
    return f"{lines} lines; submitted again, the rest"


def time_limit(bench):
    """The signal before the limit comes; the script requeues itself."""
    job = Job(bench, "time-limit", options=bench.options_lasting(70), sbatch=("--time=1", "--signal=USR1@50"))
    lines = job.await_restart(least=0)  # the signal may come at once
    bench.cluster.command("scontrol", "update", f"JobId={job.id}", "TimeLimit=30")  # enough for the rest
    job.finish(900)
    return f"{lines} lines, then the rest"


def time_limit_without_signal(bench):
    """SIGTERM at the limit itself ends the job; submitting it again completes it."""
    job = Job(bench, "time-limit-itself", options=bench.options_lasting(70), sbatch=("--signal=USR1@0",))
    job.await_lines()
    soon = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + 3))
    bench.cluster.command("scontrol", "update", f"JobId={job.id}", f"EndTime={soon}")
    bench.cluster.wait_end(job.id, 120, ("TIMEOUT",))
    return finish_anew(job, 900)


def cancelled(bench):
    """scancel is the user's word: the job does not come back by itself."""
    job = Job(bench, "cancelled")
    job.await_lines()
    bench.cluster.command("scancel", job.id)
    bench.cluster.wait_end(job.id, 60, ("CANCELLED",))
    time.sleep(8)
    if bench.cluster.state(job.id) != "CANCELLED":
        raise Failure(f"the cancelled job is {bench.cluster.state(job.id)}")
    return finish_anew(job)


def rank_killed(bench):
    job = Job(bench, "rank-killed")
    job.await_lines()
    kill(bench.cluster.ranks_of(job.id, bench.binary)[1])
    bench.cluster.wait_end(job.id, 60, ("FAILED",))
    code = bench.cluster.job(job.id)["ExitCode"]
    if code != "137:0":
        raise Failure(f"the job's exit code is {code}, not 137:0")
    return f"exit code 137, {finish_anew(job)}"


def node_lost(bench):
    """The node of the script and all ranks is gone: Slurm starts the job elsewhere."""
    job = Job(bench, "node-lost", sbatch=("--exclude=n3,n4",))
    job.await_lines()
    node = bench.cluster.job(job.id)["NodeList"]
    bench.cluster.cut_power(node)
    lines = job.await_restart(180)
    job.finish()
    bench.cluster.start_node(node)
    return f"{lines} lines on {node}, the rest on {bench.cluster.job(job.id)['NodeList']}"


def other_node_lost(bench):
    """The second node of two is gone."""
    job = Job(bench, "other-node-lost", sbatch=("--nodes=2", "--ntasks-per-node=1"))
    job.await_lines()
    node = job_nodes(bench.cluster, job.id)[1]
    bench.cluster.cut_power(node)
    lines = job.await_restart(180)
    job.finish()
    bench.cluster.start_node(node)
    return f"{lines} lines, then without {node} the rest"


def slurmd_killed(bench):
    """Slurm loses sight of a node whose ranks live on: the second start waits until they have ended."""
    job = Job(bench, "slurmd-killed", options=bench.options_lasting(90))  # longer than Slurm waits for the node
    job.await_lines()
    node = bench.cluster.job(job.id)["NodeList"]
    bench.cluster.kill_node_daemon(node)
    lines = job.await_restart(180)
    job.finish(900)
    bench.cluster.start_node(node)
    return f"{lines} lines until {node} was given up"


def job_nodes(cluster, job):
    return cluster.command("scontrol", "show", "hostnames", cluster.job(job)["NodeList"]).split()


SMOKE = (entrodraft_script, told_to_stop, gpus_script)
ALL = (entrodraft_script, several_nodes, four_ranks_on_two_nodes, gpus_script, gpus_of_several_nodes, array_script,
       scaling_script, scaling_on_gpus, scaling_requeued, told_to_stop, array_task_requeued, requeued_by_operator,
       preempted_at_once, preempted_with_grace, time_limit, time_limit_without_signal, cancelled, rank_killed, node_lost,
       other_node_lost, slurmd_killed)
