"""Writes golden.json: what transformers computes, in float32, from the weights in
this folder. With --sample, prints a sample of the model's output instead.

    python golden.py
    python golden.py --sample "ROMEO:" --seed 7
"""

import argparse
import json
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = Path(__file__).resolve().parent
PROMPTS = ["KING RICHARD III:", "First Citizen:\nBefore we proceed any further", "What is the city but the people?"]
GREEDY_TOKENS = 60


def golden(model, tokenizer) -> dict:
    prompts, margins = [], []
    for text in PROMPTS:
        ids = tokenizer(text)["input_ids"]
        last_logits, greedy, past, step = None, [], None, torch.tensor([ids])
        for _ in range(GREEDY_TOKENS):
            result = model(step, past_key_values=past, use_cache=True)
            logits, past = result.logits[0, -1], result.past_key_values
            if last_logits is None:
                last_logits = logits
            first, second = logits.topk(2).values.tolist()
            margins.append(first - second)
            greedy.append(int(logits.argmax()))
            step = torch.tensor([[greedy[-1]]])
        prompts.append({
            "text": text,
            "ids": ids,
            "last_logits": [round(x, 5) for x in last_logits.tolist()],
            "greedy_ids": greedy,
            "greedy_text": tokenizer.decode(greedy),
            "min_margin": round(min(margins[-GREEDY_TOKENS:]), 5),
        })
    return {
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "dtype": "float32",
        "min_margin": round(min(margins), 5),
        "prompts": prompts,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=HERE)
    parser.add_argument("--sample", metavar="PROMPT", help="print sampled text and write nothing")
    parser.add_argument("--chat", metavar="MESSAGE", help="print the answer to a chat message and write nothing")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    torch.set_num_threads(2)
    torch.manual_seed(args.seed)
    tokenizer = AutoTokenizer.from_pretrained(args.folder)
    model = AutoModelForCausalLM.from_pretrained(args.folder, dtype=torch.float32).eval()
    with torch.no_grad():
        if args.sample is None and args.chat is None:
            text = json.dumps(golden(model, tokenizer), ensure_ascii=False)
            (args.folder / "golden.json").write_text(text + "\n", encoding="utf-8")
            return
        if args.chat is None:
            prompt, stops = args.sample, None
        else:
            turns = [{"role": "user", "content": args.chat}]
            prompt = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
            stops = model.generation_config.stop_strings
        ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
        model.generation_config.stop_strings = None  # given below, with the tokenizer
        output = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=args.tokens, pad_token_id=0,
            stop_strings=stops, tokenizer=tokenizer,
        )
        print(tokenizer.decode(output[0]))


if __name__ == "__main__":
    main()
