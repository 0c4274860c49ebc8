#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace lockstep {

/// Splits 0 ... count - 1 into blocks and calls `work(begin, end)` for each from `num_threads` new threads
/// (0: one per core). Blocks until all are done. After an exception no further block starts. If several
/// blocks throw, rethrows the exception of the first of them in index order. All blocks before it have been
/// run, so the reported error does not depend on timing unless the errors themselves do.
void for_each_block(size_t count, int64_t num_threads,
                    const std::function<void(size_t begin, size_t end)>& work);

}  // namespace lockstep
