#!/usr/bin/env python3
"""What did nvcc make of the kernels? Registers, spills, and how many bytes a lane has under way, without a GPU.

    python3 bench/gpu_code.py [--arch LIST] [--nvcc FILE] [--nvdisasm FILE] [--kernel WORD] [--output FILE] [--json]

Compiles the .cu files of dist/comm (push.cu where NCCL's headers are), model/gpu and spec/gpu for each compute
capability and reads ptxas's report and the machine code. Under way: the most loads of global memory (and their bytes)
that one lane has issued before it needs the first of them, along the code as it lies; a branch forgets none. Copies: of
16 bytes from global into shared memory, past the registers. Before wait: loads that are issued before it waits for the
kernel in front of it, from compute capability 9.0 on. Needs nvcc, nvdisasm (of the CUDA toolkit, PyPI's nvidia-cuda-nvdisasm
or triton; without it there are no loads in the table), c++filt, and the standard library.
"""

import concurrent.futures
import dataclasses
import glob
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from runs import ROOT, Parser, aligned, comma_list, file_name, number, report

ARCHITECTURES = (80, 90, 100)
WIDE = 16  # bytes of the widest load
NEEDS_NCCL = "push"


@dataclasses.dataclass
class Kernel:
    """A kernel as compiled for one compute capability; loads are None where nothing was disassembled."""

    arch: int
    name: str
    registers: int = 0
    spilled_bytes: int = 0  # stored and loaded
    loads: int | None = None  # of global memory, in the code
    wide_loads: int | None = None  # those of 16 bytes, but of what other blocks of the kernel have written
    loads_under_way: int | None = None
    bytes_under_way: int | None = None
    copies: int | None = None  # of 16 bytes into shared memory
    tensor_core_steps: int | None = None
    starts_next: int | None = None  # times that it lets the next kernel start (programmatic dependent launch), in the code
    waits: int | None = None  # times that it waits for the kernel before
    before_wait: int | None = None  # loads and stores in front of the first wait; None without one
    evicts_first: bool | None = None  # whether some of what it loads is to leave the second-level cache first


# ---- the machine code ----

INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ +)?([A-Z][\w.]*)\s*(.*?);?\s*$")
REGISTER = re.compile(r"\bR(\d+)\b")


def load_bytes(opcode):
    """Bytes that one lane reads from global memory; 0 of other instructions."""
    parts = opcode.split(".")
    if parts[0] != "LDG":
        return 0
    for part, n_bytes in (("128", 16), ("64", 8), ("U16", 2), ("S16", 2), ("U8", 1), ("S8", 1)):
        if part in parts:
            return n_bytes
    return 4


def before_wait(instructions):
    """Loads and stores of global memory in front of the first wait for the kernel before; None without a wait."""
    opcodes = [opcode for opcode, _ in instructions]
    return sum(opcode.startswith(("LDG", "STG", "ATOMG", "REDG")) for opcode in opcodes[:opcodes.index("ACQBULK")]) \
        if "ACQBULK" in opcodes else None


def evicts_first(instructions):
    """Whether the policy of that name is made, as nvcc 13.0 does it: in one move, or from 9.0 on in two."""
    moved = {word for opcode, operands in instructions if "MOV" in opcode for word in operands.replace(",", " ").split()}
    return "0x12f00000" in moved or {"0xf0", "0x120"} <= moved


