#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include "lockstep/tests/device/test_device_test_support.h"

namespace lockstep {
namespace {

at::Generator default_generator_of(at::Device device) {
  return at::globalContext().defaultGenerator(device);
}

using TestDeviceGenerators = EachTestDevice;
INSTANTIATE_TEST_SUITE_P(Each, TestDeviceGenerators, testing::Range(0, TestDevice::kNumTestDevices));

TEST_P(TestDeviceGenerators, DrawWhatACpuGeneratorWithTheSameSeedDraws) {
  default_generator_of(device()).set_current_seed(7);
  const auto cpu = at::make_generator<at::CPUGeneratorImpl>(7);
  expect_same(torch::randn({50}, device()), torch::randn({50}, cpu));
  expect_same(torch::rand({3, 5}, device()), torch::rand({3, 5}, cpu));
  expect_same(torch::randint(100, {20}, torch::dtype(torch::kLong).device(device())),
              torch::randint(100, {20}, cpu));
  expect_same(torch::randperm(9, torch::dtype(torch::kLong).device(device())), torch::randperm(9, cpu));
  expect_same(torch::full({40}, 0.3, device()).bernoulli(), torch::full({40}, 0.3).bernoulli(cpu));
  expect_same(torch::empty({9}, device()).uniform_(-1, 2), torch::empty({9}).uniform_(-1, 2, cpu));
  expect_same(torch::multinomial(torch::ones({8}, device()), 4),
              torch::multinomial(torch::ones({8}), 4, false, cpu));
}

TEST_P(TestDeviceGenerators, OneThatIsGivenIsUsedInsteadOfTheDevicesOwn) {
  auto given =
      at::globalContext().getAcceleratorHooksInterface(at::kPrivateUse1).getNewGenerator(device().index());
  EXPECT_EQ(given.device(), device());
  given.set_current_seed(3);
  const auto state = default_generator_of(device()).get_state();
  expect_same(torch::empty({9}, device()).normal_(0, 1, given),
              torch::empty({9}).normal_(0, 1, at::make_generator<at::CPUGeneratorImpl>(3)));
  EXPECT_TRUE(torch::equal(default_generator_of(device()).get_state(), state));
}

TEST_P(TestDeviceGenerators, AManualSeedSeedsEveryDevice) {
  torch::manual_seed(11);
  EXPECT_EQ(default_generator_of(device()).current_seed(), 11);
  const auto on_cpu = torch::randn({10});
  expect_same(torch::randn({10}, device()), on_cpu);
}

TEST_P(TestDeviceGenerators, ACloneStaysOnTheDeviceAndContinuesAlike) {
  default_generator_of(device()).set_current_seed(5);
  torch::randn({3}, device());
  const auto clone = default_generator_of(device()).clone();
  EXPECT_EQ(clone.device(), device());
  EXPECT_NE(clone, default_generator_of(device()));
  const auto drawn = torch::empty({9}, device()).normal_(0, 1, clone);
  EXPECT_TRUE(torch::equal(drawn.cpu(), torch::randn({9}, device()).cpu()));
  EXPECT_EQ(clone.clone().device(), device());
}

TEST_P(TestDeviceGenerators, AStateCanBeKeptAndRestored) {
  auto generator = default_generator_of(device());
  const auto state = generator.get_state();
  const auto first = torch::rand({7}, device());
  generator.set_state(state);
  EXPECT_TRUE(torch::equal(torch::rand({7}, device()).cpu(), first.cpu()));
}

TEST_P(TestDeviceGenerators, DropoutDropsWhatTheCpuDrops) {
  const auto x = seeded_normal({30, 4}, 1);
  torch::manual_seed(2);
  const auto expected = torch::dropout(x, 0.4, /*train=*/true);
  torch::manual_seed(2);
  auto on_device = x.to(device()).set_requires_grad(true);
  const auto dropped = torch::dropout(on_device, 0.4, /*train=*/true);
  expect_same(dropped.detach(), expected);
  dropped.sum().backward();
  EXPECT_TRUE(torch::allclose(on_device.grad().cpu(), expected.ne(0).to(torch::kFloat) / 0.6));
}

}  // namespace
}  // namespace lockstep
