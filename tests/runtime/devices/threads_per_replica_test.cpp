#include "lockstep/runtime/devices/internal/threads_per_replica.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

namespace lockstep {
namespace {

/// Sets a variable of the environment, or removes it, and restores it at the end.
class Variable {
 public:
  Variable(std::string name, const std::optional<std::string>& value) : name_(std::move(name)) {
    if (const char* before = std::getenv(name_.c_str())) before_ = before;
    set(value);
  }
  ~Variable() { set(before_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void set(const std::optional<std::string>& value) {
    if (value) {
      setenv(name_.c_str(), value->c_str(), 1);
    } else {
      unsetenv(name_.c_str());
    }
  }

  const std::string name_;
  std::optional<std::string> before_;
};

int threads_with(const std::optional<std::string>& openmp_threads, int num_replicas,
                 const std::optional<std::string>& torchrun_job = std::nullopt) {
  const Variable openmp("OMP_NUM_THREADS", openmp_threads);
  const Variable torchrun("TORCHELASTIC_RUN_ID", torchrun_job);
  return threads_per_replica(num_replicas);
}

int share_of(int num_replicas) {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / num_replicas);
}

TEST(ThreadsPerReplicaTest, DividesTheCores) {
  EXPECT_EQ(threads_with(std::nullopt, 1), share_of(1));
  EXPECT_EQ(threads_with(std::nullopt, 2), share_of(2));
  EXPECT_EQ(threads_with(std::nullopt, 100000), 1);
}

TEST(ThreadsPerReplicaTest, FollowsTheUsersOmpNumThreads) {
  EXPECT_EQ(threads_with("1", 1), 1);
  EXPECT_EQ(threads_with("1000", 4), 1000);
  EXPECT_EQ(threads_with("1000,2", 4), 1000);
  EXPECT_EQ(threads_with("1000", 4, "job"), 1000);
}

TEST(ThreadsPerReplicaTest, IgnoresTheOneThatTorchrunSets) {
  EXPECT_EQ(threads_with("1", 1, "job"), share_of(1));
}

TEST(ThreadsPerReplicaTest, IgnoresWhatIsNoPositiveNumber) {
  for (const std::string text : {"", "0", "-4", "many", "4x", "99999999999"})
    EXPECT_EQ(threads_with(text, 1), share_of(1)) << text;
}

}  // namespace
}  // namespace lockstep
