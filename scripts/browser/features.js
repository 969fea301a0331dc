/** Tests the page's features in Chromium: conversations, Markdown, edited questions, files, tools, hostile answers, axe. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { root } from "../native/sources.js";
import { ask, clickAction, lastAnswer, loadFrom, openSettings, QUESTION, status } from "./driver.js";

/** Has the worker's next answers be these: each a list of events, and how it ends. */
export function script(page, answers) {
  return page.evaluate((answers) => {
    const worker = globalThis.workers.find(({ isEnded }) => !isEnded);
    const { postMessage } = worker;
    globalThis.asked = [];
    worker.postMessage = (message) => {
      if (message.kind !== "chat") return postMessage.call(worker, message);
      globalThis.asked.push(message);
      const { events, finishReason = "stop" } = answers.shift();
      if (answers.length === 0) worker.postMessage = postMessage;
      const reply = (body) => worker.onmessage({ data: { ...body, id: message.id } });
      for (const event of events) reply({ kind: "event", event });
      const generation = { firstTokenSeconds: 0.5, decodeSeconds: 2, generatedTokens: 9, message: null };
      reply({ kind: "end", value: { finishReason, generation, usage: { promptTokens: 11 } } });
    };
  }, answers);
}

async function say(page, text) {
  await page.fill("#input", text);
  await page.press("#input", "Enter");
  await page.waitForSelector("#send:visible");
  await status(page, "Ready");
}

const text = (text) => ({ type: "text", text });

/** The part of an answer that has come is kept if the tab is closed, or the page left, before its end. */
export async function checkHalfWritten(page) {
  for (const isAtOnce of [false, true]) {
    await page.click("#reset");
    await page.evaluate(() => {
      const worker = globalThis.workers.find(({ isEnded }) => !isEnded);
      const { postMessage } = worker;
      worker.postMessage = (message) => {
        if (message.kind !== "chat") return postMessage.call(worker, message);
        for (const part of ["Half of ", "an answer"])
          worker.onmessage({ data: { kind: "event", event: { type: "text", text: part }, id: message.id } });
        const call = { type: "toolCall", index: 0, id: "a", name: "clock" };
        worker.onmessage({ data: { kind: "event", event: call, id: message.id } });
      };
    });
    const question = `Is it kept ${isAtOnce ? "at once" : "after a second"}?`;
    await page.fill("#input", question);
    await page.press("#input", "Enter");
    await page.waitForFunction(() => document.querySelector(".message.model:last-child .text")?.textContent);
    const written = (question) =>
      new Promise((resolve) => {
        const opening = indexedDB.open("lowbit-conversations");
        opening.onsuccess = () => {
          const asked = opening.result.transaction("conversations").objectStore("conversations").getAll();
          asked.onsuccess = () => {
            opening.result.close();
            resolve(asked.result.find(({ messages }) => messages[0]?.content === question)?.messages[1] ?? false);
          };
        };
      });
    // As when the process of the tab dies: nothing tells the page of it.
    if (!isAtOnce) await page.waitForFunction(written, question);
    await page.reload();
    await status(page, "Ready");
    const part = { role: "assistant", content: "Half of an answer" };
    assert.deepEqual(await page.evaluate(written, question), part, question);
    await page.locator("#list li > button").first().click();
    assert.equal(await lastAnswer(page), part.content, question);
  }
}

