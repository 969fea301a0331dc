// Memory that JavaScript and runs of plans share, freed when the last of them releases it.
#pragma once

#include <cstddef>
#include <memory>

namespace lowbit {

struct Region {
  virtual ~Region() = default;
  virtual void* data() const = 0;
  virtual size_t size() const = 0;
  // Returns the whole pages within `bytes` bytes from `start`, all in this region, to the system. Their contents are
  // undefined afterwards.
  virtual void discard(void* start, size_t bytes) = 0;
  // Advises the system that rows within `bytes` bytes from `start`, all in this region, are read at random: no
  // read-ahead.
  virtual void read_by_rows(void* start, size_t bytes) = 0;
};

// Allocates zeroed, page-aligned memory, on huge pages where it is large and the system has them. Null when out of
// memory.
std::shared_ptr<Region> allocate_region(size_t bytes);

// The file's bytes, mapped read-only. Null when it cannot be opened or mapped.
std::shared_ptr<Region> map_region(const char* path);

// The region that contains this byte; null for memory that is not ours.
std::shared_ptr<Region> region_of(const void* byte);

}  // namespace lowbit
