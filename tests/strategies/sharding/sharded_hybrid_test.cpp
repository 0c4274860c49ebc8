// Shards along one axis and gradients that are summed along another one: what trains ordinary parameters
// trains shards.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/optim/sgd.h>

#include "lockstep/runtime/gradients/gradient_reducer.h"
#include "lockstep/strategies/sharding/sharded.h"
#include "lockstep/tests/strategies/sharding/sharding_cases.h"

namespace lockstep {
namespace {

constexpr int kShards = 2;
constexpr int kCopies = 2;

/// Four ranks in a mesh of {data, shard}: a channel for each group along each axis.
class MeshRanks {
 public:
  MeshRanks() : threads_(kShards * kCopies, 1), clocks_(kShards * kCopies) {
    const auto make = [](int size) {
      return std::make_unique<LocalChannel>(size, LocalAlgorithm::kSplitOverReplicas,
                                            std::chrono::minutes(1));
    };
    for (int copy = 0; copy < kCopies; ++copy) shard_channels_.push_back(make(kShards));
    for (int shard = 0; shard < kShards; ++shard) data_channels_.push_back(make(kCopies));
    for (int rank = 0; rank < kShards * kCopies; ++rank)
      replicas_.push_back(std::make_shared<ReplicaCollectives>("test", rank % kShards, kShards));
  }
  static int shard_of(int rank) { return rank % kShards; }
  static int copy_of(int rank) { return rank / kShards; }
  const std::shared_ptr<ReplicaCollectives>& replica(int rank) {
    return replicas_[static_cast<size_t>(rank)];
  }
  const c10::intrusive_ptr<c10d::Backend>& data_backend(int rank) {
    return data_channels_[static_cast<size_t>(shard_of(rank))]->backend(copy_of(rank));
  }
  void run(const std::function<void(int)>& function) {
    const auto errors = threads_.run(
        [&](int rank) {
          const auto& backend = shard_channels_[static_cast<size_t>(copy_of(rank))]->backend(shard_of(rank));
          ReplicaCollectives::Run run(*replica(rank), backend, clocks_[static_cast<size_t>(rank)]);
          function(rank);
          run.finish();
        },
        [&](int, const std::exception_ptr&) {
          for (auto& channel : shard_channels_) channel->abort("another rank failed");
          for (auto& channel : data_channels_) channel->abort("another rank failed");
        });
    for (const auto& error : errors) EXPECT_EQ(message_of<std::exception>(error), "no error");
  }

 private:
  ReplicaThreads threads_;
  std::vector<WaitClock> clocks_;
  std::vector<std::unique_ptr<LocalChannel>> shard_channels_, data_channels_;
  std::vector<std::shared_ptr<ReplicaCollectives>> replicas_;
};

TEST(ShardedHybridTest, TheReducerSumsShardsOverTheOtherAxis) {
  constexpr int kRanksOfMesh = kShards * kCopies;
  MeshRanks ranks;
  torch::manual_seed(5);
  AttentionBlock plain;
  std::vector<Sharded<AttentionBlock>> models;
  for (int rank = 0; rank < kRanksOfMesh; ++rank) {
    torch::manual_seed(5);
    models.emplace_back(UnitOptions{.index = MeshRanks::shard_of(rank), .size = kShards});
    models.back()->bind(ranks.replica(rank));
  }
  const auto batch = torch::randn({8, 3, 8}, torch::kDouble);
  torch::optim::SGD sgd(plain->parameters(), 0.01);
  std::vector<std::unique_ptr<torch::optim::SGD>> own_sgds;
  std::vector<std::unique_ptr<GradientReducer>> reducers(kRanksOfMesh);
  std::vector<char> holds(kRanksOfMesh, 0);
  for (const auto& model : models)
    own_sgds.push_back(std::make_unique<torch::optim::SGD>(model->parameters(), 0.01));
  ranks.run([&](int rank) {
    const auto self = static_cast<size_t>(rank);
    reducers[self] = std::make_unique<GradientReducer>(
        models[self]->parameters(), ranks.data_backend(rank),
        GradientReducer::Options{.buckets = {.first_bucket_bytes = 64, .bucket_bytes = 512},
                                 .is_accumulating = [&holds, self] { return holds[self] != 0; },
                                 .name_of = [](size_t index) { return std::to_string(index); },
                                 .copies_of_shards = ReplicaBackends(ranks.data_backend(rank))});
  });
  for (int step = 0; step < 4; ++step) {
    sgd.zero_grad();
    plain->forward(batch).square().sum().backward();
    sgd.step();
    ranks.run([&](int rank) {
      const auto self = static_cast<size_t>(rank);
      reducers[self]->prepare();
      own_sgds[self]->zero_grad();
      const auto halves = batch.tensor_split(kRanksOfMesh)[rank].split(1);
      holds[self] = 1;
      models[self]->forward(halves[0]).square().sum().backward();
      holds[self] = 0;
      models[self]->forward(halves[1]).square().sum().backward();
      reducers[self]->finish();
      own_sgds[self]->step();
      reducers[self]->mark_applied();
    });
    for (int copy = 0; copy < kCopies; ++copy) {
      const auto begin = models.begin() + copy * kShards;
      expect_same(assembled(std::vector<Sharded<AttentionBlock>>(begin, begin + kShards), false),
                  parameters_of(plain, false));
    }
  }
  EXPECT_GT(reducers[0]->statistics().launched_in_backward, 0);
  ranks.run([&](int rank) { reducers[static_cast<size_t>(rank)].reset(); });
}

TEST(ShardedHybridTest, AHookOfAShardRunsOnceABackward) {
  ShardedRanks ranks(2);
  auto models = ranks.make([](const UnitOptions& options) { return Sharded<MlpBlock>(options); });
  ranks.run([&](int rank) {
    auto& model = models[static_cast<size_t>(rank)];
    int num_calls = 0;
    const auto accumulator = torch::autograd::impl::grad_accumulator(model->parameters()[0]);
    accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
        [&](const torch::autograd::variable_list& gradients, const torch::autograd::variable_list&) {
          ++num_calls;
          return gradients;
        }));
    const auto x = torch::randn({2, 5}, torch::kDouble);
    model->forward(model->forward(x)).sum().backward();
    EXPECT_EQ(num_calls, 1);
  });
}

}  // namespace
}  // namespace lockstep
