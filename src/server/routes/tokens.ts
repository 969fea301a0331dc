/** /tokenize and /detokenize: texts to token ids and back. */
import { WHOLE_TEXT } from "../../text/tokenizer.ts";
import { ApiError } from "../errors.ts";
import { detokenizeRequest, detokenizeSchema, tokenizeRequest, tokenizeSchema } from "../schemas/tokens.ts";
import type { Serving } from "../serving.ts";
import { tokenText } from "../token-text.ts";
import { type App, addPost } from "./route.ts";

export function addTokens(app: App, serving: Serving): void {
  const tokenize = { path: "/tokenize", summary: "The tokens of a text.", request: tokenizeRequest };
  addPost(app, { ...tokenize, response: tokenizeSchema }, (c, body) =>
    serving.answer(c, { model: body.model, choices: 1 }, async ({ model, contextLength }) => {
      const { tokenizer } = model;
      const tokens = tokenizer.encode(body.prompt, {
        ...WHOLE_TEXT,
        addSpecialTokens: body.add_special_tokens ?? true,
      });
      const texts = () => tokens.map((id, i) => tokenText(tokenizer, id, tokens[i - 1]));
      const strings = body.return_token_strs ? { token_strs: texts() } : {};
      return { tokens, count: tokens.length, max_model_len: contextLength, ...strings };
    }),
  );
  const detokenize = { path: "/detokenize", summary: "The text of tokens.", request: detokenizeRequest };
  addPost(app, { ...detokenize, response: detokenizeSchema }, (c, body) =>
    serving.answer(c, { model: body.model, choices: 1 }, async ({ model: { tokenizer } }) => {
      const wrong = body.tokens.find((id) => id >= tokenizer.vocabSize);
      if (wrong !== undefined)
        throw new ApiError(400, `tokens: expected ids below ${tokenizer.vocabSize} but found ${wrong}`, {
          param: "tokens",
        });
      return { prompt: tokenizer.decode(body.tokens) };
    }),
  );
}
