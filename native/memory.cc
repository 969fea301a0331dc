#include "memory.h"

#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include "mapped_file.h"

#if defined(_WIN32)
#include <windows.h>
#else
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace lowbit {
namespace {

#if defined(_WIN32)
void* allocate_pages(size_t bytes) { return VirtualAlloc(nullptr, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE); }

void free_pages(void* data, size_t) { VirtualFree(data, 0, MEM_RELEASE); }

size_t page_size() {
  SYSTEM_INFO info;
  GetSystemInfo(&info);
  return info.dwPageSize;
}

void discard_pages(void* start, size_t bytes) { VirtualAlloc(start, bytes, MEM_RESET, PAGE_READWRITE); }

void advise_rows(void*, size_t) {}
#else
constexpr size_t kHugePage = 2u << 20;
// A multiple of every page size.
constexpr size_t kStep = 64u << 10;

size_t rounded(size_t bytes) { return (bytes + kStep - 1) / kStep * kStep; }

void* allocate_pages(size_t bytes) {
  const size_t size = rounded(bytes);
  const size_t extra = size < 2 * kHugePage ? 0 : kHugePage;
  void* mapped = mmap(nullptr, size + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  if (extra == 0) return mapped;
  // Unmaps the bytes before the first huge page and the rest at the end.
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

size_t page_size() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

void discard_pages(void* start, size_t bytes) {
#if defined(__linux__)
  madvise(start, bytes, MADV_DONTNEED);
#else
  madvise(start, bytes, MADV_FREE);
#endif
}

// No huge pages, which would load two megabytes for one row, and no read-ahead.
void advise_rows(void* start, size_t bytes) {
#if defined(__linux__)
  madvise(start, bytes, MADV_NOHUGEPAGE);
#endif
  madvise(start, bytes, MADV_RANDOM);
}
#endif

void for_whole_pages(void* start, size_t bytes, void (*work)(void* start, size_t bytes)) {
  const uintptr_t step = page_size(), at = reinterpret_cast<uintptr_t>(start);
  const uintptr_t first = (at + step - 1) / step * step, last = (at + bytes) / step * step;
  if (first < last) work(reinterpret_cast<void*>(first), last - first);
}

struct Pages : Region {
  Pages(void* data, size_t size) : data_(data), size_(size) {}
  ~Pages() override { free_pages(data_, size_); }
  void* data() const override { return data_; }
  size_t size() const override { return size_; }
  void discard(void* start, size_t bytes) override { for_whole_pages(start, bytes, discard_pages); }
  // Anonymous memory is resident however it is read.
  void read_by_rows(void*, size_t) override {}

 private:
  void* data_;
  size_t size_;
};

struct MappedPages : Region {
  explicit MappedPages(MappedFile* file) : file_(file) {}
  void* data() const override { return file_->data(); }
  size_t size() const override { return file_->size(); }
  // The system drops cached pages of a file by itself.
  void discard(void*, size_t) override {}
  void read_by_rows(void* start, size_t bytes) override { for_whole_pages(start, bytes, advise_rows); }

 private:
  std::unique_ptr<MappedFile> file_;
};

// All regions by their first byte.
struct Registry {
  std::mutex mutex;
  std::map<uintptr_t, std::weak_ptr<Region>> regions;
};

// Never destroyed: threads of the pool may release regions after static destruction.
Registry& registry() {
  static Registry* instance = new Registry();
  return *instance;
}

uintptr_t address(const void* byte) { return reinterpret_cast<uintptr_t>(byte); }

// Leaves the list before its memory is freed: another region may get the same address at once.
void end_region(Region* region) {
  {
    std::lock_guard<std::mutex> lock(registry().mutex);
    registry().regions.erase(address(region->data()));
  }
  delete region;
}

std::shared_ptr<Region> listed(Region* region) {
  std::shared_ptr<Region> shared(region, end_region);
  std::lock_guard<std::mutex> lock(registry().mutex);
  registry().regions[address(region->data())] = shared;
  return shared;
}

}  // namespace

std::shared_ptr<Region> allocate_region(size_t bytes) {
  void* data = bytes > 0 ? allocate_pages(bytes) : nullptr;
  return data ? listed(new Pages(data, bytes)) : nullptr;
}

std::shared_ptr<Region> map_region(const char* path) {
  MappedFile* file = MappedFile::open(path);
  return file ? listed(new MappedPages(file)) : nullptr;
}

std::shared_ptr<Region> region_of(const void* byte) {
  std::shared_ptr<Region> region;
  // Its destructor takes the lock too, if this is the last reference.
  {
    std::lock_guard<std::mutex> lock(registry().mutex);
    auto after = registry().regions.upper_bound(address(byte));
    if (after != registry().regions.begin()) region = std::prev(after)->second.lock();
  }
  return region && address(byte) - address(region->data()) < region->size() ? region : nullptr;
}

}  // namespace lowbit
