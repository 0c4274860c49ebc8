#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace lockstep {

/// Cuts 0 ... count - 1 into blocks and calls `work(begin, end)` for each from `num_threads` threads of its
/// own (0: one a core), blocking until all are done. After an exception no further block is begun; the
/// exception of the block that comes first among those that threw is then thrown here. The blocks before it
/// have all been worked on, so that which error is reported does not depend on timing as long as errors
/// themselves do not.
void for_each_block(size_t count, int64_t num_threads,
                    const std::function<void(size_t begin, size_t end)>& work);

}  // namespace lockstep
