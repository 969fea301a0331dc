// Zeroed memory that begins at a page, on huge pages where there is much of it and the system has them.
#pragma once

#include <cstddef>

namespace lowbit {

// Null when there is not so much.
void* allocate_pages(size_t bytes);
void free_pages(void* data, size_t bytes);

}  // namespace lowbit
