/** End tokens, which llama.cpp recognizes by their texts (src/llama-vocab.cpp). */
/** End tokens, regardless of their type in the file. */
const ENDS = [
  ...["<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>"],
  ...["<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>"],
  ...["<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~["],
];

/** Fill-in-the-middle tokens that end an answer: those that metadata names, or else the first of these texts. */
const MIDDLES = [
  { key: "fim_pad", texts: ["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"] },
  { key: "fim_rep", texts: ["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"] },
  { key: "fim_sep", texts: ["<|file_sep|>"] },
];

/** Texts that are no end tokens if the vocabulary has all of others. */
const EXCEPTIONS = [
  { text: "<|end|>", beside: ["<|return|>", "<|call|>"] },
  { text: "<|end|>", beside: ["<|return|>", "<|calls|>"] },
  { text: "<|end|>", beside: ["<|flush|>", "<|call|>"] },
  { text: "<|end|>", beside: ["<|flush|>", "<|calls|>"] },
  { text: "</s>", beside: ["<|tool_response>"] },
];

/** Whether a piece with this text is a control token even if the file lists it as an ordinary piece. */
export function isEndText(text: string): boolean {
  return ENDS.includes(text) || MIDDLES.some(({ texts }) => texts.includes(text));
}

/** Ids of all end tokens: `eos`, then the others ascending. `ids` maps the file's pieces, `idOf` the names in metadata. */
export function endTokens(
  ids: ReadonlyMap<string, number>,
  eos: number | null,
  idOf: (name: string) => number | null,
): readonly number[] {
  const firstOf = (texts: readonly string[]) =>
    texts.flatMap((text) => ids.get(text) ?? []).sort((a, b) => a - b)[0] ?? null;
  const middles = MIDDLES.map(({ key, texts }) => idOf(key) ?? firstOf(texts));
  const found = new Set([...ENDS.map((text) => ids.get(text) ?? null), idOf("eot"), idOf("eom"), eos, ...middles]);
  for (const { text, beside } of EXCEPTIONS)
    if (beside.every((other) => found.has(ids.get(other) ?? -1))) found.delete(ids.get(text) ?? -1);
  const others = [...found].filter((id): id is number => id !== null && id !== eos).sort((a, b) => a - b);
  return eos !== null && found.has(eos) ? [eos, ...others] : others;
}
