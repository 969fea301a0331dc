#include "kernel_call.h"

#include <cstring>

namespace lowbit {
namespace executorch_operators {
namespace {

bool takes_groups(const KernelRow& row, const KernelQuery& query) {
  if (row.groups[0].m == 0 || query.group == 0) return true;
  for (const GroupLimit& limit : row.groups)
    if (limit.m > 0 && query.m >= limit.m && query.group <= limit.longest) return true;
  return false;
}

bool serves(const KernelRow& row, const KernelQuery& query) {
  static const uint32_t features = cpu_features();
  if ((row.needs & ~features) != 0 || strcmp(row.family, query.family) != 0 || row.m_step > query.m) return false;
  if (row.layout && query.layout && strcmp(row.layout, query.layout) != 0) return false;
  if (!takes_groups(row, query)) return false;
  return row.bits == 0 || query.bits == 0 || (row.bits >> query.bits & 1) != 0;
}

}  // namespace

const KernelRow* select_row(const KernelQuery& query) {
  for (size_t t = 0; t < kernel_table_count(); t++) {
    const KernelRows table = kernel_rows(t);
    for (const KernelRow* row = table.rows; row != table.rows + table.count; row++)
      if (serves(*row, query)) return row;
  }
  return nullptr;
}

void run_call(KernelRuntimeContext& context, const KernelQuery& query, const Call& call, void*& scratch) {
  const KernelRow* row = select_row(query);
  ET_KERNEL_CHECK_MSG(context, row, NotSupported, , "no kernel of %s for layout %s, %u bits", query.family,
                      query.layout ? query.layout : "none", query.bits);
  if (const size_t bytes = row->scratch_bytes ? row->scratch_bytes(call) : 0) {
    const auto memory = context.allocate_temp(bytes, kScratchAlignment);
    ET_KERNEL_CHECK_MSG(context, memory.ok(), MemoryAllocationFailed, , "%s needs %zu bytes of scratch", row->name,
                        bytes);
    scratch = *memory;
  }
  Plan plan;
  plan.steps.resize(1);
  row->prepare(plan.steps[0], call);
  run_plan_here(plan, {call.threads});
}

bool resize_like(Tensor& out, const Tensor& like, int64_t last) {
  executorch::aten::SizesType sizes[executorch::runtime::kTensorDimensionLimit];
  const size_t rank = static_cast<size_t>(like.dim());
  if (rank == 0 || rank > executorch::runtime::kTensorDimensionLimit) return false;
  for (size_t d = 0; d + 1 < rank; d++) sizes[d] = static_cast<executorch::aten::SizesType>(like.size(d));
  sizes[rank - 1] = static_cast<executorch::aten::SizesType>(last);
  return executorch::runtime::resize_tensor(out, {sizes, rank}) == executorch::runtime::Error::Ok;
}

bool indices_in_range(const Tensor& indices, int64_t limit) {
  const bool is_long = indices.scalar_type() == ScalarType::Long;
  if (!is_long && indices.scalar_type() != ScalarType::Int) return false;
  for (ssize_t i = 0; i < indices.numel(); i++) {
    const int64_t value = is_long ? indices.const_data_ptr<int64_t>()[i] : indices.const_data_ptr<int32_t>()[i];
    if (value < 0 || value >= limit) return false;
  }
  return true;
}

}  // namespace executorch_operators
}  // namespace lowbit
