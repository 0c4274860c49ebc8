#pragma once

#include <c10/util/FunctionRef.h>

#include <cstdint>

namespace lockstep {

/// Calls `work(i)` for each image from 0 to `count` - 1, in ATen's threads, and blocks until all are done.
/// Consecutive images share a thread as long as they hold fewer than `values_of_thread` values together, with
/// `values` in each. `work` may neither use tensor operators nor throw. at::parallel_for() would run in the
/// calling thread alone: its template uses threads only if its caller is compiled with OpenMP.
void for_each_image(int64_t count, int64_t values, int64_t values_of_thread,
                    c10::function_ref<void(int64_t)> work);

}  // namespace lockstep
