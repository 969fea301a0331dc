// How many threads serve by default: physical cores, performance cores where the system tells them apart.
#include "thread_pool.h"

#include <thread>

#if defined(__linux__)
#include <sched.h>

#include <cstdio>
#include <set>
#include <utility>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(_WIN32)
#include <windows.h>
#endif

namespace lowbit {

#if defined(__linux__)
namespace {

long read_number(const char* format, int cpu) {
  char path[128];
  snprintf(path, sizeof path, format, cpu);
  long value = -1;
  if (FILE* file = fopen(path, "r")) {
    if (fscanf(file, "%ld", &value) != 1) value = -1;
    fclose(file);
  }
  return value;
}

}  // namespace

uint32_t default_threads() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
  // Cores whose capacity is well under the largest are efficiency cores.
  long largest = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, &allowed)) {
      long capacity = read_number("/sys/devices/system/cpu/cpu%d/cpu_capacity", cpu);
      if (capacity > largest) largest = capacity;
    }
  std::set<std::pair<long, long>> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    if (largest > 0 && 2 * read_number("/sys/devices/system/cpu/cpu%d/cpu_capacity", cpu) < largest) continue;
    long core = read_number("/sys/devices/system/cpu/cpu%d/topology/core_id", cpu);
    long package = read_number("/sys/devices/system/cpu/cpu%d/topology/physical_package_id", cpu);
    cores.insert({package, core < 0 ? cpu : core});
  }
  return cores.empty() ? 1 : static_cast<uint32_t>(cores.size());
}
#elif defined(__APPLE__)
uint32_t default_threads() {
  // The first is there where cores differ, and counts the fast ones.
  for (const char* name : {"hw.perflevel0.physicalcpu", "hw.physicalcpu"}) {
    int32_t count = 0;
    size_t size = sizeof count;
    if (sysctlbyname(name, &count, &size, nullptr, 0) == 0 && count > 0) return static_cast<uint32_t>(count);
  }
  return 1;
}
#elif defined(_WIN32)
uint32_t default_threads() {
  DWORD bytes = 0;
  GetLogicalProcessorInformationEx(RelationProcessorCore, nullptr, &bytes);
  std::vector<char> records(bytes);
  auto record_at = [&](DWORD at) {
    return reinterpret_cast<SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX*>(records.data() + at);
  };
  if (bytes == 0 || !GetLogicalProcessorInformationEx(RelationProcessorCore, record_at(0), &bytes)) return 1;
  // One record a core; cores of the highest class are the fast ones.
  uint32_t cores = 0;
  BYTE highest = 0;
  for (DWORD at = 0; at < bytes; at += record_at(at)->Size) {
    const BYTE efficiency = record_at(at)->Processor.EfficiencyClass;
    if (efficiency > highest) cores = 0;
    if (efficiency > highest) highest = efficiency;
    if (efficiency == highest) cores++;
  }
  return cores > 0 ? cores : 1;
}
#else
uint32_t default_threads() {
  const uint32_t logical = std::thread::hardware_concurrency();
  return logical > 0 ? logical : 1;
}
#endif

}  // namespace lowbit
