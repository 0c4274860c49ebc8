// Language models with experts. Oracles: the model with one MLP, and the same training on one device.
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/models/gpt/gpt.h"
#include "lockstep/models/gpt/gpt_flops.h"
#include "lockstep/models/gpt/gpt_generation.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/precision/grad_scaler.h"
#include "lockstep/runtime/replicas/rank_random.h"
#include "lockstep/runtime/replicas/sharded_parameter.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/nn/recompute.h"
#include "lockstep/strategies/sharding/sharded_module.h"
#include "lockstep/tests/models/gpt/small_gpts.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/sanitizer.h"
#include "lockstep/tests/support/worker_strategies.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

constexpr int kExpertSteps = compared_steps(20);
constexpr double kCloseExperts = 1e-12;

GptOptions with_experts(GptOptions options, int64_t experts = 4, int64_t chosen = 2) {
  options.num_experts = experts;
  options.experts_per_token = chosen;
  return options;
}

torch::Tensor tokens_of(const GptOptions& options, int64_t sequences, int step = 0) {
  const int64_t length = options.max_length + 1;
  return (torch::arange(sequences * length).reshape({sequences, length}) * 7 + 3 * step)
      .square()
      .remainder(options.vocabulary_size);
}

/// Puts the dense model's values into one with one expert.
void copy_into_expert(const Gpt& dense, Gpt& gpt) {
  const torch::NoGradGuard no_grad;
  const auto values = dense->named_parameters();
  for (auto& item : gpt->named_parameters()) {
    std::string name = item.key();
    if (name.find("router") != std::string::npos) continue;
    const auto experts = name.find("experts.");
    if (experts != std::string::npos) name.erase(experts, std::string("experts.").size());
    item.value().copy_(values[name].reshape(item.value().sizes()));
  }
}

class GptWithExperts : public ::testing::TestWithParam<NamedGpt> {};

TEST_P(GptWithExperts, OneExpertIsTheMlp) {
  torch::manual_seed(4);
  Gpt dense(GetParam().options);
  dense->to(torch::kDouble);
  spread_parameters(dense);
  Gpt gpt(with_experts(GetParam().options, 1, 1));
  gpt->to(torch::kDouble);
  spread_parameters(gpt);
  copy_into_expert(dense, gpt);
  const auto tokens = tokens_of(GetParam().options, 3);
  const int64_t length = tokens.size(1) - 1;
  const auto losses = gpt->losses_with_routing(tokens.narrow(1, 0, length), tokens.narrow(1, 1, length));
  const auto expected = dense->losses(tokens.narrow(1, 0, length), tokens.narrow(1, 1, length));
  EXPECT_LE((losses.losses - expected).abs().max().item<double>(), kCloseExperts);
  // One for each layer.
  EXPECT_LE((losses.balance_losses - 2).abs().max().item<double>(), kCloseExperts);
  EXPECT_GT(losses.z_losses.min().item<double>(), 0);
  EXPECT_FALSE(dense->losses_with_routing(tokens.narrow(1, 0, length), tokens.narrow(1, 1, length))
                   .balance_losses.defined());
}

TEST_P(GptWithExperts, HasAsManyParametersAsItsOptionsSay) {
  GptOptions shared = with_experts(GetParam().options, 6, 2);
  shared.num_shared_experts = 2;
  for (const auto& options : {with_experts(GetParam().options), shared}) {
    int64_t count = 0;
    for (const auto& parameter : Gpt(options)->parameters()) count += parameter.numel();
    EXPECT_EQ(num_gpt_parameters(options), count);
  }
}

TEST_P(GptWithExperts, OperationsAreThoseOfTheExpertsThatATokenUses) {
  const GptOptions& dense = GetParam().options;
  // Those of an MLP for each of the two, and of the router, 6 for each of its numbers. The results' biases
  // count twice.
  GptOptions wide = dense;
  wide.hidden_width = 2 * 20;
  const double bias = dense.has_mlp_bias ? 12.0 : 0.0;
  EXPECT_DOUBLE_EQ(gpt_training_flops(with_experts(dense, 16, 2), 12),
                   gpt_training_flops(wide, 12) + 2 * 6 * (16 * 12 + bias));
}

