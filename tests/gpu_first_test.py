#!/usr/bin/env python3
"""gpu_first.py in its short form on what is here, and with programs that hang, fail, crash or print what tools of a GPU print.

    tests/gpu_first_test.py [--program build/entrodraft] [--tests build/test_gpu_on_stand_in] [--device cpu]
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import gpu_parts  # noqa: E402
from limited import Failed  # noqa: E402

OPTIONS = None
NCU = '''==PROF== Connected to process 7
"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","7","norm_rows(NormCall)","gpu__time_duration.sum","ns","2,000"
"0","7","norm_rows(NormCall)","dram__bytes_read.sum","byte","8,000"
"1","7","multiply<bf16>(Linear, int)","gpu__time_duration.sum","ns","10000"
"1","7","multiply<bf16>(Linear, int)","dram__bytes_read.sum","byte","40,000,000"
"2","7","norm_rows(NormCall)","gpu__time_duration.sum","ns","4,000"
"2","7","norm_rows(NormCall)","dram__bytes_read.sum","byte","16,000"
"2","7","norm_rows(NormCall)","sm__inst_issued.avg.pct_of_peak_sustained_active","%","12.3456"
'''
LATENCY = {"environment": {"device": "NVIDIA H200", "dtype": "bfloat16"}, "weight_bytes_per_rank": 15.0e9, "read_rate_bytes_per_second": 4.3e12,
           "tensor_parallel": 1, "target_shape": {"layers": 32, "hidden_size": 4096, "vocab_size": 128256},
           "contexts": [{"context": context, "target": [{"rows": rows, "median_ms": 4.6 + 0.1 * rows} for rows in range(1, 18)]}
                        for context in (64, 1000)]}


class Fakes(unittest.TestCase):
    """What becomes of a part whose program misbehaves."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.work = pathlib.Path(scratch.name)

    def program(self, name, text):
        path = self.work / name
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)
        return path

    def lines(self, *arguments, parts, code=0, path=None):
        done = subprocess.run(
            [sys.executable, HERE / "gpu_first.py", "--device", "cpu", "--work", self.work / "work", "--parts", parts, *map(str, arguments)],
            capture_output=True, text=True, check=False, timeout=120,
            env={**os.environ, "PATH": f"{self.work}:{path or os.environ['PATH']}"})
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_a_part_that_hangs_is_a_line_and_its_processes_end(self):
        pids = self.work / "pids"
        program = self.program("hangs", f'''case "$*" in
            *--help) echo ;;
            *latency*) sleep 1000 & echo $! $$ >{pids}; trap "" TERM; wait; sleep 1000 ;;
            *) echo '{{}}' ;;
            esac''')
        tests = self.program("tests", 'case $1 in --gtest_list_tests) echo "GpuKernels." ;; *) echo "[       OK ] GpuKernels.A (1 ms)" ;; esac')
        began = time.monotonic()
        lines = self.lines("--program", program, "--tests", tests, "--short", "--limits", "passes=1", parts="passes,tests", code=1)
        self.assertLess(time.monotonic() - began, 30)
        tested, last = lines[:2], lines[2:]
        self.assertEqual([(line["part"], line.get("status")) for line in tested], [("tests", None), ("tests", "ok")])
        self.assertEqual([line["status"] for line in last], ["timed out"])
        self.assertIn("bench latency", last[0]["why"])
        for pid in pids.read_text().split():
            state = pathlib.Path(f"/proc/{pid}/stat")
            self.assertTrue(not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z", pid)

    def test_the_next_part_goes_on_after_a_failure(self):
        program = self.program("fails", 'echo "no such device" >&2; exit 1')
        tests = self.program("tests", "exit 0")
        lines = self.lines("--program", program, "--tests", tests, "--short", parts="machine,tests,texts", code=1)
        self.assertEqual([line["status"] for line in lines], ["failed", "ok", "failed"])
        self.assertIn("no such device", lines[0]["why"])

    def test_a_suite_that_crashes_names_its_test_and_the_next_runs(self):
        tests = self.program("tests", '''case $1 in
            --gtest_list_tests) echo "GpuEngine."; echo "  A"; echo "GpuKernels." ;;
            *Kernels*) echo "[ RUN      ] GpuKernels.Good"; echo "[       OK ] GpuKernels.Good (1 ms)"
                       echo "[ RUN      ] GpuKernels.Bad"; kill -SEGV $$ ;;
            *) echo "[ RUN      ] GpuEngine.B"; echo "[  FAILED  ] GpuEngine.B (3 ms)"; echo "[  FAILED  ] GpuEngine.B"; exit 1 ;;
            esac''')
        kernels, engine, ending = self.lines("--program", "true", "--tests", tests, parts="tests", code=1)
        self.assertEqual((kernels["suite"], kernels["passed"], kernels["crashed"], kernels["code"]), ("GpuKernels", 1, "GpuKernels.Bad", -11))
        self.assertEqual((engine["failed"], "crashed" in engine), (["GpuEngine.B"], False))
        self.assertEqual((ending["status"], ending["why"]), ("failed", "2 suites did not pass"))

    def test_what_no_time_is_left_for_is_said(self):
        lines = self.lines("--program", "true", "--tests", "true", "--seconds", 0, parts="machine,tests")
        self.assertEqual([(line["part"], line["status"]) for line in lines], [("machine", "not run"), ("tests", "not run")])

    def test_without_a_gpu_it_is_skipped(self):
        program = self.program("none", '''echo '{"ranks": [{"gpus": 0}], "checks": []}' ''')
        done = subprocess.run([sys.executable, HERE / "gpu_first.py", "--program", program], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout.count("\n")), (77, 1))

    def test_a_pass_stands_beside_the_rate_of_reading_and_the_prediction(self):
        program = self.program("fake", f"""cat <<'END'
{json.dumps(LATENCY)}
END""")
        other, line = self.lines("--program", program, parts="passes")[:2]
        self.assertEqual([line["context"], other["context"]], [1000, 64])
        self.assertLess(other["predicted_ms"], line["predicted_ms"])
        self.assertAlmostEqual(line["share_of_read_rate"], 15.0 / 4.3 / 4.7, places=3)
        self.assertAlmostEqual(line["predicted_ms"], 4.3026, places=3)
        self.assertAlmostEqual(line["measured_over_predicted"], 4.7 / 4.3026, places=3)
        self.assertAlmostEqual(line["t16_over_t1"], 6.2 / 4.7, places=3)
        self.assertGreater(line["t8_predicted_ms"], line["predicted_ms"])

    def test_weights_are_made_up_where_they_are_used(self):
        seen = self.work / "seen"
        program = self.program("fills", f"""echo "$*" >>{seen}; cat <<'END'
{json.dumps(LATENCY)}
END""")
        self.lines("--program", program, parts="passes")
        for line in seen.read_text().splitlines():
            self.assertIn(" --random-weights 1 ", line)
            directory = pathlib.Path(line.split("--target ")[1].split()[0])
            self.assertEqual([path.name for path in directory.iterdir()], ["config.json"])

    def test_kernels_are_summed_up_by_name(self):
        multiply, norm = gpu_parts.kernel_lines(NCU)
        self.assertEqual(multiply, {"kernel": "multiply<bf16>", "launches": 1, "median_us": 10.0, "total_us": 10.0, "gb_per_s": 4000.0})
        self.assertEqual((norm["kernel"], norm["launches"], norm["median_us"], norm["gb_per_s"], norm["issue_percent"]),
                         ("norm_rows", 2, 3.0, 4.0, 12.346))
        with self.assertRaises(Failed):
            gpu_parts.kernel_lines("==ERROR== no permission\n")
        self.program("ncu", f"cat <<'END'\n{NCU}END")
        lines = self.lines("--program", "true", "--short", parts="kernels")
        self.assertEqual([line.get("kernel") for line in lines], ["multiply<bf16>", "norm_rows", None])

    def test_ranks_of_one_gpu_sum_over_nccl_where_its_version_lets_them(self):
        ran = "\n".join(f"[       OK ] NcclBehindAKernel.{name} (9 ms)" for name in "AB")
        self.program("mpirun", f"""echo "$*" >>{self.work}/seen
            case "$*" in *"-n 4"*) echo "[  FAILED  ] NcclCollectives.C (1 ms)"; echo "rank 1: unhandled system error" >&2; exit 1 ;; esac
            cat <<'END'
{ran}
guarded: 1 early edges, 0 of 1000 launches wrong
unguarded: 2 early edges, 137 of 1000 launches wrong
END""")
        for version, settings in (("2.28.9", 1), ("2.30.7", 3)):
            found = {"checks": [{"status": "ok", "text": f"NCCL {version} (/lib/libnccl.so.2)"}], "ranks": [{"gpus": 1}]}
            program = self.program("doctor", f"echo '{json.dumps(found)}'")
            lines = self.lines("--program", program, "--mpi-tests", "/bin/true", parts="nccl", code=int(settings > 1))
            *runs, ending = lines
            self.assertEqual([(line["as"], line["ranks"], line["nccl"]) for line in runs],
                             [("two hosts", 2, version), ("one GPU", 2, version), ("one GPU", 4, version)][:settings])
            self.assertEqual((runs[0]["ok"], runs[0]["guarded_early_edges"], runs[0]["guarded_wrong_launches"],
                              runs[0]["unguarded_wrong_launches"]), (2, 1, 0, 137))
        self.assertEqual((runs[2]["failed"], ending["why"]), (1, "4 ranks as one GPU: rank 1: unhandled system error"))
        seen = (self.work / "seen").read_text().splitlines()
        self.assertIn("NCCL_HOSTID=first", seen[0])
        self.assertIn("NCCL_MULTI_RANK_GPU_ENABLE=1", seen[2])

    def test_a_sanitizers_finding_fails_its_part(self):
        self.program("compute-sanitizer", '''echo "========= COMPUTE-SANITIZER"
            [ $2 != racecheck ] || { echo "========= Error: race"; echo "========= ERROR SUMMARY: 1 error"; exit 9; }
            echo "========= ERROR SUMMARY: 0 errors"''')
        *tools, ending = self.lines("--program", "true", "--tests", "true", parts="sanitizer", code=1)
        self.assertEqual([(line["tool"], line["code"]) for line in tools], [("memcheck", 0), ("racecheck", 9), ("initcheck", 0)])
        self.assertEqual((ending["status"], ending["why"]), ("failed", "racecheck"))

    def test_what_a_switch_is_worth_is_told_by_layer(self):
        program = self.program("program", '''case "$ENTRODRAFT_GPU_OFF" in overlap) t=1.6 ;; carve-out) t=1.1 ;; *) t=1 ;; esac
            echo "{\\"contexts\\": [{\\"target\\": [{\\"median_ms\\": $t}]}], \\"target_shape\\": {\\"layers\\": 10}}"''')
        tests = self.program("tests", '''echo "micro: us_a_kernel ${ENTRODRAFT_GPU_OFF:+9}1.5"''')
        micro, without, _, first, *others, ending = self.lines("--program", program, "--tests", tests, "--short", parts="micro,switches")
        self.assertEqual((micro["us_a_kernel"], without["off"], without["us_a_kernel"]), (1.5, "overlap", 91.5))
        self.assertEqual([(line["off"], line["us_a_layer"]) for line in (first, *others)], [("", 0), ("overlap", 60), ("carve-out", 10)])
        self.assertEqual(ending["status"], "ok")
        *_, ending = self.lines("--program", "/bin/true", "--tests", tests, parts="switches")
        self.assertEqual(ending["status"], "missing")

    def test_a_call_comes_back_as_a_table_that_fits(self):
        program = self.program("program", '''case "$*" in
            *doctor*) echo '{"ranks": [{"gpus": 1, "cores": "0-1"}], "checks": [], "gpus": []}' ;;
            *--version*) echo "entrodraft 9" ;;
            *latency*) sleep 1000 ;;
            *) kill -SEGV $$ ;;
            esac''')
        tests = self.program("tests", '''case $1 in
            --gtest_list_tests) for i in $(seq 60); do echo "Gpu$i."; done ;;
            *) for i in $(seq 60); do echo "[  FAILED  ] $1.$i (1 ms)"; echo "a line of some length that says nothing"; done; exit 1 ;;
            esac''')
        run = subprocess.run(["bash", HERE / "gpu_run.sh", "first", self.work / "out", "--device", "cpu", "--short", "--program", program,
                              "--tests", tests, "--mpi-tests", "/no/such/file", "--limits", "passes=1,chains=1,prompts=1"],
                             capture_output=True, text=True, check=False, timeout=120)
        self.assertEqual(run.returncode, 1, run.stderr)
        lines = [json.loads(line) for line in (self.work / "out/first.jsonl").read_text().splitlines()]
        self.assertGreater(sum(len(json.dumps(line)) for line in lines), 100000)
        self.assertLessEqual(len(run.stdout), 12000)
        self.assertGreater(len(run.stdout), 8000)
        heads = [line for line in run.stdout.splitlines() if not line.startswith(" ")]
        self.assertEqual([head.split(",")[0] for head in heads],
                         ["machine: ok", "micro: failed", "tests: failed", "nccl: missing", "passes: timed out", "switches: missing",
                          "kernels: missing", "chains: timed out", "prompts: timed out", "texts: failed"])
        self.assertRegex(run.stdout, r"and \d+ more, in the file")
        self.assertIn("60 suites did not pass", run.stdout)

    def test_a_call_is_first_or_second(self):
        for words in ((), ("third", "out"), ("first",)):
            done = subprocess.run(["bash", HERE / "gpu_run.sh", *words], capture_output=True, text=True, check=False)
            self.assertNotEqual(done.returncode, 0)