def most_under_way(instructions):
    """(loads, bytes) issued before the first of them is needed, where they are most bytes; instructions are (opcode,
    operands)."""
    waiting = {}  # first register of a load: its bytes
    most = (0, 0)
    for opcode, operands in instructions:
        registers = [int(found) for found in REGISTER.findall(operands)]
        n_bytes = load_bytes(opcode)
        # Read or overwritten: a load's own address may lie in the registers that it fills.
        for first in [first for first, size in waiting.items()
                      if any(first <= register < first + max(1, size // 4) for register in registers)]:
            del waiting[first]
        if n_bytes and registers:
            waiting[registers[0]] = n_bytes
            most = max(most, (len(waiting), sum(waiting.values())), key=lambda loads: loads[1])
    return most


def read_code(text):
    """{mangled name: [(opcode, operands)]} of nvdisasm's text."""
    kernels, current = {}, None
    for line in text.splitlines():
        if line.startswith(".text."):
            current = kernels.setdefault(line[len(".text."):].rstrip(":"), [])
        elif current is not None and (found := INSTRUCTION.match(line)):
            current.append(found.groups())
    return kernels


# ---- ptxas's report ----

def read_report(text):
    """{mangled name: (registers, spilled bytes)} of `ptxas -v`."""
    kernels, name, spilled = {}, None, 0
    for line in text.splitlines():
        if found := re.search(r"Compiling entry function '(\S+)'", line):
            name, spilled = found[1], 0
        elif found := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            spilled = int(found[1]) + int(found[2])
        elif name and (found := re.search(r"Used (\d+) registers", line)):
            kernels[name], name = (int(found[1]), spilled), None
    return kernels


def short_names(mangled):
    """As the source has them: `attend_tiles<bfloat16, 4>`."""
    filter_program = shutil.which("c++filt")
    names = list(mangled)
    if filter_program and names:
        names = subprocess.run([filter_program], input="\n".join(names), capture_output=True, text=True,
                               check=True).stdout.splitlines()
    # Template arguments stay, the function's own go.
    short = [re.sub(r"\(anonymous namespace\)::|entrodraft::\w+::gpu::|entrodraft::\w+::|^void |__nv_", "", name)
             for name in names]
    return {key: re.sub(r"\(.*", "", name.replace("(int)", "").replace("(bool)", "")).replace("__half", "half")
            for key, name in zip(mangled, short)}


# ---- compiling ----

def find_nvdisasm(nvcc):
    """That of the toolkit, of the path, or of a Python package; None where there is none."""
    candidates = [pathlib.Path(nvcc).resolve().parent / "nvdisasm", shutil.which("nvdisasm")]
    for folder in [*sys.path, *map(str, ROOT.glob(".venv/lib/python*/site-packages"))]:
        candidates += glob.glob(os.path.join(folder, "nvidia", "*", "bin", "nvdisasm"))
        candidates.append(os.path.join(folder, "triton", "backends", "nvidia", "bin", "nvdisasm"))
    return next((str(path) for path in candidates if path and os.access(path, os.X_OK)), None)


def find_nccl():
    """The folder of NCCL's headers in .venv or beside a Python's packages; None where there is none."""
    wheels = [*ROOT.glob(".venv/nccl"), *ROOT.glob(".venv/lib/python*/site-packages"), *map(pathlib.Path, sys.path)]
    return next((path for path in (wheel / "nvidia/nccl/include" for wheel in wheels) if (path / "nccl_device.h").exists()), None)


def compile_file(source, arch, nvcc, nvdisasm, folder):
    """[Kernel] of one file for one compute capability."""
    cubin = pathlib.Path(folder) / f"{source.stem}.{arch}.cubin"
    nccl = [f"-I{find_nccl()}"] if source.stem == NEEDS_NCCL else []
    command = [nvcc, "-std=c++20", "-O3", "-Xptxas", "-v", f"-arch=sm_{arch}", f"-I{ROOT}", *nccl, "-cubin", "-o", str(cubin),
               str(source)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise SystemExit(f"{' '.join(command)}:\n{ended.stderr}")
    facts = read_report(ended.stderr)
    code = {}
    if nvdisasm:
        ended = subprocess.run([nvdisasm, "-c", str(cubin)], capture_output=True, text=True, check=False)
        if ended.returncode != 0:
            raise SystemExit(f"{nvdisasm} -c {cubin}:\n{ended.stderr}")
        code = read_code(ended.stdout)
    names = short_names(facts)
    kernels = []
    for mangled, (registers, spilled) in facts.items():
        kernel = Kernel(arch, names[mangled], registers, spilled)
        if mangled in code:
            instructions = code[mangled]
            kernel.loads = sum(load_bytes(opcode) > 0 for opcode, _ in instructions)
            kernel.wide_loads = sum(load_bytes(opcode) == WIDE and "STRONG" not in opcode for opcode, _ in instructions)
            kernel.loads_under_way, kernel.bytes_under_way = most_under_way(instructions)
            kernel.copies = sum(opcode.startswith("LDGSTS") for opcode, _ in instructions)
            kernel.tensor_core_steps = sum(opcode.startswith("HMMA") for opcode, _ in instructions)
            kernel.starts_next = sum(opcode == "PREEXIT" for opcode, _ in instructions)
            kernel.waits = sum(opcode == "ACQBULK" for opcode, _ in instructions)
            kernel.before_wait = before_wait(instructions)
            kernel.evicts_first = evicts_first(instructions)
        kernels.append(kernel)
    return kernels


def sources():
    found = sorted(path for folder in ("dist/comm", "model/gpu", "spec/gpu") for path in ROOT.glob(f"{folder}/*.cu"))
    return [path for path in found if path.stem != NEEDS_NCCL or find_nccl()]


def compiled(architectures, nvcc, nvdisasm, files=None, jobs=os.cpu_count() or 1):
    """[Kernel] of all files (or of these) for all compute capabilities, by name, then capability."""
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        parts = pool.map(lambda job: compile_file(*job, nvcc, nvdisasm, folder),
                         [(source, arch) for source in files or sources() for arch in architectures])
        return sorted((kernel for part in parts for kernel in part), key=lambda kernel: (kernel.name, kernel.arch))


def table(kernels):
    def cell(value):
        return "-" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)

    rows = [["kernel", "sm", "registers", "spilled", "loads", "16 bytes", "under way", "bytes", "copies", "mma", "before wait"]]
    rows += [[cell(value) for value in (kernel.name, kernel.arch, kernel.registers, kernel.spilled_bytes,
                                        kernel.loads, kernel.wide_loads, kernel.loads_under_way, kernel.bytes_under_way,
                                        kernel.copies, kernel.tensor_core_steps, kernel.before_wait)] for kernel in kernels]
    return aligned(rows)


def main(words=None):
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", type=comma_list(number(80, 200, int)), default=list(ARCHITECTURES),
                        help="compute capabilities, as 80,90,100")
    parser.add_argument("--nvcc", default=shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc")
    parser.add_argument("--nvdisasm")
    parser.add_argument("--kernel", default="", help="only kernels whose name holds this")
    parser.add_argument("--output", type=file_name)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(words)
    if not os.access(options.nvcc, os.X_OK):
        parser.error(f"{options.nvcc}: no nvcc there")
    nvdisasm = options.nvdisasm or find_nvdisasm(options.nvcc)
    kernels = [kernel for kernel in compiled(options.arch, options.nvcc, nvdisasm) if options.kernel in kernel.name]
    result = {"kernels": [dataclasses.asdict(kernel) for kernel in kernels]}
    report(table(kernels), result, options.output, options.json)


if __name__ == "__main__":
    main()
