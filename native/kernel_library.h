// Loads shared libraries of kernels that users bring.
#pragma once

namespace lowbit {

// Adds the rows of the library at `path`; null when that went well, else what is wrong.
const char* load_kernel_library(const char* path);

}  // namespace lowbit