TEST_P(GptWithExperts, GenerationReadsTheCacheAsForwardReadsTheText) {
  torch::manual_seed(4);
  auto options = with_experts(GetParam().options);
  options.expert_capacity_factor = 0.5;  // of training
  Gpt gpt(options);
  gpt->to(torch::kDouble);
  spread_parameters(gpt);
  gpt->eval();
  const auto tokens = tokens_of(options, 2).narrow(1, 0, 9);
  const auto expected = gpt->forward(tokens).select(1, 8);
  gpt->train();  // which the cache does not care about
  GptCache cache(gpt->options(), {.batch_size = 2, .capacity = 9});
  torch::Tensor logits;
  for (int64_t token = 0; token < 9; ++token) logits = gpt->next_logits(tokens.narrow(1, token, 1), cache);
  EXPECT_LE((logits - expected).abs().max().item<double>(), 1e-10);
}

TEST_P(GptWithExperts, RecomputationChangesNothing) {
  torch::manual_seed(4);
  const auto options = with_experts(GetParam().options);
  Gpt gpt(options);
  gpt->to(torch::kDouble);
  spread_parameters(gpt);
  Gpt recomputed(std::dynamic_pointer_cast<GptImpl>(gpt->clone()));
  recomputed->set_block_runner([](const auto& block, const auto& x) { return recompute(block, x); });
  const auto tokens = tokens_of(options, 3);
  const int64_t length = tokens.size(1) - 1;
  for (auto& own : {gpt, recomputed}) {
    const auto all = own->losses_with_routing(tokens.narrow(1, 0, length), tokens.narrow(1, 1, length));
    (all.losses.sum() + 0.3 * all.balance_losses.sum() + 0.2 * all.z_losses.sum()).backward();
  }
  const auto expected = gpt->named_parameters();
  for (const auto& item : recomputed->named_parameters())
    EXPECT_TRUE(torch::equal(item.value().grad(), expected[item.key()].grad())) << item.key();
  const auto statistics = recomputed->routing_statistics(/*reset=*/true);
  ASSERT_EQ(statistics.size(), 2U);
  for (const auto& of_layer : statistics) EXPECT_EQ(of_layer.load.sum().item<int64_t>(), 3 * length * 2);
  EXPECT_EQ(recomputed->routing_statistics()[0].load.sum().item<int64_t>(), 0);
}

INSTANTIATE_TEST_SUITE_P(Families, GptWithExperts, ::testing::ValuesIn(small_gpts()), name_of);

TEST(GptExpertsTest, RefusesNumbersThatDoNotFit) {
  const auto refused = [](GptOptions options) {
    return message_of<std::invalid_argument>([&] { complete_gpt_options(options); });
  };
  EXPECT_THAT(refused(with_experts(small_gpt2(), 4, 5)),
              HasSubstr("[Gpt] expected experts_per_token to be from 1 to the num_experts 4, but got 5"));
  EXPECT_THAT(refused(with_experts(small_gpt2(), -1)), HasSubstr("num_experts to be from 1"));
  GptOptions shared = small_gpt2();
  shared.num_shared_experts = 1;
  EXPECT_THAT(refused(shared), HasSubstr("num_shared_experts to be 0 without num_experts"));
  GptOptions capacity = with_experts(small_gpt2());
  capacity.expert_capacity_factor = -1;
  EXPECT_THAT(refused(capacity), HasSubstr("expert_capacity_factor to be positive"));
  EXPECT_THAT(message_of<std::invalid_argument>([] { gpt_family(with_experts(small_llama())); }),
              HasSubstr("a mixture of experts"));
}