/** Conversations are there after a reload, renamed, exported and deleted. */
export async function checkConversations(page, expected) {
  await ask(page);
  await page.reload();
  await status(page, "Ready");
  await page.locator("#list li > button").first().click();
  assert.equal(await lastAnswer(page), expected, "the answer that was kept");
  const menu = page.locator("#list li").first();
  await menu.locator("summary").click();
  await menu.getByText("Rename").click();
  await page.fill("#question-field", "Trades & arts");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelector("#list button").textContent === "Trades & arts");
  for (const [format, ending, check] of [
    [
      "Export as JSON",
      ".json",
      (text) =>
        JSON.parse(text)
          .messages.map(({ role }) => role)
          .join() === "user,assistant",
    ],
    [
      "Export as Markdown",
      ".md",
      (text) => text.startsWith("# Trades & arts\n\n## You\n\nSpeak, what trade art thou?\n\n## Model\n\n"),
    ],
  ]) {
    await menu.locator("summary").click();
    const [download] = await Promise.all([page.waitForEvent("download"), menu.getByText(format).click()]);
    assert.equal(download.suggestedFilename(), `Trades-arts${ending}`);
    assert.ok(check(readFileSync(await download.path(), "utf8")), `what ${format} gives`);
  }
  const count = await page.locator("#list li").count();
  await menu.locator("summary").click();
  await menu.getByText("Delete").click();
  await page.click("dialog button:has-text('Cancel')");
  assert.equal(await page.locator("#list li").count(), count, "conversations after none was deleted");
  await menu.locator("summary").click();
  await menu.getByText("Delete").click();
  await page.click("dialog .main");
  await status(page, "Deleted");
  assert.equal(await page.locator("#list li").count(), count - 1, "conversations after one was deleted");
  assert.equal(await page.locator(".message").count(), 0, "messages of a conversation that was deleted");
}

/** A first question that cannot be answered leaves no conversation behind. */
export async function checkRefusedLeavesNothing(page) {
  await page.click("#reset");
  const before = await page.locator("#list li").count();
  await page.fill("#input", "word ".repeat(2000));
  await page.press("#input", "Enter");
  await status(page, "Cannot answer: prompt");
  await page.waitForFunction((count) => document.querySelectorAll("#list li").length === count, before);
  await page.reload();
  await status(page, "Ready");
  assert.equal(await page.locator("#list li").count(), before, "conversations after a question that was refused");
  await page.fill("#input", "");
}

/** A conversation that is deleted while it is answered stays deleted; one that is chosen again goes on. */
export async function checkDeletedWhileAnswered(page) {
  await page.click("#reset");
  await page.evaluate(() => {
    const worker = globalThis.workers.find(({ isEnded }) => !isEnded);
    const { postMessage } = worker;
    worker.postMessage = ({ id, kind }) => {
      if (kind === "chat") worker.onmessage({ data: { id, kind: "event", event: { type: "text", text: "And so" } } });
      if (kind !== "abort") return;
      worker.postMessage = postMessage;
      worker.onmessage({ data: { id, kind: "error", error: { name: "AbortError", message: "ended", file: null } } });
    };
  });
  const before = await page.locator("#list li").count();
  await page.fill("#input", "Go on for ever.");
  await page.press("#input", "Enter");
  await page.getByText("And so").waitFor();
  // A question is kept before it has an answer.
  await page.waitForFunction((count) => document.querySelectorAll("#list li").length === count + 1, before);
  await page.locator("#list li > button").first().click();
  assert.ok(await page.isVisible("#stop"), "an answer goes on when its conversation is chosen again");
  const menu = page.locator("#list li").first();
  await menu.locator("summary").click();
  await menu.getByText("Delete").click();
  await page.click("dialog .main");
  await page.waitForSelector("#send:visible");
  await page.waitForTimeout(200);
  assert.equal(
    await page.locator("#list li").count(),
    before,
    "conversations after one was deleted while it was answered",
  );
  await page.reload();
  await status(page, "Ready");
  assert.equal(await page.locator("#list li").count(), before, "conversations after a reload");
}

