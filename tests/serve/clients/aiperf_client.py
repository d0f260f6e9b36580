"""NVIDIA's AIPerf against a server: completions and chats, streamed, four at a time, with the server's own figures.

    python aiperf_client.py BASE_URL MODEL
"""

import json
import pathlib
import subprocess
import sys
import tempfile

TARGET = pathlib.Path(__file__).resolve().parents[3] / "model/demo/target"
N_REQUESTS, N_TOKENS = 20, 16


def measured(kind, url, model):
    with tempfile.TemporaryDirectory() as folder:
        command = [pathlib.Path(sys.executable).parent / "aiperf", "profile", "--url", url.removesuffix("/v1"), "--model", model,
                   "--endpoint-type", kind, "--streaming", "--concurrency", 4, "--request-count", N_REQUESTS,
                   "--tokenizer", TARGET, "--synthetic-input-tokens-mean", 20, "--output-tokens-mean", N_TOKENS,
                   "--extra-inputs", "ignore_eos:true", "--artifact-dir", folder, "--ui-type", "none"]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        figures = json.loads((pathlib.Path(folder) / "profile_export_aiperf.json").read_text())
        of_server = json.loads((pathlib.Path(folder) / "server_metrics_export.json").read_text())
    assert figures["request_count"]["avg"] == N_REQUESTS and figures["request_error_rate"]["avg"] == 0, figures
    assert figures["usage_completion_tokens"]["min"] == figures["usage_completion_tokens"]["max"] == N_TOKENS, figures
    assert any(name.startswith("vllm:") for name in of_server["metrics"]), of_server
    print(f"passed: {kind}: {N_REQUESTS} requests, none failed; the server's figures were read")


def main():
    for kind in ("completions", "chat"):
        measured(kind, *sys.argv[1:3])
    return 0


if __name__ == "__main__":
    sys.exit(main())
