#include "lockstep/runtime/devices/internal/threads_per_replica.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>
#include <thread>

namespace lockstep {
namespace {

const char* variable(const char* name) {
  return std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
}

/// Returns the first number of OMP_NUM_THREADS, a list with one for each level of nested parallelism, or none
/// if it is not the user's. OpenMP itself warns about other values.
std::optional<int> openmp_threads() {
  const char* text = variable("OMP_NUM_THREADS");
  if (text == nullptr) return std::nullopt;
  char* end = nullptr;
  const long count = std::strtol(text, &end, 10);
  if (count < 1 || count > std::numeric_limits<int>::max()) return std::nullopt;
  if (*end != '\0' && *end != ',' && *end != ' ') return std::nullopt;
  if (count == 1 && variable("TORCHELASTIC_RUN_ID") != nullptr) return std::nullopt;
  return static_cast<int>(count);
}

}  // namespace

int threads_per_replica(int num_replicas) {
  if (const auto asked = openmp_threads()) return *asked;
  // More threads than cores makes LibTorch's operators slower, sometimes by ten times.
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, cores / num_replicas);
}

bool is_openmp_limited() {
  return openmp_threads().has_value();
}

}  // namespace lockstep
