// Strategy::scope: one object per replica, all equal.
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/optim/sgd.h>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/tanh_net.h"

namespace lockstep {
namespace {

class Scope : public testing::TestWithParam<int> {
 protected:
  MirroredStrategy strategy_{cpu_devices(GetParam()), {.intra_op_threads = 1}};
};

TEST_P(Scope, EveryReplicaHasTheValuesOfOneAndTheRandomStateEndsAsOneLeavesIt) {
  torch::manual_seed(41);
  TanhNet alone;
  const auto after_one = torch::randn({4});

  torch::manual_seed(41);
  auto model = strategy_.scope([](ReplicaContext&) { return TanhNet(); });
  EXPECT_TRUE(torch::equal(torch::randn({4}), after_one));
  ASSERT_EQ(model.local_values().size(), static_cast<size_t>(GetParam()));
  for (const auto& replica : model.local_values())
    EXPECT_TRUE(bit_equal(replica->parameters(), alone->parameters()));
}

TEST_P(Scope, EveryFactoryStartsFromTheSameRandomState) {
  torch::manual_seed(5);
  const auto drawn = strategy_.scope([](ReplicaContext&) { return torch::rand({}).item<double>(); });
  for (const double value : drawn.local_values()) EXPECT_EQ(value, drawn.primary());
}

TEST_P(Scope, ReplicaZerosParametersAndBuffersWinWhereFactoriesDiffer) {
  auto model = strategy_.scope([](ReplicaContext& replica) {
    torch::nn::BatchNorm1d norm(2);
    norm->weight.data().fill_(replica.replica_id() + 1.0);
    norm->running_mean.fill_(replica.replica_id() + 10.0);
    return norm;
  });
  for (const auto& replica : model.local_values()) {
    EXPECT_TRUE(torch::equal(replica->weight, torch::ones({2})));
    EXPECT_TRUE(torch::equal(replica->running_mean, torch::full({2}, 10.0)));
  }
}

TEST_P(Scope, ReplicasShareNoMemory) {
  auto model = strategy_.scope([](ReplicaContext&) { return torch::nn::BatchNorm1d(2); });
  auto tensor = strategy_.scope([](ReplicaContext&) { return torch::zeros({2}); });
  strategy_.run(
      [](ReplicaContext& replica, torch::nn::BatchNorm1d& own, torch::Tensor& value) {
        const torch::NoGradGuard no_grad;
        own->weight.fill_(replica.replica_id());
        own->running_var.fill_(replica.replica_id());
        value.fill_(replica.replica_id());
      },
      model, tensor);
  for (int replica = 0; replica < GetParam(); ++replica) {
    const auto& own = model.local_values()[static_cast<size_t>(replica)];
    EXPECT_EQ(own->weight[0].item<int>(), replica);
    EXPECT_EQ(own->running_var[0].item<int>(), replica);
    EXPECT_EQ(tensor.local_values()[static_cast<size_t>(replica)][0].item<int>(), replica);
  }
}

TEST_P(Scope, StoresFourDimensionalTensorsInChannelsLastIfAsked) {
  const auto make = [](ReplicaContext&) {
    return torch::nn::Sequential(torch::nn::Conv2d(3, 4, 5), torch::nn::BatchNorm2d(4));
  };
  torch::manual_seed(5);
  auto plain = strategy_.scope(make);
  torch::manual_seed(5);
  auto model = strategy_.scope(make, {.channels_last = true});
  for (const auto& replica : model.local_values()) {
    const auto parameters = replica->parameters();
    EXPECT_TRUE(parameters[0].is_contiguous(torch::MemoryFormat::ChannelsLast));
    EXPECT_FALSE(parameters[0].is_contiguous());
    EXPECT_TRUE(bit_equal(parameters, plain.primary()->parameters()));
  }
  // The gradients' buckets keep the format.
  auto sgd = strategy_.scope(
      [&](ReplicaContext& replica) { return torch::optim::SGD(model[replica]->parameters(), 0.1); });
  strategy_.run(
      [](ReplicaContext& replica, torch::nn::Sequential& own, torch::optim::SGD& optimizer) {
        const auto images = torch::ones({2, 3, 8, 8}).contiguous(torch::MemoryFormat::ChannelsLast);
        const auto result = own->forward(images);
        EXPECT_TRUE(result.is_contiguous(torch::MemoryFormat::ChannelsLast));
        result.sum().backward();
        replica.reduce_gradients(optimizer);
        EXPECT_EQ(own->parameters()[0].grad().strides(), own->parameters()[0].strides());
      },
      model, sgd);
}

TEST_P(Scope, TakesSharedPointersOfModules) {
  auto model = strategy_.scope([](ReplicaContext&) { return std::make_shared<TanhNetImpl>(); });
  for (const auto& replica : model.local_values())
    EXPECT_TRUE(bit_equal(replica->parameters(), model.primary()->parameters()));
  auto untyped = strategy_.scope([](ReplicaContext&) {
    return std::static_pointer_cast<torch::nn::Module>(std::make_shared<TanhNetImpl>());
  });
  EXPECT_EQ(untyped.primary()->parameters().size(), 4U);
}

TEST_P(Scope, TensorsGetReplicaZerosValuesAndKeepWhetherTheyAreTrained) {
  auto weight = strategy_.scope(
      [](ReplicaContext& replica) { return torch::full({3}, replica.replica_id() + 7.0).requires_grad_(); });
  for (const auto& value : weight.local_values()) {
    EXPECT_TRUE(torch::equal(value, torch::full({3}, 7.0)));
    EXPECT_TRUE(value.requires_grad());
    EXPECT_TRUE(value.is_leaf());
  }
}

TEST_P(Scope, OtherTypesStayTheirReplicasOwn) {
  auto names = strategy_.scope(
      [](ReplicaContext& replica) { return "replica " + std::to_string(replica.replica_id()); });
  for (int replica = 0; replica < GetParam(); ++replica)
    EXPECT_EQ(names.local_values()[static_cast<size_t>(replica)], "replica " + std::to_string(replica));
  auto owned = strategy_.scope([](ReplicaContext&) { return std::make_unique<int>(3); });
  EXPECT_EQ(*owned.primary(), 3);
}

TEST_P(Scope, OptimizersComeByValueOrByPointer) {
  auto model = strategy_.scope([](ReplicaContext&) { return TanhNet(); });
  const auto parameters = [&](ReplicaContext& replica) { return model[replica]->parameters(); };
  auto by_value =
      strategy_.scope([&](ReplicaContext& replica) { return torch::optim::SGD(parameters(replica), 0.5); });
  auto by_pointer = strategy_.scope([&](ReplicaContext& replica) -> std::unique_ptr<torch::optim::Optimizer> {
    return std::make_unique<torch::optim::SGD>(parameters(replica), 0.5);
  });
  EXPECT_NO_THROW(strategy_.optimizer_group(by_value.primary()));
  EXPECT_NO_THROW(strategy_.optimizer_group(*by_pointer.primary()));
  torch::optim::SGD foreign(model.primary()->parameters(), 0.5);
  const auto message = message_of<InvalidArgument>([&] { strategy_.optimizer_group(foreign); });
  EXPECT_NE(message.find("expected an optimizer made by strategy.scope()"), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(Replicas, Scope, testing::Values(1, 3));

TEST(ScopeErrors, CollectivesRunsAndScopesInsideAFactoryThrow) {
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
  const auto refusal = [&](const std::function<void(ReplicaContext&)>& call) {
    return message_of<InvalidArgument>([&] {
      strategy.scope([&](ReplicaContext& replica) {
        call(replica);
        return 0;
      });
    });
  };
  const auto collective = [](ReplicaContext& replica) {
    replica.all_reduce(ReduceOp::kSum, torch::ones({1}));
  };
  EXPECT_NE(refusal(collective).find("collectives are not available in scope"), std::string::npos);
  EXPECT_NE(
      refusal([&](ReplicaContext&) { strategy.run([](ReplicaContext&) {}); }).find("run was called inside"),
      std::string::npos);
  EXPECT_NE(refusal([&](ReplicaContext&) {
              strategy.scope([](ReplicaContext&) { return 1; });
            }).find("scope was called"),
            std::string::npos);
  EXPECT_NO_THROW(strategy.run([](ReplicaContext&) {})) << "the strategy stays usable";
}

TEST(ScopeErrors, AFactorysErrorReachesTheCallerAndLeavesTheStrategyUsable) {
  MirroredStrategy strategy(cpu_devices(3), {.intra_op_threads = 1});
  torch::manual_seed(6);
  torch::rand({2});
  const auto after_one = torch::rand({2});
  torch::manual_seed(6);
  EXPECT_THROW(strategy.scope([](ReplicaContext& replica) {
    torch::rand({2});
    if (replica.replica_id() == 1) throw std::domain_error("planted");
    return 0;
  }),
               std::domain_error);
  EXPECT_TRUE(torch::equal(torch::rand({2}), after_one)) << "and the random state as one replica would";
  EXPECT_EQ(strategy.scope([](ReplicaContext&) { return 5; }).primary(), 5);
}

TEST(ScopeErrors, ModulesThatDifferAreRefusedByTheTensorsName) {
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
  const auto refusal = [&](const std::function<torch::nn::Linear(int)>& make) {
    return message_of<InvalidArgument>(
        [&] { strategy.scope([&](ReplicaContext& replica) { return make(replica.replica_id()); }); });
  };
  const auto shape = refusal([](int id) { return torch::nn::Linear(2, 3 + id); });
  EXPECT_NE(shape.find("'weight' to be Float [3, 2] as on replica 0, but it is Float [4, 2] on replica 1"),
            std::string::npos)
      << shape;
  const auto name =
      refusal([](int id) { return torch::nn::Linear(torch::nn::LinearOptions(2, 3).bias(id == 0)); });
  EXPECT_NE(name.find("'bias'"), std::string::npos) << name;
  const auto dtype = refusal([](int id) {
    torch::nn::Linear linear(2, 3);
    if (id == 1) linear->to(torch::kDouble);
    return linear;
  });
  EXPECT_NE(dtype.find("Double"), std::string::npos) << dtype;
  const auto frozen = refusal([](int id) {
    torch::nn::Linear linear(2, 3);
    linear->bias.set_requires_grad(id == 0);
    return linear;
  });
  EXPECT_NE(frozen.find("'bias' requires a gradient on one"), std::string::npos) << frozen;
  torch::nn::Linear one_for_all(2, 3);
  const auto shared = refusal([&](int) { return one_for_all; });
  EXPECT_NE(shared.find("same memory on replicas 0 and 1"), std::string::npos) << shared;
}

TEST(ScopeErrors, ChannelsLastIsRefusedForWhatIsNoModule) {
  MirroredStrategy strategy(cpu_devices(1), {.intra_op_threads = 1});
  EXPECT_THROW(strategy.scope([](ReplicaContext&) { return torch::ones({2}); }, {.channels_last = true}),
               InvalidArgument);
}

TEST(ScopeErrors, EmptyModulesAreRefused) {
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
  EXPECT_NE(message_of<InvalidArgument>([&] {
              strategy.scope([](ReplicaContext&) { return std::shared_ptr<TanhNetImpl>(); });
            }).find("empty one"),
            std::string::npos);
  EXPECT_NE(message_of<InvalidArgument>([&] {
              strategy.scope([](ReplicaContext&) { return TanhNet(nullptr); });
            }).find("empty one"),
            std::string::npos);
}

TEST(ScopeErrors, OptimizersWithAnotherReplicasOrADifferentParameterAreRefusedByName) {
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
  auto model = strategy.scope([](ReplicaContext&) { return TanhNet(); });
  const auto foreign = message_of<InvalidArgument>([&] {
    strategy.scope([&](ReplicaContext&) { return torch::optim::SGD(model.primary()->parameters(), 0.1); });
  });
  EXPECT_NE(foreign.find("replica 1's optimizer holds 'first.weight' of replica 0"), std::string::npos)
      << foreign;
  const auto fewer = message_of<InvalidArgument>([&] {
    strategy.scope([&](ReplicaContext& replica) {
      auto parameters = model[replica]->parameters();
      if (replica.replica_id() == 1) parameters.pop_back();
      return torch::optim::SGD(parameters, 0.1);
    });
  });
  EXPECT_NE(fewer.find("'second.bias'"), std::string::npos) << fewer;
}

TEST(ScopeErrors, AParameterThatJoinsAfterScopeIsRefusedByNameAtTheNextStep) {
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
  auto model = strategy.scope([](ReplicaContext&) { return TanhNet(); });
  auto optimizer = strategy.scope(
      [&](ReplicaContext& replica) { return torch::optim::SGD(model[replica]->first->parameters(), 0.1); });
  const auto step = [](ReplicaContext& replica, TanhNet& own, torch::optim::SGD& own_optimizer) {
    own(torch::ones({2, 6}, torch::kDouble)).sum().backward();
    replica.apply_gradients(own_optimizer);
    own->zero_grad();
  };
  EXPECT_NO_THROW(strategy.run(step, model, optimizer));
  for (size_t replica = 0; replica < 2; ++replica) {
    optimizer.local_values()[replica].add_param_group({model.local_values()[replica]->second->parameters()});
  }
  const auto message = message_of<InvalidArgument>([&] { strategy.run(step, model, optimizer); });
  EXPECT_NE(message.find("'second.weight'"), std::string::npos) << message;
  EXPECT_NE(message.find("joined after scope"), std::string::npos) << message;
}

}  // namespace
}  // namespace lockstep
