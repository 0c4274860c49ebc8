#include "lockstep/apps/train_ctr/ctr_table_memory.h"

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/apps/shared/planning/quantity.h"

namespace lockstep::apps {
namespace {

constexpr const char* kUnlimited = "unlimited";
constexpr double kLeastMemory = 1 << 20;
constexpr double kMostMemory = 0x1p60;
/// The bytes that a row takes beside its values and state.
constexpr double kRowOverhead = 36;

double row_bytes(const CtrWork& work, int64_t columns) {
  const double states = work.optimizer == CtrOptimizerKind::kSgd       ? 0
                        : work.optimizer == CtrOptimizerKind::kAdagrad ? 1
                                                                       : 2;
  return static_cast<double>(columns) * (1 + states) * (work.precision == CtrPrecision::kFloat64 ? 8 : 4) +
         kRowOverhead;
}

}  // namespace

CtrTableMemory ctr_table_memory(const CtrWork& work) {
  if (work.table_memory.empty() || work.table_memory == kUnlimited) return {};
  const double bytes = parse_bytes("table-memory", work.table_memory);
  if (bytes < kLeastMemory || bytes > kMostMemory)
    throw UsageError("--table-memory: expected 1MiB to 1EiB, or unlimited, but got " + work.table_memory);
  if (work.model == CtrModelKind::kDlrm) return {.embeddings = static_cast<int64_t>(bytes)};
  const double embedding = row_bytes(work, work.embedding_dim);
  const double weight = row_bytes(work, 1);
  const auto embeddings = static_cast<int64_t>(bytes * embedding / (embedding + weight));
  return {.embeddings = embeddings, .weights = static_cast<int64_t>(bytes) - embeddings};
}

void check_table_memory(const CtrWork& work) {
  ctr_table_memory(work);
}

}  // namespace lockstep::apps
