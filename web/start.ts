/** The start screen: models by size, with what fits this device. */
import { button, element, find } from "./dom.ts";
import type { Offer } from "./engine.ts";

/** What a browser says of its device: estimates, rounded by intention. */
export interface Device {
  /** Bytes of memory; null where the browser does not say. */
  readonly memoryBytes: number | null;
  /** Bytes that may still be stored; null where the browser does not say. */
  readonly storageBytes: number | null;
}

export async function thisDevice(): Promise<Device> {
  const { deviceMemory } = navigator as { deviceMemory?: number };
  const { quota, usage = 0 } = (await navigator.storage?.estimate().catch(() => null)) ?? {};
  return {
    memoryBytes: deviceMemory === undefined ? null : deviceMemory * 2 ** 30,
    storageBytes: quota === undefined ? null : Math.max(0, quota - usage),
  };
}

export function sizeOf(bytes: number): string {
  return bytes < 1e9 ? `${(bytes / 1e6).toFixed(1)} MB` : `${(bytes / 1e9).toFixed(1)} GB`;
}

/** Browsers tell no more than some such number of bytes. */
const TOLD_MAX = 8 * 2 ** 30;

/** Part of a device's memory that a page can well have. */
const EASY = 0.5;

/** Whether a model fits, in words. */
export function fitOf({ bytes, memoryBytes }: Offer, device: Device): string {
  const needed = memoryBytes ?? bytes;
  if (needed === null) return "size unknown";
  const needs = `needs ${sizeOf(needed)} of memory`;
  if (device.memoryBytes === null) return needs;
  const isMore = device.memoryBytes >= TOLD_MAX;
  if (needed > device.memoryBytes && !isMore) return `too large for this device: ${needs}`;
  if (needed > device.memoryBytes * EASY) return `may be too large: ${needs}`;
  if (bytes !== null && device.storageBytes !== null && bytes > device.storageBytes)
    return "fits, but is downloaded at each visit: there is no room to keep it";
  return "fits this device";
}

/** What was found of the device. */
function deviceText({ memoryBytes, storageBytes }: Device): string {
  const memory =
    memoryBytes === null
      ? "memory unknown"
      : `${memoryBytes / 2 ** 30} GB of memory${memoryBytes >= TOLD_MAX ? " or more" : ""}`;
  const storage = storageBytes === null ? "" : `, ${sizeOf(storageBytes)} of storage free`;
  return `This device, as the browser estimates it: ${memory}${storage}.`;
}

/** Shows models by size; `runsHere`: whether this device computes. */
export async function showOffers(
  offers: readonly Offer[],
  runsHere: boolean,
  choose: (offer: Offer) => void,
): Promise<void> {
  const device = runsHere ? await thisDevice() : null;
  find("device").textContent = device ? deviceText(device) : "The server computes.";
  const bySize = [...offers].sort((a, b) => (a.bytes ?? 0) - (b.bytes ?? 0));
  const items = bySize.map((offer) => {
    const size = offer.bytes === null ? [] : [sizeOf(offer.bytes)];
    const facts = [...size, ...(device ? [fitOf(offer, device)] : [])].join(" · ");
    const choice = button("", () => choose(offer));
    choice.append(element("b", "", offer.name), element("span", "", facts));
    return element("li", "", choice);
  });
  find("offers").replaceChildren(...items);
}
