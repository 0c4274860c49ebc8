#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/tests/equivalence/random_pauses.h"
#include "lockstep/tests/support/sanitizer.h"
#include "lockstep/tests/support/worker_training.h"

namespace lockstep {
namespace {

constexpr int kTrainings = few_if_sanitized(10, 3);

/// A float32 net whose sums and random numbers depend on their order: [n, 6] to [n, 3] through 12x12 images.
struct NoisyNetImpl : public torch::nn::Cloneable<NoisyNetImpl> {
  NoisyNetImpl() { reset(); }

  void reset() override {
    spread = register_module("spread", torch::nn::Linear(6, 144));
    convolution = register_module("convolution", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 8, 3)));
    norm = register_module("norm", torch::nn::BatchNorm2d(8));
    dropout = register_module("dropout", torch::nn::Dropout(0.3));
    last = register_module("last", torch::nn::Linear(800, 3));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const auto images = spread(x.to(torch::kFloat)).view({-1, 1, 12, 12});
    return last(dropout(torch::relu(norm(convolution(images)))).flatten(1));
  }

  torch::nn::Linear spread{nullptr}, last{nullptr};
  torch::nn::Conv2d convolution{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Dropout dropout{nullptr};
};
TORCH_MODULE(NoisyNet);

class Determinism : public ::testing::TestWithParam<int> {};

TEST_P(Determinism, TheSameSeedGivesTheSameBitsTenTimes) {
  const auto data = examples_of_three_classes();
  const auto train = [&] {
    torch::manual_seed(5);  // the strategy draws its replicas' seeds from this
    return trained_on_replicas<NoisyNet>(
        {GetParam(), "auto"}, [] { return NoisyNet(); }, data, momentum_sgd(), plain_step<NoisyNet>);
  };
  const auto first = train();
  EXPECT_TRUE(std::all_of(first.begin(), first.end(),
                          [](const auto& value) { return value.isfinite().all().template item<bool>(); }));
  for (int i = 1; i < kTrainings; ++i) EXPECT_TRUE(bit_equal(train(), first)) << i;
}

INSTANTIATE_TEST_SUITE_P(Replicas, Determinism, ::testing::Values(1, 2, 4));

/// The replicas of each worker, and whether workers share memory.
class DeterminismOfWorkers : public ::testing::TestWithParam<std::tuple<std::vector<int>, bool>> {};

TEST_P(DeterminismOfWorkers, TheSameStartGivesTheSameBitsWhateverTheTiming) {
  const auto& [layout, uses_shared_memory] = GetParam();
  const auto start = initial_values();
  const auto train = [&, &layout = layout, shares = uses_shared_memory](int attempt) {
    return trained_by_workers({.num_replicas = layout,
                               .start = start,
                               .change =
                                   [&](int, WorkerSetUp& set_up) {
                                     set_up.cluster.uses_shared_memory = shares;
                                     // Several sums in a step.
                                     set_up.options.buckets = {.first_bucket_bytes = 64, .bucket_bytes = 128};
                                   },
                               .prepare =
                                   [&](int replica, TanhNet& net) {
                                     pause_before_gradients(*net,
                                                            static_cast<unsigned>(100 * attempt + replica));
                                   },
                               .epochs = 2});
  };
  const auto first = train(0);
  for (int i = 1; i < kTrainings; ++i) EXPECT_TRUE(bit_equal(train(i), first)) << i;
}

INSTANTIATE_TEST_SUITE_P(Layouts, DeterminismOfWorkers,
                         ::testing::Combine(::testing::Values(std::vector{2, 2}, std::vector{1, 1, 1},
                                                              std::vector{1, 1, 1, 1},
                                                              std::vector{1, 1, 1, 1, 1}),
                                            ::testing::Bool()),
                         [](const auto& info) {
                           std::string name = std::get<1>(info.param) ? "SharedMemory" : "Tcp";
                           for (const int count : std::get<0>(info.param))
                             name += "_" + std::to_string(count);
                           return name;
                         });

}  // namespace
}  // namespace lockstep
