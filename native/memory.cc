#include "memory.h"

#include <cstdint>

#if defined(_WIN32)
#include <windows.h>
#else
#include <sys/mman.h>
#endif

namespace lowbit {

#if defined(_WIN32)
void* allocate_pages(size_t bytes) {
  return VirtualAlloc(nullptr, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
}

void free_pages(void* data, size_t) { VirtualFree(data, 0, MEM_RELEASE); }
#else
namespace {

constexpr size_t kHugePage = 2u << 20;
// A multiple of every page size.
constexpr size_t kStep = 64u << 10;

size_t rounded(size_t bytes) { return (bytes + kStep - 1) / kStep * kStep; }

}  // namespace

void* allocate_pages(size_t bytes) {
  const size_t size = rounded(bytes);
  const size_t extra = size < 2 * kHugePage ? 0 : kHugePage;
  void* mapped = mmap(nullptr, size + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  if (extra == 0) return mapped;
  // What lies before the first huge page, and as much as is left at the end, is given back.
  char* start = static_cast<char*>(mapped);
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(start) % kHugePage) % kHugePage;
  if (before > 0) munmap(start, before);
  munmap(start + before + size, extra - before);
#if defined(MADV_HUGEPAGE)
  madvise(start + before, size, MADV_HUGEPAGE);
#endif
  return start + before;
}

void free_pages(void* data, size_t bytes) { munmap(data, rounded(bytes)); }
#endif

}  // namespace lowbit
