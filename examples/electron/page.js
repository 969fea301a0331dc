// The window: it asks the main process through the bridge of preload.cjs.
const form = document.querySelector("form");
const fieldset = document.querySelector("fieldset");
const answer = document.querySelector("#answer");
const status = document.querySelector("[role=status]");

globalThis.model.onText((text) => {
  answer.textContent += text;
});

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const message = new FormData(form).get("message");
  form.reset();
  fieldset.disabled = true;
  answer.textContent = "";
  status.textContent = "Answering…";
  await globalThis.model.chat(message);
  status.textContent = "Ready";
  fieldset.disabled = false;
});