struct HowToCut {
  std::string mesh;
  bool has_units = false;
  bool recomputes = false;
  bool shards_sequence = false;
  std::string schedule = "1f1b";
  int stage = 0;  ///< of sharding without units
};

/// The rank's part of a model with values that do not depend on the mesh.
Gpt make_expert_gpt(ReplicaContext& replica, const GptOptions& options, const HowToCut& how) {
  const auto mesh = parse_mesh(how.mesh);
  // Workers of a test share the process's generator.
  const auto generator = at::detail::createCPUGenerator(12);
  const RankRandom apart(generator);
  Gpt whole(options);
  whole->to(torch::kDouble);
  spread_parameters(whole);
  GptAxes axes{.pipeline = {.schedule = how.schedule, .micro_batches = 2}};
  if (mesh.has("tensor")) axes.parts = &replica.axis("tensor");
  if (mesh.has("expert")) axes.experts = &replica.axis("expert");
  if (mesh.has("pipeline")) axes.stages = &replica.axis("pipeline");
  if (mesh.has("context")) axes.tokens = &replica.axis("context");
  PartWrapper wrap;
  if (how.has_units) {
    wrap = [&](const ModelPart& part) {
      auto unit = std::make_shared<ShardedModule>(part.module, along(replica.axis("expert")));
      return WrappedPart{unit,
                         [unit](const auto& function, const auto& x) { return unit->call(function, x); }};
    };
  }
  Gpt own(options, axes, GptCutOptions{.shard_sequence = how.shards_sequence}, wrap);
  own->to(torch::kDouble);
  if (how.recomputes)
    own->set_block_runner([](const auto& block, const auto& x) { return recompute(block, x); });
  const torch::NoGradGuard no_grad;
  const auto values = whole->named_parameters();
  for (auto& item : own->named_parameters()) {
    const auto* part = sharded_parameter_of(item.value());
    const auto& of_whole = values[item.key()];
    item.value().copy_(part == nullptr ? of_whole : part_of_values(of_whole, *part));
  }
  return own;
}

double expert_gpt_step(ReplicaContext& replica, Gpt& gpt, torch::optim::AdamW& optimizer, int step) {
  optimizer.zero_grad();
  const auto all = tokens_of(gpt->options(), 4, step);
  const int64_t share = all.size(0) / replica.num_replicas();
  const auto own = all.narrow(0, replica.replica_id() * share, share);
  const int64_t length = own.size(1) - 1;
  torch::Tensor means;
  if (gpt->stages() != nullptr) {
    means = gpt->forward_backward(replica, own.narrow(1, 0, length), own.narrow(1, 1, length),
                                  {.balance_loss = 0.1, .z_loss = 0.01});
  } else {
    const auto losses = gpt->losses_with_routing(own.narrow(1, 0, length), own.narrow(1, 1, length));
    means = losses.losses.sum(1) / length;
    ((means + 0.1 * losses.balance_losses + 0.01 * losses.z_losses).sum() / all.size(0)).backward();
  }
  replica.apply_gradients(optimizer, {.clip_norm = 0.5});
  return means.sum().item<double>() / static_cast<double>(all.size(0));
}

/// The numbers of tokens that chose each expert of each layer on all replicas, int64 [layers, experts].
torch::Tensor counted_loads(Strategy& strategy, Mirrored<Gpt>& model) {
  const auto of_ranks = strategy.run(
      [mesh = strategy.mesh()](ReplicaContext& replica, Gpt& gpt) {
        std::vector<torch::Tensor> loads;
        for (const auto& of_layer : gpt->routing_statistics()) loads.push_back(of_layer.load);
        auto counts = torch::stack(loads);
        for (const auto& axis : mesh.axes()) {
          if (axis.name == "pipeline" || axis.name == "context")
            counts = replica.axis(axis.name).all_reduce(ReduceOp::kSum, counts);
        }
        return replica.all_reduce(ReduceOp::kSum, counts);
      },
      model);
  return of_ranks[0];
}

