/** Checks the binaries of each platform, by their file formats, before they are published. */
import { readSharedLibrary } from "./shared-library.js";

const ADDON_BYTES_MAX = 7e6;
/** glibc of the oldest Linux that Node 20 runs on. */
const GLIBC_MAX = [2, 28];
const MACOS_MAX = "11.0";

/** System libraries that binaries may be linked with, besides Node. */
const systemLibraries = {
  glibc: /^(lib(c|m|pthread|dl)\.so\.\d|ld-linux-[\w-]+\.so\.\d)$/,
  musl: /^libc\.so$/,
  win32: /^(KERNEL32\.dll|ntdll\.dll|api-ms-win-crt-[\w-]+\.dll)$/i,
  darwin: /^\/usr\/lib\/libSystem\.B\.dylib$/,
};

const addonEntries = ["napi_register_module_v1", "node_api_module_get_api_version_v1"];
const libraryEntries = ["lowbit_kernel_library"];

/** What stays visible on macOS: the functions of C++ allocation, and the symbols of the linker. */
const MACOS_SYMBOLS = /^(_Z[nd][wal]|_mh_dylib_header$|__dso_handle$)/;

/** @param {string} version of a symbol: GLIBC_2.17 */
function isTooNew(version) {
  const parts = version.match(/\d+/g)?.map(Number) ?? [];
  const first = parts.findIndex((part, i) => part !== (GLIBC_MAX[i] ?? 0));
  return first >= 0 && parts[first] > (GLIBC_MAX[first] ?? 0);
}

/**
 * The faults of an addon or of a library of kernels, as sentences.
 * @param {import("./release-packages.js").Platform} platform
 * @param {string} file its name
 * @param {Buffer} bytes
 * @returns {string[]}
 */
export function binaryFaults({ os, libc }, file, bytes) {
  const found = readSharedLibrary(bytes);
  const isAddon = file === "lowbit.node";
  const entries = isAddon ? addonEntries : libraryEntries;
  const faults = [];
  if (bytes.length > ADDON_BYTES_MAX) faults.push(`${bytes.length} bytes, at most ${ADDON_BYTES_MAX}`);
  for (const name of entries) if (!found.exports.includes(name)) faults.push(`does not export ${name}`);
  const strays = found.exports.filter(
    (name) => !entries.includes(name) && !(os === "darwin" && MACOS_SYMBOLS.test(name)),
  );
  if (strays.length > 0) faults.push(`exports ${strays.join(", ")}`);
  const ofNode = (/** @type {string} */ library) => os === "win32" && /^node\.exe$/i.test(library);
  const allowed = systemLibraries[libc ?? os];
  for (const library of found.libraries)
    if (!(isAddon && ofNode(library)) && !allowed.test(library)) faults.push(`is linked with ${library}`);
  for (const { name, library } of found.imports)
    if (library !== null && ofNode(library) !== name.startsWith("napi_")) faults.push(`takes ${name} from ${library}`);
  if (isAddon !== found.imports.some(({ name }) => name === "napi_create_function"))
    faults.push(isAddon ? "takes nothing from Node" : "takes functions from Node");
  for (const version of found.versions) if (isTooNew(version)) faults.push(`needs ${version}`);
  if (found.system !== undefined && found.system !== MACOS_MAX) faults.push(`needs macOS ${found.system}`);
  if (found.name?.startsWith("/")) faults.push(`is named ${found.name}, a path of the machine that built it`);
  return faults;
}
