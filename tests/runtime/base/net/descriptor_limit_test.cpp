#include "lockstep/runtime/base/net/descriptor_limit.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep {
namespace {

/// Returns the limit after raise_descriptor_limit() in a process that begins with these limits, in thousands.
int raised(rlim_t soft, rlim_t hard) {
  const pid_t child = fork();
  if (child == 0) {
    rlimit limit{.rlim_cur = soft, .rlim_max = hard};
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(255);
    raise_descriptor_limit();
    getrlimit(RLIMIT_NOFILE, &limit);
    _exit(static_cast<int>(limit.rlim_cur / 1000));
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

TEST(DescriptorLimit, IsRaisedAsFarAsTheSystemAllows) {
  EXPECT_EQ(raised(256, 2000), 2);
  EXPECT_EQ(raised(2000, 2000), 2);
}

TEST(DescriptorLimit, IsNeitherRaisedBeyondWhatIsNeededNorLowered) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_max < 100'000) GTEST_SKIP() << "the hard limit here is " << limit.rlim_max;
  EXPECT_EQ(raised(1000, 100'000), 65);
  EXPECT_EQ(raised(100'000, 100'000), 100);
}

}  // namespace
}  // namespace lockstep