class Carried(unittest.TestCase):
    def test_a_carried_build_runs_with_its_own_libraries(self):
        if not OPTIONS.program or not shutil.which("ompi_info"):
            self.skipTest("needs --program, and Open MPI")
        with tempfile.TemporaryDirectory() as work:
            folder = pathlib.Path(work) / "carried"
            nccl = pathlib.Path(work) / "nccl"
            (nccl / "2.99/lib").mkdir(parents=True)
            shutil.copy(shutil.which("true"), nccl / "2.99/lib/libnccl.so.2")  # any program will do
            pack = [sys.executable, HERE / "gpu_carry.py", "--build", pathlib.Path(OPTIONS.program).parent, "--output", folder, "--nccl"]
            refused = subprocess.run([*pack, work], capture_output=True, text=True, check=False)
            self.assertEqual((refused.returncode, folder.exists()), (2, False))
            subprocess.run([*pack, nccl], check=True, capture_output=True)
            self.assertEqual({file.name for file in folder.iterdir()}, {"run", "carried.tar.xz"})
            environment = {"PATH": "/usr/bin:/bin", "HOME": work}
            for version, code, told in (("2.99", 0, f"{folder}/unpacked/nccl/2.99/lib:"), ("2.98", 2, "carried are: 2.99")):
                done = subprocess.run([folder / "run", "--nccl", version, "sh", "-c", "echo $LD_LIBRARY_PATH"], env=environment,
                                      capture_output=True, text=True, check=False, cwd=work)
                self.assertEqual(done.returncode, code)
                self.assertIn(told, done.stdout + done.stderr)
            shutil.rmtree(folder / "unpacked/nccl")  # a program with GPU code takes this machine's
            done = subprocess.run([folder / "run", "ldd", folder / "unpacked/bin/entrodraft"], env=environment, capture_output=True,
                                  text=True, check=False, cwd=work)
            self.assertEqual(done.returncode, 0, done.stderr)
            for name in ("libmpi.so", "libonig.so", "libstdc++.so"):
                self.assertIn(str(folder), next(line for line in done.stdout.splitlines() if name in line))
            self.assertFalse((folder / "unpacked/sources/model/demo/t5").exists())
            script = subprocess.run([folder / "run", "tests/gpu_first.py", "--device", "cpu", "--short", "--parts", "machine,passes"],
                                    env=environment, capture_output=True, text=True, check=True, cwd=work).stdout
            self.assertEqual([line["status"] for line in map(json.loads, script.splitlines()) if "status" in line], ["ok", "ok"])
            table = subprocess.run([folder / "run", "tests/gpu_run.sh", "second", "out", "--device", "cpu", "--short", "--limits",
                                    "ranks=60,several=1,rounds=1"], env=environment, capture_output=True, text=True, check=False, cwd=work)
            self.assertIn("ranks: ok", table.stdout, table.stderr)
            self.assertIn('"status": "ok"', (pathlib.Path(work) / "out/second.jsonl").read_text())
            run = [folder / "run", "mpirun", *gpu_parts.AS_ROOT, "-n", "2", "--oversubscribe", "--bind-to", "none", "entrodraft", "doctor",
                   "--repetitions", "1", "--json"]
            self.assertEqual(len(json.loads(subprocess.run(run, env=environment, capture_output=True, text=True, check=True,
                                                           cwd=HERE.parent).stdout)["ranks"]), 2)


