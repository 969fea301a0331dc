/** Addresses on which the server of static files listens, and its message if it cannot listen. */
import { afterAll, expect, it } from "vitest";
import { root } from "../native/sources.js";
import { listenAt, staticServer } from "./static-server.js";

const servers = [staticServer(root), staticServer(root)];
afterAll(() => {
  for (const server of servers) server.close();
});

it("says its address, and which port is taken or none", async () => {
  const [first, second] = servers;
  const address = await listenAt(first, "0");
  expect((await fetch(`${address}package.json`)).status).toBe(200);
  const { port } = new URL(address);
  await expect(listenAt(second, port)).rejects.toThrow(`PORT: ${port} is in use; name another one`);
  for (const odd of ["abc", "-1", "65536", "1.5"])
    await expect(listenAt(second, odd)).rejects.toThrow(`PORT: expected a number from 0 to 65535 but found ${odd}`);
});
