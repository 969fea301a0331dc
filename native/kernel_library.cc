#include "kernel_library.h"

#include <mutex>
#include <set>
#include <string>

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
  return library ? reinterpret_cast<EntryPoint>(reinterpret_cast<void*>(GetProcAddress(library, kEntryPoint)))
                 : nullptr;
}

void keep(const void* symbol) {
  HMODULE library;
  GetModuleHandleExA(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_PIN,
                     static_cast<const char*>(symbol), &library);
}
#else
EntryPoint entry_point(const char* path, const char** problem) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void* entry = library ? dlsym(library, kEntryPoint) : nullptr;
  // Names the missing file or symbol; valid until the next call.
  *problem = entry ? nullptr : dlerror();
  return reinterpret_cast<EntryPoint>(entry);
}

void keep(const void* symbol) {
  Dl_info library;
  if (dladdr(symbol, &library) != 0) dlopen(library.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}
#endif

std::set<std::string> known_names() {
  std::set<std::string> names;
  for (size_t table = 0; table < kernel_table_count(); table++) {
    const KernelRows known = kernel_rows(table);
    for (size_t i = 0; i < known.count; i++) names.insert(known.rows[i].name);
  }
  return names;
}

// An error message for names of a library's kernels that are not unique; null when they are fine.
const char* taken_name(const KernelRows& added) {
  static thread_local std::string problem;
  std::set<std::string> names = known_names();
  for (size_t i = 0; i < added.count; i++)
    if (!names.insert(added.rows[i].name).second) {
      problem = std::string("there is a kernel ") + added.rows[i].name + " already";
      return problem.c_str();
    }
  return nullptr;
}

}  // namespace

const char* load_kernel_library(const char* path) {
  const char* problem = nullptr;
  const EntryPoint entry = entry_point(path, &problem);
  if (!entry) return problem ? problem : "it does not export lowbit_kernel_library";
  // A process loads each library once, however often and from however many threads it is asked for.
  static std::mutex mutex;
  static std::set<EntryPoint> added;
  std::lock_guard<std::mutex> lock(mutex);
  if (added.count(entry) > 0) return nullptr;
  const KernelLibrary library = entry();
  if (library.contract != kContract) return "it was compiled for another version of native/kernel.h; compile it again";
  if (const char* taken = taken_name(library.rows)) return taken;
  if (!add_kernel_rows(library.rows)) return "there are too many libraries already";
  added.insert(entry);
  return nullptr;
}

void keep_this_library() { keep(kEntryPoint); }

}  // namespace lowbit
