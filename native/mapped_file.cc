#include "mapped_file.h"

#if defined(_WIN32)
#include <windows.h>
#else
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

namespace lowbit {

#if defined(_WIN32)
MappedFile* MappedFile::open(const char* path) {
  wchar_t wide[32768];
  if (!MultiByteToWideChar(CP_UTF8, 0, path, -1, wide, 32768)) return nullptr;
  HANDLE file =
      CreateFileW(wide, GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_DELETE, nullptr, OPEN_EXISTING, 0, nullptr);
  if (file == INVALID_HANDLE_VALUE) return nullptr;
  LARGE_INTEGER size;
  void* data = nullptr;
  if (GetFileSizeEx(file, &size) && size.QuadPart > 0) {
    if (HANDLE mapping = CreateFileMappingW(file, nullptr, PAGE_READONLY, 0, 0, nullptr)) {
      data = MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, 0);
      CloseHandle(mapping);
    }
  }
  CloseHandle(file);
  return data ? new MappedFile(data, static_cast<size_t>(size.QuadPart)) : nullptr;
}

MappedFile::~MappedFile() { UnmapViewOfFile(data_); }
#else
MappedFile* MappedFile::open(const char* path) {
  int file = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return nullptr;
  struct stat status;
  void* data = MAP_FAILED;
  if (fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0)
    data = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
#if defined(__linux__)
  // Where the page cache holds large folios, they are mapped as huge pages.
  if (data != MAP_FAILED) madvise(data, static_cast<size_t>(status.st_size), MADV_HUGEPAGE);
#endif
  return data == MAP_FAILED ? nullptr : new MappedFile(data, static_cast<size_t>(status.st_size));
}

MappedFile::~MappedFile() { munmap(data_, size_); }
#endif

}  // namespace lowbit
