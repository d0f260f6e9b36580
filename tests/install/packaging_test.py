#!/usr/bin/env python3
"""Do the files of packaging/ still fit the project? Their shell and Python are run as far as that goes without Apptainer, Spack, a
GPU or the network: with stand-ins for the package manager and CMake, and for what Spack gives a package.

    tests/install/packaging_test.py [--binary build/entrodraft]
"""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
APPTAINER = ROOT / "packaging/apptainer.def"
SPACK = ROOT / "packaging/spack"
BINARY = None


def cmake_settings():
    """Of all CMakeLists: what -D may name."""
    text = "".join(path.read_text() for path in [ROOT / "CMakeLists.txt", *ROOT.glob("*/CMakeLists.txt")])
    return set(re.findall(r"^\s*option\((\w+)", text, re.M)) | set(re.findall(r"^\s*set\((\w+) [^)]*CACHE", text, re.M)) | {
        "CMAKE_CUDA_ARCHITECTURES"}


def setup_packages():
    """Packages that launch/setup.sh knows how to look for, and its functions."""
    text = (ROOT / "launch/setup.sh").read_text()
    return set(re.findall(r"^    ([\w.+-]+)\) ", text, re.M)), set(re.findall(r"^(\w+)\(\) \{", text, re.M))


def stages(text):
    """[({header field: value}, {section: text})] of a definition file."""
    found = []
    for block in re.split(r"^(?=Bootstrap:)", text, flags=re.M)[1:]:
        head, *sections = re.split(r"^%", block, flags=re.M)
        fields = dict(re.findall(r"^(\w+): (.*)$", head, re.M))
        found.append((fields, {name: body for name, body in (section.split("\n", 1) for section in sections)}))
    return found


def stand_in(directory, name, text="exit 0"):
    path = directory / name
    path.write_text(f'#!/bin/bash\necho "{name} $*" >>"$SEEN"\n{text}\n')
    path.chmod(0o755)


class Build(unittest.TestCase):
    """What quickstart.sh and run.sh print while they build."""

    SLOW = 'for i in 1 2 3 4; do echo "[$i/4] Building part $i"; sleep 0.7; done'

    def run_build(self, cmake):
        with tempfile.TemporaryDirectory() as scratch:
            stand_in(pathlib.Path(scratch), "cmake", cmake)
            text = (ROOT / "launch/setup.sh").read_text().replace('show_progress "$log" 20', 'show_progress "$log" 1')
            script = f"set -euo pipefail\n{text}\nbuild entrodraft\necho built >&2"
            environment = {**os.environ, "PATH": f"{scratch}:{os.environ['PATH']}", "SEEN": f"{scratch}/seen"}
            return subprocess.run(["bash", "-c", script], cwd=scratch, env=environment, capture_output=True, text=True)

    def test_says_how_far_it_is_where_there_is_no_terminal(self):
        done = self.run_build(self.SLOW)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"building: \[[1-4]/4\]\n")
        self.assertNotIn("part", done.stderr)
        self.assertTrue(done.stderr.endswith("built\n"), done.stderr)

    def test_shows_all_lines_of_a_build_that_fails(self):
        done = self.run_build("echo '[1/2] Building'; echo 'no such header'; exit 1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no such header\nthe build failed: see above\n", done.stderr)
        self.assertNotIn("built", done.stderr)


