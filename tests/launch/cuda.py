"""The program on GPUs, or on the stand-in for one: texts, ranks that share a GPU, benches, refusals.

    cuda.py PROGRAM MPIRUN...

Exit code 77 where the program finds no GPU.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM, MPIRUN = sys.argv[1], sys.argv[2:]
MODELS = pathlib.Path(__file__).parent.parent / "model"
GOLDEN, HEADS = MODELS / "golden", MODELS / "heads"
PAIR = ["--target", GOLDEN / "llama-target", "--draft", GOLDEN / "llama-draft"]
PROMPTS = [[7], [300, 12, 5, 9], [41, 2], [19, 300, 2, 8, 8, 8]]
CUDA, CPU = ["--device", "cuda"], ["--device", "cpu"]


def run(*arguments, ranks=1, lines=None, code=0, faulty=(), more=None):
    """`faulty`: the ranks whose stand-in has a fault; `more`: of the environment."""
    own = [PROGRAM, *map(str, arguments)]
    command = own
    environment = {**os.environ, **({"CUDA_STAND_IN_FAULT": "1"} if faulty and ranks == 1 else {}), **(more or {})}
    if ranks > 1:
        command = list(MPIRUN)
        for rank in range(ranks):
            command += [*([":"] if rank else []), "-n", "1", *(["-x", "CUDA_STAND_IN_FAULT=1"] if rank in faulty else []), *own]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=600, env=environment)
    if done.returncode != code:
        raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stderr}")
    return done


def texts(*arguments, ranks=1, tokens=10, vocab=512):
    lines = "".join(json.dumps({"id": i, "prompt_token_ids": [id % vocab for id in ids]}) + "\n" for i, ids in enumerate(PROMPTS))
    if "--draft" in arguments and not {"--tree", "--stop-rule", "--num-beams"} & set(arguments):
        arguments = [*arguments, "--max-draft-tokens", 4]  # as many rounds are captured first
    done = run("generate", *arguments, "--input", "-", "--max-new-tokens", tokens, "--ignore-eos", "--quiet",
               ranks=ranks, lines=lines)
    return [json.loads(line) for line in done.stdout.splitlines()]


def token_ids(results):
    return [line["token_ids"] for line in results]


class Cuda(unittest.TestCase):
    def test_text_in_float32_is_the_cpus_and_drafting_changes_nothing(self):
        on_cpu = token_ids(texts(*PAIR[:2], *CPU, "--dtype", "float32"))
        for drafting in ([], [*PAIR[2:], "--stop-rule", "constant"]):  # expected-gain need not draft where passes are slow
            with self.subTest(drafting=bool(drafting)):
                results = texts(*PAIR[:2], *drafting, *CUDA, "--dtype", "float32")
                self.assertEqual(token_ids(results), on_cpu)
                self.assertEqual(bool(drafting), sum(line["stats"]["drafted"] for line in results) > 4)

    def test_speculative_text_is_plain_text_in_bfloat16(self):
        for sampling in ([], ["--temperature", 1, "--seed", 3, "--acceptance", "gumbel"]):
            with self.subTest(sampling=sampling):
                plain = texts(*PAIR[:2], *CUDA, "--dtype", "bfloat16", *sampling)
                drafted = texts(*PAIR, *CUDA, "--dtype", "bfloat16", *sampling, "--batch-size", 2)
                self.assertEqual(token_ids(drafted), token_ids(plain))

    def test_log_probabilities_are_the_cpus_whatever_drafts(self):
        def logprobs(*arguments):
            return [[token["logprob"] for token in line["logprobs"]]
                    for line in texts(*arguments, "--dtype", "float32", "--logprobs", 2)]
        plain = logprobs(*PAIR[:2], *CUDA)
        for ours, theirs in zip(sum(plain, []), sum(logprobs(*PAIR[:2], *CPU), [])):
            self.assertAlmostEqual(ours, theirs, places=4)
        self.assertEqual(logprobs(*PAIR, *CUDA), plain)

    def test_trees_change_nothing(self):
        gumbel = ["--temperature", 1, "--seed", 3, "--acceptance", "gumbel"]
        for dtype, sampling in (("float32", []), ("bfloat16", gumbel), ("int8", [])):
            of = [*CUDA, "--dtype", dtype, *sampling]
            plain = token_ids(texts(*PAIR[:2], *of))
            for shape, ranks, more in (("3,2,1", 1, []), ("eagle2", 2, ["--batch-size", 2]), ("expected-gain", 1, []),
                                       ("eagle2:4:4", 2, []), ("4,2,1,1", 2, ["--draft-placement", "sharded"]),
                                       ("eagle2:3:4", 3, ["--draft-placement", "dedicated"])):
                if ranks > 1 and dtype != "float32":
                    continue  # sums of shards are rounded otherwise
                with self.subTest(dtype=dtype, sampling=sampling, shape=shape, ranks=ranks):
                    results = texts(*PAIR, *of, "--tree", shape, *more, ranks=ranks)
                    self.assertEqual(token_ids(results), plain)
                    drafted, accepted = (sum(line["stats"][key] for line in results) for key in ("drafted", "accepted"))
                    if shape != "expected-gain":  # which need not draft where passes are as slow as here
                        self.assertGreater(accepted, 0)
                        self.assertGreater(drafted, accepted)

    def test_beams_are_those_of_a_cpu_and_drafting_changes_nothing(self):
        beams = ["--num-beams", "3:num-return-sequences=2", "--dtype", "float32"]
        found = [[text["token_ids"] for text in line["sequences"]] for line in texts(*PAIR[:2], *CPU, *beams, tokens=5)]
        for ranks in (1, 2):
            for drafting in ([], PAIR[2:]):
                with self.subTest(ranks=ranks, drafting=bool(drafting)):
                    results = texts(*PAIR[:2], *drafting, *CUDA, *beams, ranks=ranks, tokens=5)
                    self.assertEqual([[text["token_ids"] for text in line["sequences"]] for line in results], found)

    def test_heads_change_nothing(self):
        gumbel = ["--temperature", 1, "--seed", 3, "--acceptance", "gumbel"]
        for dtype, sampling in (("float32", []), ("bfloat16", gumbel), ("int8", [])):
            of = ["--target", HEADS / "target", *CUDA, "--dtype", dtype, *sampling]
            plain = token_ids(texts(*of, vocab=109))
            for head, ranks, more in (("eagle3", 1, []), ("eagle3", 1, ["--tree", "expected-gain", "--batch-size", 2]),
                                      ("eagle3", 2, ["--tree", "3,2"]), ("eagle", 2, ["--tree", "eagle2:3:3", "--draft-placement", "dedicated"]),
                                      ("eagle3", 2, ["--tree", "3,2", "--draft-placement", "dedicated", "--batch-size", 2]), ("medusa", 1, ["--tree", "medusa-63"]), ("mlp-speculator", 1, [])):
                if ranks > 1 and dtype != "float32":
                    continue  # sums of shards are rounded otherwise
                with self.subTest(dtype=dtype, sampling=sampling, head=head, ranks=ranks, more=more):
                    results = texts(*of, "--head", HEADS / head, *more, ranks=ranks, vocab=109)
                    self.assertEqual(token_ids(results), plain)
                    if "expected-gain" not in more:  # which need not draft where passes are as slow as here
                        self.assertGreater(sum(line["stats"]["drafted"] for line in results), 0)

    def test_models_with_an_encoder_say_what_they_say_on_a_cpu(self):
        for kind, ranks in (("t5", 1), ("marian", 2)):
            directory = MODELS / "encoder_decoders" / kind
            pair = ["--target", directory / "target", "--draft", directory / "draft", "--dtype", "float32"]
            with self.subTest(kind=kind, ranks=ranks):
                on_cpu = token_ids(texts(*pair, *CPU, vocab=100))
                self.assertEqual(token_ids(texts(*pair, *CUDA, vocab=100, ranks=ranks)), on_cpu)
                line = json.dumps({"id": 0, "prompt_token_ids": [7, 8]}) + "\n"
                checked = run("generate", *pair, "--input", "-", "--max-new-tokens", 3, lines=line, ranks=ranks)
                self.assertNotIn("--device auto", checked.stderr)

    def test_heads_are_checked_with_their_target(self):
        head = ["generate", "--target", HEADS / "target", "--head", HEADS / "eagle3", "--input", "-", "--max-new-tokens", 3]
        line = json.dumps({"id": 0, "prompt_token_ids": [7, 8]}) + "\n"
        self.assertNotIn("--device auto", run(*head, lines=line).stderr)

    def test_rows_of_sampled_trees_are_verified_on_the_host(self):
        sampling = [*PAIR, "--dtype", "float32", "--temperature", 1, "--seed", 3, "--acceptance", "rejection", "--tree", "3,2"]
        on_gpu = texts(*sampling, *CUDA)
        self.assertGreater(sum(line["stats"]["accepted"] for line in on_gpu), 0)
        self.assertEqual(token_ids(on_gpu), token_ids(texts(*sampling, *CPU)), "drawn on the host")

    def test_graphs_of_common_rounds_are_made_before_the_first_text(self):
        """On the stand-in, which counts them; prompts of a token, whose passes are those of rounds."""
        for drafting in ([], PAIR[2:], [*PAIR[2:], "--temperature", 1]):
            with self.subTest(drafting=drafting), tempfile.TemporaryDirectory() as work:
                graphs = []
                for n_tokens in (1, 60):
                    file = pathlib.Path(work) / f"graphs{n_tokens}"
                    lines = "".join(json.dumps({"id": i, "prompt_token_ids": [7]}) + "\n" for i in range(2))
                    run("generate", *PAIR[:2], *drafting, *CUDA, "--input", "-", "--max-new-tokens", n_tokens, "--ignore-eos", "--quiet",
                        lines=lines, more={"CUDA_STAND_IN_GRAPHS": str(file)})
                    if not file.exists() and "stand_in" not in PROGRAM:
                        self.skipTest("a GPU does not count its graphs")
                    graphs.append(len(file.read_text().splitlines()))
                self.assertGreater(graphs[0], 3 if drafting else 0)
                self.assertEqual(graphs[0], graphs[1])

    def test_ranks_that_share_a_gpu_say_what_one_says(self):
        alone = token_ids(texts(*PAIR, *CUDA, "--dtype", "float32"))
        for ranks, more in ((2, []), (2, ["--draft-placement", "sharded"]), (3, ["--draft-placement", "dedicated"]),
                            (2, ["--replicas", 2])):
            with self.subTest(ranks=ranks, more=more):
                self.assertEqual(token_ids(texts(*PAIR, *CUDA, "--dtype", "float32", *more, ranks=ranks)), alone)

    def test_rows_of_sampled_text_are_verified_where_they_are(self):
        for acceptance in ("rejection", "block"):
            sampling = [*PAIR, "--dtype", "float32", "--temperature", 1, "--seed", 3, "--acceptance", acceptance,
                        "--stop-rule", "constant:3"]
            with self.subTest(acceptance=acceptance):
                alone = texts(*sampling, *CUDA)
                self.assertGreater(sum(line["stats"]["accepted"] for line in alone), 0)
                self.assertEqual(token_ids(texts(*sampling, *CUDA, ranks=2)), token_ids(alone))
                self.assertNotEqual(token_ids(texts(*sampling, *CPU)), token_ids(alone), "not drawn on the device")

    def test_speculative_text_is_plain_text_in_float8(self):
        of = ["--dtype", "float8", "--draft-dtype", "int8", *CUDA]
        self.assertEqual(token_ids(texts(*PAIR, *of)), token_ids(texts(*PAIR[:2], *CUDA, "--dtype", "float8")))

    def test_quantised_checkpoints_are_checked_and_drafting_changes_nothing(self):
        for target, draft in (("gptq-zeros", "awq"), ("bitsandbytes-nf4", "float8-channel"), ("gguf-q4_k", "gptq-act-order")):
            pair = ["--target", MODELS / "quantized" / target / "target"]
            with self.subTest(target=target, draft=draft):
                plain = token_ids(texts(*pair, *CUDA, vocab=100))
                drafted = texts(*pair, "--draft", MODELS / "quantized" / draft / "target", *CUDA, vocab=100)
                self.assertEqual(token_ids(drafted), plain)
                line = json.dumps({"id": 0, "prompt_token_ids": [7, 8]}) + "\n"
                checked = run("generate", *pair, "--input", "-", "--max-new-tokens", 3, lines=line)
                self.assertNotIn("--device auto", checked.stderr)

    def test_latency_is_that_of_the_gpu(self):
        shown = json.loads(run("bench", "latency", *PAIR, *CUDA, "--rows", 2, "--repetitions", 2, "--json").stdout)
        self.assertNotEqual(shown["environment"]["device"], "cpu")
        self.assertGreater(shown["read_rate_bytes_per_second"], 0)
        self.assertEqual(shown["context"], 247)  # of 256 positions; a step of the loop on the device is timed by nine
        short = json.loads(run("bench", "latency", *PAIR, *CUDA, "--rows", 2, "--repetitions", 5, "--context", "3,40", "--json").stdout)
        self.assertEqual([each["context"] for each in short["contexts"]], [3, 40])
        self.assertGreater(short["t_draft_ms"], 0)
        self.assertGreater(short["t_first_draft_ms"], short["t_draft_ms"] / 2)
        two = json.loads(run("bench", "latency", *PAIR, *CUDA, "--rows", 2, "--repetitions", 2, "--json",
                             ranks=2).stdout)
        self.assertTrue(any("all-reduce" in line["name"] for line in two["collectives"]))

    def bench(self, *arguments, ranks=1, faulty=()):
        """Of `--device auto`: the device, and what was said."""
        done = run("bench", "latency", *PAIR, "--rows", 1, "--repetitions", 1, "--context", 3, "--json", *arguments, ranks=ranks,
                   faulty=faulty)
        told = [line for line in done.stderr.splitlines() if "--device auto" in line]
        return json.loads(done.stdout)["environment"]["device"], told

    def test_a_gpu_that_computes_as_the_cpu_does_is_taken_without_a_word(self):
        gpu = json.loads(run("bench", "latency", *PAIR[:2], *CUDA, "--rows", 1, "--repetitions", 1, "--json").stdout)["environment"]["device"]
        for types in (["float32"], ["bfloat16"], ["float16"], ["int8"]):
            with self.subTest(types=types):
                self.assertEqual(self.bench("--dtype", *types), (gpu, []))
        for more in ([], ["--draft-placement", "sharded"], ["--draft-placement", "dedicated"]):
            with self.subTest(more=more):
                self.assertEqual(self.bench(*more, ranks=2), (gpu, []))
        self.assertEqual(token_ids(texts(*PAIR, "--dtype", "float32")), token_ids(texts(*PAIR, *CPU, "--dtype", "float32")))

    @unittest.skipUnless("stand_in" in PROGRAM, "a device cannot be made to fail")
    def test_a_gpu_that_computes_otherwise_is_left_and_what_differed_is_said(self):
        for dtype in ("float32", "bfloat16", "int8"):
            with self.subTest(dtype=dtype):
                device, told = self.bench("--dtype", dtype, faulty=[0])
                self.assertEqual((device, len(told)), ("cpu", 1))
                self.assertRegex(told[0], r"the target: logits of row [012] differ by .*, (the embedding|layer \d+) first; cpu is used")
        for more in ([], ["--draft-placement", "sharded"], ["--draft-placement", "dedicated"]):
            for rank in (0, 1):
                with self.subTest(more=more, rank=rank):
                    device, told = self.bench(*more, ranks=2, faulty=[rank])
                    self.assertEqual((device, len(told)), ("cpu", 1))
        asked_for, told = self.bench(*CUDA, faulty=[0])
        self.assertNotEqual(asked_for, "cpu")
        self.assertEqual(told, [])

    def doctor(self, ranks=1):
        return json.loads(run("doctor", "--gpu", "--repetitions", 2, "--threads", 1, "--json", ranks=ranks).stdout)

    def test_doctor_shows_the_gpus_and_checks_their_kernels(self):
        found = self.doctor()
        self.assertEqual([(gpu["rank"], gpu["number"], gpu["ranks"]) for gpu in found["gpus"]], [(0, 0, 1)])
        self.assertGreater(found["gpus"][0]["read_rate_bytes_per_second"], 0)
        self.assertIn("kernels of every type compute what the CPU computes", [check["text"] for check in found["checks"]])
        self.assertIn("CUDA stand-in" if "stand_in" in PROGRAM else "NVIDIA", run("doctor", "--gpu", "--repetitions", 1).stdout)
        two = self.doctor(ranks=2)
        self.assertEqual([gpu["rank"] for gpu in two["gpus"]], [0, 1])
        self.assertTrue([line for line in two["collectives"] if line["name"].startswith("sum on GPUs, 16 rows")])

    def test_what_a_gpu_cannot_do_is_refused(self):
        said = run("bench", "latency", *PAIR, *CUDA, "--shards", 2, code=2).stderr
        self.assertIn("--device cpu", said)

    def test_a_rank_that_dies_takes_the_others_with_it(self):
        command = [*MPIRUN, "-n", "2", PROGRAM, "generate", *map(str, PAIR), *CUDA, "--dtype", "float32", "--input", "-",
                   "--max-new-tokens", "200", "--ignore-eos"]
        job = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        job.stdin.write("".join(json.dumps({"prompt_token_ids": [i]}) + "\n" for i in range(2, 200)))
        job.stdin.close()
        job.stdout.readline()  # the first text is there: it decodes
        ranks = subprocess.run(["pgrep", "-P", str(job.pid)], capture_output=True, text=True).stdout.split()
        subprocess.run(["kill", "-KILL", ranks[-1]])
        began = time.monotonic()
        self.assertNotEqual(job.wait(timeout=60), 0)
        self.assertLess(time.monotonic() - began, 10)
        job.stdout.close()
        job.stderr.close()


if __name__ == "__main__":
    doctor = subprocess.run([PROGRAM, "doctor", "--repetitions", "1", "--json"], capture_output=True, text=True, check=True)
    if not json.loads(doctor.stdout)["ranks"][0]["gpus"]:
        print("skipped: no GPU")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
