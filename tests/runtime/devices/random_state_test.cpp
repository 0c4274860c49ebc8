#include "lockstep/runtime/devices/internal/random_state.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(RandomState, RestoresTheNumbersThatComeNextAsOftenAsAsked) {
  torch::manual_seed(12);
  torch::randn({3});  // leaves half a pair of normal numbers in the generator
  const RandomState state({torch::kCPU, torch::kCPU});
  const auto expected = torch::randn({33});
  for (int i = 0; i < 2; ++i) {
    torch::rand({100});
    state.restore();
    EXPECT_TRUE(torch::equal(torch::randn({33}), expected));
  }
}

TEST(RandomState, AGuardPutsItBackOnAnExceptionToo) {
  torch::manual_seed(13);
  const auto expected = torch::rand({5});
  torch::manual_seed(13);
  try {
    const RandomStateGuard guard(torch::kCPU);
    torch::rand({7});
    throw std::domain_error("planted");
  } catch (const std::domain_error&) {
  }
  EXPECT_TRUE(torch::equal(torch::rand({5}), expected));
}

}  // namespace
}  // namespace lockstep
