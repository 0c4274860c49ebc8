#include "lockstep/strategies/nn/losses.h"

#include <gtest/gtest.h>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/numbered_dataset.h"

namespace lockstep {
namespace {

/// The sum over the replicas of `loss(replica, shard)`, one value for each batch of numbered_dataset(n).
template <typename Loss>
std::vector<double> summed_losses(int replicas, int64_t n, int64_t batch_size, const Loss& loss) {
  MirroredStrategy strategy(cpu_devices(replicas), {.intra_op_threads = 1});
  auto batches = strategy.distribute_dataset(numbered_dataset(n), {.global_batch_size = batch_size});
  std::vector<double> sums;
  for (const auto& batch : batches)
    sums.push_back(strategy.reduce(ReduceOp::kSum, strategy.run(loss, batch)).template item<double>());
  return sums;
}

/// The losses of a replica's examples: 1, 2, 3, ...
torch::Tensor losses_of(const Example& shard) {
  return shard.data.squeeze(1) + 1;
}

TEST(ComputeAverageLoss, DividesBySizeOfTheGlobalBatchHoweverItWasCut) {
  // Losses 1 2 3 4 | 5 6 7 8 | 9 10: the means of whole batches, not means of means.
  for (int replicas = 1; replicas <= 5; ++replicas) {
    const auto sums = summed_losses(replicas, 10, 4, [](ReplicaContext& replica, const Example& shard) {
      return compute_average_loss(replica, losses_of(shard));
    });
    EXPECT_EQ(sums, (std::vector<double>{2.5, 6.5, 9.5})) << replicas;
  }
}

TEST(ComputeAverageLoss, WeighsExamples) {
  // Alternating weights 0 and 1 keep losses 2 and 4 of 1 2 3 4: (2 + 4) / 4.
  for (int replicas = 1; replicas <= 3; ++replicas) {
    const auto sums = summed_losses(replicas, 4, 4, [](ReplicaContext& replica, const Example& shard) {
      return compute_average_loss(replica, losses_of(shard),
                                  {.sample_weight = (shard.target % 2).to(torch::kDouble)});
    });
    EXPECT_EQ(sums, (std::vector<double>{1.5})) << replicas;
  }
}

// 257 is not a bfloat16: the sum would be 256.
TEST(ComputeAverageLoss, AddsUpLossesOfAShortTypeInFloat32) {
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
  const auto losses = strategy.run([](ReplicaContext& replica) {
    const auto ones = torch::ones({257}, torch::kBFloat16);
    const auto weight = torch::full({257}, 1 + 1.0F / 1024);  // not a bfloat16 either
    const auto weighted = compute_average_loss(replica, ones, {.sample_weight = weight});
    EXPECT_EQ(weighted.item<double>(), (1 + 1.0 / 1024) / 2);
    return compute_average_loss(replica, ones);
  });
  for (const auto& loss : losses.local_values()) EXPECT_EQ(loss.scalar_type(), torch::kFloat);
  EXPECT_EQ(strategy.reduce(ReduceOp::kSum, losses).item<double>(), 1);
}

TEST(ComputeAverageLoss, AnExplicitBatchSizeOverridesTheDivisor) {
  // tf.nn.compute_average_loss gives 1.5 for [1..5] and size 10.
  for (int replicas = 1; replicas <= 3; ++replicas) {
    const auto sums = summed_losses(replicas, 5, 5, [](ReplicaContext& replica, const Example& shard) {
      return compute_average_loss(replica, losses_of(shard), {.global_batch_size = 10});
    });
    ASSERT_EQ(sums.size(), 1U);
    EXPECT_DOUBLE_EQ(sums[0], 1.5) << replicas;
  }
}

TEST(ComputeAverageLoss, WithoutADistributedBatchCountsTheReplicasLosses) {
  MirroredStrategy strategy(cpu_devices(3), {.intra_op_threads = 1});
  // The replicas have 0, 1 and 2 losses of 6: 18 / 3.
  const auto shares = strategy.run([](ReplicaContext& replica) {
    return compute_average_loss(replica, torch::full({replica.replica_id()}, 6.0));
  });
  EXPECT_EQ(strategy.reduce(ReduceOp::kSum, shares).item<double>(), 6.0);
  const auto nothing =
      strategy.run([](ReplicaContext& replica) { return compute_average_loss(replica, torch::ones({0})); });
  EXPECT_EQ(strategy.reduce(ReduceOp::kSum, nothing).item<double>(), 0.0) << "the sum of nothing, not 0/0";
}

TEST(ComputeAverageLoss, DividesByTheSizeOfTheBatchThatTheLossesComeFrom) {
  for (int replicas = 1; replicas <= 3; ++replicas) {
    MirroredStrategy strategy(cpu_devices(replicas), {.intra_op_threads = 1});
    auto small = strategy.distribute_dataset(numbered_dataset(2), {.global_batch_size = 2});
    auto large = strategy.distribute_dataset(numbered_dataset(8), {.global_batch_size = 8});
    const auto sum_of = [&](const auto& first, const auto& second) {
      const auto losses = strategy.run(
          [](ReplicaContext& replica, const Example& a, const Example& b) {
            return torch::stack(
                {compute_average_loss(replica, losses_of(a)), compute_average_loss(replica, losses_of(b))});
          },
          first, second);
      return strategy.reduce(ReduceOp::kSum, losses);
    };
    const auto two = *small.begin();
    const auto eight = *large.begin();
    // The means of 1 2 and of 1 ... 8.
    EXPECT_TRUE(torch::equal(sum_of(two, eight), torch::tensor({1.5, 4.5}, torch::kDouble))) << replicas;
    EXPECT_TRUE(torch::equal(sum_of(eight, two), torch::tensor({4.5, 1.5}, torch::kDouble))) << replicas;
    EXPECT_TRUE(torch::equal(sum_of(eight, eight), torch::tensor({4.5, 4.5}, torch::kDouble))) << replicas;
    const auto known = strategy.run([](ReplicaContext& replica, const Example&,
                                       const Example&) { return replica.global_batch_size().value_or(-1); },
                                    two, eight);
    EXPECT_EQ(known.local_values(), std::vector<int64_t>(static_cast<size_t>(replicas), -1));
  }
}

TEST(ComputeAverageLoss, AnEmptyShardGivesZeroAndAGraphThatGivesZeroGradients) {
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
  auto batches = strategy.distribute_dataset(numbered_dataset(1), {.global_batch_size = 4});
  for (const auto& batch : batches) {
    const auto gradients = strategy.run(
        [](ReplicaContext& replica, const Example& shard) {
          auto weight = torch::full({1}, 2.0, torch::requires_grad().dtype(torch::kDouble));
          auto loss = compute_average_loss(replica, (losses_of(shard) * weight).square());
          loss.backward();
          return torch::stack({loss.detach(), weight.grad()[0]});
        },
        batch);
    // One example with x = 1: (2x)^2 = 4, and its derivative 2 * 2 x^2 = 4.
    EXPECT_TRUE(torch::equal(gradients.local_values()[0], torch::tensor({4.0, 4.0}, torch::kDouble)));
    EXPECT_TRUE(torch::equal(gradients.local_values()[1], torch::zeros({2}, torch::kDouble)));
  }
}

TEST(ComputeAverageLoss, SumsOverFurtherDimensions) {
  // As in TensorFlow: [2, 3] losses of 1 are 2 examples with a loss of 3 each.
  MirroredStrategy strategy(cpu_devices(1));
  const auto loss = strategy.run([](ReplicaContext& replica) {
    return compute_average_loss(replica, torch::ones({2, 3}));
  });
  EXPECT_EQ(loss.local_values()[0].item<double>(), 3.0);
}

TEST(ComputeAverageLoss, MicroBatchesAddUpToTheWholeBatch) {
  for (int replicas = 1; replicas <= 3; ++replicas) {
    const auto sums = summed_losses(replicas, 7, 7, [](ReplicaContext& replica, const Example& shard) {
      torch::Tensor total = torch::zeros({}, torch::kDouble);
      for (const auto& micro : losses_of(shard).split(2))
        total = total + compute_average_loss(replica, micro);
      return total;
    });
    ASSERT_EQ(sums.size(), 1U);
    EXPECT_DOUBLE_EQ(sums[0], 4.0) << replicas;
  }
}

TEST(ComputeAverageLoss, IntegerAndOneHotTargetsGiveEqualLossesAndGradients) {
  torch::manual_seed(2);
  const auto logits = torch::randn({6, 4}, torch::kDouble);
  const auto classes = torch::tensor({0, 3, 1, 1, 2, 0});
  const auto one_hot = torch::one_hot(classes, 4).to(torch::kDouble);
  const auto loss_and_gradient = [&](const torch::Tensor& target) {
    MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
    auto batches = strategy.distribute_dataset(TensorDataset(logits, target), {.global_batch_size = 6});
    std::vector<torch::Tensor> results;
    for (const auto& batch : batches) {
      const auto shares = strategy.run(
          [](ReplicaContext& replica, const Example& shard) {
            auto x = shard.data.detach().requires_grad_();
            auto loss = compute_average_loss(
                replica, torch::cross_entropy_loss(x, shard.target, {}, at::Reduction::None));
            loss.backward();
            return torch::cat({x.grad().flatten(), loss.detach().view({1})});
          },
          batch);
      results.push_back(strategy.gather(shares));
    }
    return torch::cat(results);
  };
  const auto by_class = loss_and_gradient(classes);
  EXPECT_LE((by_class - loss_and_gradient(one_hot)).abs().max().item<double>(), 1e-15);
  // Both equal the formula: (softmax - one-hot) / 6.
  const auto expected = ((torch::softmax(logits, 1) - one_hot) / 6).flatten();
  const auto gradient = torch::cat({by_class.narrow(0, 0, 12), by_class.narrow(0, 13, 12)});
  EXPECT_LE((gradient - expected).abs().max().item<double>(), 1e-15);
}

TEST(ComputeAverageLoss, RefusesScalarsSizesBelowOneAndWeightsOfAWrongShape) {
  MirroredStrategy strategy(cpu_devices(1));
  const auto refusal = [&](const torch::Tensor& losses, const AverageLossOptions& options) {
    return message_of<InvalidArgument>([&] {
      strategy.run([&](ReplicaContext& replica) { return compute_average_loss(replica, losses, options); });
    });
  };
  EXPECT_NE(refusal(torch::ones({}), {}).find("one loss an example, but got a scalar"), std::string::npos);
  EXPECT_NE(refusal(torch::ones({3}), {.global_batch_size = 0}).find("1 or more, but got 0"),
            std::string::npos);
  EXPECT_NE(refusal(torch::ones({3}), {.global_batch_size = -8}).find("1 or more, but got -8"),
            std::string::npos);
  EXPECT_NE(
      refusal(torch::ones({3}), {.sample_weight = torch::ones({3, 1})}).find("shape [3], but got [3, 1]"),
      std::string::npos);
  EXPECT_NE(refusal(torch::ones({3}), {.sample_weight = torch::ones({4})}).find("shape [3], but got [4]"),
            std::string::npos);
}

TEST(ScaleRegularizationLoss, IsTheSumOverTheReplicas) {
  for (int replicas = 1; replicas <= 4; ++replicas) {
    MirroredStrategy strategy(cpu_devices(replicas), {.intra_op_threads = 1});
    const auto shares = strategy.run([](ReplicaContext& replica) {
      return scale_regularization_loss(replica, torch::tensor({1.0, 2.0, 9.0}, torch::kDouble));
    });
    for (const auto& share : shares.local_values()) EXPECT_DOUBLE_EQ(share.item<double>(), 12.0 / replicas);
    EXPECT_DOUBLE_EQ(strategy.reduce(ReduceOp::kSum, shares).item<double>(), 12.0);
  }
}

}  // namespace
}  // namespace lockstep
