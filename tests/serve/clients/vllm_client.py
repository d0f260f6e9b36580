"""`vllm bench serve` against a server: completions and chats, streamed, four at a time, with the server's own figures.

    python vllm_client.py BASE_URL MODEL

Its packages take 10 GB: clients.py runs it with --only vllm_client alone.
"""

import pathlib
import re
import subprocess
import sys

TARGET = pathlib.Path(__file__).resolve().parents[3] / "model/demo/target"
KINDS = {"openai": "/v1/completions", "openai-chat": "/v1/chat/completions"}
N_REQUESTS, N_TOKENS = 20, 16


def main():
    url, model = sys.argv[1:3]
    for backend, path in KINDS.items():
        command = [pathlib.Path(sys.executable).parent / "vllm", "bench", "serve", "--backend", backend, "--endpoint", path,
                   "--base-url", url.removesuffix("/v1"), "--model", model, "--tokenizer", TARGET, "--dataset-name", "random",
                   "--random-input-len", 20, "--random-output-len", N_TOKENS, "--num-prompts", N_REQUESTS,
                   "--max-concurrency", 4, "--ignore-eos"]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        figures = dict(re.findall(r"^([A-Z][^:]+):\s+([\d.]+)\s*$", done.stdout, re.M))
        assert float(figures["Successful requests"]) == N_REQUESTS and float(figures["Failed requests"]) == 0, figures
        assert float(figures["Total generated tokens"]) == N_REQUESTS * N_TOKENS, figures
        assert 0 < float(figures["Acceptance rate (%)"]) <= 100, figures
        print(f"passed: {backend}: {N_REQUESTS} requests, {figures['Acceptance rate (%)']} % of drafted tokens accepted")
    return 0


if __name__ == "__main__":
    sys.exit(main())
