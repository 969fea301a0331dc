// The main process: it runs the model on native kernels, and sends text to the window piece by piece.
import { fileURLToPath } from "node:url";
import { app, BrowserWindow, ipcMain } from "electron";
import { loadProgram } from "lowbit";

const path = (name) => fileURLToPath(new URL(name, import.meta.url));

const loading = loadProgram(process.env.MODEL ?? path("model.pte")).then((llm) => llm.createConversation());

ipcMain.handle("chat", async ({ sender }, message) => {
  const chat = await loading;
  for await (const text of chat.send(message, { maxTokens: 100 })) sender.send("text", text);
});

await app.whenReady();
const window = new BrowserWindow({ webPreferences: { preload: path("preload.cjs") } });
await window.loadFile(path("index.html"));
app.on("window-all-closed", () => app.quit());