/** A changed question and an answer asked for again take the place of what was there. */
export async function checkEdit(page, expected) {
  await ask(page);
  await say(page, "And then?");
  assert.equal(await page.locator(".message").count(), 4);
  await page.locator(".message.user").first().getByText("Edit").click();
  await page.fill(".edit textarea", "Never");
  await page.keyboard.press("Escape");
  assert.equal(await page.locator(".message").count(), 4, "messages after a change that was given up");
  await page.locator(".message.user").first().getByText("Edit").click();
  await page.fill(".edit textarea", QUESTION);
  await page.click(".edit .main");
  await page.waitForFunction(() => document.querySelectorAll(".message").length === 2);
  await page.waitForSelector("#send:visible");
  assert.equal(await lastAnswer(page), expected, "the answer to a changed question");
  await page.locator(".message.model").getByText("Regenerate").click();
  await page.waitForSelector("#send:visible");
  await status(page, "Ready");
  assert.equal(await page.locator(".message").count(), 2);
  assert.equal(await lastAnswer(page), expected, "the answer that was asked for again");
  const size = page.viewportSize();
  await page.setViewportSize({ width: 1100, height: 420 });
  await say(page, "And then?");
  const bottom = await page.evaluate(() => {
    const { bottom } = document.querySelector(".message.model:last-child .text").getBoundingClientRect();
    return document.getElementById("messages").getBoundingClientRect().bottom - bottom;
  });
  assert.ok(bottom >= 0, `the last answer ends ${-bottom} pixels below what is in view`);
  await page.setViewportSize(size);
  assert.match(await page.textContent("#corner"), /tok\/s · first token [\d.]+ s · context \d+ of 512$/);
}

const HOSTILE = [
  '<script>globalThis.isHacked = true</script><img src=x onerror="globalThis.isHacked = true">',
  "[link](javascript:globalThis.isHacked=true) [data](data:text/html,x) [good](https://example.com/page)",
  "![spy](https://spy.example/pixel.png) <iframe src='https://spy.example/frame'></iframe>",
  '<a href="javascript:alert(1)" onclick="globalThis.isHacked = true">tag</a> <style>body{display:none}</style>',
  '[x](https://e.example "title" onmouseover=globalThis.isHacked=true) <svg onload="globalThis.isHacked=true">',
  '![a"onerror="globalThis.isHacked=true](x"onerror="globalThis.isHacked=true)',
  "<form action='https://spy.example'><input name=q autofocus onfocus=globalThis.isHacked=true></form>",
];

/** Markdown is shown; nothing that a model writes runs, and nothing is fetched for it. */
export async function checkMarkdown(page) {
  const requests = [];
  page.on("request", (request) => requests.push(request.url()));
  const code = 'const a = "<b>";\nconsole.log(a);';
  const answer = `# Title\n\nSome **bold** text.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n- [x] done\n\n\`\`\`js\n${code}\n\`\`\`\n`;
  await page.click("#reset");
  await script(page, [{ events: [...answer].map(text) }, { events: HOSTILE.map((part) => text(`${part}\n\n`)) }]);
  await say(page, "Show me.");
  const shown = page.locator(".message.model .text").last();
  for (const [selector, content] of [
    ["h3", "Title"],
    ["strong", "bold"],
    ["td >> nth=1", "2"],
    ["li", "☑ done"],
  ])
    assert.equal((await shown.locator(selector).textContent()).trim(), content, selector);
  assert.equal(await shown.locator("pre").textContent(), `${code}\n`);
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await shown.getByText("Copy").click();
  await shown.getByText("Copied").waitFor();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), code, "code that was copied");
  await say(page, "Attack me.");
  await page.waitForTimeout(300);
  assert.equal(await page.evaluate(() => globalThis.isHacked), undefined, "what a model wrote has run");
  const found = await page
    .locator(".message.model .text")
    .last()
    .evaluate((element) => ({
      tags: [...new Set([...element.querySelectorAll("*")].map(({ localName }) => localName))],
      attributes: [...new Set([...element.querySelectorAll("*")].flatMap((e) => e.getAttributeNames()))],
      hrefs: [...element.querySelectorAll("a[href]")].map((link) => link.getAttribute("href")),
      rels: [...element.querySelectorAll("a")].map(({ rel }) => rel),
    }));
  for (const tag of found.tags) assert.ok(["p", "a", "br"].includes(tag), `a tag ${tag}`);
  for (const name of found.attributes)
    assert.ok(["href", "title", "target", "rel"].includes(name), `attribute ${name}`);
  for (const href of found.hrefs) assert.match(href, /^https:/);
  assert.ok(found.hrefs.includes("https://example.com/page") && found.rels.every((rel) => rel.includes("noopener")));
  assert.deepEqual(
    requests.filter((url) => !url.startsWith(new URL(page.url()).origin)),
    [],
    "requests of other hosts",
  );
  page.removeAllListeners("request");
}

