#include "lockstep/benchmarks/allocator.h"

#include <dlfcn.h>
#include <jemalloc/jemalloc.h>
#include <sys/types.h>

#include <stdexcept>

// jemalloc reads this symbol at its start.
const char* malloc_conf = lockstep::benchmarks::kAllocatorOptions;

namespace lockstep::benchmarks {
namespace {

template <typename T>
T read_option(const char* name) {
  T value{};
  size_t size = sizeof(value);
  if (mallctl(name, &value, &size, nullptr, 0) != 0)
    throw std::runtime_error(std::string("[benchmark] expected jemalloc to know ") + name);
  return value;
}

}  // namespace

std::string describe_allocator() {
  const std::string version = read_option<const char*>("version");
  return "jemalloc " + version.substr(0, version.find('-')) + ", dirty_decay_ms " +
         std::to_string(read_option<ssize_t>("opt.dirty_decay_ms")) + ", muzzy_decay_ms " +
         std::to_string(read_option<ssize_t>("opt.muzzy_decay_ms"));
}

std::string allocator_library() {
  Dl_info library{};
  void* function = dlsym(RTLD_DEFAULT, "mallctl");
  if (function == nullptr || dladdr(function, &library) == 0)
    throw std::runtime_error("[benchmark] expected jemalloc as a shared library, but found none");
  return library.dli_fname;
}

}  // namespace lockstep::benchmarks
