/** Conversations in the browser's database: there after a reload, seen by all tabs, nowhere else. */
import type { Message, ToolCall } from "lowbit/web";

/** A text file that goes with a message. */
export interface Attachment {
  readonly name: string;
  readonly text: string;
}

/** A message as it is kept. */
export interface StoredMessage {
  readonly role: "user" | "assistant" | "tool";
  content: string;
  reasoning?: string;
  toolCalls?: ToolCall[];
  /** Of a tool's result: the id of its call. */
  toolCallId?: string;
  attachments?: readonly Attachment[];
}

/** What the list shows. */
export interface Title {
  readonly id: string;
  title: string;
  /** Milliseconds since 1970. */
  changedAt: number;
}

export interface Conversation extends Title {
  system: string;
  messages: StoredMessage[];
}

export function newConversation(): Conversation {
  const changedAt = Date.now();
  const id = `${changedAt.toString(36)}-${Math.random().toString(36).slice(2)}`;
  return { id, title: "", changedAt, system: "", messages: [] };
}

/** What a user's message says to the model: its files follow its text. */
export function textOf({ content, attachments = [] }: StoredMessage): string {
  return [content, ...attachments.map(({ name, text }) => `${name}:\n\n${text}`)].filter((part) => part).join("\n\n");
}

/** The messages as a model reads them. */
export function messagesOf({ system, messages }: Conversation): Message[] {
  const first: Message[] = system.trim() === "" ? [] : [{ role: "system", content: system }];
  return first.concat(
    messages.map((message): Message => {
      const { role, content, reasoning, toolCalls, toolCallId } = message;
      if (role === "user") return { role, content: textOf(message) };
      if (role === "tool") return { role, content, toolCallId: toolCallId! };
      const calls = toolCalls?.length ? { toolCalls } : {};
      return {
        role,
        content: content === "" && toolCalls?.length ? null : content,
        ...(reasoning && { reasoning }),
        ...calls,
      };
    }),
  );
}

const DATABASE = "lowbit-conversations";

/** The database, or as long as the page is open its memory where the browser keeps nothing. */
export class ConversationStore {
  /** Called with the id of a conversation that another tab has changed. */
  onChange: (id: string) => void = () => {};
  readonly #database: IDBDatabase | null;
  readonly #channel = new BroadcastChannel(DATABASE);
  readonly #memory = new Map<string, Conversation>();
  #isFull = false;

  private constructor(database: IDBDatabase | null) {
    this.#database = database;
    this.#channel.onmessage = ({ data }) => this.onChange(data);
  }

  static async open(): Promise<ConversationStore> {
    try {
      const opening = indexedDB.open(DATABASE, 1);
      opening.onupgradeneeded = () => {
        for (const name of ["titles", "conversations"]) opening.result.createObjectStore(name, { keyPath: "id" });
      };
      return new ConversationStore(await done(opening));
    } catch {
      return new ConversationStore(null);
    }
  }

  /** Whether conversations are there after a reload. */
  get isKept(): boolean {
    return this.#database !== null && !this.#isFull;
  }

  /** The last changed first. */
  async list(): Promise<Title[]> {
    const kept: Title[] = this.#database
      ? await done(this.#database.transaction("titles").objectStore("titles").getAll())
      : [];
    const unkept = [...this.#memory.values()].filter(({ id }) => !kept.some((title) => title.id === id));
    return [...kept, ...unkept].sort((a, b) => b.changedAt - a.changedAt);
  }

  async get(id: string): Promise<Conversation | null> {
    const unkept = this.#memory.get(id);
    if (unkept || !this.#database) return unkept ? structuredClone(unkept) : null;
    return (await done(this.#database.transaction("conversations").objectStore("conversations").get(id))) ?? null;
  }

  /** Keeps a conversation; in memory alone where there is no room. */
  async put(conversation: Conversation): Promise<void> {
    const { id } = conversation;
    try {
      await this.#replace(conversation);
      this.#memory.delete(id);
      this.#isFull = false;
    } catch {
      this.#isFull = true;
    }
    if (!this.isKept) this.#memory.set(id, structuredClone(conversation));
    this.#channel.postMessage(id);
  }

  /** Keeps what there is of a conversation that goes on, where there is room; other tabs hear of it at its end. */
  async putPart(conversation: Conversation): Promise<void> {
    await this.#replace(conversation).catch(() => {});
  }

  #replace(conversation: Conversation): Promise<void> {
    const { id, title, changedAt } = conversation;
    return this.#write((titles, conversations) => {
      titles.put({ id, title, changedAt });
      conversations.put(conversation);
    });
  }

  async delete(id: string): Promise<void> {
    this.#memory.delete(id);
    await this.#write((titles, conversations) => {
      titles.delete(id);
      conversations.delete(id);
    });
    this.#channel.postMessage(id);
  }

  async #write(work: (titles: IDBObjectStore, conversations: IDBObjectStore) => void): Promise<void> {
    if (!this.#database) return;
    const transaction = this.#database.transaction(["titles", "conversations"], "readwrite");
    work(transaction.objectStore("titles"), transaction.objectStore("conversations"));
    // A page that is being closed does not come back to end it.
    transaction.commit();
    await new Promise<void>((resolve, reject) => {
      transaction.oncomplete = () => resolve();
      transaction.onabort = () => reject(transaction.error);
    });
  }
}

function done<R>(request: IDBRequest<R>): Promise<R> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}
