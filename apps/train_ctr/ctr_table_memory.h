#pragma once

#include <cstdint>

#include "lockstep/apps/train_ctr/ctr_options.h"

namespace lockstep::apps {

/// GrowingEmbeddingOptions::max_bytes of each table.
struct CtrTableMemory {
  int64_t embeddings = 0;
  int64_t weights = 0;  ///< of the wide_deep model
};

/// Splits the memory so that both tables have room for about as many rows, because they have the same ids.
/// Returns zeros, for no limit, if the tables do not grow or the memory is unlimited. Throws UsageError if
/// table_memory is neither a size of 1 MiB or more nor "unlimited".
CtrTableMemory ctr_table_memory(const CtrWork& work);
/// Throws what ctr_table_memory() would throw.
void check_table_memory(const CtrWork& work);

}  // namespace lockstep::apps
