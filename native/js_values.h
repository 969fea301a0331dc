// JavaScript's values as the binding reads and makes them.
#pragma once

#include <node_api.h>

#include <vector>

namespace lowbit {

inline void throw_error(napi_env env, const char* message) { napi_throw_error(env, nullptr, message); }

inline void set(napi_env env, napi_value object, const char* name, napi_value value) {
  napi_set_named_property(env, object, name, value);
}

inline napi_value number(napi_env env, double value) {
  napi_value result;
  napi_create_double(env, value, &result);
  return result;
}

inline napi_value text(napi_env env, const char* value) {
  napi_value result;
  if (value) napi_create_string_utf8(env, value, NAPI_AUTO_LENGTH, &result);
  else napi_get_null(env, &result);
  return result;
}

// The memory of a typed array and its number of elements; null for other values. JavaScript keeps the arrays alive as
// long as the plan.
inline void* data_of(napi_env env, napi_value value, size_t* length) {
  napi_typedarray_type type;
  size_t offset;
  void* data = nullptr;
  napi_value buffer;
  *length = 0;
  return napi_get_typedarray_info(env, value, &type, length, &data, &buffer, &offset) == napi_ok ? data : nullptr;
}

inline void* data_of(napi_env env, napi_value value) {
  size_t length;
  return data_of(env, value, &length);
}

// The numbers of a Float64Array; empty for other values.
inline std::vector<double> doubles_of(napi_env env, napi_value value) {
  napi_typedarray_type type;
  size_t length, offset;
  void* data = nullptr;
  napi_value buffer;
  const napi_status status = napi_get_typedarray_info(env, value, &type, &length, &data, &buffer, &offset);
  if (status != napi_ok || type != napi_float64_array || length == 0) return {};
  const double* numbers = static_cast<const double*>(data);
  return {numbers, numbers + length};
}

}  // namespace lowbit
