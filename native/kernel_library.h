// Loads users' shared libraries of kernels, and keeps the library that contains this code loaded.
#pragma once

namespace lowbit {

// Adds the kernels of the library at `path`. Returns null, or an error message.
const char* load_kernel_library(const char* path);

// Keeps this library loaded after the last JavaScript environment that loaded it has ended, since its threads go on.
void keep_this_library();

}  // namespace lowbit
