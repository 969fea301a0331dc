/**
 * Visits packed weights in blocks, the smallest runs of vectors with whole fields, in either panel layout: panel16 has several
 * steps of four k for each quad of rows, side by side; panel32 has one step of all quads, with the highest bit of each byte
 * flipped.
 */
import { fieldTables } from "../../layout/fields.ts";
import { type Body, type Local, words4 } from "../assembler/expression.ts";
import { v128 } from "../assembler/instructions.ts";
import type { Scope } from "../assembler/module.ts";
import { PANEL_ROWS, type PanelShape, quadsOf } from "./packed-panels.ts";
import { fieldOf, loadChunk, type VectorConstants } from "./weight-fields.ts";

const VECTOR_BYTES = 16;
const FLIP = words4(0x80808080);

/** Number of steps of four k in a block. */
export function blockSteps({ rows, bits }: PanelShape): number {
  return rows === PANEL_ROWS ? fieldTables[bits]!.fields.length : 1;
}

export function blockBytes(shape: PanelShape): number {
  const { vectors, fields } = fieldTables[shape.bits]!;
  return (VECTOR_BYTES * quadsOf(shape) * vectors * blockSteps(shape)) / fields.length;
}

export interface BlockReader {
  readonly shape: PanelShape;
  readonly scope: Scope;
  readonly constants: VectorConstants;
}

/** Visits the fields of the block at an address (plus the offset of a group's vectors), each four k of a quad of rows. */
export function forFields(
  { shape, scope, constants }: BlockReader,
  at: Local<"ptr">,
  visit: (field: Local<"v128">, quad: number, step: number) => Body,
): Body {
  const { vectors, fields } = fieldTables[shape.bits]!;
  const locals = scope.localArray("v128", "vector", vectors);
  const field = scope.local("v128", "field");
  const take = (f: number) => field.set(fieldOf(shape.bits, f, locals, constants));
  const quads = Array.from({ length: quadsOf(shape) }, (_, quad) => quad);
  if (shape.rows === PANEL_ROWS)
    return quads.map((quad) => [
      loadChunk(locals, at, shape.vectorsOffset, quad),
      fields.map((_, f) => [take(f), visit(field, quad, f)]),
    ]);
  const offset = (quad: number, v: number) =>
    shape.vectorsOffset + VECTOR_BYTES * ((quad / fields.length) * vectors + v);
  return quads.map((quad) => [
    quad % fields.length > 0
      ? []
      : locals.map((vector, v) => vector.set(v128.xor(v128.load(at, offset(quad, v)), FLIP))),
    take(quad % fields.length),
    visit(field, quad, 0),
  ]);
}
