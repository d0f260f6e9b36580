#!/usr/bin/env python3
"""Runs jobs over several hosts that are one machine, to show that nothing assumes one host.

    tests/hosts/run.py [--binary build/entrodraft]

A host here is a set of namespaces: its own name, network, shared memory and process-to-process memory, joined to the
others by a bridge. mpirun reaches them with an agent in place of ssh. Ranks on different hosts then have TCP only.
Text has to be that of as many ranks on one host. All of it lives in one process namespace and ends with it. Where
namespaces cannot be made it says so and exits 77, which ctest calls skipped.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
HOSTS = ("alpha", "beta", "gamma", "delta")
UNSHARE = ("unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
COMPARED = ("id", "text", "token_ids", "finish_reason")
GREEDY = ("--max-new-tokens", "48")
DRAFTS_APART = (*GREEDY, "--draft-placement", "dedicated")
REPLICAS = (*GREEDY, "--replicas", "2")
NOISY = (*GREEDY, "--temperature", "0.8", "--acceptance", "gumbel", "--seed", "3")

AGENT = """#!/bin/sh
# In place of ssh: HOST COMMAND...
host=$1
shift
exec nsenter --target "$(cat {directory}/$host.pid)" --net --uts --ipc --mount sh -c "$*"
"""

# Asks a server on this host COUNT times for a token. Writes the least time, in ms.
ASK = """import http.client, json, sys, time
def ask():
    connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
    begun = time.monotonic()
    connection.request("POST", "/v1/completions", json.dumps({"prompt": "It was", "max_tokens": 1}))
    assert "choices" in json.load(connection.getresponse())
    return 1000 * (time.monotonic() - begun)
