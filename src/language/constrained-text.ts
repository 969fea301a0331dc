/** A text under one constraint, or under the constraints of a tool call's parts, one after the other. */
import { UnsupportedError } from "../errors.ts";
import type { CallStep } from "../text/answer/call-format.ts";
import type { KnownTool } from "../text/answer/events.ts";
import type { Constraint } from "../text/constraint.ts";
import type { ConstraintMatcher, Vocabulary } from "../text/constraints/index.ts";
import type { GenerateOptions } from "../text/generate.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import type { LateModules } from "./late-modules.ts";

/** The parts of a constrained text, and the tools whose names and arguments they allow. */
export interface ConstrainedParts {
  readonly steps: readonly (CallStep | { readonly kind: "whole"; readonly constraint: Constraint })[];
  readonly tools: readonly KnownTool[];
}

export class ConstrainedText {
  readonly #parts: ConstrainedParts;
  readonly #vocabulary: Vocabulary;
  readonly #modules: LateModules;
  #step = 0;
  #matcher: ConstraintMatcher | null = null;
  /** Fixed text of the current part, and its tokens. */
  #fixed = "";
  #forced: number[] | null = null;
  /** The tool's name that was written last. */
  #name = "";
  #isEnded = false;

  private constructor(parts: ConstrainedParts, vocabulary: Vocabulary, modules: LateModules) {
    this.#parts = parts;
    this.#vocabulary = vocabulary;
    this.#modules = modules;
  }

  /** Checks all constraints: their errors are thrown before anything is computed. */
  static async create(parts: ConstrainedParts, vocabulary: Vocabulary, modules: LateModules): Promise<ConstrainedText> {
    const text = new ConstrainedText(parts, vocabulary, modules);
    for (const step of parts.steps) {
      if (step.kind === "name") checkNames(parts.tools);
      if (step.kind === "whole") (await modules.constraints()).checkConstraint(step.constraint);
      if (step.kind === "call" || step.kind === "arguments") await text.#make(step, parts.tools, true);
    }
    return text;
  }

  /** Whether the text is complete. */
  get isEnded(): boolean {
    return this.#isEnded;
  }

  /** The only token that may come next, or a mask of those that may. */
  async next(): Promise<number | Uint32Array> {
    if (this.#forced === null && this.#matcher === null) await this.#begin();
    return this.#forced?.[0] ?? (await this.#matcher!.mask());
  }

  /** Whether a token that the mask allows may really come next. */
  allows(id: number): boolean {
    if (this.#forced) return this.#forced[0] === id;
    // Only a text under a single constraint ends with an end token; parts end by themselves.
    const isEnd = this.#vocabulary.endIds.includes(id) && this.#parts.steps[this.#step]?.kind !== "whole";
    return !isEnd && (this.#matcher?.allows(id) ?? false);
  }

  /** Takes a token that may come, and its text. */
  accept(id: number, text: string): void {
    if (this.#forced) {
      this.#forced.shift();
      if (this.#forced.length === 0) this.#advance();
      return;
    }
    const matcher = this.#matcher!;
    matcher.accept(id);
    const step = this.#parts.steps[this.#step]!;
    if (step.kind === "name") this.#name += text;
    if (step.kind === "whole" ? matcher.isEnded : matcher.isWhole) this.#advance();
  }

  /** Takes text that was written already; false where the constraint does not allow it, and so no text after it either. */
  async acceptText(text: string): Promise<boolean> {
    for (let rest = text; rest !== ""; ) {
      if (this.#isEnded) return false;
      if (this.#forced === null && this.#matcher === null) await this.#begin();
      const step = this.#parts.steps[this.#step]!;
      if (this.#matcher) {
        if (!this.#matcher.acceptText(rest)) return false;
        if (step.kind === "name") this.#name += rest;
        if (step.kind !== "whole" && this.#matcher.isWhole) this.#advance();
        return true;
      }
      const given = rest.slice(0, this.#fixed.length);
      if (!this.#fixed.startsWith(given)) return false;
      rest = rest.slice(given.length);
      if (given === this.#fixed) this.#advance();
      else this.#force(this.#fixed.slice(given.length));
    }
    return true;
  }

  /** Starts over, for another text under the same constraint. */
  restart(): void {
    this.#clear();
    this.#step = 0;
    this.#name = "";
    this.#isEnded = false;
  }

  dispose(): void {
    this.#matcher?.dispose();
  }

  async #begin(): Promise<void> {
    const step = this.#parts.steps[this.#step]!;
    const { tools } = this.#parts;
    const only = tools.length === 1 ? tools[0]! : null;
    if (step.kind === "text" || (step.kind === "name" && only)) {
      const text = step.kind === "text" ? step.text : only!.name;
      if (step.kind === "name") this.#name = text;
      this.#force(text);
      return;
    }
    const named = step.kind === "arguments" ? tools.filter(({ name }) => name === this.#name.trim()) : tools;
    this.#matcher = await this.#make(step, named);
  }

  #force(text: string): void {
    this.#fixed = text;
    this.#forced = this.#vocabulary.tokenizer.encode(text, {
      addSpecialTokens: false,
      truncation: false,
      padding: false,
    });
  }

  async #make(
    step: ConstrainedParts["steps"][number],
    tools: readonly KnownTool[],
    isCheck = false,
  ): Promise<ConstraintMatcher> {
    const { createMatcher } = await this.#modules.constraints();
    if (step.kind === "whole") return createMatcher(step.constraint, this.#vocabulary);
    const matcher = await createMatcher({ kind: "calls", step, tools }, this.#vocabulary);
    if (isCheck) matcher.dispose();
    return matcher;
  }

  #clear(): void {
    this.#matcher?.dispose();
    this.#matcher = null;
    this.#forced = null;
  }

  #advance(): void {
    this.#clear();
    this.#step++;
    this.#isEnded = this.#step >= this.#parts.steps.length;
  }
}

/** What constraining a model's text needs of the model. */
export interface ConstrainingModel {
  readonly tokenizer: Tokenizer;
  readonly modules: LateModules;
}

/** The constraint of the options as a constrained text; null where they have none. */
export async function constrainText(
  { tokenizer, modules }: ConstrainingModel,
  vocabularySize: number,
  { constraint, eosIds }: Pick<GenerateOptions, "constraint" | "eosIds">,
  parts: ConstrainedParts | null = constraint ? { steps: [{ kind: "whole", constraint }], tools: [] } : null,
): Promise<ConstrainedText | null> {
  if (!parts) return null;
  const ends = eosIds ?? (tokenizer.eos ? [tokenizer.eos.id] : []);
  const endIds = [...new Set(ends)].filter((id) => id < vocabularySize);
  return ConstrainedText.create(parts, { tokenizer, size: vocabularySize, endIds }, modules);
}

/**
 * UnsupportedError where one tool's name begins with another's, and the model's format of calls cannot tell where a name
 * ends.
 */
function checkNames(tools: readonly KnownTool[]): void {
  for (const { name } of tools)
    for (const other of tools)
      if (other.name !== name && other.name.startsWith(name))
        throw new UnsupportedError(
          `tools: ${other.name} begins with ${name}, which this model's form of calls cannot tell apart when a call is required, or strict`,
        );
}
