#include "lockstep/runtime/devices/internal/random_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <thread>

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

TEST(RandomState, IsReadWholeWhileAnotherThreadSetsIt) {
  auto generator = at::detail::createCPUGenerator(1);
  const auto first = random_state_of(generator);
  const auto second = random_state_of(at::detail::createCPUGenerator(2));
  std::jthread setting([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      set_random_state(generator, second);
      set_random_state(generator, first);
    }
  });
  for (int i = 0; i < 2000; ++i) {
    const auto state = random_state_of(generator);
    ASSERT_TRUE(state.equal(first) || state.equal(second)) << "read " << i;
  }
}

}  // namespace
}  // namespace lockstep
