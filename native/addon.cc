// The N-API binding: lists kernels and CPU features, binds calls to plans, runs plans, maps files. No arithmetic, no
// policy.
#include <node_api.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "js_values.h"
#include "kernel.h"
#include "kernel_library.h"
#include "memory.h"
#include "sized_plan.h"
#include "thread_pool.h"

namespace lowbit {
namespace {

// KernelRow::groups as [{ m, longest }]; null where none is set
napi_value group_limits(napi_env env, const KernelRow& row) {
  napi_value list;
  napi_get_null(env, &list);
  for (uint32_t i = 0; i < kGroupLimits && row.groups[i].m > 0; i++) {
    if (i == 0) napi_create_array(env, &list);
    napi_value object;
    napi_create_object(env, &object);
    set(env, object, "m", number(env, row.groups[i].m));
    set(env, object, "longest", number(env, row.groups[i].longest));
    napi_set_element(env, list, i, object);
  }
  return list;
}

// kernels(): [{ name, family, layout, bits, needs, mStep, nStep, groups }]
napi_value kernels(napi_env env, napi_callback_info) {
  napi_value list;
  napi_create_array(env, &list);
  const KernelRow* row;
  for (uint32_t i = 0; (row = kernel_row(i)) != nullptr; i++) {
    napi_value object;
    napi_create_object(env, &object);
    set(env, object, "name", text(env, row->name));
    set(env, object, "family", text(env, row->family));
    set(env, object, "layout", text(env, row->layout));
    set(env, object, "bits", number(env, row->bits));
    set(env, object, "needs", number(env, row->needs));
    set(env, object, "mStep", number(env, row->m_step));
    set(env, object, "nStep", number(env, row->n_step));
    set(env, object, "groups", group_limits(env, *row));
    napi_set_element(env, list, i, object);
  }
  return list;
}

napi_value cpu_features_js(napi_env env, napi_callback_info) { return number(env, cpu_features()); }
napi_value default_threads_js(napi_env env, napi_callback_info) { return number(env, default_threads()); }

// keepThreads(threads), releaseThreads(threads)
template <void (*change)(uint32_t)>
napi_value change_threads(napi_env env, napi_callback_info info) {
  napi_value args[1];
  size_t count = 1;
  uint32_t threads = 0;
  napi_get_cb_info(env, info, &count, args, nullptr, nullptr);
  napi_get_value_uint32(env, args[0], &threads);
  change(threads);
  return nullptr;
}

// countCores(root, cpus): cores among CPUs 0 .. cpus - 1
napi_value count_cores_js(napi_env env, napi_callback_info info) {
  napi_value args[2];
  size_t count = 2;
  napi_get_cb_info(env, info, &count, args, nullptr, nullptr);
  char root[4096] = {};
  size_t length;
  uint32_t limit = 0;
  napi_get_value_string_utf8(env, args[0], root, sizeof root, &length);
  napi_get_value_uint32(env, args[1], &limit);
  std::set<uint32_t> cpus;
  for (uint32_t cpu = 0; cpu < limit; cpu++) cpus.insert(cpu);
  return number(env, count_cores(root, cpus));
}

struct CallArguments {
  uint32_t kernel = 0;
  std::vector<double> scalars;
  std::vector<double> slopes;
  std::vector<void*> buffers;
  // Bytes of the last buffer, the scratch.
  size_t scratch_bytes = 0;
};

// Element `index` of an array. Like every call that may run JavaScript, it fails at any moment in a worker that is
// being terminated.
bool element(napi_env env, napi_value list, uint32_t index, napi_value* item) {
  return napi_get_element(env, list, index, item) == napi_ok;
}

// JavaScript's buffers may have any alignment.
void align_scratch(CallArguments* call) {
  if (call->buffers.empty()) return;
  const uintptr_t start = reinterpret_cast<uintptr_t>(call->buffers.back());
  const size_t skipped = std::min(round_up(start, kScratchAlignment) - start, call->scratch_bytes);
  call->buffers.back() = reinterpret_cast<void*>(start + skipped);
  call->scratch_bytes -= skipped;
}

// { kernel: number, scalars: number[], buffers: TypedArray[], slopes?: Float64Array }; the last buffer is the scratch
bool read_call(napi_env env, napi_value object, CallArguments* call) {
  napi_value field, item;
  uint32_t count;
  if (napi_get_named_property(env, object, "kernel", &field) != napi_ok) return false;
  if (napi_get_value_uint32(env, field, &call->kernel) != napi_ok || !kernel_row(call->kernel)) return false;
  if (napi_get_named_property(env, object, "scalars", &field) != napi_ok) return false;
  if (napi_get_array_length(env, field, &count) != napi_ok) return false;
  for (uint32_t i = 0; i < count; i++) {
    double value;
    if (!element(env, field, i, &item) || napi_get_value_double(env, item, &value) != napi_ok) return false;
    call->scalars.push_back(value);
  }
  if (napi_get_named_property(env, object, "buffers", &field) != napi_ok) return false;
  if (napi_get_array_length(env, field, &count) != napi_ok) return false;
  for (uint32_t i = 0; i < count; i++) {
    if (!element(env, field, i, &item)) return false;
    call->buffers.push_back(data_of(env, item, &call->scratch_bytes));
  }
  align_scratch(call);
  if (napi_get_named_property(env, object, "slopes", &field) != napi_ok) return false;
  call->slopes = doubles_of(env, field);
  return true;
}

// scratchBytes(call, threads): number, enough for a buffer of any alignment
napi_value scratch_bytes(napi_env env, napi_callback_info info) {
  napi_value args[2];
  size_t count = 2;
  napi_get_cb_info(env, info, &count, args, nullptr, nullptr);
  CallArguments call;
  uint32_t threads = 1;
  if (!read_call(env, args[0], &call) || napi_get_value_uint32(env, args[1], &threads) != napi_ok) {
    throw_error(env, "scratchBytes: expected a call and a number of threads");
    return nullptr;
  }
  const KernelRow* row = kernel_row(call.kernel);
  const Call sized = {call.scalars.data(), call.buffers.data(), threads};
  const size_t bytes = row->scratch_bytes ? row->scratch_bytes(sized) : 0;
  return number(env, bytes == 0 ? 0 : static_cast<double>(bytes + kScratchAlignment - 1));
}

// A run holds a reference to its plan: the external may be finalized first when the environment ends.
using PlanHandle = std::shared_ptr<SizedPlan>;

// createPlan(calls, threads): external
napi_value create_plan(napi_env env, napi_callback_info info) {
  napi_value args[2];
  size_t count = 2;
  napi_get_cb_info(env, info, &count, args, nullptr, nullptr);
  uint32_t calls = 0, threads = 1;
  napi_get_array_length(env, args[0], &calls);
  napi_get_value_uint32(env, args[1], &threads);
  auto plan = std::make_shared<SizedPlan>(calls, threads);
  for (uint32_t i = 0; i < calls; i++) {
    napi_value object;
    CallArguments call;
    if (!element(env, args[0], i, &object) || !read_call(env, object, &call)) {
      throw_error(env, "createPlan: expected calls of { kernel, scalars, buffers }");
      return nullptr;
    }
    plan->add({kernel_row(call.kernel), call.scalars, call.buffers}, call.slopes, call.scratch_bytes);
  }
  napi_value external = nullptr;
  auto release = [](napi_env, void* data, void*) { delete static_cast<PlanHandle*>(data); };
  auto* handle = new PlanHandle(std::move(plan));
  if (napi_create_external(env, handle, release, nullptr, &external) != napi_ok) delete handle;
  return external;
}

PlanHandle plan_of(napi_env env, napi_value value) {
  void* plan = nullptr;
  return napi_get_value_external(env, value, &plan) == napi_ok ? *static_cast<PlanHandle*>(plan) : nullptr;
}

// resizePlan(plan, change: Float64Array): prepares the calls for sizes that differ by `change` from those that the plan
// was made for; false, and nothing changes, where the scratch of a call is too small
napi_value resize_plan(napi_env env, napi_callback_info info) {
  napi_value args[2], result;
  size_t count = 2;
  napi_get_cb_info(env, info, &count, args, nullptr, nullptr);
  PlanHandle plan = plan_of(env, args[0]);
  if (!plan || plan->runs > 0) {
    throw_error(env, "resizePlan: expected a plan that is not running");
    return nullptr;
  }
  napi_get_boolean(env, plan->resize(doubles_of(env, args[1])), &result);
  return result;
}

// runPlan(plan, threads, stepNanoseconds?: Float64Array): undefined; returns when the plan has ended, and works on it
napi_value run_plan_js(napi_env env, napi_callback_info info) {
  napi_value args[3];
  size_t count = 3;
  napi_get_cb_info(env, info, &count, args, nullptr, nullptr);
  uint32_t threads = 1;
  napi_get_value_uint32(env, args[1], &threads);
  double* times = static_cast<double*>(data_of(env, args[2]));
  if (PlanHandle plan = plan_of(env, args[0])) {
    plan->runs++;
    run_plan_here(*plan, {threads, nullptr, times});
    plan->runs--;
  }
  return nullptr;
}

struct AsyncRun;

// One JavaScript environment: its thread-safe function and its runs in flight.
struct Environment {
  napi_threadsafe_function resolve = nullptr;
  // Promises to be resolved, counted on the environment's own thread. Its event loop stays alive while there are any.
  uint32_t promises = 0;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<AsyncRun*> runs;
};
using EnvironmentHandle = std::shared_ptr<Environment>;

struct AsyncRun {
  EnvironmentHandle environment;
  PlanHandle plan;
  int32_t* abort_flag;
  napi_deferred deferred;
  // Keep the memory of the abort flag and of the times alive.
  napi_ref abort, times;
  // Regions whose array buffers were finalized during the run: those of an environment that ends, even while plans read
  // them.
  std::vector<std::shared_ptr<Region>> regions;
};

// Runs on the JavaScript thread; `env` is null when that thread is about to end.
void resolve_run(napi_env env, napi_value, void*, void* data) {
  AsyncRun* run = static_cast<AsyncRun*>(data);
  if (env) {
    napi_value undefined;
    napi_get_undefined(env, &undefined);
    napi_delete_reference(env, run->abort);
    if (run->times) napi_delete_reference(env, run->times);
    Environment& environment = *run->environment;
    if (--environment.promises == 0) napi_unref_threadsafe_function(env, environment.resolve);
    napi_resolve_deferred(env, run->deferred, undefined);
  }
  delete run;
}

// Runs on the thread that finished the plan. The run may be freed by the call, and the environment once the lock is
// released.
void end_run(void* context) {
  AsyncRun* run = static_cast<AsyncRun*>(context);
  const EnvironmentHandle environment = run->environment;
  run->plan->runs--;
  std::lock_guard<std::mutex> lock(environment->mutex);
  if (napi_call_threadsafe_function(environment->resolve, run, napi_tsfn_nonblocking) != napi_ok) delete run;
  environment->runs.erase(std::find(environment->runs.begin(), environment->runs.end(), run));
  environment->changed.notify_all();
}

// Ends all runs early and waits for them: memory that is no region is freed with the environment.
void stop_runs(void* data) {
  Environment& environment = **static_cast<EnvironmentHandle*>(data);
  std::unique_lock<std::mutex> lock(environment.mutex);
  for (AsyncRun* run : environment.runs)
    if (run->abort_flag) __atomic_store_n(run->abort_flag, 1, __ATOMIC_RELAXED);
  environment.changed.wait(lock, [&] { return environment.runs.empty(); });
}

void begin_environment(napi_env env) {
  EnvironmentHandle* environment = new EnvironmentHandle(std::make_shared<Environment>());
  napi_value name;
  napi_create_string_utf8(env, "lowbit plan", NAPI_AUTO_LENGTH, &name);
  napi_threadsafe_function* resolve = &(*environment)->resolve;
  napi_create_threadsafe_function(env, nullptr, nullptr, name, 0, 1, nullptr, nullptr, nullptr, resolve_run, resolve);
  napi_unref_threadsafe_function(env, *resolve);
  auto release = [](napi_env, void* data, void*) { delete static_cast<EnvironmentHandle*>(data); };
  napi_set_instance_data(env, environment, release, nullptr);
  // Cleanup hooks run newest first: this one runs while the thread-safe function still exists.
  napi_add_env_cleanup_hook(env, stop_runs, environment);
}

// runPlanAsync(plan, threads, abort: Int32Array, stepNanoseconds?: Float64Array): Promise<void>
napi_value run_plan_async(napi_env env, napi_callback_info info) {
  napi_value args[4], promise;
  size_t count = 4;
  napi_get_cb_info(env, info, &count, args, nullptr, nullptr);
  uint32_t threads = 1;
  napi_get_value_uint32(env, args[1], &threads);
  PlanHandle plan = plan_of(env, args[0]);
  if (!plan) {
    throw_error(env, "runPlanAsync: expected a plan");
    return nullptr;
  }
  void* data = nullptr;
  napi_get_instance_data(env, &data);
  napi_deferred deferred;
  if (napi_create_promise(env, &deferred, &promise) != napi_ok) return nullptr;
  AsyncRun* run = new AsyncRun{*static_cast<EnvironmentHandle*>(data), plan, nullptr, deferred, nullptr, nullptr, {}};
  napi_create_reference(env, args[2], 1, &run->abort);
  run->abort_flag = static_cast<int32_t*>(data_of(env, args[2]));
  double* times = static_cast<double*>(data_of(env, args[3]));
  if (times) napi_create_reference(env, args[3], 1, &run->times);
  Environment& environment = *run->environment;
  if (environment.promises++ == 0) napi_ref_threadsafe_function(env, environment.resolve);
  {
    std::lock_guard<std::mutex> lock(environment.mutex);
    environment.runs.push_back(run);
  }
  plan->runs++;
  run_plan(*plan, {threads, run->abort_flag, times}, {end_run, run});
  return promise;
}

struct BufferRegion {
  EnvironmentHandle environment;
  std::shared_ptr<Region> region;
};

// Finalizes an array buffer: its region lives as long as the runs that are under way.
void release_region(napi_env, void*, void* hint) {
  const std::unique_ptr<BufferRegion> buffer(static_cast<BufferRegion*>(hint));
  std::lock_guard<std::mutex> lock(buffer->environment->mutex);
  for (AsyncRun* run : buffer->environment->runs) run->regions.push_back(buffer->region);
}

// An ArrayBuffer that keeps the region alive; null for no region.
napi_value buffer_over(napi_env env, std::shared_ptr<Region> region) {
  napi_value result;
  napi_get_null(env, &result);
  void* environment = nullptr;
  napi_get_instance_data(env, &environment);
  if (!region || !environment) return result;
  Region& memory = *region;
  auto* buffer = new BufferRegion{*static_cast<EnvironmentHandle*>(environment), std::move(region)};
  if (napi_create_external_arraybuffer(env, memory.data(), memory.size(), release_region, buffer, &result) != napi_ok)
    delete buffer;
  return result;
}

// The first argument as a string with a terminating 0.
std::vector<char> path_argument(napi_env env, napi_callback_info info) {
  napi_value args[1];
  size_t count = 1, length = 0;
  napi_get_cb_info(env, info, &count, args, nullptr, nullptr);
  napi_get_value_string_utf8(env, args[0], nullptr, 0, &length);
  std::vector<char> path(length + 1);
  napi_get_value_string_utf8(env, args[0], path.data(), path.size(), &length);
  return path;
}

// mapFile(path): ArrayBuffer over the mapped file, unmapped with its last user; null when it cannot be mapped.
napi_value map_file(napi_env env, napi_callback_info info) {
  return buffer_over(env, map_region(path_argument(env, info).data()));
}

// loadKernels(path): null, or an error message.
napi_value load_kernels(napi_env env, napi_callback_info info) {
  return text(env, load_kernel_library(path_argument(env, info).data()));
}

// allocate(bytes): zeroed, page-aligned ArrayBuffer; null when out of memory.
napi_value allocate(napi_env env, napi_callback_info info) {
  napi_value args[1];
  size_t count = 1;
  double bytes = 0;
  napi_get_cb_info(env, info, &count, args, nullptr, nullptr);
  napi_get_value_double(env, args[0], &bytes);
  return buffer_over(env, allocate_region(static_cast<size_t>(bytes)));
}

// The first argument, a Uint8Array.
void* bytes_argument(napi_env env, napi_callback_info info, size_t* bytes) {
  napi_value args[1], buffer;
  size_t count = 1, length = 0, offset;
  void* data = nullptr;
  napi_typedarray_type type;
  napi_get_cb_info(env, info, &count, args, nullptr, nullptr);
  napi_get_typedarray_info(env, args[0], &type, &length, &data, &buffer, &offset);
  *bytes = length;
  return data;
}

// addressOf(bytes: Uint8Array): bigint
napi_value address_of(napi_env env, napi_callback_info info) {
  size_t bytes;
  napi_value result = nullptr;
  napi_create_bigint_uint64(env, reinterpret_cast<uintptr_t>(bytes_argument(env, info, &bytes)), &result);
  return result;
}

// Calls a region's method with the bytes of the first argument where they lie in one region.
template <void (Region::*Method)(void* start, size_t bytes)>
napi_value call_region(napi_env env, napi_callback_info info) {
  size_t bytes = 0;
  void* start = bytes_argument(env, info, &bytes);
  if (bytes == 0) return nullptr;
  const std::shared_ptr<Region> region = region_of(start);
  if (region && region == region_of(static_cast<char*>(start) + bytes - 1)) (region.get()->*Method)(start, bytes);
  return nullptr;
}

napi_value init(napi_env env, napi_value exports) {
  keep_this_library();
  begin_environment(env);
  // Requests permission for the tile registers, without which kernels must not touch them.
  cpu_features();
  struct {
    const char* name;
    napi_callback function;
  } functions[] = {
      {"kernels", kernels},
      {"cpuFeatures", cpu_features_js},
      {"defaultThreads", default_threads_js},
      {"countCores", count_cores_js},
      {"createPlan", create_plan},
      {"resizePlan", resize_plan},
      {"scratchBytes", scratch_bytes},
      {"runPlan", run_plan_js},
      {"runPlanAsync", run_plan_async},
      {"mapFile", map_file},
      {"allocate", allocate},
      {"addressOf", address_of},
      // discard(bytes: Uint8Array): returns whole pages of memory from `allocate` to the system.
      {"discard", call_region<&Region::discard>},
      // readByRows(bytes: Uint8Array): says that rows of memory from `mapFile` are read at random.
      {"readByRows", call_region<&Region::read_by_rows>},
      {"loadKernels", load_kernels},
      {"keepThreads", change_threads<keep_threads>},
      {"releaseThreads", change_threads<release_threads>},
  };
  for (auto& entry : functions) {
    napi_value function;
    napi_create_function(env, entry.name, NAPI_AUTO_LENGTH, entry.function, nullptr, &function);
    set(env, exports, entry.name, function);
  }
  // The fingerprint of the contract with TypeScript, which refuses an addon that has another:
  // src/kernels/native/abi.ts.
  set(env, exports, "abi", text(env, LOWBIT_ABI));
  return exports;
}

}  // namespace
}  // namespace lowbit

NAPI_MODULE_INIT() { return lowbit::init(env, exports); }
