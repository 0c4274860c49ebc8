// N replicas equal LibTorch alone with the same global batch, uneven last batches and empty shards included:
// SGD with momentum, 20 steps, to 1e-12 in float64 and to 1e-6 in float32.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <string>
#include <tuple>
#include <vector>

#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/tests/support/sanitizer.h"

namespace lockstep {
namespace {

class Parity : public testing::TestWithParam<std::tuple<int, std::string, at::ScalarType>> {
 protected:
  ReplicasAndOps replicas_and_ops_{std::get<0>(GetParam()), std::get<1>(GetParam())};
  at::ScalarType dtype_ = std::get<2>(GetParam());
};

TEST_P(Parity, TwentyStepsOnReplicasEqualLibTorchAlone) {
  // 13 examples in batches of 4: the last batch has one, so that most replicas have an empty shard.
  const Schedule schedule{.batch_size = 4, .epochs = few_if_sanitized(5, 1)};
  Example data = examples_of_three_classes();
  data.data = data.data.to(dtype_);
  const auto make_net = [this] {
    TanhNet net;
    net->to(dtype_);
    return net;
  };

  std::vector<double> expected_losses;
  const auto expected = trained_alone<TanhNet>(make_net, data, momentum_sgd(),
                                               {.schedule = schedule, .losses = &expected_losses});

  std::vector<double> losses;
  const auto step = [&losses](ReplicaContext& replica, TanhNet& model, OptimizerPointer& optimizer,
                              const Example& shard) {
    optimizer->zero_grad();
    const auto loss = compute_average_loss(replica, example_losses(model, shard));
    loss.backward();
    replica.apply_gradients(*optimizer);
    const auto total = replica.all_reduce(ReduceOp::kSum, loss.detach());
    if (replica.replica_id() == 0) losses.push_back(total.item<double>());
  };
  const auto given =
      trained_on_replicas<TanhNet>(replicas_and_ops_, make_net, data, momentum_sgd(), step, schedule);

  for (const auto& parameter : given) EXPECT_EQ(parameter.scalar_type(), dtype_);
  const double tolerance = dtype_ == torch::kDouble ? 1e-12 : 1e-6;
  EXPECT_LE(largest_difference(given, expected), tolerance);
  ASSERT_EQ(expected_losses.size(), 4U * static_cast<size_t>(schedule.epochs));
  ASSERT_EQ(losses.size(), expected_losses.size());
  for (size_t i = 0; i < losses.size(); ++i)
    EXPECT_NEAR(losses[i], expected_losses[i], tolerance) << "step " << i;
}

INSTANTIATE_TEST_SUITE_P(Replicas, Parity,
                         testing::Combine(testing::Values(1, 2, 3, 4),
                                          testing::Values("hierarchical_copy", "reduction_to_one_device"),
                                          testing::Values(torch::kDouble, torch::kFloat)),
                         [](const auto& info) {
                           return std::get<1>(info.param) + "_" + std::to_string(std::get<0>(info.param)) +
                                  (std::get<2>(info.param) == torch::kDouble ? "_float64" : "_float32");
                         });

}  // namespace
}  // namespace lockstep
