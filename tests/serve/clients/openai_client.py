"""The `openai` package against a server: plain, streamed, several texts, log-probabilities, JSON by a schema, errors.

    python openai_client.py BASE_URL MODEL

Prints one line a check; the exit code is 1 if one fails. Runs in an environment with the package alone.
"""

import json
import sys

import openai

SCHEMA = {"type": "object", "properties": {"name": {"enum": ["Ann", "Bob"]}, "age": {"enum": [1, 20]}},
          "required": ["name", "age"], "additionalProperties": False}
MESSAGES = [{"role": "user", "content": "Say hello."}]
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"enum": [1, 2, 3]}},
    "required": ["city", "days"], "additionalProperties": False}}}]


def plain_and_streamed_texts_are_the_same(client, model):
    asked = {"model": model, "messages": MESSAGES, "max_completion_tokens": 24, "temperature": 0}
    plain = client.chat.completions.create(**asked)
    assert plain.usage.completion_tokens > 0 and plain.choices[0].finish_reason in ("stop", "length")
    pieces, usage = [], None
    for chunk in client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        pieces += [choice.delta.content or "" for choice in chunk.choices]
    assert "".join(pieces) == plain.choices[0].message.content, (pieces, plain)
    assert usage == plain.usage, (usage, plain.usage)


def a_seed_repeats_several_texts(client, model):
    messages = [{"role": "user", "content": "Write any sentence about the sea."}]
    asked = {"model": model, "messages": messages, "max_tokens": 16, "temperature": 1, "seed": 5, "n": 3}
    texts = [[choice.message.content for choice in client.chat.completions.create(**asked).choices] for _ in range(2)]
    assert texts[0] == texts[1] and len(set(texts[0])) > 1, texts
    drawn = client.chat.completions.create(**{**asked, "seed": None, "n": 1})
    again = client.chat.completions.create(**{**asked, "seed": drawn.seed, "n": 1})
    assert drawn.choices[0].message.content == again.choices[0].message.content


def log_probabilities_are_of_each_token(client, model):
    chat = client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=5, temperature=0, logprobs=True, top_logprobs=3)
    content = chat.choices[0].logprobs.content
    assert len(content) == chat.usage.completion_tokens
    assert all(len(token.top_logprobs) == 3 and token.logprob <= 0 for token in content)
    assert all(token.top_logprobs[0].token == token.token for token in content), "greedy text takes the most likely"
    text = client.completions.create(model=model, prompt="The ferry left", max_tokens=5, temperature=0, logprobs=2)
    assert len(text.choices[0].logprobs.token_logprobs) == 5


def a_required_tool_is_called(client, model):
    asked = {"model": model, "messages": MESSAGES, "max_tokens": 200, "temperature": 0, "tools": TOOLS, "tool_choice": "required"}
    plain = client.chat.completions.create(**asked).choices[0]
    assert plain.finish_reason == "tool_calls" and plain.message.content is None, plain
    call = plain.message.tool_calls[0]
    assert call.function.name == "weather" and json.loads(call.function.arguments)["city"] in ("Paris", "Rome"), call
    chunks = list(client.chat.completions.create(**asked, stream=True))
    deltas = [delta for chunk in chunks for choice in chunk.choices for delta in choice.delta.tool_calls or []]
    assert [(delta.function.name, delta.function.arguments) for delta in deltas] == [(call.function.name, call.function.arguments)]
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def text_follows_a_schema(client, model):
    answer = client.chat.completions.create(
        model=model, messages=MESSAGES, max_tokens=400, temperature=0,
        response_format={"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA, "strict": True}})
    person = json.loads(answer.choices[0].message.content)
    assert set(person) == {"name", "age"} and isinstance(person["age"], int), person


def prompts_come_as_texts_and_as_ids(client, model):
    both = client.completions.create(model=model, prompt=["The ferry left", "It was"], max_tokens=6, temperature=0)
    alone = client.completions.create(model=model, prompt="It was", max_tokens=6, temperature=0)
    assert [choice.index for choice in both.choices] == [0, 1]
    assert both.choices[1].text == alone.choices[0].text


def errors_are_those_of_the_api(client, model):
    for error, asked in ((openai.BadRequestError, {"max_tokens": -1}), (openai.NotFoundError, {"model": "another"})):
        try:
            client.chat.completions.create(**{"model": model, "messages": MESSAGES, **asked})
        except error as refused:
            assert refused.body["message"], refused
        else:
            raise AssertionError(f"{asked} was served")


def models_are_listed(client, model):
    assert [each.id for each in client.models.list()] == [model]


def main():
    client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)
    failed = 0
    for check in (models_are_listed, plain_and_streamed_texts_are_the_same, a_seed_repeats_several_texts,
                  log_probabilities_are_of_each_token, a_required_tool_is_called, text_follows_a_schema, prompts_come_as_texts_and_as_ids,
                  errors_are_those_of_the_api):
        try:
            check(client, sys.argv[2])
            print(f"passed: {check.__name__}")
        except Exception as error:  # noqa: BLE001: any failure is one
            failed += 1
            print(f"failed: {check.__name__}: {error!r}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
