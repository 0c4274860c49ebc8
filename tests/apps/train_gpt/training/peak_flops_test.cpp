#include "lockstep/apps/train_gpt/training/peak_flops.h"

#include <gtest/gtest.h>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"

namespace lockstep::apps {
namespace {

TEST(PeakFlopsTest, OfACpuIsWhatItsReplicasReachTogether) {
  MirroredStrategy strategy({"cpu:0", "cpu:1"});
  const PeakFlops peak = peak_flops(strategy, PrecisionKind::kFloat32);
  // Slower than any CPU with this instruction set under any sanitizer, and faster than any.
  EXPECT_GT(peak.flops_per_second, 1e7);
  EXPECT_LT(peak.flops_per_second, 1e15);
  EXPECT_EQ(peak.source, "of a matrix product just now");
}

}  // namespace
}  // namespace lockstep::apps
