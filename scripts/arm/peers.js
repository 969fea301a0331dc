/**
 * Figures of other projects' Arm kernels for docs/arm-kernels.md: measured by us on KleidiAI 495f6524 (2026) and TorchAO
 * with the same shapes and core models, not taken from their papers. A row has the instructions for 1000 multiply-adds
 * (KleidiAI executed, TorchAO in the loop), then multiply-adds in a cycle by core.
 */

/** @param {string} name @param {number[]} figures @param {string} cores */
function row(name, [instructions, ...cycles], cores) {
  return { name, instructions, perCycle: Object.fromEntries(cores.split(" ").map((core, i) => [core, cycles[i]])) };
}

const kleidi = (name, ...figures) => row(`KleidiAI ${name}`, figures, "A55 A510 N1 N2 V1 V2");
const kleidiMatrix = (name, ...figures) => row(`KleidiAI ${name}`, figures, "A510 N2 V1 V2");
const torch = (bits, ...figures) => row(`TorchAO 1x8x16 ${bits}-bit`, figures, "A510 N1 N2 V1 V2");

/** Rows by the title of our table. */
export const peers = {
  "1 row, 1-bit, group 32": [torch(1, 386.7, 3.6, 6.1, 6.5, 12.4, 13.1)],
  "1 row, 1-bit, group 128": [torch(1, 319.3, 4.5, 7.3, 7.4, 14.6, 14.8)],
  "1 row, 2-bit, group 32": [torch(2, 382.8, 3.2, 6.4, 6.9, 13.1, 13.8)],
  "1 row, 2-bit, group 128": [torch(2, 312.5, 3.9, 7.7, 7.9, 15.5, 15.7)],
  "1 row, 3-bit, group 32": [torch(3, 421.9, 3.4, 5.9, 6.4, 12.1, 12.7)],
  "1 row, 3-bit, group 128": [torch(3, 351.6, 4.3, 7.1, 7.2, 14.2, 14.4)],
  "1 row, 4-bit, group 32": [
    kleidi("1x4_qsi4c32p8x4_1x8 dotprod (its fastest)", 234.9, 4.0, 4.7, 12.8, 12.8, 24.2, 24.2),
    kleidi("1x8_qsi4c32p8x8_1x8 dotprod (in PyTorch)", 254.5, 3.4, 5.0, 10.7, 10.7, 20.4, 20.4),
    torch(4, 367.2, 3.3, 7.1, 7.7, 14.6, 15.4),
  ],
  "1 row, 4-bit, group 128": [
    kleidi("1x4_qsi4c32p8x4_1x8 dotprod", 196.8, 4.5, 5.7, 15.0, 15.0, 29.6, 29.6),
    kleidi("1x8_qsi4c32p8x8_1x8 dotprod", 204.6, 4.1, 6.4, 13.1, 13.1, 25.9, 25.9),
    torch(4, 296.9, 4.2, 8.8, 9.0, 17.6, 17.9),
  ],
  "1 row, 4-bit, per channel": [kleidi("1x8_qsi4cxp8x8_1x8x32 dotprod", 189.0, 4.4, 7.1, 14.2, 14.2, 28.3, 28.3)],
  "1 row, 5-bit, group 32": [torch(5, 437.5, 3.1, 5.8, 6.2, 11.9, 12.4)],
  "1 row, 5-bit, group 128": [torch(5, 367.2, 3.8, 6.9, 7.0, 13.8, 14.0)],
  "1 row, 8-bit, per channel": [kleidi("1x8_qsi8cxp4x8_1x4 dotprod", 186.9, 3.8, 4.9, 10.6, 10.6, 31.6, 31.6)],
  "i8mm, 4-bit, group 32": [
    kleidiMatrix("4x8_qsi4c32p4x8_16x4x32 i8mm (its fastest)", 91.8, 11.1, 29.7, 53.1, 53.1),
    kleidiMatrix("4x8_qsi4c32p8x8_4x8x32 i8mm (in PyTorch)", 107.1, 15.1, 25.0, 45.4, 45.4),
  ],
  "i8mm, 4-bit, group 128": [kleidiMatrix("4x8_qsi4c32p4x8_16x4x32 i8mm", 71.8, 17.1, 43.9, 83.8, 84.1)],
  "i8mm, 4-bit, per channel": [kleidiMatrix("4x8_qsi4cxp8x8_8x8x32 i8mm", 56.2, 25.9, 51.1, 102.2, 102.2)],
  "i8mm, 8-bit, per channel": [kleidiMatrix("4x8_qsi8cxp4x8_16x4 i8mm", 57.4, 26.6, 63.9, 127.7, 127.7)],
  "dotprod, 4-bit, group 32": [kleidi("4x4_qsi4c32p4x4_16x4 dotprod", 115.3, 8.9, 10.6, 22.0, 22.0, 40.5, 40.5)],
  "dotprod, 4-bit, group 128": [kleidi("4x4_qsi4c32p4x4_16x4 dotprod", 101.1, 9.9, 14.7, 26.1, 26.7, 52.0, 52.1)],
  "dotprod, 4-bit, per channel": [kleidi("4x8_qsi4cxp4x4_16x4x32 dotprod", 90.8, 11.9, 18.6, 29.9, 29.9, 59.7, 59.7)],
  "dotprod, 8-bit, per channel": [kleidi("4x4_qsi8cxp4x4_16x4 dotprod", 88.4, 12.0, 19.0, 32.0, 32.0, 63.9, 63.9)],
};
