"""The program on GPUs, or on the stand-in for one: texts, ranks that share a GPU, benches, refusals.

    cuda.py PROGRAM MPIRUN...

Exit code 77 where the program finds no GPU.
"""

import json
import pathlib
import subprocess
import sys
import time
import unittest

PROGRAM, MPIRUN = sys.argv[1], sys.argv[2:]
GOLDEN = pathlib.Path(__file__).parent.parent / "model/golden"
PAIR = ["--target", GOLDEN / "llama-target", "--draft", GOLDEN / "llama-draft"]
PROMPTS = [[7], [300, 12, 5, 9], [41, 2], [19, 300, 2, 8, 8, 8]]
CUDA, CPU = ["--device", "cuda"], ["--device", "cpu"]


def run(*arguments, ranks=1, lines=None, code=0):
    command = [*(MPIRUN + ["-n", str(ranks)] if ranks > 1 else []), PROGRAM, *map(str, arguments)]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=600)
    if done.returncode != code:
        raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stderr}")
    return done


def texts(*arguments, ranks=1, tokens=10):
    lines = "".join(json.dumps({"id": i, "prompt_token_ids": ids}) + "\n" for i, ids in enumerate(PROMPTS))
    done = run("generate", *arguments, "--input", "-", "--max-new-tokens", tokens, "--ignore-eos", "--quiet",
               ranks=ranks, lines=lines)
    return [json.loads(line) for line in done.stdout.splitlines()]


def token_ids(results):
    return [line["token_ids"] for line in results]


class Cuda(unittest.TestCase):
    def test_text_in_float32_is_the_cpus_and_drafting_changes_nothing(self):
        on_cpu = token_ids(texts(*PAIR[:2], *CPU, "--dtype", "float32"))
        for drafting in ([], PAIR[2:]):
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

    def test_ranks_that_share_a_gpu_say_what_one_says(self):
        alone = token_ids(texts(*PAIR, *CUDA, "--dtype", "float32"))
        for ranks, more in ((2, []), (2, ["--draft-placement", "sharded"]), (3, ["--draft-placement", "dedicated"]),
                            (2, ["--replicas", 2])):
            with self.subTest(ranks=ranks, more=more):
                self.assertEqual(token_ids(texts(*PAIR, *CUDA, "--dtype", "float32", *more, ranks=ranks)), alone)

    def test_rows_of_sampled_text_are_verified_where_they_are(self):
        for acceptance in ("rejection", "block"):
            sampling = [*PAIR, "--dtype", "float32", "--temperature", 1, "--seed", 3, "--acceptance", acceptance,
                        "--stop-rule", "constant", "--num-draft-tokens", 3]
            with self.subTest(acceptance=acceptance):
                alone = texts(*sampling, *CUDA)
                self.assertGreater(sum(line["stats"]["accepted"] for line in alone), 0)
                self.assertEqual(token_ids(texts(*sampling, *CUDA, ranks=2)), token_ids(alone))
                self.assertNotEqual(token_ids(texts(*sampling, *CPU)), token_ids(alone), "not drawn on the device")

    def test_speculative_text_is_plain_text_in_float8(self):
        of = ["--dtype", "float8", "--draft-dtype", "int8", *CUDA]
        self.assertEqual(token_ids(texts(*PAIR, *of)), token_ids(texts(*PAIR[:2], *CUDA, "--dtype", "float8")))

    def test_latency_is_that_of_the_gpu(self):
        shown = json.loads(run("bench", "latency", *PAIR, *CUDA, "--rows", 2, "--repetitions", 2, "--json").stdout)
        self.assertNotEqual(shown["environment"]["device"], "cpu")
        self.assertGreater(shown["read_rate_bytes_per_second"], 0)
        two = json.loads(run("bench", "latency", *PAIR, *CUDA, "--rows", 2, "--repetitions", 2, "--json",
                             ranks=2).stdout)
        self.assertTrue(any("all-reduce" in line["name"] for line in two["collectives"]))

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
