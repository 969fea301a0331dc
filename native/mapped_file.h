// A file mapped read-only into memory.
#pragma once

#include <cstddef>

namespace lowbit {

class MappedFile {
 public:
  // Null when the file cannot be opened or mapped.
  static MappedFile* open(const char* path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  void* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  MappedFile(void* data, size_t size) : data_(data), size_(size) {}
  void* data_;
  size_t size_;
};

}  // namespace lowbit
