#include "lockstep/tests/equivalence/sharded_parity.h"

#include <c10/util/StringUtil.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <iterator>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "lockstep/datasets/tensors/tensor_dataset.h"
#include "lockstep/runtime/devices/intra_op_threads.h"
#include "lockstep/runtime/gradients/optimizer_group.h"
#include "lockstep/runtime/replicas/sharded_parameter.h"
#include "lockstep/strategies/nn/losses.h"
#include "lockstep/tests/support/worker_strategies.h"
#include "lockstep/training/optimizers/fused_adam.h"
#include "lockstep/training/optimizers/fused_sgd.h"

namespace lockstep {
namespace {

/// Returns an optimizer by its name; the oracle of a fused one is LibTorch's. Epsilons are large, as steps
/// would otherwise magnify the rounding of gradients near zero.
OptimizerPointer make_parity_optimizer(const std::string& name, const std::vector<torch::Tensor>& parameters,
                                       bool is_oracle) {
  namespace optim = torch::optim;
  constexpr double kEpsilon = 1e-3;
  if (name == "sgd" || (name == "fused_sgd" && is_oracle)) {
    return std::make_unique<optim::SGD>(parameters, optim::SGDOptions(0.01).momentum(0.9).weight_decay(0.1));
  }
  if (name == "fused_sgd") {
    return std::make_unique<FusedSgd>(parameters, FusedSgdOptions(0.01).momentum(0.9).weight_decay(0.1));
  }
  if (name == "adam" || (name == "fused_adam" && is_oracle)) {
    return std::make_unique<optim::Adam>(parameters, optim::AdamOptions(0.01).eps(kEpsilon).amsgrad(true));
  }
  if (name == "fused_adam") {
    return std::make_unique<FusedAdam>(parameters, FusedAdamOptions(0.01).eps(kEpsilon).amsgrad(true));
  }
  if (name == "adamw" || (name == "fused_adamw" && is_oracle)) {
    return std::make_unique<optim::AdamW>(parameters,
                                          optim::AdamWOptions(0.01).eps(kEpsilon).weight_decay(0.2));
  }
  if (name == "fused_adamw") {
    return std::make_unique<FusedAdamW>(parameters, FusedAdamWOptions(0.01).eps(kEpsilon).weight_decay(0.2));
  }
  if (name == "adagrad") {
    return std::make_unique<optim::Adagrad>(parameters,
                                            optim::AdagradOptions(0.01).initial_accumulator_value(0.1));
  }
  TORCH_CHECK(name == "rmsprop", "no optimizer ", name);
  return std::make_unique<optim::RMSprop>(parameters, optim::RMSpropOptions(0.01).eps(kEpsilon));
}

/// Returns the parameters in order, those with several names once.
std::vector<torch::Tensor> distinct_parameters(const torch::nn::Module& module) {
  std::vector<torch::Tensor> distinct;
  for (const auto& parameter : module.parameters()) {
    if (std::none_of(distinct.begin(), distinct.end(),
                     [&](const auto& other) { return other.is_same(parameter); }))
      distinct.push_back(parameter);
  }
  return distinct;
}

/// Returns the parameters of optimizer `index` of `count`.
std::vector<torch::Tensor> parameters_of_optimizer(const torch::nn::Module& module, size_t index,
                                                   size_t count) {
  std::vector<torch::Tensor> own;
  const auto all = distinct_parameters(module);
  for (size_t i = index; i < all.size(); i += count) own.push_back(all[i]);
  return own;
}

/// Returns a part of an example's tensors.
Example rows_of(const Example& batch, const torch::Tensor& rows) {
  return {batch.data.index_select(0, rows), batch.target.index_select(0, rows)};
}

/// One replica's tensors, and the places of those that are parts.
struct NamedPart {
  torch::Tensor value;
  std::optional<ShardedParameter> place;
};
using ReplicaParts = std::map<std::string, NamedPart>;

ReplicaParts parts_of(const torch::nn::Module& net) {
  ReplicaParts parts;
  for (const auto& item : net.named_parameters()) {
    auto& part = parts[item.key()];
    part.value = item.value().detach().cpu().clone();
    if (const auto* shard = sharded_parameter_of(item.value())) part.place = *shard;
  }
  for (const auto& item : net.named_buffers()) parts[item.key()].value = item.value().cpu().clone();
  return parts;
}

/// Puts the replicas' parts together. Throws if two replicas have other bits of the same elements.
std::map<std::string, torch::Tensor> joined(const std::vector<ReplicaParts>& replicas) {
  std::map<std::string, torch::Tensor> whole;
  const auto check_equal = [](const std::string& name, size_t replica, const auto& a, const auto& b) {
    if (!bit_equal({a}, {b}))
      throw std::runtime_error(
          c10::str("replica ", replica, " has other bits of ", name, " than one before it"));
  };
  for (const auto& [name, first] : replicas[0]) {
    auto& all = whole[name];
    if (!first.place) {
      all = first.value;
      for (size_t i = 1; i < replicas.size(); ++i) check_equal(name, i, replicas[i].at(name).value, all);
      continue;
    }
    const auto flat = torch::full({first.place->num_elements()}, NAN, first.value.options());
    for (size_t i = 0; i < replicas.size(); ++i) {
      const auto& part = replicas[i].at(name);
      const auto own = flat.narrow(0, part.place->offset, part.place->length);
      const auto known = torch::where(own.isnan(), part.value, own);
      check_equal(name, i, part.value, known);
      own.copy_(part.value);
    }
    all = flat.as_strided(first.place->sizes, first.place->strides);
  }
  return whole;
}

/// Lets workers, which are threads that share a random state, draw from it only after all have looked at it.
class Gate {
 public:
  explicit Gate(size_t num_workers) : num_awaited_(num_workers) {}
  void pass() {
    std::unique_lock lock(mutex_);
    if (--num_awaited_ == 0) all_came_.notify_all();
    all_came_.wait_for(lock, std::chrono::seconds(60), [this] { return num_awaited_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_came_;
  size_t num_awaited_;
};

/// A worker's results: those of its replicas.
struct WorkerOutcome {
  std::vector<ReplicaParts> parts;
  std::vector<double> numbers;
};

/// A replica's step. Returns the loss, and the norms of the optimizers' gradients.
std::tuple<torch::Tensor, torch::Tensor> parity_step(ReplicaContext& replica, ParityNet& net,
                                                     const Example& shard,
                                                     const std::vector<torch::optim::Optimizer*>& own,
                                                     const ParityTraining& training) {
  for (auto* optimizer : own) optimizer->zero_grad();
  const auto in_float64 = torch::dtype(torch::kDouble).device(replica.device());
  auto total = torch::zeros({}, in_float64);
  const auto data = shard.data.tensor_split(training.micro_batches);
  const auto target = shard.target.tensor_split(training.micro_batches);
  const auto backward = [&](size_t i) {
    const auto loss = compute_average_loss(replica, net->losses({data[i], target[i]}));
    loss.backward();
    total = total + loss.detach();
  };
  {
    const auto held = replica.accumulate();
    for (size_t i = 0; i + 1 < data.size(); ++i) backward(i);
  }
  backward(data.size() - 1);
  std::vector<torch::Tensor> norms{torch::zeros({0}, in_float64)};
  for (auto* optimizer : own) {
    const auto norm = replica.apply_gradients(*optimizer, {.clip_norm = training.clip_norm});
    if (training.clip_norm) norms.push_back(norm.reshape({1}));
  }
  return {total, torch::cat(norms)};
}

/// Trains this process's replicas.
WorkerOutcome trained_by(Strategy& strategy, const ParityTraining& training, const ParityLayout& layout) {
  auto model = strategy.scope([&](ReplicaContext& replica) {
    NetPlace place{.values = at::detail::createCPUGenerator(3), .replica = &replica};
    if (layout.stage == 3) {
      place.units = along(replica.axis(layout.axis()));
      place.units->overlap = layout.overlaps;
    }
    return training.make_net(place);
  });
  std::vector<Mirrored<OptimizerPointer>> optimizers;
  for (size_t i = 0; i < training.optimizers.size(); ++i) {
    optimizers.push_back(strategy.scope([&](ReplicaContext& replica) {
      return make_parity_optimizer(training.optimizers[i],
                                   parameters_of_optimizer(*model[replica], i, training.optimizers.size()),
                                   false);
    }));
  }
  auto batches = strategy.distribute_dataset(TensorDataset(training.data.data, training.data.target),
                                             {.global_batch_size = training.batch_size});
  WorkerOutcome outcome;
  for (int step = 0; step < training.steps;) {
    for (const auto& batch : batches) {
      if (step == training.steps) break;
      for (const auto& own : model.local_values())
        if (training.before_step) training.before_step(distinct_parameters(*own), step);
      const auto results = strategy.run(
          [&](ReplicaContext& replica, ParityNet& net, const Example& shard) {
            std::vector<torch::optim::Optimizer*> own;
            for (auto& optimizer : optimizers) own.push_back(optimizer[replica].get());
            return parity_step(replica, net, shard, own, training);
          },
          model, batch);
      const auto [loss, norms] = strategy.reduce(ReduceOp::kSum, results);
      outcome.numbers.push_back(loss.template item<double>());
      for (int64_t i = 0; i < norms.numel(); ++i)
        outcome.numbers.push_back(norms[i].template item<double>() / strategy.num_replicas_in_sync());
      ++step;
    }
  }
  for (const auto& own : model.local_values()) outcome.parts.push_back(parts_of(*own));
  return outcome;
}

}  // namespace

int ParityLayout::replicas() const {
  return std::accumulate(workers.begin(), workers.end(), 0);
}

std::string ParityLayout::str() const {
  const std::vector<int64_t> replicas_of_workers(workers.begin(), workers.end());
  return c10::str("stage ", stage, " over ", axis(), " of ", mesh.axes().empty() ? "no mesh" : mesh.str(),
                  ", workers of ", at::IntArrayRef(replicas_of_workers), " replicas",
                  overlaps ? "" : ", units without overlap");
}

torch::Tensor rows_of_micro_batch(int64_t batch_size, int replicas, int micro_batch, int micro_batches) {
  std::vector<torch::Tensor> rows;
  const int64_t shard = (batch_size + replicas - 1) / replicas;
  for (int replica = 0; replica < replicas; ++replica) {
    const int64_t begin = std::min(batch_size, replica * shard);
    const int64_t end = std::min(batch_size, begin + shard);
    rows.push_back(torch::arange(begin, end, torch::kLong).tensor_split(micro_batches)[micro_batch]);
  }
  return torch::cat(rows);
}

ParityOutcome on_one_device(const ParityTraining& training, int replicas) {
  const IntraOpThreadsGuard one_thread(1);
  NetPlace place{.values = at::detail::createCPUGenerator(3)};
  const ParityNet net = training.make_net(place);
  std::vector<OptimizerPointer> optimizers;
  for (size_t i = 0; i < training.optimizers.size(); ++i)
    optimizers.push_back(make_parity_optimizer(
        training.optimizers[i], parameters_of_optimizer(*net, i, training.optimizers.size()), true));
  ParityOutcome outcome;
  const int64_t examples = training.data.data.size(0);
  int64_t begin = 0;
  for (int step = 0; step < training.steps; ++step) {
    if (training.before_step) training.before_step(distinct_parameters(*net), step);
    const int64_t size = std::min(training.batch_size, examples - begin);
    for (const auto& optimizer : optimizers) optimizer->zero_grad();
    double loss_of_step = 0;
    for (int i = 0; i < training.micro_batches; ++i) {
      auto rows = rows_of_micro_batch(size, replicas, i, training.micro_batches);
      if (training.reverses_rows) rows = rows.flip(0);
      const auto loss = net->losses(rows_of(training.data, rows + begin)).sum() / size;
      loss.backward();
      loss_of_step += loss.item<double>();
    }
    outcome.numbers.push_back(loss_of_step);
    for (const auto& optimizer : optimizers) {
      if (training.clip_norm) {
        outcome.numbers.push_back(
            torch::nn::utils::clip_grad_norm_(parameters_of(*optimizer), *training.clip_norm));
      }
      optimizer->step();
    }
    begin = begin + size == examples ? 0 : begin + size;
  }
  for (const auto& item : net->named_parameters()) outcome.tensors[item.key()] = item.value().detach();
  for (const auto& item : net->named_buffers()) outcome.tensors[item.key()] = item.value();
  return outcome;
}

ParityOutcome on_replicas(const ParityTraining& training, const ParityLayout& layout) {
  const StrategyOptions options{
      .intra_op_threads = 1,
      .seed = 1,
      .mesh = layout.mesh,
      .sharding = {.stage = layout.stage < 3 ? layout.stage : 0,
                   .axis = layout.stage == 1 || layout.stage == 2 ? layout.axis() : ""},
      .buckets = {.first_bucket_bytes = 64, .bucket_bytes = training.bucket_bytes},
      .timeout = std::chrono::seconds(60)};
  std::vector<WorkerOutcome> workers(layout.workers.size());
  if (layout.workers.size() == 1) {
    MirroredStrategy strategy(cpu_devices(layout.replicas()), options);
    workers[0] = trained_by(strategy, training, layout);
  } else {
    Gate gate(layout.workers.size());
    const auto errors = run_strategies(
        layout.workers,
        [&](MultiWorkerMirroredStrategy& strategy) {
          ParityTraining own = training;
          own.make_net = [&, is_first = true](NetPlace& place) mutable {
            if (std::exchange(is_first, false)) gate.pass();
            return training.make_net(place);
          };
          workers[static_cast<size_t>(strategy.cluster_resolver()->rank())] =
              trained_by(strategy, own, layout);
        },
        [&](int, WorkerSetUp& set_up) { set_up.options = options; });
    for (size_t i = 0; i < errors.size(); ++i)
      if (errors[i]) throw std::runtime_error(c10::str("worker ", i, ": ", text_of(errors[i])));
  }
  std::vector<ReplicaParts> replicas;
  for (auto& worker : workers) {
    if (worker.numbers != workers[0].numbers) throw std::runtime_error("the workers have other losses");
    std::move(worker.parts.begin(), worker.parts.end(), std::back_inserter(replicas));
  }
  return {joined(replicas), workers[0].numbers};
}

std::string difference_of(const ParityOutcome& given, const ParityOutcome& expected, double tolerance) {
  if (given.numbers.size() != expected.numbers.size())
    return c10::str(given.numbers.size(), " losses and norms instead of ", expected.numbers.size());
  for (size_t i = 0; i < expected.numbers.size(); ++i) {
    const double scale = std::max(1.0, std::abs(expected.numbers[i]));
    if (!(std::abs(given.numbers[i] - expected.numbers[i]) <= tolerance * scale))
      return c10::str("loss or norm ", i, " of ", expected.numbers.size(), " is ", given.numbers[i],
                      " instead of ", expected.numbers[i]);
  }
  if (given.tensors.size() != expected.tensors.size())
    return c10::str(given.tensors.size(), " tensors instead of ", expected.tensors.size());
  for (const auto& [name, tensor] : expected.tensors) {
    const auto found = given.tensors.find(name);
    if (found == given.tensors.end()) return "no tensor " + name;
    if (found->second.sizes() != tensor.sizes()) return "other sizes of " + name;
    if (tensor.numel() == 0) continue;
    const double scale = std::max(1.0, tensor.abs().max().item<double>());
    const double difference = largest_difference({found->second}, {tensor});
    if (!(difference <= tolerance * scale)) return c10::str(name, " differs by ", difference);
  }
  return "";
}

double rounding_of(const ParityTraining& training, int replicas) {
  ParityTraining reversed = training;
  reversed.reverses_rows = true;
  const auto expected = on_one_device(training, replicas);
  const auto given = on_one_device(reversed, replicas);
  double largest = 0;
  for (size_t i = 0; i < expected.numbers.size(); ++i) {
    const double scale = std::max(1.0, std::abs(expected.numbers[i]));
    largest = std::max(largest, std::abs(given.numbers[i] - expected.numbers[i]) / scale);
  }
  for (const auto& [name, tensor] : expected.tensors) {
    const double scale = std::max(1.0, tensor.abs().max().item<double>());
    largest = std::max(largest, largest_difference({given.tensors.at(name)}, {tensor}) / scale);
  }
  return largest;
}

std::string problem_of(const ParityTraining& training, const ParityLayout& layout, double tolerance) {
  const auto expected = on_one_device(training, layout.replicas());
  try {
    return difference_of(on_replicas(training, layout), expected, tolerance);
  } catch (const std::exception& error) {
    return c10::str("an error: ", error.what());
  }
}

}  // namespace lockstep