class Apptainer(unittest.TestCase):
    def setUp(self):
        self.stages = stages(APPTAINER.read_text())

    def test_builds_in_one_stage_and_keeps_the_other(self):
        (build, _), (final, sections) = self.stages
        self.assertEqual((build["Stage"], final["Stage"]), ("build", "final"))
        self.assertIn("-devel-", build["From"])
        self.assertIn("-runtime-", final["From"])  # it has cuBLASLt
        self.assertEqual(build["From"].replace("-devel-", "-runtime-"), final["From"])  # one version of both
        self.assertIn("files from build", sections)

    def test_each_variable_has_a_default(self):
        for fields, sections in self.stages:
            known = set(re.findall(r"^\s+(\w+)=", sections.get("arguments", ""), re.M))
            used = set(re.findall(r"\{\{ (\w+) \}\}", fields["From"] + "".join(sections.values())))
            self.assertEqual(used, known)

    def test_its_shell_is_shell(self):
        for _, sections in self.stages:
            for name in ("post", "test", "runscript"):
                if name in sections:
                    subprocess.run(["bash", "-n"], input=sections[name], text=True, check=True)
                    subprocess.run(["sh", "-n"], input=sections[name], text=True, check=True)

    def test_its_build_configures_with_settings_that_exist(self):
        """Runs %post of the first stage on a copy of what it needs, with stand-ins for installing and compiling."""
        with tempfile.TemporaryDirectory() as work:
            work = pathlib.Path(work)
            bin_, source = work / "bin", work / "src"
            (source / "launch").mkdir(parents=True)
            bin_.mkdir()
            (source / "launch/setup.sh").write_text((ROOT / "launch/setup.sh").read_text())
            (source / ".venv/lib/python3/site-packages/nvidia/nccl/include").mkdir(parents=True)
            for name in ("apt-get", "cpack", "mv", "nvcc", "g++", "c++", "ninja", "pkg-config", "mpirun", "mpicc"):
                stand_in(bin_, name, 'echo "release 13.0, V13.0.88"' if name == "nvcc" else "exit 0")
            stand_in(bin_, "cmake", 'case $1 in --version) echo "cmake version 3.28.3" ;; --preset) mkdir -p build ;; esac')
            stand_in(bin_, "python3", "mkdir -p .venv/bin && cp \"$0\" .venv/bin/python")
            post = self.stages[0][1]["post"].replace("/src", str(source)).replace("{{ ARCHITECTURES }}", "80;90")
            seen = work / "seen"
            done = subprocess.run(["bash", "-c", post], cwd=work, capture_output=True, text=True, check=False, timeout=60, env={
                "PATH": f"{bin_}:/usr/bin:/bin", "SEEN": str(seen), "HOME": str(work), "CXX": "c++"})
            self.assertEqual(done.returncode, 0, done.stderr)
            commands = [shlex.split(line) for line in seen.read_text().splitlines()]
        configured = [words for words in commands if words[:3] == ["cmake", "--preset", "release"]]
        self.assertEqual(len(configured), 1, commands)
        settings = {word[2:].split("=")[0] for word in configured[0] if word.startswith("-D")}
        self.assertIn("-DENTRODRAFT_CUDA=ON", configured[0])
        self.assertLessEqual(settings, cmake_settings() | {"CMAKE_CUDA_COMPILER"})
        self.assertIn(["cmake", "--build", "build", "--target", "all"], commands)
        self.assertIn(["cpack", "-G", "DEB"], commands)

    def test_names_functions_of_setup(self):
        _, functions = setup_packages()
        called = re.search(r"setup\.sh\n\s+(\w+) .*\n\s+(\w+) ", self.stages[0][1]["post"]).groups()
        self.assertLessEqual(set(called), functions)

    def test_installs_what_starts_ranks(self):
        packages, _ = setup_packages()
        self.assertIn("openmpi-bin", self.stages[1][1]["post"])
        self.assertIn("openmpi-bin", packages)

    def test_its_own_test_passes_with_this_program(self):
        if BINARY is None:
            self.skipTest("needs --binary")
        path = f"{pathlib.Path(BINARY).resolve().parent}:{os.environ['PATH']}"
        subprocess.run(["sh", "-euc", self.stages[1][1]["test"]], env={**os.environ, "PATH": path}, check=True, capture_output=True)
        done = subprocess.run(["sh", "-c", self.stages[1][1]["runscript"], "run", "--version"], env={**os.environ, "PATH": path},
                              capture_output=True, text=True, check=True)
        self.assertTrue(done.stdout.startswith("entrodraft "))


class Recorder:
    """What `from spack.package import *` gives, as far as the package uses it: directives that write down what they are told."""

    def __init__(self):
        self.told = {name: [] for name in ("version", "variant", "depends_on", "conflicts", "license", "generator")}

        class CMakePackage:
            def define(self, name, value):
                return f"-D{name}={';'.join(value) if isinstance(value, tuple) else value}"

            def define_from_variant(self, name, variant):
                return self.define(name, "ON" if self.spec.satisfies(f"+{variant}") else "OFF")

        class CudaPackage:
            cuda_arch_values = ("70", "75", "80", "90", "90a", "100")

        self.module = types.ModuleType("spack.package")
        self.module.__dict__.update(CMakePackage=CMakePackage, CudaPackage=CudaPackage, **{
            name: lambda *words, _list=words_of, **more: _list.append((words, more)) for name, words_of in self.told.items()})

    def package(self, file):
        sys.modules.update({"spack": types.ModuleType("spack"), "spack.package": self.module})
        namespace = {"__file__": str(file), "__name__": "package"}
        exec(compile(file.read_text(), str(file), "exec"), namespace)  # noqa: S102: our own file
        return namespace["Entrodraft"]


