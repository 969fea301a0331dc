// A page that loads a model into a worker and answers what is typed.
import { loadModel } from "lowbit/web";

const form = document.querySelector("form");
const fieldset = document.querySelector("fieldset");
const answer = document.querySelector("#answer");
const status = document.querySelector("[role=status]");

const percent = (done, total) => (total > 0 ? `${Math.round((100 * done) / total)} %` : `${done} bytes`);
const model = await loadModel("/model.pte", {
  onProgress: (done, total) => {
    status.textContent = `Loading… ${percent(done, total)}`;
  },
});
status.textContent = "Ready";
fieldset.disabled = false;

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const message = new FormData(form).get("message");
  form.reset();
  fieldset.disabled = true;
  answer.textContent = "";
  status.textContent = "Answering…";
  for await (const text of model.chat(message, { maxTokens: 100 })) answer.textContent += text;
  status.textContent = "Ready";
  fieldset.disabled = false;
});