/** Thoughts are folded; tools are run in the page and shown; a system prompt and earlier messages reach the model. */
export async function checkThinkingAndTools(page) {
  await openSettings(page);
  await page.click("#reset");
  await status(page, "New conversation");
  await page.fill("#system", "Be brief.");
  assert.ok(await page.isDisabled("#tools"), "tools of a model without them");
  // The answers are written here, as a model with tools would give them.
  await page.evaluate(() => {
    document.getElementById("tools").disabled = false;
  });
  await page.check("#tools");
  const call = (expression) => [
    { type: "toolCall", index: 0, id: "c1", name: "calculate" },
    { type: "toolArguments", index: 0, text: JSON.stringify({ expression }) },
  ];
  await script(page, [
    { events: [{ type: "reasoning", text: "Let me see." }, ...call("(2 + 3) * 4 ^ 2 / 8")], finishReason: "toolCalls" },
    { events: [text("It is 10.")] },
  ]);
  await say(page, "Calculate.");
  const [thinking, tool] = ["details.thinking", "details.call"].map((selector) => page.locator(selector));
  assert.equal(await thinking.evaluate(({ open }) => open), false, "thoughts are folded");
  assert.equal(await thinking.locator(".thought").textContent(), "Let me see.");
  assert.equal(await tool.locator("summary").textContent(), "Tool: calculate");
  assert.deepEqual(await tool.locator("pre").allTextContents(), ['{"expression":"(2 + 3) * 4 ^ 2 / 8"}', "10"]);
  assert.equal(await lastAnswer(page), "It is 10.");
  const asked = await page.evaluate(() => globalThis.asked);
  const roles = asked.map(({ content }) => content.map(({ role }) => role).join());
  assert.deepEqual(roles, ["system,user", "system,user,assistant,tool"]);
  assert.equal(asked[0].content[0].content, "Be brief.");
  assert.equal(await page.textContent("#corner"), "4.0 tok/s · first token 0.50 s · context 20 of 512");
  await page.uncheck("#tools");
  await page.click("#reset");
  assert.equal(await page.inputValue("#system"), "", "the system prompt of another conversation");
  await page.locator("#list li > button").first().click();
  await page.waitForFunction(() => document.getElementById("system").value === "Be brief.");
}

/** Drops a file on the page. */
async function drop(page, name, content) {
  const data = await page.evaluateHandle(
    ({ name, bytes }) => {
      const transfer = new DataTransfer();
      transfer.items.add(new File([new Uint8Array(bytes)], name));
      return transfer;
    },
    { name, bytes: [...Buffer.from(content)] },
  );
  await page.dispatchEvent("body", "drop", { dataTransfer: data });
}

