/** The tools of a request as the model is told of them, and the client's names for the tools that it calls. */
import type { Tool, ToolChoice } from "../text/chat-messages.ts";
import { ApiError } from "./errors.ts";
import { larkToEbnf } from "./lark.ts";
import { given } from "./schemas/fields.ts";
import type { Warn } from "./warnings.ts";

export interface FunctionFields {
  readonly name: string;
  readonly description?: string | null | undefined;
  readonly parameters?: object | null | undefined;
  readonly strict?: boolean | null | undefined;
}

/** A tool with text input, which a grammar may constrain. */
export interface CustomFields {
  readonly name: string;
  readonly description?: string | null | undefined;
  readonly format?: CustomFormat | null | undefined;
}

type CustomFormat =
  | { readonly type: "text" }
  | { readonly type: "grammar"; readonly syntax: "lark" | "regex"; readonly definition: string };

/** The client's name for a tool that the model has called. */
export interface Origin {
  readonly kind: "function" | "custom";
  readonly name: string;
  /** Namespace of the tool; null for none. */
  readonly namespace: string | null;
}

const NAME_MAX = 128;

/** The name that a model sees of a tool in a namespace. */
export function qualified(name: string, namespace: string | null | undefined): string {
  return (namespace ? `${namespace}__${name}` : name).replace(/[^\w.-]/g, "_").slice(-NAME_MAX);
}

/** JSON schema of the parameters of a tool with text input. */
function textParameters(format: CustomFormat | null | undefined): object {
  const pattern =
    format?.type === "grammar" && format.syntax === "regex" ? { pattern: `^(?:${format.definition})$` } : {};
  return {
    type: "object",
    properties: { input: { type: "string", ...pattern } },
    required: ["input"],
    additionalProperties: false,
  };
}

export class OfferedTools {
  readonly #tools: Tool[] = [];
  readonly #origins = new Map<string, Origin>();
  readonly #warn: Warn;
  readonly #max: number;
  #isReduced = false;

  /** `max`: most tools of a request. */
  constructor(max: number, warn: Warn) {
    this.#max = max;
    this.#warn = warn;
  }

  get list(): readonly Tool[] {
    return this.#tools;
  }

  addFunction({ name, description, parameters, strict }: FunctionFields, namespace: string | null = null): void {
    this.#add({ kind: "function", name, namespace }, given({ description, parameters, strict }));
  }

  /** @throws InvalidArgumentError or UnsupportedError for a grammar that calls cannot be constrained to. */
  addCustom({ name, description, format }: CustomFields, namespace: string | null = null): void {
    const isGrammar = format?.type === "grammar";
    const form = isGrammar
      ? `The input is a text of this ${format.syntax} grammar:\n${format.definition}`
      : "The input is a text.";
    const told = description ? `${description}\n\n${form}` : form;
    const text =
      isGrammar && format.syntax === "lark" ? { argument: "input", ebnf: larkToEbnf(format.definition) } : null;
    this.#add(
      { kind: "custom", name, namespace },
      { description: told, parameters: textParameters(format), strict: isGrammar, ...(text && { text }) },
    );
  }

  /** Notes that a tool of this type is left out: a model of text cannot use it. */
  leaveOut(type: string): void {
    this.#isReduced = true;
    this.#warn(`tools of type ${type} are left out: this server cannot run them`);
  }

  #add(origin: Origin, fields: Omit<Tool, "name">): void {
    const name = qualified(origin.name, origin.namespace);
    if (this.#tools.length === this.#max)
      throw new ApiError(400, `tools: expected at most ${this.#max}, those of namespaces included`, { param: "tools" });
    if (this.#origins.has(name))
      throw new ApiError(400, `tools: expected names that differ but found ${name} twice`, { param: "tools" });
    this.#origins.set(name, origin);
    this.#tools.push({ name, ...fields });
  }

  /** The client's name for a tool that the model calls `name`. */
  originOf(name: string): Origin {
    return this.#origins.get(name) ?? { kind: "function", name, namespace: null };
  }

  /** Options for a tool choice; where the chosen tool was left out, the model chooses. */
  options(choice: ToolChoice | null): { tools?: readonly Tool[]; toolChoice?: ToolChoice } {
    const toolChoice = choice && this.#possible(choice);
    return {
      ...(this.#tools.length > 0 ? { tools: this.#tools } : {}),
      ...(toolChoice ? { toolChoice } : {}),
    };
  }

  #possible(choice: ToolChoice): ToolChoice {
    if (!this.#isReduced) return choice;
    if (choice === "required") return this.#tools.length > 0 ? choice : "auto";
    if (typeof choice === "string") return choice;
    const has = (name: string) => this.#origins.has(name);
    if (!("names" in choice)) return has(choice.name) ? choice : "auto";
    const names = choice.names.filter(has);
    return names.length > 0 ? { ...choice, names } : "none";
  }
}

/** The text input of a tool call, from the JSON arguments that the model wrote. */
export function customInput(args: string): string {
  // Arguments that a token limit has cut give the text as far as it came.
  const begun = PARTIAL_INPUT.exec(args)?.[1];
  try {
    const value: unknown = JSON.parse(begun === undefined ? args : `"${begun}"`);
    if (typeof value === "string") return value;
    const { input } = (value ?? {}) as { input?: unknown };
    if (typeof input === "string") return input;
    const [only, ...others] = Object.values(value ?? {});
    if (typeof only === "string" && others.length === 0) return only;
  } catch {
    // Not JSON: given as it is.
  }
  return args;
}

/** Matches cut arguments up to the last complete character of the text. */
const PARTIAL_INPUT =
  /^\s*\{\s*"input"\s*:\s*"((?:[^"\\]|\\(?:u[0-9a-fA-F]{4}|["\\/bfnrt]))*)(?:\\(?:u[0-9a-fA-F]{0,3})?)?$/;

/** JSON arguments of a call of a tool with text input. */
export function customArguments(input: string): string {
  return JSON.stringify({ input });
}
