/** Reads imports, exports and versions of shared libraries: ELF (Linux), PE (Windows) and Mach-O (macOS), 64 bits. */

/**
 * `libraries`: those it is linked with. `imports`: names it takes from others, with the library where the format says it.
 * `versions`: of symbols (ELF). `system`: the oldest system that it asks for (Mach-O). `name`: its own (Mach-O).
 * @typedef {object} SharedLibrary
 * @property {"ELF" | "PE" | "Mach-O"} format
 * @property {string[]} libraries
 * @property {{ name: string, library: string | null }[]} imports
 * @property {string[]} exports
 * @property {string[]} versions
 * @property {string} [system]
 * @property {string} [name]
 */

/** @param {Buffer} bytes @param {number} offset */
const textAt = (bytes, offset) => bytes.toString("latin1", offset, bytes.indexOf(0, offset));

/** @param {Buffer} bytes @param {number} offset */
const u64 = (bytes, offset) => Number(bytes.readBigUInt64LE(offset));

/** @param {number} count @param {(i: number) => T} make @returns {T[]} @template T */
const list = (count, make) => Array.from({ length: count }, (_, i) => make(i));

/** @param {Buffer} bytes @returns {SharedLibrary} */
export function readSharedLibrary(bytes) {
  const magic = bytes.readUInt32BE(0);
  if (magic === 0x7f454c46) return readElf(bytes);
  if (magic === 0xcffaedfe) return readMachO(bytes);
  if (bytes.toString("latin1", 0, 2) === "MZ") return readPe(bytes);
  throw new Error(`expected a shared library but it begins with ${magic.toString(16)}`);
}

const [SHT_DYNAMIC, SHT_DYNSYM, SHT_VERNEED] = [6, 11, 0x6ffffffe];
const DT_NEEDED = 1;

/** @param {Buffer} bytes @returns {SharedLibrary} */
function readElf(bytes) {
  const sections = list(bytes.readUInt16LE(60), (i) => {
    const at = u64(bytes, 40) + 64 * i;
    const [offset, size] = [u64(bytes, at + 24), u64(bytes, at + 32)];
    return {
      type: bytes.readUInt32LE(at + 4),
      link: bytes.readUInt32LE(at + 40),
      info: bytes.readUInt32LE(at + 44),
      offset,
      size,
    };
  });
  /** @param {number} type @param {number} entryBytes */
  const entries = (type, entryBytes) =>
    sections
      .filter((section) => section.type === type)
      .flatMap(({ offset, size, link }) => list(size / entryBytes, (i) => ({ at: offset + entryBytes * i, link })));
  /** @param {number} link @param {number} offset */
  const name = (link, offset) => textAt(bytes, sections[link].offset + offset);
  const libraries = entries(SHT_DYNAMIC, 16)
    .filter(({ at }) => u64(bytes, at) === DT_NEEDED)
    .map(({ at, link }) => name(link, u64(bytes, at + 8)));
  const symbols = entries(SHT_DYNSYM, 24)
    .map(({ at, link }) => ({ name: name(link, bytes.readUInt32LE(at)), section: bytes.readUInt16LE(at + 6) }))
    .filter((symbol) => symbol.name !== "");
  const versions = [];
  for (const { offset, link, info } of sections.filter(({ type }) => type === SHT_VERNEED))
    for (let i = 0, at = offset; i < info; i++, at += bytes.readUInt32LE(at + 12))
      for (let j = 0, version = at + bytes.readUInt32LE(at + 8); j < bytes.readUInt16LE(at + 2); j++) {
        versions.push(name(link, bytes.readUInt32LE(version + 8)));
        version += bytes.readUInt32LE(version + 12);
      }
  const imports = symbols
    .filter(({ section }) => section === 0)
    .map((symbol) => ({ name: symbol.name, library: null }));
  const exports = symbols.filter(({ section }) => section !== 0).map((symbol) => symbol.name);
  return { format: "ELF", libraries, imports, exports, versions };
}

