// Memory that JavaScript and plans share: it goes when the last of them gives it up, since an environment that ends
// takes its array buffers away before anything of ours hears of it, also from under a plan that runs.
#pragma once

#include <cstddef>
#include <memory>

namespace lowbit {

struct Region {
  virtual ~Region() = default;
  virtual void* data() const = 0;
  virtual size_t size() const = 0;
  // Gives memory back to the system in whole pages of `bytes` bytes from `start` on, all of this region; what they hold
  // afterwards is undefined.
  virtual void discard(void* start, size_t bytes) = 0;
  // Of `bytes` bytes from `start` on, all of this region, rows are read here and there: pages around them stay away.
  virtual void read_by_rows(void* start, size_t bytes) = 0;
};

// Zeroed memory that begins at a page, on huge pages where there is much of it and the system has them. Null when there
// is not so much.
std::shared_ptr<Region> allocate_region(size_t bytes);

// The file's bytes, mapped read-only. Null when it cannot be opened or mapped.
std::shared_ptr<Region> map_region(const char* path);

// The region with this byte; null for memory of others.
std::shared_ptr<Region> region_of(const void* byte);

}  // namespace lowbit
