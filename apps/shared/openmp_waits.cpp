#include "lockstep/apps/shared/openmp_waits.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace lockstep::apps {

void let_openmp_threads_sleep(char** argv) {
  // NOLINTBEGIN(concurrency-mt-unsafe): the program has no other threads yet
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  std::error_code error;
  // Not /proc/self/exe itself: ps would show the program as "exe".
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error || setenv("OMP_WAIT_POLICY", "passive", 1) != 0) return;
  // NOLINTEND(concurrency-mt-unsafe)
  execv(program.c_str(), argv);
}

}  // namespace lockstep::apps
