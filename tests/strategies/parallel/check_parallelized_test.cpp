// Plans that miss a layer: check_parallelized() and DivergenceCheck find it. Oracle: the whole module.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/strategies/parallel/parallelize_cases.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/worker_strategies.h"
#include "lockstep/training/callbacks/divergence_check.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

StrategyOptions check_options(const Mesh& mesh) {
  return {.intra_op_threads = 1, .seed = 3, .mesh = mesh};
}

constexpr CheckParallelizedOptions kExact{.tolerance = 1e-12};

void check_encoder(Strategy& strategy, const ParallelPlan& plan) {
  check_parallelized(
      strategy, "tensor", plan, [](ReplicaContext&) { return wave_encoder(/*dropout=*/0.5); },
      [](ReplicaContext&, Encoder& encoder) { return encoder->forward(encoder_ids(0)); }, kExact);
}

template <typename Make, typename Forward>
std::string check_error(const ParallelPlan& plan, int ranks, const Make& make, const Forward& forward) {
  MirroredStrategy strategy(cpu_devices(ranks), check_options({{"tensor", ranks}}));
  return message_of<InvalidArgument>([&] {
    check_parallelized(
        strategy, "tensor", plan, [&](ReplicaContext&) { return make(); },
        [&](ReplicaContext&, auto& model) { return forward(model); }, kExact);
  });
}

std::string encoder_error(const ParallelPlan& plan, int ranks = 4) {
  return check_error(
      plan, ranks, [] { return wave_encoder(); },
      [](Encoder& encoder) { return encoder->forward(encoder_ids(0)); });
}

/// Has as many heads as there are ranks, so that a rank's one head of queries and keys fits all heads of
/// values.
ParallelPlan plan_without_values() {
  return {{"blocks.0.attention.queries", ColwiseParallel{}},
          {"blocks.0.attention.keys", ColwiseParallel{}},
          {"blocks.0.attention.output", RowwiseParallel{.input_is_parallel = false}}};
}

TEST(CheckParallelized, PassesForAPlanThatFitsOnEachMesh) {
  for (const char* mesh : {"tensor=1", "tensor=2", "tensor=4", "data=2,tensor=2"}) {
    SCOPED_TRACE(mesh);
    const Mesh parsed = parse_mesh(mesh);
    MirroredStrategy strategy(cpu_devices(parsed.size()), check_options(parsed));
    torch::manual_seed(5);
    const auto expected = torch::rand({3});
    torch::manual_seed(5);
    EXPECT_NO_THROW(check_encoder(strategy, encoder_plan()));
    EXPECT_TRUE(torch::equal(torch::rand({3}), expected)) << "the check draws the process's random numbers";
  }
}

TEST(CheckParallelized, WorkersCheckTogether) {
  const Mesh mesh{{"data", 2}, {"tensor", 2}};
  const auto set_up = [&](int, WorkerSetUp& own) { own.options = check_options(mesh); };
  expect_no_worker_failed(run_strategies(
      {1, 1, 1, 1}, [](MultiWorkerMirroredStrategy& strategy) { check_encoder(strategy, encoder_plan()); },
      set_up));
  const auto errors = run_strategies(
      {1, 1, 1, 1},
      [](MultiWorkerMirroredStrategy& strategy) {
        check_encoder(strategy,
                      {{"blocks.*.up", ColwiseParallel{.gather_output = true}}, {"head", ColwiseParallel{}}});
      },
      [&](int, WorkerSetUp& own) {
        own.options = check_options({{"data", 4}, {"tensor", 1}});
      });
  expect_no_worker_failed(errors);  // on one rank, any plan fits
}

TEST(CheckParallelized, NamesTheFirstLayerWhoseInputDiffers) {
  EXPECT_THAT(encoder_error(plan_without_values()),
              AllOf(HasSubstr("[check_parallelized] expected the values of the whole module, but on rank"),
                    HasSubstr("the input of 'blocks.0.attention.output' differs by"),
                    HasSubstr("Between 'blocks.0.attention.values' and it")));
}

TEST(CheckParallelized, NamesTheLayerAfterWhichForwardFails) {
  EXPECT_THAT(encoder_error({{"blocks.0.attention.queries", ColwiseParallel{}}}, 2),
              AllOf(HasSubstr("[check_parallelized] forward fails after 'blocks.0.attention.values'"),
                    HasSubstr("must match the size")));
  EXPECT_THAT(encoder_error({{"blocks.0.up", ColwiseParallel{}}}),
              HasSubstr("misses a line with RowwiseParallel for "
                        "'blocks.0.down'"));
  EXPECT_THAT(encoder_error({{"blocks.0.updown", ColwiseParallel{}}}), HasSubstr("names none"));
}

TEST(CheckParallelized, FindsAResultThatIsAPart) {
  const auto error = check_error(
      {{"0", ColwiseParallel{}}}, 2, [] { return torch::nn::Sequential(wave_linear(4, 6, 1)); },
      [](torch::nn::Sequential& model) {
        return model->forward(wave_values({3, 4}, 2));
      });
  EXPECT_THAT(error, AllOf(HasSubstr("the module's result has the sizes [3, 3] and not [3, 6]"),
                           HasSubstr("After '0'"), HasSubstr("gather_output")));
}

/// Scales features between its layers by a number that no plan can cut.
struct ScaledImpl : torch::nn::Module {
  ScaledImpl() {
    scale = register_parameter("scale", torch::full({}, 0.7, torch::kDouble));
    up = register_module("up", wave_linear(8, 16, 1));
    down = register_module("down", wave_linear(16, 8, 2));
  }
  torch::Tensor forward(const torch::Tensor& x) { return down(up(x) * scale); }
  torch::Tensor scale;
  torch::nn::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(Scaled);

const ParallelPlan kScaledPlan{{"up", ColwiseParallel{}}, {"down", RowwiseParallel{}}};

TEST(CheckParallelized, NamesAWholeParameterWithAPartOfItsGradient) {
  const auto forward = [](Scaled& model) { return model->forward(wave_values({3, 8}, 4)); };
  EXPECT_THAT(check_error(
                  kScaledPlan, 2, [] { return Scaled(); }, forward),
              AllOf(HasSubstr("the gradient of 'scale' differs by"), HasSubstr("copy_to_parts()")));
}

TEST(CheckParallelized, DivergenceCheckNamesTheSameParameterInATraining) {
  MirroredStrategy strategy(cpu_devices(2), check_options({{"tensor", 2}}));
  auto model = strategy.scope([](ReplicaContext& replica) {
    Scaled own;
    parallelize(own, replica.axis("tensor"), kScaledPlan);
    return own;
  });
  auto sgd = strategy.scope([&](ReplicaContext& replica) { return parallel_adam(model[replica]); });
  strategy.run(
      [](ReplicaContext& replica, Scaled& own, torch::optim::AdamW& optimizer) {
        own->forward(wave_values({3, 8}, 4)).square().sum().backward();
        replica.apply_gradients(optimizer);
      },
      model, sgd);
  EXPECT_THAT(message_of<InconsistentReplicas>(
                  [&] { check_divergence(strategy, 1, module_pointers(model.local_values())); }),
              HasSubstr("in parameter scale"));
}

TEST(CheckParallelized, AMakerOfOneModuleIsRefused) {
  const Scaled one;
  EXPECT_THAT(
      check_error(
          kScaledPlan, 1, [&] { return one; }, [](const Scaled& model) { return model->scale; }),
      HasSubstr("expected a function that makes a new module in each call, but got the same one twice"));
}

}  // namespace
}  // namespace lockstep
