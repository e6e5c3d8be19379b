"""lm-eval over a task of our own: log likelihoods of choices by echo, and generation until a
stop, through /v1/completions (texts) and /v1/chat/completions."""
import json
import pathlib
import sys
import tempfile

import lm_eval
from lm_eval.tasks import TaskManager

given = json.load(sys.stdin)
HEAD = """task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
num_fewshot: 0
"""
CHOICE = """output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{answer}}"
target_delimiter: ""
metric_list:
  - metric: acc
"""
TEXT = """output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{text}}"
generation_kwargs:
  until: ["\\n"]
  max_gen_toks: 64
  do_sample: false
  chat_template_kwargs: {"enable_thinking": false}
metric_list:
  - metric: exact_match
"""
with tempfile.TemporaryDirectory() as folder:
    data = pathlib.Path(folder, "data.jsonl")
    data.write_text("".join(json.dumps(row) + "\n" for row in given["rows"]))
    for name, text in (("baton_choice", CHOICE), ("baton_text", TEXT)):
        pathlib.Path(folder, f"{name}.yaml").write_text(HEAD.format(name=name, data=data) + text)
    manager = TaskManager(include_path=folder, include_defaults=False)

    def run(model, path, tasks, **more):
        args = {"model": "demo", "base_url": f"http://127.0.0.1:{given['port']}{path}", "num_concurrent": 4, "max_retries": 1,
                **more}
        results = lm_eval.simple_evaluate(model=model, model_args=args, tasks=tasks, task_manager=manager, bootstrap_iters=0,
                                          apply_chat_template=model == "local-chat-completions", log_samples=True, verbosity="ERROR")
        return {t: {k: v for k, v in results["results"][t].items() if isinstance(v, float)} for t in tasks}
    print(json.dumps(run(given["model"], given["path"], given["tasks"], **given["args"])))
