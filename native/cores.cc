// The default number of threads: physical cores, performance cores where the system tells them apart, and at most as
// many as the container's CPU quota allows.
#include "thread_pool.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(_WIN32)
#include <windows.h>
#endif

namespace lowbit {
namespace {

// The largest CPU number that is read from a list.
constexpr uint32_t kCpusMax = 8192;

// The first line of a file without its newline; empty when there is no such file.
std::string read_line(const std::string& path) {
  char line[4096] = {};
  if (FILE* file = fopen(path.c_str(), "r")) {
    if (!fgets(line, sizeof line, file)) line[0] = 0;
    fclose(file);
  }
  const std::string text(line);
  return text.substr(0, text.find('\n'));
}

// CPUs of a list as the kernel writes it: "0-3,8".
std::set<uint32_t> parse_cpus(const std::string& list) {
  std::set<uint32_t> cpus;
  const char* at = list.c_str();
  unsigned first, last;
  int length;
  while (sscanf(at, "%u%n", &first, &length) == 1) {
    at += length;
    last = first;
    if (sscanf(at, "-%u%n", &last, &length) == 1) at += length;
    for (unsigned cpu = first; cpu <= last && cpu < kCpusMax; cpu++) cpus.insert(cpu);
    if (*at++ != ',') break;
  }
  return cpus;
}

// The path of this process's cgroup that limits CPU time, in cgroups version 2, whose lines name no controllers, or in
// version 1. Empty for the root group, or where the system does not say.
std::string group_path(const std::string& root, bool second) {
  char line[4096];
  std::string path;
  if (FILE* file = fopen((root + "proc/self/cgroup").c_str(), "r")) {
    // hierarchy:controllers:path
    while (fgets(line, sizeof line, file)) {
      const std::string text(line, strcspn(line, "\n"));
      const size_t names = text.find(':') + 1, end = text.find(':', names);
      if (names == 0 || end == std::string::npos) continue;
      const std::string controllers = "," + text.substr(names, end - names) + ",";
      if (second ? controllers == ",," : controllers.find(",cpu,") != std::string::npos) path = text.substr(end + 1);
    }
    fclose(file);
  }
  return path == "/" ? "" : path;
}

// The CPU quota of a cgroup as a number of CPUs, from the files of either version; 0 without a limit.
double quota_of(const std::string& group) {
  double quota = 0, period = 0;
  // "max 100000" where there is no limit.
  if (sscanf(read_line(group + "/cpu.max").c_str(), "%lf %lf", &quota, &period) != 2) {
    quota = atof(read_line(group + "/cpu.cfs_quota_us").c_str());
    period = atof(read_line(group + "/cpu.cfs_period_us").c_str());
  }
  return quota > 0 && period > 0 ? quota / period : 0;
}

// The number of CPUs that the quotas of this process's cgroup and of its ancestors keep busy: a container whose threads
// have used up their quota is stopped for the rest of the period. src/kernels/wasm/engine/cpu-quota.ts computes the
// same where there is no addon; one list of machines tests both.
uint32_t within_quotas(const std::string& root, uint32_t cores) {
  for (const bool second : {true, false}) {
    const std::string mount = root + (second ? "sys/fs/cgroup" : "sys/fs/cgroup/cpu");
    for (std::string path = group_path(root, second);; path.resize(path.rfind('/'))) {
      const double quota = quota_of(mount + path);
      if (quota > 0 && quota < cores) cores = static_cast<uint32_t>(std::ceil(quota));
      if (path.find('/') == std::string::npos) break;
    }
  }
  return cores;
}

}  // namespace

uint32_t count_cores(const std::string& root, const std::set<uint32_t>& cpus) {
  auto of_cpu = [&](uint32_t cpu, const char* name) {
    return read_line(root + "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/" + name);
  };
  // Intel's hybrid CPUs list their performance cores.
  std::set<uint32_t> fast;
  for (uint32_t cpu : parse_cpus(read_line(root + "sys/devices/cpu_core/cpus")))
    if (cpus.count(cpu)) fast.insert(cpu);
  if (fast.empty()) fast = cpus;
  // Cores whose capacity is well under the largest are efficiency cores.
  std::vector<long> capacities;
  for (uint32_t cpu : fast) capacities.push_back(atol(of_cpu(cpu, "cpu_capacity").c_str()));
  const long largest = fast.empty() ? 0 : *std::max_element(capacities.begin(), capacities.end());
  // Cores are told apart by the CPUs they have, since core numbers repeat in each cluster of some machines.
  std::set<std::string> cores;
  size_t index = 0;
  for (uint32_t cpu : fast) {
    if (2 * capacities[index++] < largest) continue;
    std::string siblings = of_cpu(cpu, "topology/core_cpus_list");
    if (siblings.empty()) siblings = of_cpu(cpu, "topology/thread_siblings_list");
    cores.insert(siblings.empty() ? std::to_string(cpu) : siblings);
  }
  return within_quotas(root, std::max<uint32_t>(1, static_cast<uint32_t>(cores.size())));
}

#if defined(__linux__)
uint32_t default_threads() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
  std::set<uint32_t> cpus;
  for (uint32_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, &allowed)) cpus.insert(cpu);
  return count_cores("/", cpus);
}
#elif defined(__APPLE__)
uint32_t default_threads() {
  // The first name exists where cores differ, and counts the fast ones.
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
  // One record for each core; cores of the highest class are the fast ones.
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
