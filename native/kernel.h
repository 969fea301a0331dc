// The contract of native kernels: rows of data, calls, and steps that any thread may work on.
// Kernels allocate nothing, start no threads, log nothing and know nothing of JavaScript.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

// Forces inlining: of functions that take arrays of vectors, which stay in registers only where inlined, and of
// functions and each_index bodies that compilers find too large: [&](auto i) LOWBIT_INLINE { … }
#define LOWBIT_INLINE __attribute__((always_inline))

namespace lowbit {

// Bits of KernelRow::needs and of cpu_features(); names as in src/kernels/contract.ts.
enum Feature : uint32_t {
  kAvx2 = 1u << 0,
  kAvxVnni = 1u << 1,
  kAvx512 = 1u << 2,
  kAvx512Vnni = 1u << 3,
  kAvx512Vbmi = 1u << 4,
  kAvx512Bf16 = 1u << 5,
  kAmxInt8 = 1u << 6,
  kAmxBf16 = 1u << 7,
  kNeon = 1u << 8,
  kDotprod = 1u << 9,
  kI8mm = 1u << 10,
  kBf16 = 1u << 11,
  // Every x86-64 CPU has it: tells x86's baseline kernels from those of other architectures.
  kSse2 = 1u << 12,
  // With streaming vectors of 128 to 512 bits.
  kSme2 = 1u << 13,
};

// The index of a number or buffer in a call.
enum class ScalarIndex : uint32_t {};
enum class BufferIndex : uint32_t {};

// Alignment of a call's scratch: a cache line, which suits vectors of every width.
constexpr size_t kScratchAlignment = 64;

// Arguments of one call: numbers and buffers in the order in which src/kernels/families/ declares them. The last buffer
// is the call's scratch.
struct Call {
  const double* scalars;
  void* const* buffers;
  // The largest number of threads that work on the call at a time.
  uint32_t threads;
};

constexpr uint32_t kPhasesMax = 3;
constexpr size_t kArgsMax = 256;

// A bound call. Phases run one after the other; the tiles of a phase run in any order, on any thread.
struct Step {
  void (*run)(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread);
  uint32_t phases;
  uint32_t tiles[kPhasesMax];
  alignas(64) unsigned char args[kArgsMax];

  template <class Args>
  Args& init() {
    static_assert(sizeof(Args) <= kArgsMax && std::is_trivially_copyable_v<Args>);
    return *reinterpret_cast<Args*>(args);
  }
  template <class Args>
  const Args& as() const {
    return *reinterpret_cast<const Args*>(args);
  }
};

// In calls of at least m rows: groups of at most `longest` weights.
struct GroupLimit {
  uint32_t m, longest;
};
constexpr uint32_t kGroupLimits = 2;

// Values of KernelRow::bits: weights of 1 to 8 bits; and with minima and integer scales of groups.
constexpr uint32_t kBits1To8 = 0x1fe, kReadsMinima = 0x200, kReadsFactors = 0x400;

struct KernelRow {
  const char* name;
  // Operator family, as in src/kernels/families/.
  const char* family;
  // The packed layout that the kernel reads, or null.
  const char* layout;
  // Bit b set: reads weights of b bits; kReadsMinima and kReadsFactors may be added. 0 for families without packed
  // weights.
  uint32_t bits;
  uint32_t needs;
  uint32_t m_step;
  uint32_t n_step;
  size_t (*scratch_bytes)(const Call& call);
  void (*prepare)(Step& step, const Call& call);
  // Group lengths that the kernel serves: those of any entry with an m; any length where no entry has one.
  GroupLimit groups[kGroupLimits] = {};
};

struct KernelRows {
  const KernelRow* rows;
  size_t count;
};

// Returned by the C function `lowbit_kernel_library` that a shared library of kernels exports to add its kernels to the
// addon's. `contract` is the kContract that it was compiled with; any other is refused.
constexpr uint32_t kContract = 3;
struct KernelLibrary {
  uint32_t contract;
  KernelRows rows;
};

// All kernels of this binary, best first. Kernels that this CPU cannot run are listed, too; `needs` tells them apart.
KernelRows kernel_rows(size_t index);
size_t kernel_table_count();
// The kernel at that index among all; null past the end.
const KernelRow* kernel_row(uint32_t index);
// Adds the kernels of a library for the lifetime of the process; false when there is no room for more.
bool add_kernel_rows(KernelRows rows);

// CPU features that the operating system lets programs use.
uint32_t cpu_features();

// Threads that streaming mode serves at once at full speed: cores share its units. At least 1.
uint32_t streaming_units();

// Functions in headers are static: of several shared copies the linker might keep one that was compiled for AVX-512.
static inline uint32_t ceil_div(uint32_t a, uint32_t b) { return (a + b - 1) / b; }
static inline size_t round_up(size_t value, size_t step) { return (value + step - 1) / step * step; }

// Reads a number of a call.
template <class T>
static inline T scalar_of(const Call& call, ScalarIndex index) {
  return static_cast<T>(call.scalars[static_cast<uint32_t>(index)]);
}

// Reads a buffer of a call as a pointer to T.
template <class T>
static inline T* buffer_of(const Call& call, BufferIndex index) {
  return static_cast<T*>(call.buffers[static_cast<uint32_t>(index)]);
}

}  // namespace lowbit
