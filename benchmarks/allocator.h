#pragma once

#include <string>

namespace lockstep::benchmarks {

/// This program's options for jemalloc: never give pages back to the kernel.
inline constexpr const char* kAllocatorOptions = "dirty_decay_ms:-1,muzzy_decay_ms:-1";

/// jemalloc's version and the options that are in effect, as it reports them itself.
std::string describe_allocator();

/// The shared library that holds this process's jemalloc, for a child to preload.
std::string allocator_library();

}  // namespace lockstep::benchmarks
