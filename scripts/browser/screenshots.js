/** Pictures of the page for its documents, and its icons as pixels. */
import { join } from "node:path";
import { root } from "../native/sources.js";
import { showSample } from "./features.js";

/** Writes docs/page-*.png, at three widths, light and dark, and the page's icons. Settings are open. */
export async function takeScreenshots(page) {
  const shot = (name) => page.screenshot({ path: join(root, "docs", `page-${name}.png`) });
  await page.click("#panel-toggle");
  await showSample(page);
  for (const theme of ["light", "dark"]) {
    for (const [width, height] of [
      [1440, 900],
      [768, 1024],
      [390, 844],
    ]) {
      await page.setViewportSize({ width, height });
      await page.evaluate(() => document.getElementById("messages").scrollTo(0, 0));
      await shot(`${width}-${theme}`);
    }
    await page.setViewportSize({ width: 1440, height: 900 });
    await page.click("#theme");
  }
  await page.setViewportSize({ width: 1280, height: 720 });
  const icon = await page.context().newPage();
  for (const size of [192, 512]) {
    await icon.setViewportSize({ width: size, height: size });
    await icon.goto(`${new URL(page.url()).origin}/icon.svg`);
    await icon.screenshot({ path: join(root, "web", `icon-${size}.png`), omitBackground: true });
  }
  await icon.close();
}
