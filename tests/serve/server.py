"""A server under test, and requests to it. For the scripts beside this file."""

import http.client
import json
import pathlib
import re
import signal
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO = ROOT / "model/demo"
PAIR = ["--target", DEMO / "target", "--draft", DEMO / "draft"]


class Server:
    """entrodraft serve on a free port, alone or under `mpirun`, which is the beginning of a command line."""

    def __init__(self, binary, options, mpirun=(), ranks=1):
        words = [*mpirun, "-n", ranks, "--oversubscribe", "--bind-to", "none"] if ranks > 1 else []
        self.errors = tempfile.NamedTemporaryFile("w+", suffix=".stderr")
        self.process = subprocess.Popen([str(word) for word in [*words, binary, "serve", "--port", 0, "--threads", 1, *options]],
                                        stderr=self.errors, stdout=subprocess.DEVNULL, text=True)
        self.port = self.wait_for_port()

    def stderr(self):
        return pathlib.Path(self.errors.name).read_text()

    def wait_for_port(self, seconds=120):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := re.search(r"serving .* at http://127\.0\.0\.1:(\d+)", self.stderr()):
                return int(found[1])
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with {self.process.returncode}: {self.stderr()}")
            time.sleep(0.05)
        raise RuntimeError(f"the server took no connection: {self.stderr()}")

    def pid_of_rank_0(self):
        """The process that has the port: a child of mpirun, or the one that was started."""
        children = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True).stdout.split()
        return int(children[0]) if children else self.process.pid

    def drain(self, number=signal.SIGTERM):
        subprocess.run(["kill", f"-{int(number)}", str(self.pid_of_rank_0())], check=True)

    def end(self, seconds=60):
        """The exit code of a server that is ending."""
        return self.process.wait(seconds)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.errors.close()

    # ---- requests ----

    def connect(self, timeout=120):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def ask(self, method, path, body=None, headers=()):
        """(status, JSON or text)"""
        connection = self.connect()
        try:
            connection.request(method, path, body if isinstance(body, (str, bytes, type(None))) else json.dumps(body),
                               dict(headers))
            answer = connection.getresponse()
            text = answer.read().decode()
            is_json = answer.headers["Content-Type"] == "application/json"
            return answer.status, json.loads(text) if is_json else text
        finally:
            connection.close()

    def complete(self, **body):
        return self.ask("POST", "/v1/completions", body)

    def stream(self, path="/v1/completions", **body):
        """The chunks of a streamed answer; the last must be [DONE]."""
        connection = self.connect()
        try:
            connection.request("POST", path, json.dumps({**body, "stream": True}))
            answer = connection.getresponse()
            if answer.status != 200:
                raise RuntimeError(answer.read().decode())
            events = [line[len("data: "):] for line in answer.read().decode().split("\n\n") if line]
        finally:
            connection.close()
        if events[-1] != "[DONE]":
            raise RuntimeError(f"the stream ends with {events[-1]}")
        return [json.loads(event) for event in events[:-1]]


def texts_alone(binary, requests):
    """The texts that generate writes for each request alone, on one rank: {number: texts}. A request is a body of /v1/completions."""
    texts = {}
    for number, body in enumerate(requests):
        texts[number] = []
        for sample in range(body.get("n", 1)):
            words = [binary, "generate", *PAIR, "--prompt", body["prompt"], "--max-new-tokens", body["max_tokens"], "--quiet",
                     "--threads", 1, "--temperature", body["temperature"]]
            if body["temperature"] > 0:
                words += ["--seed", body["seed"] + sample]
            for stop in body.get("stop", []):
                words += ["--stop", stop]
            done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True)
            texts[number].append(done.stdout[:-1])  # without the newline that ends a text
    return texts