class Spec:
    def __init__(self, *variants, arch=()):
        self.variants = {"cuda_arch": types.SimpleNamespace(value=arch)}
        self.on = variants

    def satisfies(self, what):
        return what.lstrip("+") in self.on

    def __getitem__(self, name):
        return types.SimpleNamespace(prefix=f"/opt/{name}")


class Spack(unittest.TestCase):
    def setUp(self):
        self.file = SPACK / "packages/entrodraft/package.py"
        self.recorder = Recorder()
        self.package = self.recorder.package(self.file)

    def args(self, *variants, arch=()):
        package = self.package()
        package.spec = Spec(*variants, arch=arch)
        return package.cmake_args()

    def test_lies_where_a_repository_has_it(self):
        self.assertEqual((SPACK / "repo.yaml").read_text(), "repo:\n  namespace: entrodraft\n")
        self.assertEqual(self.package.git, ROOT.as_uri())

    def test_passes_settings_that_cmake_knows(self):
        for args in (self.args(), self.args("cuda", "tests", arch=("80", "90"))):
            self.assertLessEqual({arg[2:].split("=")[0] for arg in args}, cmake_settings())
        self.assertEqual(self.args(), ["-DENTRODRAFT_CUDA=OFF", "-DENTRODRAFT_TESTS=OFF"])
        self.assertEqual(self.args("cuda", arch=("80", "90"))[2:],
                         ["-DCMAKE_CUDA_ARCHITECTURES=80;90", "-DENTRODRAFT_NCCL_ROOT=/opt/nccl"])

    def test_depends_on_all_that_cmake_looks_for(self):
        """What find_package and pkg-config ask for, by the name that Spack has for it."""
        known = {"MPI": "mpi", "nlohmann_json": "nlohmann-json", "PkgConfig": "pkgconfig", "ZLIB": "zlib-api", "fmt": "fmt",
                 "CUDAToolkit": "cuda", "GTest": "googletest", "Python3": "python", "Boost": "boost", "Threads": "c",
                 "oniguruma": "oniguruma", "libutf8proc": "utf8proc"}
        text = "".join(path.read_text() for path in [ROOT / "CMakeLists.txt", *ROOT.glob("[dmslt]*/CMakeLists.txt")])
        wanted = set(re.findall(r"find_package\((\w+)", text)) | {
            word for call in re.findall(r"pkg_check_modules\(\w+ (.*)\)", text) for word in re.findall(r"oniguruma|libutf8proc", call)}
        self.assertLessEqual({"MPI", "oniguruma", "libutf8proc", "CUDAToolkit"}, wanted)
        needed = {words[0].split("@")[0].split()[0] for words, _ in self.recorder.told["depends_on"]}
        self.assertLessEqual({known[name] for name in wanted if name in known}, needed)
        self.assertEqual(wanted - set(known), set())

    def test_asks_for_the_cmake_and_the_nccl_of_the_project(self):
        needed = [words[0] for words, _ in self.recorder.told["depends_on"]]
        least = re.search(r"cmake_minimum_required\(VERSION ([\d.]+)\)", (ROOT / "CMakeLists.txt").read_text()).group(1)
        self.assertIn(f"cmake@{least}:", needed)
        pinned = re.search(r"kNcclVersion=(\d+)\.(\d+)", (ROOT / "launch/setup.sh").read_text()).groups()
        asked = next(re.fullmatch(r"nccl@(\d+)\.(\d+): cuda_arch=90", name) for name in needed if name.endswith("cuda_arch=90"))
        self.assertLessEqual([int(part) for part in asked.groups()], [int(part) for part in pinned])

    def test_refuses_gpus_without_bfloat16(self):
        refused = {words[0] for words, _ in self.recorder.told["conflicts"]}
        self.assertLessEqual({"cuda_arch=70", "cuda_arch=75", "cuda_arch=none"}, refused)
        self.assertFalse({"cuda_arch=80", "cuda_arch=90a", "cuda_arch=100"} & refused)


if __name__ == "__main__":
    if "--binary" in sys.argv:
        at = sys.argv.index("--binary")
        BINARY = sys.argv[at + 1]
        del sys.argv[at:at + 2]
    unittest.main()