/// A training under the strategy.
struct ExpertGptTraining {
  ExpertGptTraining(Strategy& on, const GptOptions& options, const HowToCut& how)
      : strategy(on),
        model(on.scope([&](ReplicaContext& replica) { return make_expert_gpt(replica, options, how); })),
        // Keys' biases have no effect, and so gradients of about 1e-18.
        adam(on.scope([&](ReplicaContext& replica) {
          return torch::optim::AdamW(model[replica]->parameters(),
                                     torch::optim::AdamWOptions(0.02).weight_decay(0.1).eps(1e-3));
        })) {}
  double step(int number) {
    const auto losses = strategy.run(
        [contexts = strategy.mesh().has("context"), number](ReplicaContext& replica, Gpt& gpt,
                                                            torch::optim::AdamW& optimizer) {
          const double own = expert_gpt_step(replica, gpt, optimizer, number);
          if (!contexts) return own;
          const auto parts = torch::tensor(own, torch::kDouble);
          return replica.axis("context").all_reduce(ReduceOp::kSum, parts).item<double>();
        },
        model, adam);
    return strategy.reduce(ReduceOp::kSum, losses);
  }

  Strategy& strategy;
  Mirrored<Gpt> model;
  Mirrored<torch::optim::AdamW> adam;
};

StrategyOptions expert_gpt_strategy(const HowToCut& how) {
  StrategyOptions options{.intra_op_threads = 1, .seed = 3, .mesh = parse_mesh(how.mesh)};
  if (how.stage > 0) options.sharding = {.stage = how.stage};
  if (how.has_units) options.sharding = {.stage = 3, .axis = "expert"};
  return options;
}

void expect_gpt_training(Strategy& strategy, const GptOptions& options, const HowToCut& how) {
  MirroredStrategy alone(cpu_devices(1), {.intra_op_threads = 1, .seed = 3});
  ExpertGptTraining whole(alone, options, {.mesh = "data=1"});
  ExpertGptTraining cut(strategy, options, how);
  for (int step = 0; step < kExpertSteps; ++step)
    ASSERT_NEAR(cut.step(step), whole.step(step), kCloseExperts) << "step " << step;
  EXPECT_TRUE(torch::equal(counted_loads(strategy, cut.model), counted_loads(alone, whole.model)));
  const auto expected = whole.model.primary()->named_parameters();
  for (const auto& own : cut.model.local_values()) {
    ASSERT_EQ(own->named_parameters().keys(), expected.keys());
    for (const auto& item : own->named_parameters()) {
      const auto* part = sharded_parameter_of(item.value());
      const auto& values = expected[item.key()];
      const auto of_rank = part == nullptr ? values : part_of_values(values, *part);
      if (of_rank.numel() == 0) continue;
      EXPECT_LE((of_rank - item.value()).abs().max().item<double>(), kCloseExperts) << item.key();
    }
  }
}

std::string name_of_cut(const ::testing::TestParamInfo<HowToCut>& info) {
  std::string name = info.param.mesh;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '=' || c == ','; }, '_');
  if (name.find("pipeline") != std::string::npos) {
    name += "_" + info.param.schedule;
    std::replace(name.begin(), name.end(), '-', '_');
  }
  if (info.param.stage > 0) name += "_stage_" + std::to_string(info.param.stage);
  return name + (info.param.has_units ? "_units" : "") + (info.param.recomputes ? "_recomputed" : "") +
         (info.param.shards_sequence ? "_sequence" : "");
}

class GptExpertTraining : public ::testing::TestWithParam<HowToCut> {};

