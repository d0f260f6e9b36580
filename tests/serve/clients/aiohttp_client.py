"""200 streams at once by `aiohttp`: each ends whole, and greedy texts of one prompt are the same.

    python aiohttp_client.py BASE_URL MODEL
"""

import asyncio
import json
import sys

import aiohttp

STREAMS = 200


async def text_of(session, url, model, number):
    body = {"model": model, "prompt": ["The ferry left", "It was a dark night"][number % 2], "max_tokens": 8 + number % 5,
            "temperature": 0, "stream": True}
    text, ended = "", False
    async with session.post(f"{url}/completions", json=body) as answer:
        assert answer.status == 200, await answer.text()
        async for line in answer.content:
            data = line.decode().removeprefix("data: ").strip()
            if data == "[DONE]":
                ended = True
            elif data:
                text += json.loads(data)["choices"][0]["text"]
    assert ended
    return (body["prompt"], body["max_tokens"]), text


async def main():
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=600)) as session:
        results = await asyncio.gather(*(text_of(session, sys.argv[1], sys.argv[2], number) for number in range(STREAMS)))
    texts = {}
    for asked, text in results:
        assert texts.setdefault(asked, text) == text, (asked, text, texts[asked])
    print(f"passed: {STREAMS} streams at once, {len(texts)} texts")


if __name__ == "__main__":
    asyncio.run(main())
