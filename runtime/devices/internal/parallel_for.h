#pragma once

#include <c10/util/FunctionRef.h>

#include <cstdint>

namespace lockstep {

/// Calls `work(first, last)` for pieces of the numbers from `begin` to `end` - 1, and blocks until all are
/// done. There is at most one piece for each of ATen's threads, and each has at least `grain_size` numbers
/// unless there are fewer. Use it in place of at::parallel_for(), a template that runs in the calling thread
/// alone unless its caller is compiled with OpenMP. `work` may use no tensor operators. If it throws, one of
/// the exceptions is thrown again, once all pieces have ended.
///
/// Example:
///
///     parallel_for(0, tensor.numel(), 32768, [&](int64_t first, int64_t last) {
///       for (int64_t i = first; i < last; ++i) values[i] *= 2;
///     });
void parallel_for(int64_t begin, int64_t end, int64_t grain_size,
                  c10::function_ref<void(int64_t, int64_t)> work);

}  // namespace lockstep
