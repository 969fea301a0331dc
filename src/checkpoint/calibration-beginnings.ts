/**
 * Beginnings of texts, by language or kind, and questions for chats: what models read or continue where nobody gives a
 * text.
 */

/** Beginnings of plain texts, by kind. */
export const beginnings: Readonly<Record<string, readonly string[]>> = {
  English: ["The history of", "In this chapter, we", "She opened the door and", "Scientists have found that", "How to"],
  German: ["Die Stadt", "Im Jahr"],
  French: ["La ville de", "Il était une fois"],
  Spanish: ["La historia de", "En el año"],
  Chinese: ["中国的", "今天"],
  Japanese: ["日本の", "これは"],
  Russian: ["История", "В этом году"],
  code: [
    "import os\n\ndef ",
    "#include <stdio.h>\n\nint ",
    "export function ",
    "public class ",
    "SELECT ",
    '{\n  "name": "',
    "#!/bin/sh\n",
  ],
};

/** Questions for a model with a chat template. */
export const questions: readonly string[] = [
  "Hello! What can you do?",
  "Write a short story about a journey.",
  "Explain photosynthesis to a child.",
  "Write a Python function that reverses the words of a sentence, and explain it.",
  "What is 17 times 24? Think step by step.",
  "Give me a recipe for a simple soup.",
  "Summarize the causes of the First World War.",
  "Write a polite e-mail to cancel an appointment.",
  "Translate to French: The weather is beautiful today.",
  "Was ist der Unterschied zwischen Wetter und Klima?",
  "¿Cuáles son los planetas del sistema solar?",
  "用中文介绍一下长城。",
  "Compare cats and dogs as pets in a table.",
  "How does a bicycle stay upright?",
  "List five ideas for a weekend with bad weather.",
  "Fix this code: for i in range(10) print(i)",
];