class Short(unittest.TestCase):
    """Every part that can run here, on the program itself."""

    def test_runs_every_part_to_its_end(self):
        if not OPTIONS.program:
            self.skipTest("needs --program")
        with tempfile.TemporaryDirectory() as work:
            output = pathlib.Path(work) / "first.jsonl"
            done = subprocess.run(
                [sys.executable, HERE / "gpu_first.py", "--short", "--device", OPTIONS.device, "--program", OPTIONS.program, "--tests",
                 OPTIONS.tests, "--mpi-tests", "/no/such/file", "--suites", "VerifyKernels", "--output", output, "--parts",
                 ",".join(gpu_parts.DEFAULT) + (",rounds" if OPTIONS.device == "cpu" else ""), "--limits",
                 "machine=120,micro=120,tests=120,passes=120,switches=120,chains=120,prompts=120,texts=240,ranks=120,several=120"],
                capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertEqual(done.stdout, output.read_text())
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        status = {line["part"]: line["status"] for line in lines if "status" in line}
        self.assertEqual(list(status), sorted(status, key=list(gpu_parts.NAMES).index))
        for part in ("machine", "micro", "tests", "passes", "chains", "prompts", "texts", "ranks") + (("several",) if OPTIONS.device == "cpu" else ()):
            self.assertEqual(status[part], "ok")
        of = {part: [line for line in lines if line["part"] == part and "status" not in line] for part in status}
        self.assertEqual([(line["suite"], line["failed"]) for line in of["tests"]], [("GpuVerifyKernels", [])])
        self.assertTrue(all(line["t1_ms"] > 0 and line["read_rate_gb_per_s"] > 0 for line in of["passes"]))
        self.assertGreater(of["chains"][0]["draft_of_1_ms"], 0)  # no more where others compute
        self.assertGreater(of["prompts"][0]["ttft_ms"], 0)
        self.assertEqual([line["equal"] for line in of["texts"]], [4, 4, 4])
        self.assertEqual([line["equal"] for line in of["ranks"]], [2])
        if OPTIONS.device == "cpu":
            self.assertEqual((of["several"][0]["gpus"], of["several"][1]["equal"]), (2, 4))
            self.assertTrue(all(each > 0 for each in of["several"][0]["sums_us"].values()))


    def test_a_call_goes_on_behind_what_hangs_crashes_and_prints_too_much(self):
        if not OPTIONS.program:
            self.skipTest("needs --program")
        with tempfile.TemporaryDirectory() as work:
            work = pathlib.Path(work)
            programs = {"ncu": "sleep 1000", "crashes": "kill -SEGV $$", "tests": f'''case $1 in
                *GpuMicro*) exec "{OPTIONS.tests}" "$@" ;;
                --gtest_list_tests) echo Gpu. ;;
                *) for i in $(seq 3000); do echo "[  FAILED  ] Gpu.$i (1 ms)"; echo "a line of some length that says nothing"; done; exit 1 ;;
                esac'''}
            for name, text in programs.items():
                (work / name).write_text(f"#!/bin/sh\n{text}\n")
                (work / name).chmod(0o755)
            done = subprocess.run(
                ["bash", HERE / "gpu_run.sh", "first", work / "out", "--device", OPTIONS.device, "--short", "--program", OPTIONS.program, "--tests",
                 work / "tests", "--mpi-tests", work / "crashes", "--limits",
                 "machine=120,micro=120,passes=120,switches=120,kernels=2,chains=120,prompts=120,texts=240"],
                env={**os.environ, "PATH": f"{work}:{os.environ['PATH']}"}, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertLessEqual(len(done.stdout), 12000)
        seen = dict(re.findall(r"^(\w+): ([\w ]+),", done.stdout, re.M))
        self.assertEqual(seen, {"machine": "ok", "micro": "ok", "tests": "failed", "nccl": "failed" if shutil.which("mpirun") else "missing",
                                "passes": "ok", "switches": "ok" if OPTIONS.device == "cuda" else "missing", "kernels": "timed out",
                                "chains": "ok", "prompts": "ok", "texts": "ok"})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--program")
    parser.add_argument("--tests")
    parser.add_argument("--device", default="cpu")
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