print(min(ask() for _ in range(int(sys.argv[2]))))
"""


class Failure(Exception):
    """A check that did not hold; the text says which."""


class NoHosts(Exception):
    """This machine does not let us make hosts."""


def run(*command, seconds=300):
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as expired:
        raise Failure(f"{' '.join(command[:12])} ... took more than {seconds} s") from expired
    return done.returncode, done.stdout


def make(*command):
    code, text = run(*command, seconds=30)
    if code != 0:
        raise NoHosts(f"{' '.join(command)}: {text.strip()}")
    return text


class Hosts:
    """The hosts, made one after the other. Needs a process namespace of its own, which ends them."""

    def __init__(self, directory):
        self.directory = directory
        self.pids = {}
        names = "".join(f"10.99.0.{i + 1} {name}\n" for i, name in enumerate(HOSTS))
        with open(f"{directory}/hosts", "w", encoding="utf-8") as file:
            file.write("127.0.0.1 localhost\n" + names)
        self.agent = f"{directory}/agent"
        with open(self.agent, "w", encoding="utf-8") as file:
            file.write(AGENT.format(directory=directory))
        os.chmod(self.agent, 0o755)
        make("ip", "link", "set", "lo", "up")
        make("ip", "link", "add", "bridge", "type", "bridge")
        make("ip", "link", "set", "bridge", "up")
        for i, name in enumerate(HOSTS):
            self._make_host(name, f"10.99.0.{i + 1}/24")

    def _make_host(self, name, address):
        ready = f"{self.directory}/{name}.ready"
        setup = (f"hostname {name} && mount -t tmpfs none /dev/shm && mount --bind {self.directory}/hosts /etc/hosts && "
                 f"touch {ready} && exec sleep 100000")
        holder = subprocess.Popen(["unshare", "--net", "--uts", "--ipc", "--mount", "sh", "-c", setup],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        while not os.path.exists(ready):
            if holder.poll() is not None:
                raise NoHosts(f"host {name} could not be set up")
            time.sleep(0.01)
        self.pids[name] = holder.pid
        with open(f"{self.directory}/{name}.pid", "w", encoding="utf-8") as file:
            file.write(str(holder.pid))
        make("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
        make("ip", "link", "set", name, "master", "bridge", "up")
        for command in (f"ip address add {address} dev eth0", "ip link set eth0 up", "ip link set lo up"):
            make(self.agent, name, command)

    def launch(self, places, *command):
        """The command line that runs one on the ranks of places, {host: ranks}; mpirun runs on the first host."""
        first = next(iter(places))
        hosts = ",".join(f"{name}:{ranks}" for name, ranks in places.items())
        return ["nsenter", "--target", str(self.pids[first]), "--net", "--uts", "--ipc", "--mount",
                "mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--host", hosts,
                "--mca", "plm", "rsh", "--mca", "plm_rsh_agent", self.agent, "--mca", "mpi_yield_when_idle", "1",
                "--mca", "orte_tmpdir_base", self.directory, "-n", str(sum(places.values())), *command]

    def mpirun(self, places, *command):
        """Code and output of a command on the ranks of places."""
        return run(*self.launch(places, *command))


class Checks:
    def __init__(self, hosts, source, binary):
        self.hosts = hosts
        self.directory = hosts.directory
        self.binary = binary
        self.models = ("--target", f"{source}/model/demo/target", "--draft", f"{source}/model/demo/draft")
        self.prompts = f"{self.directory}/prompts.jsonl"
        with open(f"{source}/model/demo/prompts_text.jsonl", encoding="utf-8") as lines:
            some = lines.readlines()[:6]
        with open(self.prompts, "w", encoding="utf-8") as file:
            file.writelines(some)
        self.texts = {}
        self.outputs = 0

    def results(self, places, options):
        """What generate writes."""
        self.outputs += 1
        output = f"{self.directory}/results-{self.outputs}.jsonl"
        code, said = self.hosts.mpirun(places, self.binary, "generate", *self.models, "--input", self.prompts,
                                       "--output", output, "--quiet", "--collective-timeout", "60", *options)
        if code != 0:
            raise Failure(f"generate over {places} gave {code}: {said.strip()}")
        with open(output, encoding="utf-8") as lines:
            return [{field: json.loads(line)[field] for field in COMPARED} for line in lines]

    def on_one_host(self, ranks, options):
        key = (ranks, options)
        if key not in self.texts:
            self.texts[key] = self.results({HOSTS[0]: ranks}, options)
        return self.texts[key]

    def require_same_text(self, places, options):
        expected = self.on_one_host(sum(places.values()), options)
        if len(expected) != 6 or self.results(places, options) != expected:
            raise Failure(f"text over {places} is not that of as many ranks on one host")

    def require_communicator(self, places, kind):
        """What the ranks have between them, as bench latency says it."""
        code, said = self.hosts.mpirun(places, self.binary, "bench", "latency", *self.models, "--rows", "1",
                                       "--repetitions", "3", "--threads", "1")
        if code != 0 or f"of 1 thread over {kind}" not in said:
            raise Failure(f"bench latency over {places} gave {code} and does not say 'over {kind}': {said.strip()}")

    def require_distinct_hosts(self, places):
        """That ranks see as many names and networks as there are hosts: else the rest would show nothing."""
        code, said = self.hosts.mpirun(places, "sh", "-c", "echo host $(hostname) $(readlink /proc/self/ns/net)")
        seen = [line.split() for line in said.splitlines() if line.startswith("host ")]
        if code != 0 or any(len({row[i] for row in seen}) != len(places) for i in (1, 2)):
            raise Failure(f"{places} are not so many hosts: {said.strip()}")

    def require_end_when_unplugged(self, places, timeout):
        """A host whose cable is pulled: its ranks and the others end by themselves, with a message, and what is written
        is whole. mpirun itself waits on for its daemon over there, as long as TCP tries: it is ended here."""
        output, said = f"{self.directory}/unplugged.jsonl", f"{self.directory}/unplugged.txt"
        prompts = f"{self.directory}/first-is-short.jsonl"
        with open(self.prompts, encoding="utf-8") as lines, open(prompts, "w", encoding="utf-8") as file:
            file.write(next(lines).replace("{", '{"max_new_tokens": 8, ', 1) + lines.read())
        command = self.hosts.launch(places, self.binary, "generate", *self.models, "--input", prompts, "--output", output,
                                    "--quiet", "--collective-timeout", str(timeout), "--max-new-tokens", "2000",
                                    "--ignore-eos")
        with open(said, "w", encoding="utf-8") as file:
            launcher = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        cable = list(places)[-1]
        try:
            await_that(lambda: os.path.exists(output) and os.path.getsize(output) > 0, 120, "the first line")
            make("ip", "link", "set", cable, "down")
            began = time.monotonic()
            await_that(lambda: not processes_of(self.binary), timeout + 10, "the end of all ranks")
            took = time.monotonic() - began
        finally:
            launcher.kill()
            make("ip", "link", "set", cable, "up")
        with open(said, encoding="utf-8") as text, open(output, encoding="utf-8") as lines:
            message = next((line.strip() for line in text if line.startswith("entrodraft: [rank ")), None)
            served = [json.loads(line)["id"] for line in lines]
        if not message:
            raise Failure("no rank said why it ended")
        return f"{took:.0f} s later, {len(served)} lines written: {message}"

    def require_rest_when_idle(self, places, seconds=10):
        """A server that no one asks: its ranks rest, and the next request wakes them soon."""
        client, said, port = f"{self.directory}/ask.py", f"{self.directory}/server.txt", "8080"
        with open(client, "w", encoding="utf-8") as file:
            file.write(ASK)

        def ms_of_a_token(count):
            code, text = run(self.hosts.agent, next(iter(places)), sys.executable, client, port, str(count))
            if code != 0:
                raise Failure(f"a request failed: {text.strip()}")
            return float(text)

        with open(said, "w", encoding="utf-8") as file:
            launcher = subprocess.Popen(self.hosts.launch(places, self.binary, "serve", *self.models, "--port", port,
                                                          "--threads", "1"),
                                        stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        try:
            await_that(lambda: "serving " in pathlib.Path(said).read_text(encoding="utf-8"), 120, "the server")
            awake = ms_of_a_token(20)
            time.sleep(1)
            before, began = processor_seconds(self.binary), time.monotonic()
            time.sleep(seconds)
            share = (processor_seconds(self.binary) - before) / (time.monotonic() - began)
            later = ms_of_a_token(1) - awake
            for _ in range(2):  # the best of three: another process may have the core
                time.sleep(2)
                later = min(later, ms_of_a_token(1) - awake)
        finally:
            launcher.terminate()
            launcher.wait(30)
        note = f"{100 * share:.1f} % of a core; a token later by {later:.1f} ms"
        if share > 0.02 or later > 40:  # CI's cores are busy; the aims are 1 % and 20 ms
            raise Failure(note)
        return note


def await_that(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise Failure(f"waited {seconds} s in vain for {what}")
        time.sleep(0.02)


def processes_of(binary):
    """The processes of this program in the process namespace."""
    found = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.path.samefile(f"/proc/{name}/exe", binary):
                found.append(name)
        except OSError:
            pass
    return found


def processor_seconds(binary):
    """What all processes of this program have used so far."""
    ticks = 0
    for name in processes_of(binary):
        with open(f"/proc/{name}/stat", encoding="utf-8") as file:
            fields = file.read().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def cases(checks):
    one, two = {"alpha": 2}, {"alpha": 1, "beta": 1}
    two_each, four = {"alpha": 2, "beta": 2}, {name: 1 for name in HOSTS}
    return [
        ("hosts are distinct", lambda: checks.require_distinct_hosts(four)),
        ("2 ranks on a host: node", lambda: checks.require_communicator(one, "node")),
        ("2 ranks on 2 hosts: mpi", lambda: checks.require_communicator(two, "mpi")),
        ("4 ranks on 2 hosts: mpi", lambda: checks.require_communicator(two_each, "mpi")),
        ("2 ranks on 2 hosts, greedy", lambda: checks.require_same_text(two, GREEDY)),
        ("2 ranks on 2 hosts, gumbel", lambda: checks.require_same_text(two, NOISY)),
        ("4 ranks on 2 hosts, greedy", lambda: checks.require_same_text(two_each, GREEDY)),
        ("4 ranks on 2 hosts, gumbel", lambda: checks.require_same_text(two_each, NOISY)),
        ("4 ranks on 4 hosts, greedy", lambda: checks.require_same_text(four, GREEDY)),
        ("a drafter on its own host", lambda: checks.require_same_text({"alpha": 1, "beta": 2}, DRAFTS_APART)),
        ("a replica on each of 2 hosts", lambda: checks.require_same_text(two_each, REPLICAS)),
        ("an idle server on 2 hosts", lambda: checks.require_rest_when_idle(two)),
        ("a host unplugged", lambda: checks.require_end_when_unplugged(two, 5)),
    ]


def run_inside(arguments):
    """Within the process namespace: makes the hosts and runs the cases."""
    failed = 0
    checks = Checks(Hosts(arguments.inside), arguments.source, arguments.binary)
    for name, check in cases(checks):
        began = time.monotonic()
        try:
            word, note = "ok", check() or ""
        except (Failure, OSError, ValueError) as failure:
            word, note, failed = "FAILED", str(failure), failed + 1
        print(f"{name:28} {time.monotonic() - began:6.1f} s  {word:6}  {note}", flush=True)
    return 1 if failed else 0


def skip(why):
    print(f"skipped: no namespaces for hosts here ({why})")
    return SKIPPED


def main():
    source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser = argparse.ArgumentParser(description="jobs over several hosts that are one machine")
    parser.add_argument("--binary", default=f"{source}/build/entrodraft")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.source = source
    arguments.binary = os.path.abspath(arguments.binary)
    if arguments.inside:
        try:
            return run_inside(arguments)
        except NoHosts as why:
            return skip(why)
    enter = UNSHARE if os.getuid() == 0 else (*UNSHARE, "--user", "--map-root-user")
    try:
        code, text = run(*enter, "ip", "link", "set", "lo", "up", seconds=30)
    except FileNotFoundError as missing:
        code, text = 1, f"{missing.filename} is missing"
    if code != 0:
        return skip(text.strip())
    with tempfile.TemporaryDirectory(prefix="entrodraft-hosts-") as directory:
        return subprocess.run([*enter, sys.executable, os.path.abspath(__file__), "--binary", arguments.binary,
                               "--inside", directory], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
