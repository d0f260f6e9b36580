"""`lm-eval` against a server of the demo target in float32: log-likelihoods and greedy texts are transformers'.

    python lm_eval_client.py BASE_URL MODEL

items.jsonl has the questions and transformers' answers (make_harness_items.py).
"""

import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
COMMON = """
dataset_path: json
dataset_kwargs:
  data_files: {{test: {items}}}
test_split: test
doc_to_text: "{{{{context}}}}"
"""
TASKS = {
    "likelihoods": "output_type: multiple_choice\ntarget_delimiter: ''\ndoc_to_choice: choices\ndoc_to_target: answer\n"
                   "metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]\n",
    "texts": "output_type: generate_until\ndoc_to_target: text\ngeneration_kwargs: {until: ['.'], max_gen_toks: 12, temperature: 0}\n"
             "metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]\n",
}


def main():
    items = [json.loads(line) for line in (HERE / "items.jsonl").open()]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, text in TASKS.items():
            (folder / f"{name}.yaml").write_text(f"task: {name}\n" + COMMON.format(items=HERE / "items.jsonl") + text)
        model = f"model={sys.argv[2]},base_url={sys.argv[1]}/completions,num_concurrent=8,tokenizer_backend=remote,tokenized_requests=True"
        done = subprocess.run([pathlib.Path(sys.executable).parent / "lm_eval", "--model", "local-completions", "--model_args", model,
                               "--tasks", ",".join(TASKS), "--include_path", folder, "--output_path", folder / "out",
                               "--log_samples"], capture_output=True, text=True)
        if done.returncode != 0:
            print(done.stderr[-2000:])
            return 1

        def samples_of(task):
            return [json.loads(line) for line in next((folder / "out").glob(f"**/samples_{task}_*.jsonl")).open()]
        worst = max(abs(float(answer[0]) - wanted) for sample in samples_of("likelihoods")
                    for answer, wanted in zip(sample["filtered_resps"], items[sample["doc_id"]]["log_likelihoods"]))
        wrong = sum(sample["filtered_resps"][0] != items[sample["doc_id"]]["text"] for sample in samples_of("texts"))
    print(f"{4 * len(items)} log-likelihoods, the largest difference {worst:.1e}; {len(items)} texts, {wrong} differ")
    return 1 if worst > 1e-3 or wrong > 0 else 0


if __name__ == "__main__":
    sys.exit(main())
