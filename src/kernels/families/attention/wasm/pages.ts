/** Finds the page of a position in the block table. */
import type { Body, Expr, Local } from "../../../wasm/assembler/expression.ts";
import { i32, ptr } from "../../../wasm/assembler/instructions.ts";
import type { Scope } from "../../../wasm/assembler/module.ts";
import { elementAt } from "../../../wasm/generate/loops.ts";
import type { AttentionFields } from "./shape.ts";

const PAGE_ADDRESS_BYTES = 8;

/** Address of a position's page, and its place in the page. */
export class PagePlace {
  readonly page: Local<"ptr">;
  readonly place: Local<"i32">;
  readonly #index: Local<"i32">;

  constructor(scope: Scope) {
    this.page = scope.local("ptr", "page");
    this.place = scope.local("i32", "place");
    this.#index = scope.local("i32", "page_index");
  }

  find({ pages, pagesMax, pagePositions }: AttentionFields, slot: Expr<"i32">, position: Expr<"i32">): Body {
    return [
      this.#index.set(i32.div_u(position, pagePositions)),
      this.place.set(i32.sub(position, i32.mul(this.#index, pagePositions))),
      this.page.set(ptr.load(elementAt(pages, i32.add(i32.mul(slot, pagesMax), this.#index), PAGE_ADDRESS_BYTES))),
    ];
  }
}
