/** Parses values of options; a wrong value is a usage error that names its option. */
import { InvalidArgumentError } from "commander";

/** A whole number from 0. */
export function wholeNumber(text: string): number {
  const value = Number(text);
  if (!/^\d+$/.test(text.trim())) throw new InvalidArgumentError(`Expected a whole number but found "${text}".`);
  if (!Number.isSafeInteger(value))
    throw new InvalidArgumentError(`Expected at most ${Number.MAX_SAFE_INTEGER} but found "${text}".`);
  return value;
}

const PORT_MAX = 65535;

/** A TCP port; 0 takes any free one. */
export function port(text: string): number {
  const value = wholeNumber(text);
  if (value > PORT_MAX) throw new InvalidArgumentError(`Expected a port from 0 to ${PORT_MAX} but found "${text}".`);
  return value;
}

/** A number, also "-inf" and "inf". */
export function number(text: string): number {
  const infinite = /^([+-]?)inf(inity)?$/i.exec(text.trim());
  const value = infinite ? Number(`${infinite[1]}Infinity`) : Number(text);
  if (text.trim() === "" || Number.isNaN(value))
    throw new InvalidArgumentError(`Expected a number but found "${text}".`);
  return value;
}

/** A number from 0 to 1. */
export function fraction(text: string): number {
  const value = number(text);
  if (!(value >= 0 && value <= 1)) throw new InvalidArgumentError(`Expected a number from 0 to 1 but found "${text}".`);
  return value;
}

/** Bytes: "1500000000", "512m", "2g"; units are powers of 1024. */
export function byteCount(text: string): number {
  const [, number, unit] = /^(\d+(?:\.\d+)?)([kmg]?)i?b?$/i.exec(text.trim()) ?? [];
  if (number === undefined) throw new InvalidArgumentError(`Expected bytes, such as 512m or 2g, but found "${text}".`);
  return Math.floor(Number(number) * 1024 ** " kmg".indexOf((unit || " ").toLowerCase()));
}

/** Checks the form of a size: "180MB", "1.2GiB", "4.5bpw". */
export function fileSize(text: string): string {
  if (/^\d+(\.\d+)?bpw$/.test(text.trim())) return text.trim();
  if (!/^\d+(\.\d+)?([kmg]i?)?b?$/i.test(text.trim()))
    throw new InvalidArgumentError(
      `Expected bytes, such as 180MB or 1.2GiB, or bits a weight, such as 4.5bpw, but found "${text}".`,
    );
  return text.trim();
}

/** Token ids: "1,2,3". */
export function tokenIds(text: string): number[] {
  return text.split(",").map((part) => wholeNumber(part.trim()));
}

/** Collects the values of an option that can be given several times. */
export function collect<V>(parse: (text: string) => V): (text: string, previous: V[] | undefined) => V[] {
  return (text, previous = []) => [...previous, parse(text)];
}

/** `id=bias` of --logit-bias, added to those given before. */
export function logitBias(text: string, previous: Record<number, number> = {}): Record<number, number> {
  const [id, bias, ...rest] = text.split("=");
  if (id === undefined || bias === undefined || rest.length > 0)
    throw new InvalidArgumentError(`Expected id=bias but found "${text}".`);
  return { ...previous, [wholeNumber(id)]: number(bias) };
}
