// CPU features from CPUID (x86) and from the operating system (Arm), without compiler run-time helpers.
#include "kernel.h"

#if defined(__aarch64__)
#include "arm/streaming.h"
#endif
#if defined(__x86_64__) || defined(_M_X64)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(_WIN32)
#include <windows.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(__aarch64__) && defined(_WIN32)
#include <windows.h>
#endif

namespace lowbit {

#if defined(__x86_64__) || defined(_M_X64)
namespace {

struct Leaf {
  uint32_t a, b, c, d;
};

Leaf cpuid(uint32_t leaf, uint32_t sub) {
  Leaf r{};
  __cpuid_count(leaf, sub, r.a, r.b, r.c, r.d);
  return r;
}

bool has(uint32_t word, int bit) { return (word >> bit) & 1; }

// XCR0: which registers the operating system saves, a bit each.
uint64_t enabled_state() {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

// Linux lets a process use AMX only on request. Bit 18 stands for the data of tiles.
bool request_amx() {
#if defined(__linux__)
  constexpr int kArchReqXcompPerm = 0x1023;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, 18) == 0;
#elif defined(_WIN32)
  // Found at run time: not every Windows that runs Node has this function.
  const HMODULE kernel32 = GetModuleHandleW(L"kernel32.dll");
  using Enable = BOOL(WINAPI*)(DWORD64);
  const Enable enable = reinterpret_cast<Enable>(
      reinterpret_cast<void*>(GetProcAddress(kernel32, "EnableProcessOptionalXStateFeatures")));
  return enable && enable(DWORD64{1} << 18);
#else
  return false;
#endif
}

uint32_t detect() {
  Leaf basic = cpuid(1, 0);
  if (cpuid(0, 0).a < 7 || !has(basic.c, 27)) return kSse2;
  uint64_t state = enabled_state();
  Leaf seven = cpuid(7, 0);
  Leaf seven1 = seven.a >= 1 ? cpuid(7, 1) : Leaf{};
  uint32_t features = kSse2;
  bool avx_state = (state & 0x6) == 0x6;
  bool avx512_state = (state & 0xe6) == 0xe6;
  bool fma = has(basic.c, 12), f16c = has(basic.c, 29);
  if (avx_state && has(seven.b, 5) && fma && f16c) {
    features |= kAvx2;
    if (has(seven1.a, 4)) features |= kAvxVnni;
  }
  // F, DQ, BW and VL: every server core since Skylake, Zen 4 on.
  bool avx512 = has(seven.b, 16) && has(seven.b, 17) && has(seven.b, 30) && has(seven.b, 31);
  if (avx512_state && avx512 && (features & kAvx2)) {
    features |= kAvx512;
    if (has(seven.c, 11)) features |= kAvx512Vnni;
    // VBMI kernels also use GFNI (bit 8): Ice Lake and Zen 4 have both.
    if (has(seven.c, 1) && has(seven.c, 8)) features |= kAvx512Vbmi;
    if (has(seven1.a, 5)) features |= kAvx512Bf16;
    bool amx_state = (state & 0x60000) == 0x60000;
    if (amx_state && has(seven.d, 24) && request_amx()) {
      if (has(seven.d, 25)) features |= kAmxInt8;
      if (has(seven.d, 22)) features |= kAmxBf16;
    }
  }
  return features;
}

}  // namespace
#elif defined(__aarch64__)
namespace {

// Kernels know streaming vectors of 128 to 512 bits.
uint32_t streaming_features() { return streaming_bytes() <= 64 ? kSme2 : 0; }

#if defined(__linux__)
uint32_t detect() {
  unsigned long hwcap = getauxval(AT_HWCAP), hwcap2 = getauxval(AT_HWCAP2);
  uint32_t features = kNeon;
  if (hwcap & (1ul << 20)) features |= kDotprod;
  if (hwcap2 & (1ul << 13)) features |= kI8mm;
  if (hwcap2 & (1ul << 14)) features |= kBf16;
  if (hwcap2 & (1ul << 37)) features |= streaming_features();
  return features;
}

// The number of streaming units: CPUs that share one have the same affinity in a register (SMIDR_EL1). Where Linux does
// not say, one unit serves all.
uint32_t count_units() {
  constexpr unsigned long long kAffinity = 0xffffffff00000fffull;
  constexpr uint32_t kUnitsMax = 64;
  unsigned long long units[kUnitsMax];
  uint32_t count = 0;
  for (uint32_t cpu = 0; count < kUnitsMax; cpu++) {
    char path[96], line[32];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/regs/identification/smidr_el1", cpu);
    FILE* file = fopen(path, "r");
    if (!file) break;
    const bool said = fgets(line, sizeof line, file) != nullptr;
    fclose(file);
    const unsigned long long unit = said ? strtoull(line, nullptr, 16) & kAffinity : 0;
    uint32_t known = 0;
    while (known < count && units[known] != unit) known++;
    if (known == count) units[count++] = unit;
  }
  return count;
}
#elif defined(__APPLE__)
// The number that sysctl has under a name; 0 where there is none.
int sysctl_number(const char* name) {
  int value = 0;
  size_t size = sizeof value;
  return sysctlbyname(name, &value, &size, nullptr, 0) == 0 ? value : 0;
}

bool sysctl_flag(const char* name) { return sysctl_number(name) != 0; }

uint32_t detect() {
  uint32_t features = kNeon;
  if (sysctl_flag("hw.optional.arm.FEAT_DotProd")) features |= kDotprod;
  if (sysctl_flag("hw.optional.arm.FEAT_I8MM")) features |= kI8mm;
  if (sysctl_flag("hw.optional.arm.FEAT_BF16")) features |= kBf16;
  if (sysctl_flag("hw.optional.arm.FEAT_SME2")) features |= streaming_features();
  return features;
}

// The number of streaming units: cores of a cluster share one, as they share a second-level cache.
uint32_t count_units() {
  const int cores = sysctl_number("hw.perflevel0.physicalcpu"), together = sysctl_number("hw.perflevel0.cpusperl2");
  return together > 0 ? static_cast<uint32_t>((cores + together - 1) / together) : 0;
}
#elif defined(_WIN32)
// Numbers of PF_ARM_V82_DP_, PF_ARM_V82_I8MM_, PF_ARM_V86_BF16_ and PF_ARM_SME2_INSTRUCTIONS_AVAILABLE, which older
// headers lack.
uint32_t detect() {
  uint32_t features = kNeon;
  if (IsProcessorFeaturePresent(43)) features |= kDotprod;
  if (IsProcessorFeaturePresent(66)) features |= kI8mm;
  if (IsProcessorFeaturePresent(68)) features |= kBf16;
  if (IsProcessorFeaturePresent(71)) features |= streaming_features();
  return features;
}

uint32_t count_units() { return 1; }
#else
uint32_t detect() { return kNeon; }
uint32_t count_units() { return 1; }
#endif

}  // namespace
#else
namespace {
uint32_t detect() { return 0; }
}  // namespace
#endif

uint32_t cpu_features() {
  static const uint32_t features = detect();
  return features;
}

#if defined(__aarch64__)
uint32_t streaming_units() {
  static const uint32_t units = count_units();
  return units > 0 ? units : 1;
}
#endif

}  // namespace lowbit
