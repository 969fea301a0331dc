"use client";

import { loadModel, type WebModel } from "lowbit/web";
import { type FormEvent, useEffect, useState } from "react";

/** A form whose messages a model in a worker of the page answers. */
export function Chat({ address }: { address: string }) {
  const [model, setModel] = useState<WebModel | null>(null);
  const [status, setStatus] = useState("Loading…");
  const [answer, setAnswer] = useState("");

  useEffect(() => {
    const abort = new AbortController();
    const loading = loadModel(address, { signal: abort.signal });
    loading.then(
      (loaded) => {
        setModel(loaded);
        setStatus("Ready");
      },
      (error) => abort.signal.aborted || setStatus(String(error)),
    );
    return () => {
      abort.abort();
      loading.then(
        (loaded) => loaded.dispose(),
        () => {},
      );
    };
  }, [address]);

  async function send(event: FormEvent<HTMLFormElement>) {
    event.preventDefault();
    const form = event.currentTarget;
    const message = String(new FormData(form).get("message"));
    form.reset();
    setStatus("Answering…");
    setAnswer("");
    for await (const text of model!.chat(message, { maxTokens: 100 })) setAnswer((before) => before + text);
    setStatus("Ready");
  }

  return (
    <form onSubmit={send}>
      <fieldset disabled={status !== "Ready"}>
        <label>
          Message <input name="message" required />
        </label>
        <button type="submit">Send</button>
      </fieldset>
      <p id="answer">{answer}</p>
      <p role="status">{status}</p>
    </form>
  );
}
