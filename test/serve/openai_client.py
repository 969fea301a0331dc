"""OpenAI's client for Python against the server: streaming, tools, a schema, and an abort."""

import json
import os

from openai import BadRequestError, NotFoundError, OpenAI

client = OpenAI(base_url=os.environ["SERVE_URL"] + "/v1", api_key=os.environ["SERVE_KEY"], max_retries=0)
request = {"model": "demo", "messages": [{"role": "user", "content": "What news from Rome?"}], "temperature": 0}
schema = {
    "type": "object",
    "properties": {"name": {"enum": ["Brutus", "Cassius"]}},
    "required": ["name"],
    "additionalProperties": False,
}

assert [model.id for model in client.models.list()] == ["demo", "bge"]

whole = client.chat.completions.create(**request, max_tokens=12)
stream = client.chat.completions.create(**request, max_tokens=12, stream=True)
text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
assert text == whole.choices[0].message.content, (text, whole)

tool = {"type": "function", "function": {"name": "ask_oracle", "parameters": schema}}
choice = {"type": "function", "function": {"name": "ask_oracle"}}
answer = client.chat.completions.create(**request, tools=[tool], tool_choice=choice)
[call] = answer.choices[0].message.tool_calls
assert call.function.name == "ask_oracle"
assert json.loads(call.function.arguments)["name"] in ("Brutus", "Cassius")

form = {"type": "json_schema", "json_schema": {"name": "man", "schema": schema, "strict": True}}
answer = client.chat.completions.create(**request, response_format=form)
assert json.loads(answer.choices[0].message.content)["name"] in ("Brutus", "Cassius")

response = client.responses.create(model="demo", input="What news?", max_output_tokens=8, temperature=0)
assert isinstance(response.output_text, str) and response.usage.output_tokens > 0

stream = client.chat.completions.create(**request, max_tokens=400, stream=True)
for pieces, _ in enumerate(stream):
    if pieces == 3:
        stream.close()
        break

for error, fields in ((NotFoundError, {"model": "none"}), (BadRequestError, {"n": 0})):
    try:
        client.chat.completions.create(**{**request, **fields})
    except error:
        continue
    raise AssertionError(f"expected {error}")
print("the client is content")
