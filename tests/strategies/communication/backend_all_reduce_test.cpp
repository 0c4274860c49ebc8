// Runs over the fake NCCL: the replicas' results, the calls that reach the backend, and refusals of calls
// that do not match. Faults and connecting: backend_faults_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <functional>
#include <set>
#include <string>
#include <thread>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/collectives/gradient_compression.h"
#include "lockstep/tests/strategies/communication/over_a_backend.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(OverABackend, ListsOfSmallTensorsAreOneCallADtypeAndLargeOnesStayThemselves) {
  const auto fn = [](ReplicaContext& replica) {
    const double own = replica.replica_id() + 1;
    return replica.all_reduce(
        ReduceOp::kSum,
        {torch::full({2, 3}, own, torch::kDouble), torch::full({5}, own), torch::full({20000}, own),
         torch::full({}, own, torch::kDouble), torch::full({0, 4}, own), torch::full({4}, 2 * own)});
  };
  world_->clear_calls();
  const auto sums = expect_as_local(fn);
  EXPECT_EQ(sums[2][7].item<float>(), 6.0F);
  EXPECT_EQ(sums[5][3].item<float>(), 12.0F);
  for (int rank = 0; rank < kReplicas; ++rank) {
    EXPECT_THAT(world_->calls(rank),
                ElementsAre("all_reduce Double[7]", "all_reduce Float[9]", "all_reduce Float[20000]"));
  }
}

TEST_F(OverABackend, TensorsOfAnyStridesAndDtypesAreSummed) {
  expect_as_local([](ReplicaContext& replica) {
    const double own = replica.replica_id() + 1;
    const auto numbers = torch::arange(24, torch::kDouble) * own;
    const auto image = numbers.reshape({1, 2, 3, 4});
    // One replica's memory layout may differ from the others'.
    const auto mixed =
        replica.replica_id() == 1 ? image.contiguous(at::MemoryFormat::ChannelsLast) : image.clone();
    replica.all_reduce_(ReduceOp::kSum, mixed);
    const auto columns = numbers.reshape({4, 6}).clone();
    replica.all_reduce_(ReduceOp::kMean, columns.t().narrow(0, 2, 3));
    return Tensors{mixed,
                   columns,
                   replica.all_reduce(ReduceOp::kSum, torch::tensor({false, own > 1, true})),
                   replica.all_reduce(ReduceOp::kSum, torch::full({2}, replica.replica_id(), torch::kLong)),
                   replica.all_reduce(ReduceOp::kSum, torch::full({2}, own, torch::kComplexDouble)),
                   replica.all_reduce(ReduceOp::kMean, torch::full({2}, own, torch::kHalf)),
                   replica.all_reduce(ReduceOp::kSum, torch::ones({0}))};
  });
}

TEST_F(OverABackend, SparseValuesAreSummedBesideDenseOnes) {
  const auto fn = [](ReplicaContext& replica) {
    const int64_t own = replica.replica_id();
    const auto rows = torch::tensor({int64_t{4}, own, own}).unsqueeze(0);  // not coalesced
    const auto sparse = torch::sparse_coo_tensor(rows, torch::full({3, 2}, own + 1.0), {5, 2});
    auto results = replica.all_reduce(ReduceOp::kMean, Tensors{torch::ones({2}), sparse});
    const auto sum = replica.all_reduce(ReduceOp::kSum, sparse);
    EXPECT_TRUE(sum.is_coalesced());
    EXPECT_THROW(replica.all_reduce(ReduceOp::kSum, sparse.clone().requires_grad_()), InvalidArgument);
    return Tensors{results[0], results[1].to_dense(), sum.to_dense()};
  };
  const auto results = expect_as_local(fn);
  torch::Tensor expected = torch::zeros({5, 2});
  for (int own = 0; own < kReplicas; ++own) {
    expected[own] += 2 * (own + 1.0);
    expected[4] += own + 1.0;
  }
  EXPECT_TRUE(torch::equal(results[2], expected));
  EXPECT_TRUE(torch::equal(results[1], expected / kReplicas));
}

