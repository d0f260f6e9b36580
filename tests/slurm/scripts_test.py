#!/usr/bin/env python3
"""What the scripts of slurm/ start, with a fake srun in place of Slurm: launcher, program, GPUs, a site's hooks. Takes a second;
run.py runs them on a real Slurm.

    tests/slurm/scripts_test.py
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SLURM = pathlib.Path(__file__).resolve().parents[2] / "slurm"
SCRIPTS = sorted(path.stem for path in SLURM.glob("*.sbatch"))
JOB = {"SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "3", "SLURM_NTASKS": "16", "SLURM_NTASKS_PER_NODE": "8",
       "SLURM_ARRAY_TASK_ID": "0", "SLURM_ARRAY_TASK_COUNT": "1", "SLURM_ARRAY_TASK_MAX": "0", "SLURM_ARRAY_JOB_ID": "7"}
GPUS = {"SLURM_GPUS_PER_NODE": "8"}
FAKE_SRUN = """#!/bin/bash
printf '%s\\n' "$*" >>"$SEEN"
echo a text
"""
FAKE_MODEL = "import sys; print('model', *sys.argv[1:])\n"


class Scripts(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.work = pathlib.Path(scratch.name)
        self.program("srun", FAKE_SRUN)
        (self.work / "bench").mkdir()
        (self.work / "bench/scaling_model.py").write_text(FAKE_MODEL)

    def program(self, name, text):
        (self.work / "bin").mkdir(exist_ok=True)
        path = self.work / "bin" / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def started(self, script, *arguments, code=0, **environment):
        """(lines of srun's arguments, standard output and error together)."""
        seen = self.work / "seen"
        seen.write_text("")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "ENTRODRAFT"))}
        done = subprocess.run(
            ["bash", SLURM / f"{script}.sbatch", "prompts.jsonl", "out", *arguments], cwd=self.work, stdin=subprocess.DEVNULL,
            env={**clean, **JOB, "PATH": f"{self.work}/bin:{os.environ['PATH']}", "SEEN": str(seen), **environment},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=60)
        self.assertEqual(done.returncode, code, f"{script}: {done.stdout}")
        shutil.rmtree(self.work / "out", ignore_errors=True)
        return seen.read_text().splitlines(), done.stdout

    def environment_of(self, script):
        return GPUS if script == "gpus" else {}

    def test_are_clean_shell(self):
        self.assertEqual(SCRIPTS, ["array", "entrodraft", "gpus", "scaling", "serve"])
        for script in SCRIPTS:
            subprocess.run(["bash", "-n", SLURM / f"{script}.sbatch"], check=True)
            if shutil.which("shellcheck"):
                subprocess.run(["shellcheck", SLURM / f"{script}.sbatch"], check=True)

    def test_ask_slurm_only_for_what_it_knows(self):
        known = {"array", "cpus-per-task", "distribution", "exclusive", "gpus-per-node", "job-name", "nodes", "ntasks-per-node",
                 "open-mode", "output", "requeue", "signal", "time"}
        for script in SCRIPTS:
            lines = (SLURM / f"{script}.sbatch").read_text().splitlines()
            asked = {line.split()[1].removeprefix("--").split("=")[0] for line in lines if line.startswith("#SBATCH ")}
            self.assertLessEqual(asked, known, script)
            self.assertLessEqual({"signal", "requeue", "open-mode", "ntasks-per-node", "cpus-per-task"}, asked, script)
            self.assertEqual("gpus-per-node" in asked, script == "gpus")

    def test_start_the_program_under_srun_with_pmix(self):
        for script in SCRIPTS:
            lines, _ = self.started(script, "--target", "T", **self.environment_of(script))
            for line in lines:
                self.assertTrue(line.startswith("--mpi=pmix --kill-on-bad-exit=1 "), line)
                self.assertIn(" --cpus-per-task=3 entrodraft ", line)
                self.assertIn(" --threads 3", line)
                self.assertIn(" --target T", line)

    def test_take_a_sites_launcher_modules_and_image(self):
        (self.work / "site.sh").write_text("export ENTRODRAFT=from-the-module\n")
        for script in SCRIPTS:
            lines, _ = self.started(script, SLURM_MPI_TYPE="pmix_v4", ENTRODRAFT_SETUP="site.sh", **self.environment_of(script))
            self.assertTrue(lines[0].startswith("--mpi=pmix_v4 "), lines)
            self.assertIn(" from-the-module ", lines[0])
            lines, _ = self.started(script, ENTRODRAFT_IMAGE="some where/e.sif", **GPUS)
            self.assertIn(" apptainer exec --nv some where/e.sif entrodraft ", lines[0])
            self.started(script, ENTRODRAFT_SETUP="/no/such/file", code=1, **self.environment_of(script))
        self.assertNotIn("--nv", self.started("array", ENTRODRAFT_IMAGE="e.sif")[0][0])

    def test_use_the_gpus_that_were_asked_for_unless_told_otherwise(self):
        for script in SCRIPTS:
            lines, _ = self.started(script, "--target", "T", **GPUS)
            self.assertTrue(all(line.count("--device cuda") == 1 for line in lines), lines)
            lines, _ = self.started(script, "--device=cpu", **GPUS)
            self.assertTrue(all("cuda" not in line for line in lines), lines)
        for script in ("entrodraft", "array", "scaling"):
            self.assertNotIn("--device", "".join(self.started(script)[0]))

    def test_gpus_are_asked_for_by_node(self):
        for environment in ({}, {**GPUS, "SLURM_GPUS_PER_TASK": "1"}, {**GPUS, "SLURM_GPU_BIND": "closest"}):
            lines, told = self.started("gpus", code=2, **environment)
            self.assertEqual((lines, told.count("--gpus-per-node alone")), ([], 1))
        self.assertEqual(self.started("gpus", **GPUS)[1], "a text\n")
        told = self.started("gpus", **{"SLURM_GPUS_PER_NODE": "h100:4"})[1]
        self.assertIn("8 ranks for 4 GPUs", told)

    def test_scaling_goes_from_one_rank_over_a_node_to_all(self):
        lines, told = self.started("scaling", "--target", "T", **GPUS)
        self.assertEqual([tuple(word for word in line.split() if word.startswith(("--ntasks", "--nodes"))) for line in lines[::2]],
                         [(f"--ntasks={ranks}", f"--nodes={nodes}") for ranks, nodes in ((1, 1), (2, 1), (4, 1), (8, 1), (16, 2))])
        self.assertEqual([line.split(" bench ")[1].split()[0] for line in lines], ["latency", "compare"] * 5)
        self.assertIn("out/costs-16.json out/compare-16.json --hardware bench/hardware.json", told)
        self.assertNotIn("--hardware", self.started("scaling", "--target", "T")[1])

    def test_say_how_they_are_used(self):
        for script in SCRIPTS:
            done = subprocess.run(["bash", SLURM / f"{script}.sbatch"], capture_output=True, text=True, check=False, cwd=self.work)
            self.assertEqual((done.returncode, done.stderr.count(f"slurm/{script}.sbatch")), (2, 1), done.stderr)


if __name__ == "__main__":
    if not shutil.which("flock"):
        print("skipped: no flock here")
        sys.exit(77)
    unittest.main()
