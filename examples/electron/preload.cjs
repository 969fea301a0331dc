// What the page may ask of the main process, and nothing else.
const { contextBridge, ipcRenderer } = require("electron");

contextBridge.exposeInMainWorld("model", {
  /** Resolves when the answer has ended. */
  chat: (message) => ipcRenderer.invoke("chat", message),
  /** Calls `listener` with each piece of text. */
  onText: (listener) => ipcRenderer.on("text", (_event, text) => listener(text)),
});