/** Text files go with a message, whole and by name; others are refused with what is wrong; a .gguf is not taken for one. */
export async function checkFiles(page) {
  await page.click("#reset");
  for (const [name, content, error] of [
    ["picture.png", Buffer.from([0x89, 0x50, 0xff, 0xfe]), "picture.png: expected a text file"],
    ["zero.txt", Buffer.from("a\0b"), "zero.txt: expected a text file but found zero bytes"],
    ["empty.txt", Buffer.from(""), "empty.txt: expected a text but found an empty file"],
    ["large.txt", Buffer.alloc(300 * 1024, "a"), "large.txt: expected a text of at most 256 kB but found 300 kB"],
  ]) {
    await page.setInputFiles("#attach", { name, mimeType: "application/octet-stream", buffer: content });
    await status(page, `Cannot attach: ${error}`);
  }
  assert.equal(await page.locator("#attached li").count(), 0);
  await drop(page, "notes.txt", "A secret: 42.");
  await status(page, "Attached notes.txt");
  await page.click("[aria-label='Remove notes.txt']");
  assert.equal(await page.locator("#attached li").count(), 0);
  await drop(page, "notes.txt", "A secret: 42.");
  await status(page, "Attached notes.txt");
  await script(page, [{ events: [text("I see.")] }]);
  await say(page, "What is in it?");
  assert.deepEqual(await page.evaluate(() => globalThis.asked[0].content), [
    { role: "user", content: "What is in it?\n\nnotes.txt:\n\nA secret: 42." },
  ]);
  assert.equal(await page.locator(".message.user .files").textContent(), "notes.txt");
  await drop(page, "other.gguf", "GGUF");
  await status(page, "Cannot load: other.gguf: ");
  await loadFrom(page, "shakespeare-4bit.pte", "Ready");
}

/** A conversation with all that messages can have, for pictures. */
export async function showSample(page) {
  const answer =
    "A `for` loop adds them:\n\n```js\nlet sum = 0;\nfor (const n of numbers) sum += n;\n```\n\n" +
    "| step | sum |\n|---|---|\n| 1 | 3 |\n| 2 | 7 |\n\nOr shorter, with `reduce`.";
  const other = "With the value that you give it, here **0**; then it adds each number in turn.";
  await page.click("#reset");
  await script(page, [
    { events: [{ type: "reasoning", text: "A loop, then the short way." }, text(answer)] },
    { events: [text(other)] },
  ]);
  await say(page, "How do I add numbers in JavaScript?");
  await say(page, "What does reduce begin with?");
}

/** An empty conversation suggests what to ask, which can be changed before it is sent. */
export async function checkSuggestions(page) {
  await page.click("#reset");
  assert.ok(await page.isVisible("#welcome"), "suggestions in an empty conversation");
  assert.equal(await page.locator("#suggestions button").count(), 4);
  await page.locator("#suggestions button").first().click();
  assert.match(await page.inputValue("#input"), /hash table/);
  assert.equal(await page.evaluate(() => document.activeElement.id), "input");
  await script(page, [{ events: [text("It maps keys to places.")] }]);
  await page.press("#input", "Enter");
  await status(page, "Ready");
  assert.equal(await page.isVisible("#welcome"), false, "suggestions beside messages");
}

/** An answer that says the same again and again is ended, with what may help. */
export async function checkRepetition(page) {
  await page.click("#reset");
  await page.evaluate(() => {
    const worker = globalThis.workers.find(({ isEnded }) => !isEnded);
    const { postMessage } = worker;
    worker.postMessage = ({ id, kind }) => {
      const reply = (body) => worker.onmessage({ data: { ...body, id } });
      if (kind === "abort") {
        worker.postMessage = postMessage;
        reply({ kind: "error", error: { name: "AbortError", message: "ended", file: null } });
      }
      if (kind !== "chat") return;
      for (let i = 0; i < 40; i++)
        reply({ kind: "event", event: { type: "text", text: "I am a pitch of all that is. " } });
    };
  });
  await page.fill("#input", "Go on.");
  await page.press("#input", "Enter");
  await status(page, "Stopped: the answer repeats itself");
  assert.match(await lastAnswer(page), /pitch of all that is\. I am/);
  await page.waitForSelector("#send:visible");
}

