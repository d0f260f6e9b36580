"""`langchain-openai` against a server: invoke, stream with usage, tools.

    python langchain_client.py BASE_URL MODEL
"""

import sys
from typing import Literal

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def weather(city: Literal["Paris", "Rome"]) -> str:
    """The weather of a city."""
    return f"rain in {city}"


def main():
    def model_of(max_tokens):
        return ChatOpenAI(base_url=sys.argv[1], model=sys.argv[2], api_key="none", temperature=0, max_tokens=max_tokens,
                          max_retries=0, stream_usage=True)
    model = model_of(16)
    plain = model.invoke("Say hello.")
    assert plain.usage_metadata["output_tokens"] > 0, plain
    pieces = list(model.stream("Say hello."))
    assert "".join(piece.content for piece in pieces) == plain.content
    assert sum(piece.usage_metadata["output_tokens"] for piece in pieces if piece.usage_metadata) == plain.usage_metadata["output_tokens"]
    print("passed: plain and streamed texts are the same")
    called = model_of(400).bind_tools([weather], tool_choice="weather").invoke("How is the weather in Rome?")
    assert called.tool_calls[0]["name"] == "weather" and set(called.tool_calls[0]["args"]) == {"city"}, called
    print("passed: a tool that must be called is called")
    return 0


if __name__ == "__main__":
    sys.exit(main())
