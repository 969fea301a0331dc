// Kernels of single rows of x as they would be if threads shared the outputs instead of the inputs: a library of
// kernels for comparison. SPLIT_FILE is the file whose rows SPLIT_ROWS gives.
#define LOWBIT_AQLM_SLICES 1
#include SPLIT_FILE

#include <string>

namespace {

struct Renamed {
  lowbit::KernelRow rows[8];
  std::string names[8];
  size_t count = 0;
  Renamed() {
    const lowbit::KernelRows found = lowbit::SPLIT_ROWS();
    for (; count < found.count && count < 8; count++) {
      names[count] = std::string(found.rows[count].name) + "_by_outputs";
      rows[count] = found.rows[count];
      rows[count].name = names[count].c_str();
      rows[count].family = "aqlm_by_outputs";
    }
  }
};

}  // namespace

extern "C" __attribute__((visibility("default"))) lowbit::KernelLibrary lowbit_kernel_library() {
  static const Renamed renamed;
  return {lowbit::kContract, {renamed.rows, renamed.count}};
}