// The backend gets complex numbers as pairs of real ones.
TEST_F(OverABackend, RefusesProductsAndExtremesOfComplexNumbers) {
  const auto channel =
      BackendAllReduce("FakeNccl", world_->factory()).make_channel(logical_cpus(1), std::chrono::seconds(20));
  for (const auto op : {c10d::ReduceOp::PRODUCT, c10d::ReduceOp::MIN, c10d::ReduceOp::MAX}) {
    Tensors tensors{torch::ones({2}, torch::kComplexDouble)};
    c10d::AllreduceOptions options;
    options.reduceOp = op;
    EXPECT_THROW(channel->backend(0)->allreduce(tensors, options), InvalidArgument);
  }
}

TEST_F(OverABackend, GathersOfUnequalSizesAndBroadcastsAreAsLocalOnes) {
  const auto results = expect_as_local([](ReplicaContext& replica) {
    const int64_t own = replica.replica_id();
    const auto rows = torch::full({own, 2}, static_cast<double>(own));  // the first has none
    auto value = torch::full({3}, own, torch::kLong);
    replica.broadcast_(value, 2);
    auto part = torch::full({2, 4}, static_cast<double>(own));
    replica.broadcast_(part.t().narrow(0, 1, 2), 1);
    return Tensors{replica.all_gather(rows),
                   replica.all_gather(rows.t(), -1),
                   replica.all_gather(torch::ones({0, 3})),
                   replica.all_gather(torch::full({2}, own == 1)),
                   value,
                   part};
  });
  EXPECT_EQ(results[0].sizes(), (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(results[4][0].item<int64_t>(), 2);
}

TEST_F(OverABackend, GradientsFlowThroughCollectivesAndLeaveNoBackendBehind) {
  expect_as_local([](ReplicaContext& replica) {
    auto x = torch::full({2}, replica.replica_id() + 1.0, torch::requires_grad());
    const auto sum = replica.all_reduce(ReduceOp::kSum, x * x);
    (replica.all_gather(sum * x) * (replica.replica_id() + 2.0)).sum().backward();
    return Tensors{x.grad()};
  });
  const auto world = std::make_shared<FakeNcclWorld>();
  {
    MirroredStrategy strategy(cpu_devices(2),
                              options(std::make_shared<BackendAllReduce>("FakeNccl", world->factory())));
    const auto kept = strategy.run([](ReplicaContext& replica) {
      return replica.all_reduce(ReduceOp::kSum, torch::ones({2}, torch::requires_grad()));
    });
    EXPECT_EQ(world->num_alive(), 2);
  }
  EXPECT_EQ(world->num_alive(), 0);
}

TEST_F(OverABackend, TrainingIsBitEqualToLocalCollectives) {
  // 13 examples in batches of 5 over 3 replicas: the last shards are of 1 and, with batches of 4, of 0.
  for (const int64_t batch_size : {5, 4}) {
    const auto data = examples_of_three_classes();
    const auto train = [&](MirroredStrategy& strategy) {
      torch::manual_seed(17);
      auto model = strategy.scope([](ReplicaContext&) { return TanhNet(); });
      auto optimizer = strategy.scope(
          [&](ReplicaContext& replica) { return momentum_sgd()(model[replica]->parameters()); });
      auto batches = strategy.distribute_dataset(TensorDataset(data.data, data.target),
                                                 {.global_batch_size = batch_size});
      for (int epoch = 0; epoch < 3; ++epoch) {
        for (const auto& batch : batches) {
          strategy.run(plain_step<TanhNet>, model, optimizer, batch);
          expect_bit_equal_replicas(model, epoch);
        }
      }
      return values_of(model.primary()->parameters());
    };
    world_->clear_calls();
    EXPECT_TRUE(bit_equal(train(strategy_), train(local_)));
    // All ranks launch the same calls in the same order, and small bucket limits make several buckets.
    const auto calls = world_->calls(0);
    EXPECT_EQ(calls, world_->calls(1));
    EXPECT_EQ(calls, world_->calls(2));
    EXPECT_GE(std::set<std::string>(calls.begin(), calls.end()).size(), 2U);
  }
}

struct TablesImpl : public torch::nn::Cloneable<TablesImpl> {
  TablesImpl() { reset(); }
  void reset() override {
    table = register_module("table", torch::nn::Embedding(torch::nn::EmbeddingOptions(10, 3).sparse(true)));
    unused = register_parameter("unused", torch::ones({4}));
    head = register_module("head", torch::nn::Linear(3, 1));
  }
  torch::nn::Embedding table{nullptr};
  torch::nn::Linear head{nullptr};
  torch::Tensor unused;
};
TORCH_MODULE(Tables);

TEST_F(OverABackend, GradientsAreRoundedWhereACompressionOnlyRounds) {
  auto rounding = options(std::make_shared<BackendAllReduce>("FakeNccl", world_->factory()));
  rounding.communication.gradient_compression = make_gradient_compression("bfloat16");
  MirroredStrategy strategy(cpu_devices(kReplicas), rounding);
  auto weight = strategy.scope([](ReplicaContext&) { return torch::ones({2}).requires_grad_(); });
  auto sgd =
      strategy.scope([&](ReplicaContext& replica) { return torch::optim::SGD({weight[replica]}, 1.0); });
  world_->clear_calls();
  strategy.run(
      [](ReplicaContext& replica, torch::Tensor& own, torch::optim::SGD& optimizer) {
        // Each gradient is 1 + 2^-9, which bfloat16 rounds to 1, and 1 + 2^-7, which it holds.
        (own * torch::tensor({1 + 1.0F / 512, 1 + 1.0F / 128})).sum().backward();
        replica.apply_gradients(optimizer);
        const auto exact = replica.all_reduce(ReduceOp::kSum, torch::full({1}, 1 + 1.0F / 512));
        EXPECT_EQ(exact.item<float>(), kReplicas * (1 + 1.0F / 512));
      },
      weight, sgd);
  EXPECT_THAT(world_->calls(0),
              testing::UnorderedElementsAre("all_reduce BFloat16[2]", "all_reduce Float[1]"));
  for (const auto& own : weight.local_values()) {
    EXPECT_EQ(own[0].item<float>(), 1.0F - kReplicas);
    // The sum of three, 3 + 3/128, has bfloat16's neighbours 3 + 2/128 and 3 + 4/128 at the end or between.
    EXPECT_NEAR(own[1].item<float>(), 1 - kReplicas * (1 + 1.0F / 128), 2.0F / 128);
  }
}

TEST_F(OverABackend, TwoOptimizersSparseGradientsAndTheUsersCollectivesGoTogether) {
  using Sgd = torch::optim::SGD;
  const auto train = [](MirroredStrategy& strategy) {
    torch::manual_seed(17);
    auto model = strategy.scope([](ReplicaContext&) { return Tables(); });
    auto tables = strategy.scope(
        [&](ReplicaContext& replica) { return Sgd(model[replica]->table->parameters(), 0.1); });
    auto heads = strategy.scope([&](ReplicaContext& replica) {
      auto parameters = model[replica]->head->parameters();
      parameters.push_back(model[replica]->unused);
      return Sgd(parameters, 0.1);
    });
    const auto step = [](ReplicaContext& replica, Tables& own, Sgd& table, Sgd& head) {
      table.zero_grad();
      head.zero_grad();
      // Replicas look up different numbers of rows, the first one none.
      const auto rows = torch::arange(replica.replica_id()) * 3;
      const auto values = own->table(rows);
      const auto mean = replica.all_reduce(ReduceOp::kMean, values.sum(0));
      own->head(values + mean).sum().backward();
      replica.apply_gradients(head);
      replica.apply_gradients(table);
    };
    for (int i = 0; i < 4; ++i) {
      strategy.run(step, model, tables, heads);
      expect_bit_equal_replicas(model, i);
    }
    EXPECT_FALSE(model.primary()->unused.grad().defined());
    return values_of(model.primary()->parameters());
  };
  EXPECT_TRUE(bit_equal(train(strategy_), train(local_)));
}

TEST_F(OverABackend, RefusesWhatLocalCollectivesRefuseAlike) {
  const std::vector<Function> calls{
      [](ReplicaContext& replica) {
        return replica.all_reduce(ReduceOp::kMean, Tensors{torch::ones({2}, torch::kInt)});
      },
      [](ReplicaContext& replica) {
        replica.broadcast_(torch::ones({2}), 3);
        return Tensors{};
      },
      [](ReplicaContext& replica) { return Tensors{replica.all_gather(torch::ones({2}), 1)}; }};
  for (const auto& call : calls) {
    world_->clear_calls();
    const auto message = message_of<InvalidArgument>([&] { strategy_.run(call); });
    EXPECT_EQ(message, message_of<InvalidArgument>([&] { local_.run(call); }));
    EXPECT_TRUE(world_->calls(0).empty());
  }
}

TEST_F(OverABackend, RefusesTensorsThatAreNotOnTheReplicasDeviceOrNotDense) {
  const auto on_meta = message_of<InvalidArgument>([&] {
    strategy_.run([](ReplicaContext& replica) {
      replica.all_reduce_(ReduceOp::kSum, torch::ones({2}, torch::Device(torch::kMeta)));
    });
  });
  EXPECT_THAT(on_meta, HasSubstr("expected tensors on cpu of replica "));
  EXPECT_THAT(on_meta, HasSubstr("got one on meta"));
  EXPECT_THROW(strategy_.run([](ReplicaContext& replica) {
    replica.all_reduce_(ReduceOp::kSum, torch::ones({2, 2}).to_sparse());
  }),
               InvalidArgument);
}

TEST_F(OverABackend, NamesTheCallsThatDifferBeforeTheSecondIsLaunched) {
  const std::vector<std::pair<Function, std::string>> mismatches{
      {[](ReplicaContext& replica) {
         return replica.all_reduce(ReduceOp::kSum, Tensors{torch::ones({replica.replica_id() == 1 ? 3 : 2})});
       },
       "all_reduce sum Float[3]"},
      {[](ReplicaContext& replica) {
         return replica.all_reduce(replica.replica_id() == 1 ? ReduceOp::kMean : ReduceOp::kSum,
                                   Tensors{torch::ones({2})});
       },
       "all_reduce mean Float[2]"},
      {[](ReplicaContext& replica) {
         const auto value = torch::ones({2});
         if (replica.replica_id() != 1) return replica.all_reduce(ReduceOp::kSum, Tensors{value});
         replica.broadcast_(value);
         return Tensors{};
       },
       "broadcast from 0 Float[2]"},
      // These two begin on the host.
      {[](ReplicaContext& replica) {
         const auto value = torch::ones({2});
         if (replica.replica_id() != 1) return replica.all_reduce(ReduceOp::kSum, Tensors{value});
         return Tensors{replica.all_gather(value)};
       },
       "all_gather along axis 0"},
      {[](ReplicaContext& replica) {
         const auto value = torch::ones({2});
         if (replica.replica_id() == 1) replica.sum_on_host(1);
         return replica.all_reduce(ReduceOp::kSum, Tensors{value});
       },
       "sum_on_host"}};
  for (const auto& [fn, text] : mismatches) {
    const auto begin = std::chrono::steady_clock::now();
    const auto message = message_of<CollectiveMismatch>([&, fn = fn] { strategy_.run(fn); });
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 1.0);
    EXPECT_THAT(message, HasSubstr(text));
    EXPECT_THAT(message, HasSubstr("all_reduce sum Float[2]"));
    EXPECT_THAT(message, HasSubstr("collective #0: replica "));
  }
}

TEST_F(OverABackend, AReplicaThatLeavesWithFewerCallsIsNamedAtOnce) {
  for (const bool leaves_first : {true, false}) {
    const auto begin = std::chrono::steady_clock::now();
    const auto message = message_of<CollectiveMismatch>([&] {
      strategy_.run([&](ReplicaContext& replica) {
        replica.all_reduce(ReduceOp::kSum, torch::ones({1}));
        const bool leaves = replica.replica_id() == 1;
        if (leaves != leaves_first) std::this_thread::sleep_for(std::chrono::milliseconds(50));
        if (!leaves) replica.all_reduce(ReduceOp::kSum, torch::ones({2}));
      });
    });
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 1.0);
    EXPECT_THAT(message, HasSubstr("called all_reduce sum Float[2] (collective #1), but replica 1 returned "
                                   "without joining it"));
  }
}

}  // namespace
}  // namespace lockstep
