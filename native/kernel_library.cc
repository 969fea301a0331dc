#include "kernel_library.h"

#if defined(_WIN32)
#include <windows.h>
#else
#include <dlfcn.h>
#endif

#include "kernel.h"

namespace lowbit {
namespace {

constexpr char kEntryPoint[] = "lowbit_kernel_library";
using EntryPoint = KernelLibrary (*)();

#if defined(_WIN32)
EntryPoint entry_point(const char* path, const char** problem) {
  const HMODULE library = LoadLibraryA(path);
  *problem = "it cannot be loaded";
  return library ? reinterpret_cast<EntryPoint>(reinterpret_cast<void*>(GetProcAddress(library, kEntryPoint))) : nullptr;
}
#else
EntryPoint entry_point(const char* path, const char** problem) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void* entry = library ? dlsym(library, kEntryPoint) : nullptr;
  // Says which file or symbol is missing; valid until the next call.
  *problem = entry ? nullptr : dlerror();
  return reinterpret_cast<EntryPoint>(entry);
}
#endif

}  // namespace

const char* load_kernel_library(const char* path) {
  const char* problem = nullptr;
  const EntryPoint entry = entry_point(path, &problem);
  if (!entry) return problem ? problem : "it does not export lowbit_kernel_library";
  const KernelLibrary library = entry();
  if (library.contract != kContract) return "it was compiled for another version of native/kernel.h; compile it again";
  return add_kernel_rows(library.rows) ? nullptr : "there are too many libraries already";
}

}  // namespace lowbit