/** A reload shows the conversation that was open, with what was written and not sent; each conversation has its own. */
export async function checkReload(page) {
  const shown = () => page.locator(".message.user span").last().textContent();
  await page.click("#reset");
  await script(page, [{ events: [text("Yes.")] }]);
  await say(page, "Is it still open?");
  await page.fill("#input", "Half a question");
  await page.reload();
  await status(page, "Ready");
  await page.waitForSelector(".message.user");
  assert.equal(await shown(), "Is it still open?");
  assert.equal(await page.inputValue("#input"), "Half a question");
  await page.click("#reset");
  await page.waitForFunction(() => document.getElementById("input").value === "");
  await page.locator("#list li > button").first().click();
  await page.waitForFunction(() => document.getElementById("input").value === "Half a question");
  await page.fill("#input", "");
}

const WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];

/** No violation of WCAG 2.2 AA that axe finds: start, conversation and dialog; dark and light; phone and desktop. */
export async function checkAxe(page) {
  const axe = readFileSync(createRequire(join(root, "web", "package.json")).resolve("axe-core/axe.min.js"), "utf8");
  await page.evaluate(axe);
  const size = page.viewportSize();
  const check = async (what) => {
    const { violations } = await page.evaluate(
      (values) => globalThis.axe.run({ runOnly: { type: "tag", values } }),
      WCAG,
    );
    const found = violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 120)).join(" ")}`);
    assert.deepEqual(found, [], `what axe finds in ${what}`);
  };
  await page.evaluate(() => document.getElementById("compose").append(document.createElement("input")));
  await assert.rejects(check("a field without a label"), /label: <input/);
  await page.evaluate(() => document.getElementById("compose").lastElementChild.remove());
  const all = "# A\n\n`code`\n\n```js\nlet a;\n```\n\n|a|b|\n|-|-|\n|1|2|\n\n[a](https://a.example)\n\n> quote";
  await page.click("#reset");
  await script(page, [{ events: [{ type: "reasoning", text: "Hm." }, text(all)] }]);
  await say(page, "Show me.");
  for (const theme of ["one theme", "the other"]) {
    for (const viewport of [
      { width: 1100, height: 720 },
      { width: 390, height: 760 },
    ]) {
      await page.setViewportSize(viewport);
      const where = `${theme} at ${viewport.width} pixels`;
      for (const panel of ["", "nav", "panel"]) {
        const isNarrow = viewport.width < 900;
        if (panel === "nav" && !isNarrow) continue;
        if (panel) await clickAction(page, `#${panel}-toggle`);
        if (panel === "nav") await page.locator("#list summary").first().click();
        await check(`${panel || "a conversation"}, ${where}`);
        if (panel) await clickAction(page, `#${panel}-toggle`);
      }
      if (viewport.width < 900) {
        await page.click("#more");
        await check(`the menu, ${where}`);
        await page.keyboard.press("Escape");
        assert.equal(await page.isVisible("#theme"), false, "the menu after Escape");
      }
      await page.click("#model");
      await check(`the start, ${where}`);
      await page.click("#model");
    }
    await clickAction(page, "#theme");
  }
  await page.setViewportSize(size);
}

/** All can be done by keys: choose a conversation, rename it in a dialog that gives the focus back, change a question. */
export async function checkKeyboard(page) {
  const focused = () => page.evaluate(() => document.activeElement.textContent || document.activeElement.id);
  await page.focus("#theme");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.activeElement.id === "input");
  await page.focus("#list summary");
  await page.keyboard.press("Enter");
  await page.keyboard.press("Tab");
  assert.equal(await focused(), "Rename");
  await page.keyboard.press("Enter");
  await page.waitForSelector("dialog");
  await page.keyboard.type("By keys");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelector("#list button").textContent === "By keys");
  await page.focus(".message.user .actions button:last-child");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.activeElement.matches(".edit textarea"));
  await page.keyboard.press("Escape");
  assert.equal(await focused(), "Edit");
}
