// Loads shared libraries of kernels that users bring, and keeps the one that this is compiled into.
#pragma once

namespace lowbit {

// Adds the rows of the library at `path`; null when that went well, else what is wrong.
const char* load_kernel_library(const char* path);

// Keeps this library in the process, also when the last JavaScript environment that loaded it ends: its threads go on.
void keep_this_library();

}  // namespace lowbit