TEST_P(GptExpertTraining, EqualsThatOnOneDevice) {
  for (GptOptions options : {with_experts(small_gpt2()), with_experts(small_llama())}) {
    options.expert_capacity_factor = 0.8;
    options.num_shared_experts = 1;
    if (GetParam().mesh.find("tensor") != std::string::npos) {
      options.num_heads = 4;
      options.width = 16;
      options.vocabulary_size = 32;
    }
    MirroredStrategy strategy(cpu_devices(parse_mesh(GetParam().mesh).size()),
                              expert_gpt_strategy(GetParam()));
    expect_gpt_training(strategy, options, GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, GptExpertTraining,
    ::testing::Values(HowToCut{.mesh = "expert=2"}, HowToCut{.mesh = "expert=4", .recomputes = true},
                      HowToCut{.mesh = "data=2,expert=2"}, HowToCut{.mesh = "expert=2,tensor=2"},
                      HowToCut{.mesh = "data=2,expert=2,tensor=2"},
                      HowToCut{
                          .mesh = "data=2,expert=2,tensor=2", .recomputes = true, .shards_sequence = true},
                      HowToCut{.mesh = "expert=2,tensor=2", .has_units = true, .shards_sequence = true},
                      HowToCut{.mesh = "data=2,expert=2", .has_units = true, .recomputes = true}),
    name_of_cut);

// The state of all parameters but the experts' is divided.
INSTANTIATE_TEST_SUITE_P(
    ShardedState, GptExpertTraining,
    ::testing::Values(HowToCut{.mesh = "data=2,expert=2", .stage = 1},
                      HowToCut{.mesh = "expert=2,tensor=2", .shards_sequence = true, .stage = 2},
                      HowToCut{.mesh = "pipeline=2,expert=2", .schedule = "zb-h1", .stage = 1},
                      HowToCut{.mesh = "expert=2,data=2,pipeline=2", .recomputes = true, .stage = 2}),
    name_of_cut);

// Ranks have different tokens of the same sequences.
INSTANTIATE_TEST_SUITE_P(
    Contexts, GptExpertTraining,
    ::testing::Values(HowToCut{.mesh = "context=2"}, HowToCut{.mesh = "context=4", .recomputes = true},
                      HowToCut{.mesh = "expert=2,context=2"},
                      HowToCut{.mesh = "expert=2,context=2", .has_units = true, .recomputes = true},
                      HowToCut{.mesh = "data=2,context=2", .stage = 1},
                      HowToCut{.mesh = "expert=2,context=2,tensor=2", .shards_sequence = true, .stage = 2},
                      HowToCut{.mesh = "pipeline=2,context=2", .schedule = "zb-v"},
                      HowToCut{.mesh = "expert=2,pipeline=2,context=2", .recomputes = true, .stage = 1}),
    name_of_cut);

// Ranks have stages, of whole layers or of parts of them. With eight ranks, a replica's second micro-batch is
// empty.
INSTANTIATE_TEST_SUITE_P(
    Stages, GptExpertTraining,
    ::testing::Values(HowToCut{.mesh = "pipeline=2", .schedule = "zb-v"},
                      HowToCut{.mesh = "pipeline=4", .recomputes = true, .schedule = "gpipe"},
                      HowToCut{.mesh = "data=2,pipeline=2", .stage = 1},
                      HowToCut{.mesh = "pipeline=2,data=2", .stage = 2},
                      HowToCut{.mesh = "expert=2,pipeline=2"},
                      HowToCut{.mesh = "pipeline=2,expert=2", .recomputes = true, .schedule = "zb-h1"},
                      HowToCut{.mesh = "pipeline=2,expert=2", .has_units = true, .schedule = "interleaved"},
                      HowToCut{.mesh = "pipeline=2,tensor=2", .shards_sequence = true},
                      HowToCut{.mesh = "expert=2,pipeline=2,tensor=2", .shards_sequence = true},
                      HowToCut{.mesh = "data=2,expert=2,pipeline=2", .has_units = true, .schedule = "zb-v"}),
    name_of_cut);

/// Losses of routers, and those of tokens, of shards of different sizes.
std::vector<torch::Tensor> evaluated_experts(ReplicaContext& replica, Gpt& gpt) {
  const torch::NoGradGuard no_grad;
  gpt->eval();
  const auto all = tokens_of(gpt->options(), 4);
  const bool is_first = replica.replica_id() == 0;
  const auto own = replica.num_replicas() == 1 ? all : all.narrow(0, is_first ? 0 : 3, is_first ? 3 : 1);
  const int64_t length = own.size(1) - 1;
  const auto losses = gpt->losses_with_routing(own.narrow(1, 0, length), own.narrow(1, 1, length));
  gpt->train();
  return {losses.losses, losses.balance_losses, losses.z_losses};
}

TEST(GptExpertsTest, StagesOfReplicasWithDifferentNumbersOfSequencesEvaluateTogether) {
  const GptOptions options = with_experts(small_llama());
  MirroredStrategy alone(cpu_devices(1), {.intra_op_threads = 1, .seed = 3});
  ExpertGptTraining whole(alone, options, {.mesh = "data=1"});
  const auto expected = alone.run(evaluated_experts, whole.model)[0];
  for (const auto& how : {HowToCut{.mesh = "expert=2,pipeline=2"},
                          HowToCut{.mesh = "pipeline=2,expert=2", .has_units = true}}) {
    MirroredStrategy strategy(cpu_devices(4), expert_gpt_strategy(how));
    ExpertGptTraining cut(strategy, options, how);
    const auto of_ranks = strategy.run(evaluated_experts, cut.model);
    for (int rank = 0; rank < 4; ++rank) {
      const bool is_first = strategy.mesh().replica_of(rank) == 0;
      const auto& own = of_ranks[static_cast<size_t>(rank)];
      for (size_t i = 0; i < expected.size(); ++i) {
        const auto rows = expected[i].narrow(0, is_first ? 0 : 3, is_first ? 3 : 1);
        EXPECT_TRUE(torch::allclose(own[i], rows, 0, kCloseExperts)) << how.mesh << " " << rank << " " << i;
      }
    }
  }
}

TEST(GptExpertsTest, StagesScaleTheLossesOfRoutersAsThoseOfTokens) {
  const GptOptions options = with_experts(small_gpt2());
  const HowToCut how{.mesh = "pipeline=2"};
  MirroredStrategy strategy(cpu_devices(2), expert_gpt_strategy(how));
  const auto gradients_of = [&](double scale) {
    ExpertGptTraining training(strategy, options, how);
    const auto of_ranks = strategy.run(
        [scale](ReplicaContext& replica, Gpt& gpt) {
          const auto tokens = tokens_of(gpt->options(), 4);
          const int64_t length = tokens.size(1) - 1;
          GradScaler scaler(replica.device(), {.init_scale = scale});
          // Factors that outweigh the losses of tokens.
          gpt->forward_backward(replica, tokens.narrow(1, 0, length), tokens.narrow(1, 1, length),
                                {.balance_loss = 1000, .z_loss = 1000, .scaler = &scaler});
          std::vector<torch::Tensor> gradients;
          for (const auto& parameter : gpt->parameters()) gradients.push_back(parameter.grad().clone());
          return gradients;
        },
        training.model);
    return of_ranks.local_values();
  };
  const auto once = gradients_of(1);
  const auto scaled = gradients_of(64);
  for (size_t rank = 0; rank < 2; ++rank) {
    for (size_t i = 0; i < once[rank].size(); ++i)
      EXPECT_TRUE(torch::equal(scaled[rank][i], once[rank][i] * 64)) << rank << " " << i;
  }
}

TEST(GptExpertsTest, TrainsOverWorkersAsOnOneDevice) {
  const HowToCut how{.mesh = "expert=2"};
  expect_no_worker_failed(run_strategies(
      {1, 1},
      [&](MultiWorkerMirroredStrategy& strategy) {
        expect_gpt_training(strategy, with_experts(small_llama()), how);
      },
      [&](int, WorkerSetUp& set_up) { set_up.options = expert_gpt_strategy(how); }));
}

}  // namespace
}  // namespace lockstep