/** @param {Buffer} bytes @returns {SharedLibrary} */
function readPe(bytes) {
  const header = bytes.readUInt32LE(60);
  const optional = header + 24;
  const sections = list(bytes.readUInt16LE(header + 6), (i) => {
    const at = optional + bytes.readUInt16LE(header + 20) + 40 * i;
    const [size, address, , offset] = list(4, (j) => bytes.readUInt32LE(at + 8 + 4 * j));
    return { size, address, offset };
  });
  /** Where the file has a byte of the loaded image. @param {number} address */
  const at = (address) => {
    const section = sections.find(
      (candidate) => address >= candidate.address && address < candidate.address + candidate.size,
    );
    if (!section) throw new Error(`no section has address ${address.toString(16)}`);
    return address - section.address + section.offset;
  };
  const [exportTable, importTable] = [optional + 112, optional + 120].map((entry) => bytes.readUInt32LE(entry));
  const exported = exportTable === 0 ? 0 : at(exportTable);
  const exports = list(exported === 0 ? 0 : bytes.readUInt32LE(exported + 24), (i) =>
    textAt(bytes, at(bytes.readUInt32LE(at(bytes.readUInt32LE(exported + 32)) + 4 * i))),
  );
  const libraries = [];
  const imports = [];
  for (let entry = at(importTable); bytes.readUInt32LE(entry + 12) !== 0; entry += 20) {
    const library = textAt(bytes, at(bytes.readUInt32LE(entry + 12)));
    libraries.push(library);
    for (let name = at(bytes.readUInt32LE(entry)); u64(bytes, name) !== 0; name += 8) {
      const isOrdinal = bytes.readInt32LE(name + 4) < 0;
      imports.push({ name: isOrdinal ? "#" : textAt(bytes, at(bytes.readUInt32LE(name)) + 2), library });
    }
  }
  return { format: "PE", libraries, imports, exports, versions: [] };
}

const [LC_SYMTAB, LC_LOAD_DYLIB, LC_ID_DYLIB, LC_BUILD_VERSION] = [0x2, 0xc, 0xd, 0x32];
const [N_STAB, N_PRIVATE, N_TYPE, N_EXT] = [0xe0, 0x10, 0x0e, 0x01];
/** In place of a library's number: looked up in all of them. */
const DYNAMIC_LOOKUP = 0xfe;

/** @param {Buffer} bytes @returns {SharedLibrary} */
function readMachO(bytes) {
  /** @type {SharedLibrary} */
  const found = { format: "Mach-O", libraries: [], imports: [], exports: [], versions: [] };
  const commands = [];
  for (let i = 0, at = 32; i < bytes.readUInt32LE(16); i++, at += bytes.readUInt32LE(at + 4))
    commands.push({ type: bytes.readUInt32LE(at) & 0x7fffffff, at });
  for (const { type, at } of commands) {
    if (type === LC_LOAD_DYLIB) found.libraries.push(textAt(bytes, at + bytes.readUInt32LE(at + 8)));
    if (type === LC_ID_DYLIB) found.name = textAt(bytes, at + bytes.readUInt32LE(at + 8));
    if (type === LC_BUILD_VERSION) found.system = `${bytes.readUInt16LE(at + 14)}.${bytes.readUInt8(at + 13)}`;
  }
  for (const { at } of commands.filter(({ type }) => type === LC_SYMTAB)) {
    const [symbols, count, strings] = list(3, (i) => bytes.readUInt32LE(at + 8 + 4 * i));
    for (let i = 0, symbol = symbols; i < count; i++, symbol += 16) {
      const type = bytes.readUInt8(symbol + 4);
      if (type & (N_STAB | N_PRIVATE) || !(type & N_EXT)) continue;
      const name = textAt(bytes, strings + bytes.readUInt32LE(symbol)).replace(/^_/, "");
      const ordinal = bytes.readUInt8(symbol + 7);
      if (type & N_TYPE) found.exports.push(name);
      else
        found.imports.push({
          name,
          library: ordinal === DYNAMIC_LOOKUP ? null : (found.libraries[ordinal - 1] ?? null),
        });
    }
  }
  return found;
}
