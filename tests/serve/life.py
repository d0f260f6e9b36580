#!/usr/bin/env python3
"""A server begins, refuses, loses clients and ranks, and ends.

    tests/serve/life.py build/entrodraft mpirun [--allow-run-as-root] --
"""

import concurrent.futures
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from server import DEMO, PAIR, Server

BINARY, MPIRUN = None, []


def serve(*options, ranks=1):
    return Server(BINARY, [*PAIR, *options], MPIRUN, ranks)


def seconds_of(pids):
    """Processor seconds of processes so far."""
    ticks = 0
    for pid in pids:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def ranks_of(server):
    return [int(pid) for pid in subprocess.run(["pgrep", "-P", str(server.process.pid)], capture_output=True,
                                               text=True).stdout.split()]


class Refusals(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = serve()

    @classmethod
    def tearDownClass(cls):
        cls.server.drain()
        code = cls.server.end()
        cls.server.__exit__()
        assert code == 0, code

    def refused(self, status, part, method, path, body=None):
        got, answer = self.server.ask(method, path, body)
        self.assertEqual(got, status, answer)
        self.assertIn(part, answer["error"]["message"])

    def test_each_mistake_has_its_status_and_its_reason(self):
        post = ("POST", "/v1/completions")
        self.refused(400, "not JSON", *post, "{")
        self.refused(400, "not a JSON object", *post, "[]")
        self.refused(400, "field foo is unknown", *post, {"prompt": "x", "foo": 1})
        self.refused(400, "max_tokens", *post, {"prompt": "x", "max_tokens": 0})
        self.refused(400, "temperature", *post, {"prompt": "x", "temperature": -1})
        self.refused(400, "stream_options has no effect", *post, {"prompt": "x", "stream_options": {}})
        self.refused(400, "messages is for /v1/chat/completions", *post, {"messages": []})
        self.refused(400, "has no chat template", "POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})
        self.refused(404, "model other is not served", *post, {"prompt": "x", "model": "other"})
        self.refused(404, "/v1/embeddings is not served", "POST", "/v1/embeddings", {})
        self.refused(404, "/v1/responses is not served", "POST", "/v1/responses", {})
        self.refused(404, "GET /v1/completions is not served", "GET", "/v1/completions")
        self.refused(403, "--api-key-file", "POST", "/drain")

    def test_pages_that_need_no_model(self):
        self.assertEqual(self.server.ask("GET", "/v1/models")[1]["data"][0]["id"], "target")
        self.assertEqual(self.server.ask("GET", "/health")[1]["status"], "ok")
        self.assertIn("version", self.server.ask("GET", "/version")[1])
        tokens = self.server.ask("POST", "/tokenize", {"prompt": "The ferry left"})[1]
        self.assertEqual(tokens["count"], len(tokens["tokens"]))
        self.assertEqual(self.server.ask("POST", "/detokenize", {"tokens": tokens["tokens"]})[1], {"prompt": "The ferry left"})

    def test_figures_are_counted(self):
        def value(name):
            lines = self.server.ask("GET", "/metrics")[1].splitlines()
            return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))
        before = value("vllm:generation_tokens_total"), value("vllm:request_success_total")
        self.server.complete(prompt="The ferry left", max_tokens=7, temperature=0)
        self.assertEqual((value("vllm:generation_tokens_total"), value("vllm:request_success_total")),
                         (before[0] + 7, before[1] + 1))

    def raw(self, *parts, pause=0.0):
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=30) as connection:
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
            connection.shutdown(socket.SHUT_WR)
            answer = b""
            while more := connection.recv(4096):
                answer += more
            return answer

    def test_bytes_that_are_no_request_are_answered_or_dropped(self):
        self.assertTrue(self.raw(b"what is this\r\n\r\n").startswith(b"HTTP/1.1 400"))
        self.assertEqual(self.raw(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\n{"), b"", "half a request")
        large = b"POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n" + b" " * 20000000
        self.assertTrue(self.raw(large).startswith(b"HTTP/1.1 413"))
        self.assertTrue(self.raw(b"GET / HTTP/1.1\r\nX: " + b"a" * 100000 + b"\r\n\r\n").startswith(b"HTTP/1.1 431"))

    def test_ten_thousand_malformed_requests_do_no_harm(self):
        chance = random.Random(1)
        bodies = [b'{"prompt": "It was", "max_tokens": 2}', b'{"prompt": [1, 2], "logit_bias": {"3": 1}, "stop": ["a"], "n": 2}',
                  b'{"messages": [{"role": "user", "content": "x"}], "tools": [], "stream": true}']
        for number in range(10000):
            if number % 4 == 0:
                data = chance.randbytes(chance.randrange(1, 200))
            else:
                body = bytearray(chance.choice(bodies))
                head = f"POST /v1/{chance.choice(['completions', 'chat/completions'])} HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n"
                data = bytearray(head.encode()) + body
                for _ in range(chance.randrange(1, 6)):  # of anything, or of the body alone
                    data[chance.randrange(0 if number % 4 == 1 else len(head), len(data))] = chance.randrange(256)
            try:
                self.raw(bytes(data))
            except OSError:
                pass  # the connection was reset
        self.assertEqual(self.server.complete(prompt="It was", max_tokens=2, temperature=0)[0], 200)

    def test_a_connection_serves_many_requests(self):
        connection = self.server.connect()
        for _ in range(20):
            connection.request("POST", "/v1/completions", json.dumps({"prompt": "It was", "max_tokens": 2, "temperature": 0}))
            self.assertEqual(connection.getresponse().read()[:6], b'{"id":')
        connection.close()


    def test_head_is_get_without_the_body(self):
        connection = self.server.connect()
        for path, status in (("/health", 200), ("/metrics", 200), ("/nothing", 404)):
            connection.request("HEAD", path)
            answer = connection.getresponse()
            self.assertEqual((answer.status, answer.read()), (status, b""))
            connection.request("GET", path)
            answer = connection.getresponse()
            self.assertEqual((answer.status, len(answer.read())), (status, int(answer.headers["Content-Length"])))
        connection.request("HEAD", "/health")
        connection.getresponse().read()
        connection.putrequest("POST", "/v1/completions")
        connection.putheader("Content-Length", "99999999")
        connection.endheaders()
        self.assertIn(b"larger than", connection.getresponse().read())
        connection.close()

    def test_a_request_names_its_stop_rule(self):
        asked = {"prompt": "It was", "max_tokens": 40, "temperature": 0}
        answers = [self.server.complete(**asked, stop_rule=rule)[1] for rule in ("constant:tokens=1", "constant:tokens=5")]
        answers.append(self.server.complete(**asked)[1])
        self.assertEqual(len({answer["choices"][0]["text"] for answer in answers}), 1)
        one, five = (answer["metrics"]["speculative_decoding"] for answer in answers[:2])
        self.assertLessEqual(one["num_draft_tokens"], one["num_spec_steps"])
        self.assertGreater(five["num_draft_tokens"], 3 * five["num_spec_steps"])
        self.refused(400, "stop_rule entropy", "POST", "/v1/completions", {**asked, "stop_rule": "entropy"})
        self.refused(400, "use --acceptance", "POST", "/v1/completions", {**asked, "acceptance": "rejection"})


class Life(unittest.TestCase):
    def test_a_full_queue_refuses_and_drops_nothing_that_it_took(self):
        with serve("--batch-size", 1, "--max-waiting", 3) as server:
            with concurrent.futures.ThreadPoolExecutor(20) as pool:
                asked = [pool.submit(server.complete, prompt="It was", max_tokens=60, temperature=0) for _ in range(20)]
                statuses = [each.result()[0] for each in asked]
        self.assertEqual(set(statuses), {200, 429})
        self.assertGreaterEqual(statuses.count(200), 4)

    def test_keys_are_asked_for_and_begin_the_end(self):
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
            keys.write("first\nsecond\n")
            keys.flush()
            with serve("--api-key-file", keys.name) as server:
                body = {"prompt": "It was", "max_tokens": 2}
                for key, status in (("first", 200), ("second", 200), ("third", 401), ("firs", 401)):
                    got = server.ask("POST", "/v1/completions", body, {"Authorization": f"Bearer {key}"})[0]
                    self.assertEqual(got, status, key)
                self.assertEqual(server.ask("POST", "/v1/completions", body)[0], 401)
                self.assertEqual(server.ask("GET", "/health")[0], 200)
                self.assertEqual(server.ask("POST", "/drain", None, {"Authorization": "Bearer first"})[0], 200)
                self.assertEqual(server.end(), 0)

    def test_what_was_taken_is_answered_while_the_server_ends(self):
        for number, replicas in ((signal.SIGTERM, 1), (signal.SIGUSR1, 1), (signal.SIGTERM, 2)):
            with serve("--batch-size", 2, "--replicas", replicas, ranks=replicas) as server, concurrent.futures.ThreadPoolExecutor(8) as pool:
                asked = [pool.submit(server.complete, prompt="The ferry", max_tokens=150, temperature=0) for _ in range(8)]
                time.sleep(0.3)
                server.drain(number)
                self.assertEqual([each.result()[0] for each in asked], [200] * 8)
                self.assertEqual(server.end(), 0)

    def test_a_client_that_leaves_ends_its_samples_that_are_not_begun(self):
        with serve("--batch-size", 1) as server:
            connection = server.connect()
            connection.request("POST", "/v1/completions", json.dumps({"prompt": "It was", "max_tokens": 3000, "n": 4,
                                                                      "ignore_eos": True, "stream": True}))
            connection.getresponse().read(10)
            connection.close()
            self.assertEqual(server.complete(prompt="It was", max_tokens=5)[0], 200)
            until = time.monotonic() + 20
            while 'vllm:num_requests_running{model_name="target"} 0' not in server.ask("GET", "/metrics")[1]:
                self.assertLess(time.monotonic(), until, "a slot is held for ever")  # the figure is set between steps
                time.sleep(0.05)
            server.drain()
            self.assertEqual(server.end(20), 0)

    def test_a_client_that_leaves_ends_its_text(self):
        with serve("--batch-size", 1) as server:
            connection = server.connect()
            connection.request("POST", "/v1/completions", json.dumps({"prompt": "It was", "max_tokens": 4000, "ignore_eos": True,
                                                                     "temperature": 0, "stream": True}))
            connection.getresponse().read(10)
            connection.close()
            begun = time.monotonic()
            self.assertEqual(server.complete(prompt="It was", max_tokens=2, temperature=0)[0], 200)
            self.assertLess(time.monotonic() - begun, 5, "the long text did not end")
            self.assertIn("entrodraft:requests_cancelled_total{model_name=\"target\"} 1", server.ask("GET", "/metrics")[1])

    def test_a_client_that_reads_nothing_holds_nobody_up(self):
        with serve("--batch-size", 2) as server:
            with socket.create_connection(("127.0.0.1", server.port)) as silent:
                body = json.dumps({"prompt": "It was", "max_tokens": 3000, "ignore_eos": True, "temperature": 0, "stream": True})
                silent.sendall(f"POST /v1/completions HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
                for _ in range(5):
                    self.assertEqual(server.complete(prompt="It was", max_tokens=5, temperature=0)[0], 200)

    def test_other_addresses_need_a_key(self):
        done = subprocess.run([BINARY, "serve", "--target", DEMO / "target", "--host", "0.0.0.0"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("needs --api-key-file FILE", done.stderr)

    def test_a_port_in_use_is_found_before_models_are_loaded(self):
        with serve() as server:
            done = subprocess.run([BINARY, "serve", *map(str, PAIR), "--port", str(server.port)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("Address already in use", done.stderr)

    def test_an_idle_server_rests_and_wakes(self):
        for ranks, replicas in ((1, 1), (2, 1), (2, 2)):
            with serve("--replicas", replicas, ranks=ranks) as server:
                def seconds_of_a_token():
                    begun = time.monotonic()
                    self.assertEqual(server.complete(prompt="It was", max_tokens=1)[0], 200)
                    return time.monotonic() - begun
                awake = min(seconds_of_a_token() for _ in range(20))
                pids = ranks_of(server) if ranks > 1 else [server.process.pid]
                time.sleep(1)
                before, begun = seconds_of(pids), time.monotonic()
                time.sleep(10)
                share = (seconds_of(pids) - before) / (time.monotonic() - begun)
                later = seconds_of_a_token() - awake
                for _ in range(2):  # the best of three: another process may have the core
                    time.sleep(2)
                    later = min(later, seconds_of_a_token() - awake)
                print(f"idle, {ranks} ranks, {replicas} replicas: {100 * share:.2f} % of a core; "
                      f"a token later by {1000 * later:.1f} ms", file=sys.stderr)
                self.assertLess(share, 0.02)
                self.assertLess(later, 0.03)  # the aim is 5 ms; CI's cores are busy

    def test_a_rank_that_dies_ends_the_server_also_when_idle(self):
        for busy in (False, True):
            with serve("--collective-timeout", 5, ranks=2) as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
                if busy:
                    pool.submit(lambda: server.complete(prompt="It was", max_tokens=3000, ignore_eos=True, temperature=0))
                    time.sleep(0.5)
                os.kill(ranks_of(server)[1], signal.SIGKILL)
                self.assertNotEqual(server.end(40), 0)

    def test_a_rank_that_stops_shows_in_health_and_ends_the_server(self):
        with serve("--collective-timeout", 8, ranks=2) as server:
            os.kill(ranks_of(server)[1], signal.SIGSTOP)
            time.sleep(5.5)
            status, answer = server.ask("GET", "/health")
            self.assertEqual((status, answer["status"]), (503, "stuck"))
            self.assertNotEqual(server.end(60), 0)


if __name__ == "__main__":
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    BINARY, MPIRUN = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:at]
    unittest.main(argv=[sys.argv[0], *sys.argv[at + 1:]])
