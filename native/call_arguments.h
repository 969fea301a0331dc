// Arguments of calls, as structs that `npm run families` writes: read from a call, or written by code that makes one.
#pragma once

#include "kernel.h"

namespace lowbit {
// Anonymous: each file needs its own copy. The linker would keep one for all, compiled for one file's instructions.
namespace {

// A buffer that may be null; a number says whether it is there.
template <class T>
struct OrNull {
  T*& buffer;
};
template <class T>
OrNull(T*& buffer) -> OrNull<T>;

class ArgumentReader {
 public:
  explicit ArgumentReader(const Call& call) : scalars_(call.scalars), buffers_(call.buffers) {}

  template <class... Members>
  void operator()(Members&&... members) {
    (read(members), ...);
  }

 private:
  template <class T>
  void read(T& number) {
    number = static_cast<T>(*scalars_++);
  }
  template <class T, size_t Count>
  void read(T (&numbers)[Count]) {
    for (T& number : numbers) read(number);
  }
  template <class T>
  void read(T*& buffer) {
    buffer = static_cast<T*>(*buffers_++);
  }
  template <class T>
  void read(OrNull<T>& to) {
    const bool is_there = *scalars_++ != 0;
    read(to.buffer);
    if (!is_there) to.buffer = nullptr;
  }

  const double* scalars_;
  void* const* buffers_;
};

// The arguments of a call.
template <class Arguments>
inline Arguments arguments_of(const Call& call) {
  Arguments args;
  ArgumentReader reader(call);
  visit_arguments(args, reader);
  return args;
}

// A call with arguments.
template <class Arguments>
class CallOf {
 public:
  explicit CallOf(Arguments args) { visit_arguments(args, *this); }

  // Valid for as long as this is.
  Call call(uint32_t threads) const { return {scalars_, buffers_, threads}; }
  void*& scratch() { return buffers_[Arguments::kBuffers]; }

  template <class... Members>
  void operator()(Members&&... members) {
    (write(members), ...);
  }

 private:
  template <class T>
  void write(const T& number) {
    scalars_[scalar_count_++] = static_cast<double>(number);
  }
  template <class T, size_t Count>
  void write(T (&numbers)[Count]) {
    for (const T& number : numbers) write(number);
  }
  template <class T>
  void write(T*& buffer) {
    buffers_[buffer_count_++] = const_cast<void*>(static_cast<const void*>(buffer));
  }
  template <class T>
  void write(OrNull<T>& from) {
    write(from.buffer ? 1 : 0);
    write(from.buffer);
  }

  double scalars_[Arguments::kScalars] = {};
  void* buffers_[Arguments::kBuffers + 1] = {};
  uint32_t scalar_count_ = 0, buffer_count_ = 0;
};

}  // namespace
}  // namespace lowbit
